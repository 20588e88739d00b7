"""DSSE v1.0.2 envelopes, parsed strictly, and strict Ed25519, which accepts exactly what libsodium and the registry do.

DSSE: https://github.com/secure-systems-lab/dsse, protocol.md and envelope.md. Ed25519: OpenSSL alone is laxer; it
accepts small-order points and non-canonical encodings of ``A``. So every public key and signature passes the checks
below before OpenSSL verifies it (RFC 8032 §5.1.7; the criteria are those of Chalkias, Garillot, Nikolaenko, "Taming the
many EdDSAs", 2020).
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from kiwi_rag.errors import BadSignature, MalformedEnvelope, SignatureRefused, Unsigned
from kiwi_rag.model import Envelope

PAYLOAD_TYPE = "application/vnd.in-toto+json"
"""That of in-toto statements, the only payloads that Kiwi signs."""
MAX_SIGNATURES = 16
_MAX_REMEMBERED = 16 << 10
_BASE64 = re.compile("[A-Za-z0-9+/_-]*={0,2}")
_FIELDS = {"payloadType", "payload", "signatures"}
_SIGNATURE_FIELDS = {"keyid", "sig"}

PUBLIC_KEY_BYTES = 32
SIGNATURE_BYTES = 64

_FIELD_PRIME = 2**255 - 19
_GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493
_SIGN_BIT = 1 << 255
_D = -121665 * pow(121666, -1, _FIELD_PRIME) % _FIELD_PRIME
# y of two of the four points of order 8, a root of d·y⁴ + 2·y² = 1; that of the others is -y.
_Y8 = int.from_bytes(bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"), "little")
# y of the eight points whose order divides the cofactor: (0,1), (0,-1), (±i,0), and four of order 8.
_SMALL_ORDER_Y = frozenset({0, 1, _FIELD_PRIME - 1, _Y8, _FIELD_PRIME - _Y8})


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return DSSE's pre-authentication encoding, the bytes that are signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def strict_json(data: bytes | str, what: str) -> Any:
    """Parse JSON, refusing duplicate keys, NaN, infinities and numbers that overflow to them.

    Raises
    ------
    MalformedEnvelope
        Naming `what` and the reason.
    """
    try:
        return json.loads(data, object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise MalformedEnvelope(f"{what} is not strict JSON: {error}") from error


def decode(document: object) -> Envelope:
    """Parse an envelope from its JSON object.

    Raises
    ------
    MalformedEnvelope
        On an unknown or missing field, another payload type, or base64 that does not decode.
    Unsigned
        When it has no signature.
    """
    fields = _object(document, _FIELDS, "the envelope")
    if fields["payloadType"] != PAYLOAD_TYPE:
        raise MalformedEnvelope(f"the payload type is not {PAYLOAD_TYPE}")
    signatures = fields["signatures"]
    if not isinstance(signatures, list) or len(signatures) > MAX_SIGNATURES:
        raise MalformedEnvelope(f"'signatures' is not a list of at most {MAX_SIGNATURES}")
    if not signatures:
        raise Unsigned("the envelope has no signature")
    entries = [_object(entry, _SIGNATURE_FIELDS, "a signature") for entry in signatures]
    if not all(isinstance(entry["keyid"], str) for entry in entries):
        raise MalformedEnvelope("'keyid' is not text")
    decoded = tuple((entry["keyid"], from_base64(entry["sig"], "sig")) for entry in entries)
    return Envelope(PAYLOAD_TYPE, from_base64(fields["payload"], "payload"), decoded)


def encode(envelope: Envelope) -> dict[str, Any]:
    """Return the envelope as the JSON object that DSSE defines."""
    return {
        "payloadType": envelope.payload_type,
        "payload": base64.b64encode(envelope.payload).decode(),
        "signatures": [{"keyid": key_id, "sig": base64.b64encode(sig).decode()} for key_id, sig in envelope.signatures],
    }


def verify(envelope: Envelope, keys: Mapping[str, bytes], threshold: int = 1) -> tuple[str, ...]:
    """Return the distinct keys of `keys` (key id → public key) that signed the envelope.

    The ``keyid`` of a signature is a hint: it only decides which key is tried first.

    Raises
    ------
    BadSignature
        When fewer than `threshold` distinct keys signed.
    """
    message = pae(envelope.payload_type, envelope.payload)
    signers = set()
    for key_id, signature in envelope.signatures:
        for candidate in sorted(keys, key=lambda candidate: candidate != key_id):
            with suppress(SignatureRefused):
                verify_signature(keys[candidate], message, signature)
                signers.add(candidate)
                break
    if len(signers) < max(threshold, 1):
        raise BadSignature()
    return tuple(sorted(signers))


def from_base64(text: object, what: str) -> bytes:
    """Decode standard or URL-safe base64, both of which DSSE allows, with padding (RFC 4648)."""
    if not isinstance(text, str):
        raise MalformedEnvelope(f"'{what}' is not text")
    if len(text) % 4 or not _BASE64.fullmatch(text):
        raise MalformedEnvelope(f"'{what}' is not base64")
    return base64.b64decode(text.replace("-", "+").replace("_", "/"))


def _object(document: object, fields: set[str], what: str) -> dict[str, Any]:
    if not isinstance(document, dict) or set(document) != fields:
        raise MalformedEnvelope(f"{what} does not have exactly the members {', '.join(sorted(fields))}")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("duplicate key")
    return members


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"{text} is not a finite number")
    return float(text)


def check_public_key(key: bytes) -> bytes:
    """Return `key` if it is a canonical encoding of a point that is not of small order.

    Raises
    ------
    MalformedEnvelope
        When it is not 32 bytes, not canonical, or of small order.
    """
    if len(key) != PUBLIC_KEY_BYTES:
        raise MalformedEnvelope(f"an Ed25519 public key has {PUBLIC_KEY_BYTES} bytes, this one {len(key)}")
    if not _is_strict_point(key):
        raise MalformedEnvelope("the public key is of small order, or not canonically encoded")
    return key


def is_on_curve(key: bytes) -> bool:
    """Return whether 32 bytes encode a point of the curve; a key that does not verifies no signature (RFC 8032, 5.1.3).

    About half of all values do, so this finds many mistakes, and does not prove that a value is a key.
    """
    y = int.from_bytes(key, "little") & ~_SIGN_BIT
    numerator, denominator = y * y - 1, _D * y * y + 1
    x_squared = numerator * pow(denominator, -1, _FIELD_PRIME) % _FIELD_PRIME
    return x_squared == 0 or pow(x_squared, (_FIELD_PRIME - 1) // 2, _FIELD_PRIME) == 1


def verify_signature(key: bytes, message: bytes, signature: bytes) -> None:
    """Return if `signature` is a signature of `key` over `message`; raise otherwise.

    Of small messages a success is remembered, by all three whole: it depends on nothing else. Whether the key is
    trusted now is another question, which `trust` answers at each verification.

    Raises
    ------
    MalformedEnvelope
        When the key is not a strict public key.
    BadSignature
        When the signature is not canonical or does not match.
    """
    (_verify_small if len(message) <= _MAX_REMEMBERED else _verify)(key, message, signature)


def _verify(key: bytes, message: bytes, signature: bytes) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    check_public_key(key)
    if len(signature) != SIGNATURE_BYTES or not _is_strict_point(signature[:32]):
        raise BadSignature("the signature is not a canonical Ed25519 signature")
    if int.from_bytes(signature[32:], "little") >= _GROUP_ORDER:
        raise BadSignature("the signature's S is not reduced (malleable form)")
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError) as error:
        raise BadSignature() from error


_verify_small = lru_cache(maxsize=1024)(_verify)


def _is_strict_point(encoded: bytes) -> bool:
    # The sign bit is masked: a small-order point has a small-order y with either sign of x.
    y = int.from_bytes(encoded, "little") & ~_SIGN_BIT
    return y < _FIELD_PRIME and y not in _SMALL_ORDER_Y
