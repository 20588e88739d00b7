"""A signed payload is an in-toto statement and is accepted in one form only; a ``.sig`` file is its envelope."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag.errors import MalformedEnvelope, Unsigned, UsageError
from kiwi_rag.model import Document, Item, Passage, content_digest, sha256_hex
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.signing import dsse, statement
from tests.conformance.items import KEY, REGISTRY, SIGNED, admission

TEXT = "restart the sérvice\nthen look"
ADMITTED = admission("acme/deploy/staging", TEXT, version="1.2.0", metadata={"note": "sérvice"})
PAYLOAD = ADMITTED.envelope.payload
SIGNATURE_FILE = statement.signature_file(ADMITTED.envelope)
KEYS = {KEY.key_id: KEY.public_key}
OLD = Path(__file__).parents[1] / "data/pre-release"
FOLDER = Item(
    ItemRef(ItemType.SKILL, "acme/rotate", "1.0.0"),
    {"scripts/run.sh": b"true\n", "SKILL.md": b"text", "assets/logo.png": b"\x89PNG\0"},
    "SKILL.md",
    {"name": "rotate"},
    (),
    executables=("scripts/run.sh",),
)
DOCUMENT = Document(ItemRef(ItemType.DOCUMENT, "docs/a.md"), {"docs/a.md": b"text"}, "docs/a.md", {"title": "A"}, ())
PASSAGE = Passage(0, "text", "A", ("A",), 1, 1, "section")


def members(**changes: Any) -> dict[str, Any]:
    return {**json.loads(PAYLOAD), **changes}


def predicate(**changes: Any) -> dict[str, Any]:
    return members(predicate={**members()["predicate"], **changes})


def folder(**changes: Any) -> dict[str, Any]:
    """The statement of a folder; `changes` of its predicate, and of its subject."""
    read = json.loads(statement.item_payload(FOLDER, REGISTRY, SIGNED))
    subject = changes.pop("subject", read["subject"])
    return {**read, "subject": subject, "predicate": {**read["predicate"], **changes}}


def entry(name: object, digest: object = "0" * 64) -> dict[str, Any]:
    return {"name": name, "digest": {"sha256": digest}}


def test_a_payload_says_what_was_signed() -> None:
    read = statement.parse_item(PAYLOAD)
    assert read.registry == REGISTRY
    assert read.ref == ItemRef(ItemType.DIRECTIVE, "acme/deploy/staging", "1.2.0")
    assert (read.main, read.executables) == ("staging.md", ())
    assert read.digests == {"staging.md": sha256_hex(TEXT.encode())}
    assert read.content_sha256 == ADMITTED.item.content_sha256
    assert read.metadata == ADMITTED.item.metadata
    assert read.signed_at == SIGNED


def test_a_payload_is_an_in_toto_statement() -> None:
    assert (members()["_type"], members()["predicateType"]) == (
        "https://in-toto.io/Statement/v1",
        "urn:kiwi:item:v1",
    )
    assert members()["subject"] == [{"name": "staging.md", "digest": {"sha256": sha256_hex(TEXT.encode())}}]
    assert ADMITTED.envelope.payload_type == "application/vnd.in-toto+json"


def test_a_folder_is_listed_by_name_with_its_executables() -> None:
    read = statement.parse_item(statement.item_payload(FOLDER, REGISTRY, SIGNED))
    assert list(read.digests) == ["SKILL.md", "assets/logo.png", "scripts/run.sh"]
    assert (read.main, read.executables) == ("SKILL.md", ("scripts/run.sh",))
    assert read.content_sha256 == FOLDER.content_sha256 == content_digest(dict(reversed(read.digests.items())))


def test_the_content_digest_is_that_of_the_subject_in_canonical_form() -> None:
    read = json.loads(statement.item_payload(FOLDER, REGISTRY, SIGNED))
    canonical = statement.canonical({"x": read["subject"]}).removeprefix(b'{"x":').removesuffix(b"}")
    assert FOLDER.content_sha256 == sha256_hex(canonical)


def test_a_document_is_named_with_its_passages() -> None:
    read = statement.parse_index(statement.index_payload(DOCUMENT, [PASSAGE], REGISTRY, "harbour", SIGNED))
    assert read.ref == ItemRef(ItemType.DOCUMENT, "harbour/docs/a.md")
    assert (read.collection, read.path, read.passages) == ("harbour", "docs/a.md", (statement.passage_digest(PASSAGE),))
    assert read.digests == {"docs/a.md": sha256_hex(b"text")}


def test_the_digest_of_a_passage_is_that_of_its_canonical_form() -> None:
    passage = Passage(3, "sérvice \u2028", "A > B", ("A", "B"), 4, 9, "section", "references/b.md")
    wanted = {name: getattr(passage, name) for name in ("context", "end_line", "file", "kind", "start_line", "text")}
    assert statement.passage_digest(passage) == sha256_hex(statement.canonical({**wanted, "heading": ["A", "B"]}))


@pytest.mark.parametrize("name", ["items", "", "Harbour", "-a", "a/b", "a" * 65])
def test_what_cannot_name_a_collection_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        statement.index_payload(DOCUMENT, [PASSAGE], REGISTRY, name, SIGNED)
    read = json.loads(statement.index_payload(DOCUMENT, [PASSAGE], REGISTRY, "harbour", SIGNED))
    read["predicate"]["collection"] = name
    with pytest.raises(MalformedEnvelope):
        statement.parse_index(statement.canonical(read))


def test_a_statement_is_not_read_as_one_of_the_other_predicate() -> None:
    with pytest.raises(MalformedEnvelope):
        statement.parse_index(PAYLOAD)
    with pytest.raises(MalformedEnvelope):
        statement.parse_item(statement.index_payload(DOCUMENT, [PASSAGE], REGISTRY, "harbour", SIGNED))


def test_the_audience_is_part_of_what_is_signed() -> None:
    ours, theirs = (statement.item_payload(ADMITTED.item, name, SIGNED) for name in ("ours", "theirs"))
    assert statement.parse_item(ours).registry == "ours"
    assert ours != theirs


def test_members_stand_in_canonical_order_without_white_space() -> None:
    assert PAYLOAD.startswith(b'{"_type":"https://in-toto.io/Statement/v1","predicate":{"executables":[],"item_id":')


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
        PAYLOAD[:-1] + b',"subject":[]}',
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
        statement.parse_item(data)


def test_the_canonical_form_takes_other_metadata() -> None:
    changed = statement.canonical(predicate(metadata={"x": 1, "é": [None, True, "\u2028"]}))
    assert statement.parse_item(changed).metadata == {"x": 1, "é": [None, True, "\u2028"]}


@pytest.mark.parametrize(
    "changes",
    [
        {"registry": None},
        {"registry": 5},
        {"main": ["x"]},
        {"main": "other.md"},
        {"main": ""},
        {"executables": None},
        {"executables": "staging.md"},
        {"executables": [1]},
        {"version": 1},
        {"metadata": []},
        {"metadata": None},
        {"metadata": "x"},
        {"metadata": {"x": "x" * statement.MAX_METADATA_BYTES}},
        {"item_type": "recipe"},
        {"item_type": "document"},
        {"item_type": None},
        {"item_id": "Acme/Deploy"},
        {"item_id": "../secrets"},
        {"item_id": ""},
        {"item_id": 3},
        {"signed_at": 1_700_000_000},
        {"signed_at": "yesterday"},
        {"extra": 1},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_members_of_the_wrong_kind_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(MalformedEnvelope):
        statement.parse_item(statement.canonical(predicate(**changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {"_type": "https://in-toto.io/Statement/v0.1"},
        {"predicateType": "urn:kiwi:index:v1"},
        {"predicate": []},
        {"subject": {}},
        {"subject": []},
        {"subject": ["staging.md"]},
        {"subject": [{"name": "staging.md"}]},
        {"subject": [{**entry("staging.md"), "uri": "x"}]},
        {"subject": [{"name": "staging.md", "digest": {}}]},
        {"subject": [{"name": "staging.md", "digest": {"sha256": "0" * 64, "sha1": "0" * 40}}]},
        {"subject": [entry("staging.md", "0" * 63)]},
        {"subject": [entry("staging.md", "A" * 64)]},
        {"subject": [entry("staging.md", 0)]},
        {"extra": 1},
    ],
    ids=str,
)
def test_a_statement_of_another_form_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(MalformedEnvelope):
        statement.parse_item(statement.canonical(members(**changes)))


@pytest.mark.parametrize(
    "names",
    [
        ["SKILL.md", "a", "a"],
        ["b", "SKILL.md"],
        ["SKILL.md", "skill.md"],
        ["SKILL.md", "scripts/A.py", "scripts/a.py"],
        ["SKILL.md", "SKILL.md.sig"],
        ["a"],
        ["SKILL.md", "/etc/passwd"],
        ["../x", "SKILL.md"],
        ["SKILL.md", "a/../../x"],
        ["./x", "SKILL.md"],
        ["SKILL.md", "a//b"],
        ["SKILL.md", "a/"],
        ["", "SKILL.md"],
        ["SKILL.md", "a\\b"],
        ["SKILL.md", "a\nb"],
        ["SKILL.md", "a\u202eb"],
        ["SKILL.md", "x" * 1025],
        ["SKILL.md", 7],
        ["SKILL.md", *sorted(f"a{n}" for n in range(200))],
    ],
    ids=lambda names: str(names)[:40],
)
def test_files_must_have_distinct_names_in_order_below_the_folder(names: list[Any]) -> None:
    with pytest.raises(MalformedEnvelope):
        statement.parse_item(statement.canonical(folder(subject=[entry(name) for name in names], executables=[])))


def test_as_many_files_as_allowed_are_read() -> None:
    names = ["SKILL.md", *sorted(f"a{n}" for n in range(199))]
    data = statement.canonical(folder(subject=[entry(name) for name in names], executables=["a1"]))
    assert list(statement.parse_item(data).digests) == names


@pytest.mark.parametrize(
    "names", [["other.sh"], ["scripts/run.sh", "scripts/run.sh"], ["scripts/run.sh", "SKILL.md"], [["scripts/run.sh"]]]
)
def test_executables_are_files_of_the_item_in_order(names: list[Any]) -> None:
    with pytest.raises(MalformedEnvelope):
        statement.parse_item(statement.canonical(folder(executables=names)))


@pytest.mark.parametrize("name", sorted(members()))
def test_every_member_must_be_there(name: str) -> None:
    rest = {key: value for key, value in members().items() if key != name}
    with pytest.raises(MalformedEnvelope, match="exactly the members"):
        statement.parse_item(statement.canonical(rest))


@pytest.mark.parametrize("name", sorted(members()["predicate"]))
def test_every_member_of_the_predicate_must_be_there(name: str) -> None:
    rest = {key: value for key, value in members()["predicate"].items() if key != name}
    with pytest.raises(MalformedEnvelope, match="exactly the members"):
        statement.parse_item(statement.canonical(members(predicate=rest)))


def test_an_oversized_payload_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(MalformedEnvelope, match="over 1048576 bytes"):
        statement.parse_item(statement.canonical(predicate(metadata={"x": "x" * statement.MAX_PAYLOAD_BYTES})))


@pytest.mark.parametrize("files", [{"staging.md": b"", "a\nb": b""}, {"other.md": b""}, {}])
def test_what_no_statement_can_name_is_not_signed(files: dict[str, bytes]) -> None:
    with pytest.raises(MalformedEnvelope):
        KEY.sign(Item(ADMITTED.ref, files, "staging.md", {}, ()), REGISTRY)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**60, {"k": object()}, "\ud800"])
def test_what_json_cannot_hold_has_no_canonical_form(value: object) -> None:
    with pytest.raises(MalformedEnvelope):
        statement.canonical({"x": value})


def test_a_signature_file_is_the_envelope() -> None:
    read = statement.read_signature_file(SIGNATURE_FILE)
    assert read == ADMITTED.envelope
    assert dsse.verify(read, KEYS) == (KEY.key_id,)
    assert json.loads(SIGNATURE_FILE) == dsse.encode(ADMITTED.envelope)


def side(**changes: Any) -> bytes:
    return json.dumps({**json.loads(SIGNATURE_FILE), **changes}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff\xfe",
        SIGNATURE_FILE.decode().encode("utf-16"),
        side(extra=1),
        side(payload=None),
        side(payload=[]),
        side(payload="!"),
        side(payloadType="application/json"),
        side(payloadType=["application/vnd.kiwi.item.v1+json"]),
        side(signatures="none"),
        SIGNATURE_FILE.replace(b'"payload"', b'"payload": "a", "payload"'),
        SIGNATURE_FILE + b" " * statement.MAX_SIGNATURE_FILE_BYTES,
    ],
    ids=range(13),
)
def test_a_malformed_signature_file_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedEnvelope):
        statement.read_signature_file(data)


def test_a_signature_file_without_signatures_is_unsigned() -> None:
    with pytest.raises(Unsigned):
        statement.read_signature_file(side(signatures=[]))


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
