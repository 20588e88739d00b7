"""Strict Ed25519 against Wycheproof's vectors, and against libsodium as an independent judge."""

from __future__ import annotations

import nacl.exceptions
import nacl.signing
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from kiwi_rag.errors import BadSignature, MalformedEnvelope, SignatureRefused
from kiwi_rag.signing import dsse
from tests.examples import examples
from tests.shared import wycheproof_ed25519

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493

# Encodings of the points of small order, canonical and not, as libsodium lists them (ge25519_has_small_order).
SMALL_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    (P - 1).to_bytes(32, "little"),
    P.to_bytes(32, "little"),
    (P + 1).to_bytes(32, "little"),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
]


WYCHEPROOF = {str(case.id): case for case in wycheproof_ed25519()}


@pytest.mark.parametrize("case", WYCHEPROOF.values(), ids=WYCHEPROOF)
def test_wycheproof(case):
    if case.valid:
        assert dsse.verify_signature(case.key, case.message, case.signature) is None
    else:
        with pytest.raises(SignatureRefused):
            dsse.verify_signature(case.key, case.message, case.signature)


def test_wycheproof_has_all_its_cases():
    assert len(WYCHEPROOF) >= 150


@pytest.mark.parametrize("point", SMALL_ORDER, ids=lambda p: p.hex()[:8])
@pytest.mark.parametrize("sign", [0, 0x80])
def test_small_order_points_are_refused_as_key_and_as_r(point, sign):
    point = point[:31] + bytes([point[31] | sign])
    with pytest.raises(MalformedEnvelope):
        dsse.check_public_key(point)
    key = Ed25519PrivateKey.generate()
    with pytest.raises(BadSignature):
        dsse.verify_signature(key.public_key().public_bytes_raw(), b"m", point + bytes(32))


def test_identity_key_would_pass_openssl_and_is_refused_here():
    # With A the identity, R = [S]B verifies for every message in OpenSSL; S = 0 makes R the identity too.
    with pytest.raises(MalformedEnvelope):
        dsse.verify_signature((1).to_bytes(32, "little"), b"anything", (1).to_bytes(32, "little") + bytes(32))


def test_what_verified_once_says_nothing_of_other_bytes():
    key, other = nacl.signing.SigningKey(b"1" * 32), nacl.signing.SigningKey(b"2" * 32)
    signature = key.sign(b"message").signature
    for _ in range(2):
        dsse.verify_signature(bytes(key.verify_key), b"message", signature)
        for changed in (
            (bytes(other.verify_key), b"message", signature),
            (bytes(key.verify_key), b"massage", signature),
            (bytes(key.verify_key), b"message", other.sign(b"message").signature),
        ):
            with pytest.raises(BadSignature):
                dsse.verify_signature(*changed)


def test_an_unreduced_s_is_refused():
    private = Ed25519PrivateKey.generate()
    signature = private.sign(b"m")
    s = int.from_bytes(signature[32:], "little") + L
    with pytest.raises(BadSignature, match="not reduced"):
        dsse.verify_signature(private.public_key().public_bytes_raw(), b"m", signature[:32] + s.to_bytes(32, "little"))


@examples(200)
@given(st.binary(min_size=32, max_size=32), st.binary(max_size=80), st.integers(0, 96 * 8 - 1))
def test_one_flipped_bit_is_judged_as_libsodium_judges(seed, message, bit):
    private = Ed25519PrivateKey.from_private_bytes(seed)
    material = bytearray(private.public_key().public_bytes_raw() + private.sign(message))
    material[bit // 8] ^= 1 << (bit % 8)
    key, signature = bytes(material[:32]), bytes(material[32:])
    with pytest.raises(nacl.exceptions.BadSignatureError):
        nacl.signing.VerifyKey(key).verify(message, signature)
    with pytest.raises(SignatureRefused):
        dsse.verify_signature(key, message, signature)
