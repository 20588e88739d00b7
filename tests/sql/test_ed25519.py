"""kiwi.ed25519_verify takes exactly what the Python side and libsodium take: Wycheproof, 1,024 vectors, edge cases."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

import cryptography
import cryptography_vectors
import nacl.bindings
import nacl.exceptions
import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kiwi_rag.errors import SignatureRefused
from kiwi_rag.signing import dsse
from tests.examples import size
from tests.shared import wycheproof_ed25519

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
BASE = (
    15112221349535400772501151409588531511454012693041857206046113283949847762202,
    46316835694926478169428394003475163141307993866256225615783033603165251855960,
)
# A point of order 8, as libsodium lists its encoding (ge25519_has_small_order).
ORDER_8 = bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")

Case = tuple[bytes, bytes, bytes]
Point = tuple[int, int]


def in_sql(connection: psycopg.Connection, cases: Sequence[Case]) -> list[bool]:
    """Verify many in one query."""
    query = """
        select array_agg(kiwi.ed25519_verify(k, m, s) order by place)
        from unnest(%b::bytea[], %b::bytea[], %b::bytea[]) with ordinality as cases (k, m, s, place)
    """
    row = connection.execute(query, [list(column) for column in zip(*cases, strict=True)]).fetchone()
    return list(row[0])


def in_python(case: Case) -> bool:
    try:
        dsse.verify_signature(*case)
    except SignatureRefused:
        return False
    return True


def in_libsodium(case: Case) -> bool:
    key, message, signature = case
    try:
        nacl.bindings.crypto_sign_open(signature + message, key)
    except (nacl.exceptions.BadSignatureError, nacl.exceptions.ValueError):
        return False
    return True


def agreed(connection: psycopg.Connection, cases: Sequence[Case]) -> list[bool]:
    """Return the verdicts, after all three judges gave the same."""
    verdicts = in_sql(connection, cases)
    assert verdicts == [in_python(case) for case in cases]
    assert verdicts == [in_libsodium(case) for case in cases]
    return verdicts


def add(one: Point, other: Point) -> Point:
    (x1, y1), (x2, y2) = one, other
    k = D * x1 * x2 * y1 * y2 % P
    return (x1 * y2 + x2 * y1) * pow(1 + k, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - k, -1, P) % P


def times(scalar: int, point: Point) -> Point:
    total = (0, 1)
    while scalar:
        total = add(total, point) if scalar & 1 else total
        point, scalar = add(point, point), scalar >> 1
    return total


def encode(point: Point) -> bytes:
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def decode(connection: psycopg.Connection, encoded: bytes) -> Point | None:
    row = connection.execute("select kiwi.ed25519_point(%s)", [encoded]).fetchone()
    return None if row[0] is None else (int(row[0][0]), int(row[0][1]))


def order_eight() -> Point:
    """Decode `ORDER_8`, which the registry's own function rightly does not."""
    y = int.from_bytes(ORDER_8, "little")
    u, v = (y * y - 1) % P, (D * y * y + 1) % P
    x = u * pow(v, 3, P) * pow(u * pow(v, 7, P), (P - 5) // 8, P) % P
    return (x if (v * x * x - u) % P == 0 else x * pow(2, (P - 1) // 4, P) % P), y


def sign(scalar: int, key: Point, nonce: int, commitment: Point, message: bytes) -> bytes:
    """Sign with chosen points in place of scalar·B and nonce·B."""
    r = encode(commitment)
    k = int.from_bytes(hashlib.sha512(r + encode(key) + message).digest(), "little")
    return r + ((nonce + k * scalar) % L).to_bytes(32, "little")


def fresh(seed: int, message: bytes = b"m") -> Case:
    private = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"%d" % seed).digest())
    return private.public_key().public_bytes_raw(), message, private.sign(message)


def test_every_wycheproof_case(shared: psycopg.Connection) -> None:
    cases = wycheproof_ed25519()
    assert len(cases) >= 150
    verdicts = in_sql(shared, [(case.key, case.message, case.signature) for case in cases])
    assert verdicts == [case.valid for case in cases]


def test_the_1024_vectors_of_the_library_that_kiwi_signs_with(shared: psycopg.Connection) -> None:
    assert cryptography_vectors.__version__ == cryptography.__version__
    with cryptography_vectors.open_vector_file("asymmetric/Ed25519/sign.input", "r") as file:
        lines = [[bytes.fromhex(field) for field in line.split(":")[:4]] for line in file]
    good = [(key, message, signed[:64]) for _, key, message, signed in lines]
    assert len(good) == 1024
    tried = good[:: 1024 // size(1024)]
    assert all(in_sql(shared, tried))
    flipped = [
        (k, m, s[: n % 64] + bytes([s[n % 64] ^ 1 << n % 8]) + s[n % 64 + 1 :]) for n, (k, m, s) in enumerate(tried)
    ]
    assert not any(in_sql(shared, flipped[::4]))


def test_mutations_are_judged_alike(shared: psycopg.Connection) -> None:
    draw = random.Random(3)
    cases = []
    for seed in range(200):
        key, message, signature = fresh(seed, draw.randbytes(seed))
        material = bytearray(key + signature + message)
        for _ in range(draw.choice([0, 1, 1, 2])):
            material[draw.randrange(len(material))] ^= 1 << draw.randrange(8)
        cases.append((bytes(material[:32]), bytes(material[96:]), bytes(material[32:96])))
    verdicts = agreed(shared, cases)
    assert 20 < sum(verdicts) < 120


def test_points_of_small_order_and_odd_encodings_are_refused(shared: psycopg.Connection) -> None:
    eight = order_eight()
    small = [encode(times(n, eight)) for n in range(8)]
    assert ORDER_8 in small
    # y as y + p too, where that fits into 255 bits, and either sign.
    spelled = [int.from_bytes(point, "little") & ~(1 << 255) for point in small]
    spelled += [y + P for y in spelled if y + P < 2**255] + [P + 2, P + 3, 2**255 - 1]
    points = [(y | sign << 255).to_bytes(32, "little") for y in spelled for sign in (0, 1)]
    key, message, signature = fresh(1)
    as_key = [(point, message, signature) for point in points]
    as_r = [(key, message, point + signature[32:]) for point in points]
    both = [(point, message, other + bytes(32)) for point in points for other in points[:4]]
    assert not any(agreed(shared, as_key + as_r + both))
    assert all(decode(shared, point) is None for point in points)


@pytest.mark.parametrize("surplus", [L, 2 * L, 8 * L, 15 * L])
def test_s_has_one_form(shared: psycopg.Connection, surplus: int) -> None:
    key, message, signature = fresh(2)
    s = int.from_bytes(signature[32:], "little") + surplus
    cases = [(key, message, signature), (key, message, signature[:32] + s.to_bytes(32, "little"))]
    assert agreed(shared, cases) == [True, False]
    for s in (L - 1, L, L + 1, 2**256 - 1):
        assert agreed(shared, [(key, message, signature[:32] + s.to_bytes(32, "little"))]) == [False]


def test_a_component_of_small_order_is_not_multiplied_away(shared: psycopg.Connection) -> None:
    """With a cofactor all of these would verify: R and A differ from honest ones by a point of small order."""
    eight = order_eight()
    scalar, nonce = 0x1234567890ABCDEF << 180, 0xFEDCBA0987654321 << 170
    cases = []
    for of_key in range(8):
        for of_r in (0, 1, 4):
            key, commitment = (
                add(times(scalar, BASE), times(of_key, eight)),
                add(times(nonce, BASE), times(of_r, eight)),
            )
            for n in range(3):
                message = b"%d" % n
                cases.append((encode(key), message, sign(scalar, key, nonce, commitment, message)))
    verdicts = agreed(shared, cases)
    assert verdicts[:9] == [True] * 3 + [False] * 6
    assert True in verdicts[9:]


@pytest.mark.parametrize("lengths", [(0, 64), (31, 64), (33, 64), (32, 0), (32, 31), (32, 63), (32, 65), (32, 100_000)])
def test_a_wrong_length_is_false_and_no_exception(shared: psycopg.Connection, lengths: tuple[int, int]) -> None:
    key, message, signature = fresh(3)
    case = (key * 2)[: lengths[0]], message, (signature * 2000)[: lengths[1]]
    assert in_sql(shared, [case]) == [False]


def test_keys_off_the_curve_are_no_points(shared: psycopg.Connection) -> None:
    key = fresh(4)[0]
    point = decode(shared, key)
    assert point is not None
    assert (encode(point), (-(point[0] ** 2) + point[1] ** 2 - 1 - D * point[0] ** 2 * point[1] ** 2) % P) == (key, 0)
    off = [n.to_bytes(32, "little") for n in range(2, 40)]
    decoded = [decode(shared, encoded) for encoded in off]
    assert {bool(d) for d in decoded} == {True, False}
    assert all(encode(point) == encoded for point, encoded in zip(decoded, off, strict=True) if point)
    refused = [(encoded, b"m", fresh(4)[2]) for point, encoded in zip(decoded, off, strict=True) if point is None]
    assert not any(agreed(shared, refused))


@pytest.mark.parametrize("kind", ["", dsse.PAYLOAD_TYPE, "ünï 🥝"])
@pytest.mark.parametrize("payload", [b"", b"\x00\xff DSSEv1 ", b"x" * 1000])
def test_the_encoding_that_is_signed_is_dsse_s(shared: psycopg.Connection, kind: str, payload: bytes) -> None:
    assert shared.execute("select kiwi.dsse_pae(%s, %s)", [kind, payload]).fetchone() == (dsse.pae(kind, payload),)


@pytest.mark.parametrize("name", ["ed25519_verify(bytea, bytea, bytea)", "dsse_pae(text, bytea)"])
def test_what_a_check_stands_on_depends_on_its_arguments_alone(shared: psycopg.Connection, name: str) -> None:
    query = """
        select provolatile = 'i', proisstrict, proparallel = 's', proconfig @> array['search_path=pg_catalog, pg_temp']
        from pg_proc where oid = ('kiwi.' || %s)::regprocedure
    """
    assert shared.execute(query, [name]).fetchone() == (True, True, True, True)
