"""The signed payload is accepted in one form only, and a file with its `.sig` rebuilds it exactly."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from kiwi_rag.errors import BadSignature, MalformedEnvelope, SignatureRefused, Unsigned
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.signing import dsse, statement
from tests.conformance.items import KEY, REGISTRY, SIGNED, admission

ADMITTED = admission("acme/deploy/staging", "restart the sérvice\nthen look", version="1.2.0")
PAYLOAD = ADMITTED.envelope.payload
SIDE = statement.side_file(ADMITTED.envelope)
KEYS = {KEY.key_id: KEY.public_key}


def members(**changes: Any) -> dict[str, Any]:
    return {**json.loads(PAYLOAD), **changes}


def test_a_payload_says_what_was_signed() -> None:
    read = statement.parse(PAYLOAD)
    assert read.registry == REGISTRY
    assert read.ref == ItemRef(ItemType.DIRECTIVE, "acme/deploy/staging", "1.2.0")
    assert read.content == "restart the sérvice\nthen look"
    assert read.metadata == ADMITTED.item.metadata
    assert read.signed_at == SIGNED


def test_the_audience_is_part_of_what_is_signed() -> None:
    ours, theirs = (statement.payload(ADMITTED.item, name, SIGNED) for name in ("ours", "theirs"))
    assert statement.parse(ours).registry == "ours"
    assert ours != theirs


def test_members_stand_in_canonical_order_without_white_space() -> None:
    assert PAYLOAD.startswith(b'{"content":"restart the s\xc3\xa9rvice\\nthen look","item_id":')


@pytest.mark.parametrize(
    "data",
    [
        PAYLOAD + b"\n",
        b" " + PAYLOAD,
        PAYLOAD.replace(b'"item_id":', b'"item_id": '),
        b"\xef\xbb\xbf" + PAYLOAD,
        json.dumps(dict(reversed(members().items())), separators=(",", ":"), ensure_ascii=False).encode(),
        json.dumps(members(), separators=(",", ":"), sort_keys=True).encode(),  # é as \u00e9
        json.dumps(members(), separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode("utf-16"),
        PAYLOAD[:-1] + b',"version":"1.2.0"}',
        PAYLOAD.replace(b'"tags":["deploy"]', b'"tags":["deploy"],"x":1e400'),
        PAYLOAD.replace(b'"tags":["deploy"]', b'"tags":["deploy"],"x":NaN'),
        PAYLOAD.replace(b'"tags":["deploy"]', b'"tags":["deploy"],"x":1.0'),
        PAYLOAD.replace(b'"tags":["deploy"]', b'"tags":["deploy"],"x":-0'),
        PAYLOAD.replace(b'"tags":["deploy"]', b'"tags":["deploy"],"x":9007199254740993'),
        b"",
        b"[]",
        b"null",
        b"\xff",
    ],
    ids=range(17),
)
def test_only_the_canonical_form_is_read(data: bytes) -> None:
    assert data != PAYLOAD
    with pytest.raises(MalformedEnvelope):
        statement.parse(data)


def test_the_canonical_form_takes_other_metadata() -> None:
    changed = statement.canonical(members(metadata={"x": 1, "é": [None, True, "\u2028"]}))
    assert statement.parse(changed).metadata == {"x": 1, "é": [None, True, "\u2028"]}


@pytest.mark.parametrize(
    "changes",
    [
        {"registry": None},
        {"registry": 5},
        {"content": ["x"]},
        {"version": 1},
        {"metadata": []},
        {"metadata": None},
        {"metadata": "x"},
        {"item_type": "recipe"},
        {"item_type": None},
        {"item_id": "Acme/Deploy"},
        {"item_id": "../secrets"},
        {"item_id": ""},
        {"item_id": 3},
        {"signed_at": 1_700_000_000},
        {"signed_at": "yesterday"},
        {"extra": 1},
    ],
    ids=str,
)
def test_members_of_the_wrong_kind_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(MalformedEnvelope):
        statement.parse(statement.canonical(members(**changes)))


@pytest.mark.parametrize("name", sorted(members()))
def test_every_member_must_be_there(name: str) -> None:
    rest = {key: value for key, value in members().items() if key != name}
    with pytest.raises(MalformedEnvelope, match="exactly the members"):
        statement.parse(statement.canonical(rest))


def test_an_oversized_payload_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(MalformedEnvelope, match="over 1048576 bytes"):
        statement.parse(statement.canonical(members(content="x" * statement.MAX_PAYLOAD_BYTES)))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**60, {"k": object()}, "\ud800"])
def test_what_json_cannot_hold_has_no_canonical_form(value: object) -> None:
    with pytest.raises(MalformedEnvelope):
        statement.canonical({"x": value})


def test_a_side_file_and_its_content_rebuild_the_envelope() -> None:
    rebuilt = statement.envelope_of(ADMITTED.item.content, SIDE)
    assert rebuilt == ADMITTED.envelope
    assert dsse.verify(rebuilt, KEYS) == (KEY.key_id,)
    assert "content" not in json.loads(SIDE)["statement"]


def test_other_content_beside_a_side_file_no_longer_verifies() -> None:
    with pytest.raises(BadSignature):
        dsse.verify(statement.envelope_of(ADMITTED.item.content + " ", SIDE), KEYS)


def side(**changes: Any) -> bytes:
    return json.dumps({**json.loads(SIDE), **changes}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff\xfe",
        SIDE.decode().encode("utf-16"),
        side(extra=1),
        side(statement=None),
        side(statement=[]),
        side(payloadType="application/json"),
        side(statement={**json.loads(SIDE)["statement"], "content": "x"}),
        side(statement={k: v for k, v in json.loads(SIDE)["statement"].items() if k != "registry"}),
        side(statement={**json.loads(SIDE)["statement"], "metadata": {"x": 2**60}}),
        side(signatures="none"),
        SIDE.replace(b'"registry"', b'"registry": "a", "registry"'),
        SIDE + b" " * statement.MAX_SIDE_FILE_BYTES,
    ],
    ids=range(14),
)
def test_a_malformed_side_file_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedEnvelope):
        statement.envelope_of(ADMITTED.item.content, data)


def test_a_side_file_without_signatures_is_unsigned() -> None:
    with pytest.raises(Unsigned):
        statement.envelope_of(ADMITTED.item.content, side(signatures=[]))


@pytest.mark.parametrize("name", ["registry", "item_type", "item_id", "version", "signed_at", "metadata"])
def test_no_member_of_a_side_file_can_be_changed(name: str) -> None:
    changed = {
        "registry": "other",
        "item_type": "script",
        "item_id": "acme/deploy/production",
        "version": "1.2.1",
        "signed_at": "2026-03-01T12:00:01Z",
        "metadata": {},
    }[name]
    envelope = statement.envelope_of(
        ADMITTED.item.content, side(statement={**json.loads(SIDE)["statement"], name: changed})
    )
    with pytest.raises(SignatureRefused):
        dsse.verify(envelope, KEYS)


def test_signed_at_is_written_in_utc_with_whole_seconds() -> None:
    moment = datetime(2026, 3, 1, 14, 30, 5, 999_999, tzinfo=timezone(timedelta(hours=2)))
    assert statement.format_time(moment) == "2026-03-01T12:30:05Z"
    assert statement.parse_time("2026-03-01T12:30:05Z") == datetime(2026, 3, 1, 12, 30, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-01T12:00:00",
        "2026-03-01T12:00:00+00:00",
        "2026-03-01T12:00:00.000Z",
        "2026-03-01 12:00:00Z",
        "2026-03-01t12:00:00z",
        "2026-3-1T12:0:0Z",
        "２０２６-03-01T12:00:00Z",
        "2026-02-30T12:00:00Z",
        "2026-03-01T12:00:60Z",
        " 2026-03-01T12:00:00Z",
        "",
        None,
        0,
    ],
)
def test_signed_at_has_one_form(text: object) -> None:
    with pytest.raises(MalformedEnvelope):
        statement.parse_time(text)
