"""DSSE v1.0.2 envelopes, parsed strictly (https://github.com/secure-systems-lab/dsse, protocol.md and envelope.md)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from kiwi_rag.errors import BadSignature, MalformedEnvelope, SignatureRefused, Unsigned
from kiwi_rag.model import Envelope
from kiwi_rag.signing import ed25519

PAYLOAD_TYPE = "application/vnd.in-toto+json"
"""That of in-toto statements, the only payloads that Kiwi signs."""
MAX_SIGNATURES = 16
_BASE64 = re.compile("[A-Za-z0-9+/_-]*={0,2}")
_FIELDS = {"payloadType", "payload", "signatures"}
_SIGNATURE_FIELDS = {"keyid", "sig"}


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
        return json.loads(data, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
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
    return Envelope(PAYLOAD_TYPE, from_base64(fields["payload"], "payload"), decode_signatures(fields["signatures"]))


def decode_signatures(document: object) -> tuple[tuple[str, bytes], ...]:
    """Parse the ``signatures`` member: ``(keyid, signature bytes)`` pairs, at least one."""
    if not isinstance(document, list) or len(document) > MAX_SIGNATURES:
        raise MalformedEnvelope(f"'signatures' is not a list of at most {MAX_SIGNATURES}")
    if not document:
        raise Unsigned("the envelope has no signature")
    entries = [_object(entry, _SIGNATURE_FIELDS, "a signature") for entry in document]
    if not all(isinstance(entry["keyid"], str) for entry in entries):
        raise MalformedEnvelope("'keyid' is not text")
    return tuple((entry["keyid"], from_base64(entry["sig"], "sig")) for entry in entries)


def encode(envelope: Envelope) -> dict[str, Any]:
    """Return the envelope as the JSON object that DSSE defines."""
    return {
        "payloadType": envelope.payload_type,
        "payload": base64.b64encode(envelope.payload).decode(),
        "signatures": encode_signatures(envelope),
    }


def encode_signatures(envelope: Envelope) -> list[dict[str, str]]:
    """Return the ``signatures`` member."""
    return [{"keyid": key_id, "sig": base64.b64encode(sig).decode()} for key_id, sig in envelope.signatures]


def verify(envelope: Envelope, keys: Mapping[str, bytes], threshold: int = 1) -> tuple[str, ...]:
    """Return the distinct keys of `keys` (key id → public key) that signed the envelope.

    The ``keyid`` of a signature is a hint: it only decides which key is tried first.

    Raises
    ------
    BadSignature
        When fewer than `threshold` distinct keys signed.
    """
    message = pae(envelope.payload_type, envelope.payload)
    signers = {signer for key_id, sig in envelope.signatures if (signer := _signer_of(message, key_id, sig, keys))}
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


def _signer_of(message: bytes, key_id: str, signature: bytes, keys: Mapping[str, bytes]) -> str | None:
    for candidate in sorted(keys, key=lambda candidate: candidate != key_id):
        try:
            ed25519.verify(keys[candidate], message, signature)
        except SignatureRefused:
            continue
        return candidate
    return None


def _object(document: object, fields: set[str], what: str) -> dict[str, Any]:
    if not isinstance(document, dict) or set(document) != fields:
        raise MalformedEnvelope(f"{what} does not have exactly the members {', '.join(sorted(fields))}")
    return document


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"duplicate key {key!r}")
        result[key] = value
    return result


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text} overflows")
    return value
