"""A payload counts only in its RFC 8785 form: SQL and Python take the same bytes and refuse the same."""

from __future__ import annotations

import json
import math
import struct

import psycopg
import pytest
import rfc8785
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kiwi_rag.errors import MalformedEnvelope
from kiwi_rag.model import Envelope
from kiwi_rag.signing import dsse, statement
from tests.conformance.items import KEY, admission
from tests.examples import examples
from tests.sql.databases import processor_limit
from tests.sql.publication import published

MANY = settings(examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
# U+0000 has a test of its own. Letters around the places where UTF-16 and code points sort differently come often.
TEXT = st.text(
    st.one_of(
        st.characters(min_codepoint=1, exclude_categories=["Cs"]),
        st.sampled_from('\ud7ff\ue000\uffff\U00010000\U0010ffff\x01\x7f\b\t\n\f\r"\\/é'),
    ),
    max_size=6,
)
NUMBERS = st.one_of(st.integers(-(2**53) + 1, 2**53 - 1), st.floats(allow_nan=False, allow_infinity=False))
SCALARS = st.one_of(st.none(), st.booleans(), TEXT, NUMBERS)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=5), max_leaves=12
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=6)

GOOD_NUMBERS = [
    "0", "1", "-1", "9007199254740991", "-9007199254740991", "0.1", "1.5", "1e-7", "1e+21", "1e+300",
    "0.000001", "5e-324", "1.7976931348623157e+308",
]  # fmt: skip
OTHER_SPELLINGS = [
    "-0", "0.0", "1.0", "1e2", "1E2", "1e21", "1e+0021", "1e-07", "0.10", "9007199254740992",
    "-9007199254740992", "100000000000000000000", "1000000000000000000000", "0.0000001",
    "0.1000000000000000055511151231257827", "1e400", "1e-400", "1e999999", "NaN", "Infinity",
    "9007199254740993.5", "1.7976931348623159e+308", "+1", "01", ".5", "5.",
]  # fmt: skip


def takes(connection: psycopg.Connection, payload: bytes) -> bool:
    """Return the common verdict on some bytes."""
    try:
        value = {"": dsse.strict_json(payload, "it")}
        statement.check_storable(value, statement.MAX_NESTING + 1)
        python = statement.canonical(value) == b'{"":' + payload + b"}"
    except MalformedEnvelope:
        python = False
    assert connection.execute("select kiwi.is_canonical(%s)", [payload]).fetchone() == (python,), payload
    return python


def whole_beyond(value: object) -> bool:
    """Whether a number is in it that RFC 8785 writes as digits from 2^53 on: Kiwi takes none."""
    if isinstance(value, dict | list):
        return any(map(whole_beyond, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and 2**53 <= abs(value) < 1e21


@MANY
@given(OBJECTS)
def test_the_canonical_form_is_rfc8785_s(shared: psycopg.Connection, value: dict[str, object]) -> None:
    expected = rfc8785.dumps(value)
    assert takes(shared, expected) != whole_beyond(value)
    if not whole_beyond(value):
        row = shared.execute("select kiwi.canonical_json(%s)", [json.dumps(value, indent=1)]).fetchone()
        assert row[0].encode() == expected


@MANY
@given(st.integers(0, 2**64 - 1))
def test_every_double_is_written_alike(shared: psycopg.Connection, bits: int) -> None:
    number = struct.unpack("<d", bits.to_bytes(8, "little"))[0]
    if math.isfinite(number):
        assert takes(shared, rfc8785.dumps(number)) != whole_beyond(number)


@MANY
@given(OBJECTS, st.data())
def test_an_altered_byte_is_judged_alike(
    shared: psycopg.Connection, value: dict[str, object], data: st.DataObject
) -> None:
    payload = bytearray(rfc8785.dumps(value))
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at : at + data.draw(st.integers(0, 1))] = data.draw(
        st.sampled_from([b"", b" ", b"0", b".0", b"e0", b"\\", b","])
    )
    takes(shared, bytes(payload))


@pytest.mark.parametrize("number", GOOD_NUMBERS)
def test_numbers_in_their_one_form_are_taken(shared: psycopg.Connection, number: str) -> None:
    assert takes(shared, number.encode())


@pytest.mark.parametrize("number", OTHER_SPELLINGS)
def test_other_spellings_of_numbers_are_refused(shared: psycopg.Connection, number: str) -> None:
    assert not takes(shared, number.encode())


ITEM = admission("acme/deploy", metadata={"text": 'tab\t"q" é \\ \x1f', "n": 1, "deep": {"b": [1, {}], "a": []}})
REAL = ITEM.envelope.payload
VARIANTS = {
    "a space": REAL.replace(b'":"', b'": "', 1),
    "a line break at the end": REAL + b"\n",
    "a byte order mark": b"\xef\xbb\xbf" + REAL,
    "the order of keys": REAL.replace(b'"a":[],"b":[1,{}]', b'"b":[1,{}],"a":[]'),
    "an escape that need not be": REAL.replace("é".encode(), rb"\u00e9"),
    "an escaped solidus": REAL.replace(b"acme/deploy", rb"acme\/deploy"),
    "capital hex digits": REAL.replace(rb"\u001f", rb"\u001F"),
    "a long escape": REAL.replace(rb"\t", rb"\u0009"),
    "1.0 for 1": REAL.replace(b'"n":1', b'"n":1.0'),
    "-0": REAL.replace(b'"n":1', b'"n":-0'),
    "a key twice": REAL.replace(b'"n":1', b'"n":1,"n":1'),
    "a key twice, deep": REAL.replace(b'"a":[]', b'"a":[],"a":[]'),
    "half a surrogate pair": REAL.replace("é".encode(), rb"\ud83e"),
    "a surrogate pair escaped": REAL.replace("é".encode(), rb"\ud83e\udd5d"),
    "U+0000 escaped": REAL.replace("é".encode(), rb"\u0000"),
    "U+0000": REAL.replace("é".encode(), b"\0"),
    "U+0000 in a key": REAL.replace(b'"n":1', rb'"n\u0000":1'),
    "bad UTF-8": REAL.replace("é".encode(), b"\xff"),
    "a raw control character": REAL.replace(rb"\t", b"\t"),
    "NaN": REAL.replace(b'"n":1', b'"n":NaN'),
    "a number no double holds": REAL.replace(b'"n":1', b'"n":1e400'),
    "a comma too many": REAL.replace(b"[1,{}]", b"[1,{},]"),
    "nested too deeply": REAL.replace(b'"a":[]', b'"a":' + b"[" * 100_000 + b"]" * 100_000),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_of_a_real_payload_is_refused_on_both_sides(shared: psycopg.Connection, name: str) -> None:
    """Each is signed rightly, by an enrolled key: the form alone is wrong."""
    payload = VARIANTS[name]
    assert payload != REAL
    signature = KEY._private.sign(dsse.pae(dsse.PAYLOAD_TYPE, payload))
    envelope = Envelope(dsse.PAYLOAD_TYPE, payload, ((KEY.key_id, signature),))
    with pytest.raises(MalformedEnvelope):
        statement.parse_item(payload)
    assert published(shared, ITEM, envelope=dsse.encode(envelope))["code"] == "KW001"


def test_the_payload_that_is_varied_is_itself_taken(shared: psycopg.Connection) -> None:
    assert takes(shared, REAL)
    assert statement.parse_item(REAL).metadata["n"] == 1


@pytest.mark.parametrize("levels", [1, 63, 64, 65, 66])
def test_nesting_ends_at_the_same_level(shared: psycopg.Connection, levels: int) -> None:
    payload = b'{"a":' * (levels - 1) + b"[1]" + b"}" * (levels - 1)
    assert takes(shared, payload) == (levels <= statement.MAX_NESTING)


@pytest.mark.parametrize(
    "value",
    [{"content": '"\n\\\x01é' * 50_000}, {"x": [1] * 200_000}, {"x": [{"k": [0]}] * 60_000}],
    ids=["escapes", "numbers", "objects"],
)
def test_a_large_payload_takes_linear_time(shared: psycopg.Connection, value: dict[str, object]) -> None:
    payload = rfc8785.dumps(value)
    with processor_limit(shared, 8):
        assert shared.execute("select kiwi.is_canonical(%s)", [payload]).fetchone() == (True,)
