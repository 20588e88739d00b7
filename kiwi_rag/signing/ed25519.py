"""Strict Ed25519: accepts exactly what libsodium and the registry accept.

OpenSSL alone is laxer: it accepts small-order points and non-canonical encodings of ``A``. So every public key and
signature passes the checks below before OpenSSL verifies it (RFC 8032 §5.1.7; the criteria are those of
Chalkias, Garillot, Nikolaenko, "Taming the many EdDSAs", 2020).
"""

from __future__ import annotations

from kiwi_rag.errors import BadSignature, MalformedEnvelope

PUBLIC_KEY_BYTES = 32
SIGNATURE_BYTES = 64

_FIELD_PRIME = 2**255 - 19
_GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493
_SIGN_BIT = 1 << 255
_SQRT_MINUS_ONE = pow(2, (_FIELD_PRIME - 1) // 4, _FIELD_PRIME)
_D = -121665 * pow(121666, -1, _FIELD_PRIME) % _FIELD_PRIME


def _order_eight_y() -> int:
    """Return the y coordinate of a point of order 8."""
    # A point of order 8 doubles to (±sqrt(-1), 0); on y² - x² = 1 + d·x²·y² that means y² = -x², so d·y⁴ + 2·y² = 1.
    one_plus_d = (1 + _D) % _FIELD_PRIME
    root = pow(one_plus_d, (_FIELD_PRIME + 3) // 8, _FIELD_PRIME)
    if root * root % _FIELD_PRIME != one_plus_d:
        root = root * _SQRT_MINUS_ONE % _FIELD_PRIME
    for sign in (1, -1):
        square = (-1 + sign * root) * pow(_D, -1, _FIELD_PRIME) % _FIELD_PRIME
        if pow(square, (_FIELD_PRIME - 1) // 2, _FIELD_PRIME) == 1:
            y = pow(square, (_FIELD_PRIME + 3) // 8, _FIELD_PRIME)
            return y if y * y % _FIELD_PRIME == square else y * _SQRT_MINUS_ONE % _FIELD_PRIME
    raise AssertionError("edwards25519 has points of order 8")


_Y8 = _order_eight_y()
# y of the eight points whose order divides the cofactor: (0,1), (0,-1), (±i,0), and four of order 8.
_SMALL_ORDER_Y = frozenset({0, 1, _FIELD_PRIME - 1, _Y8, _FIELD_PRIME - _Y8})


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


def verify(key: bytes, message: bytes, signature: bytes) -> None:
    """Return if `signature` is a signature of `key` over `message`; raise otherwise.

    Raises
    ------
    MalformedEnvelope
        When the key is not a strict public key.
    BadSignature
        When the signature is not canonical or does not match.
    """
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


def _is_strict_point(encoded: bytes) -> bool:
    # The sign bit is masked: a small-order point has a small-order y with either sign of x.
    y = int.from_bytes(encoded, "little") & ~_SIGN_BIT
    return y < _FIELD_PRIME and y not in _SMALL_ORDER_Y
