"""Items of several files: what the database itself keeps, shares and refuses of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from kiwi_rag.model import Admission, Item, Section, sha256_hex
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.signing import dsse, statement
from kiwi_rag.stores.postgres import RegistryVectorStore
from kiwi_rag.validation.admission import issue
from tests.conformance.items import KEY, REGISTRY, SIGNED, admission, records
from tests.sql.databases import ADA
from tests.sql.publication import CALL, INSERT, encoded, published, row_of, store_blobs
from tests.sql.test_private_items import ANN, bind, log_in

FILES = {
    "SKILL.md": b"---\nname: ship\n---\nShip it.\n",
    "assets/logo.png": bytes(range(256)) * 40,
    "references/Deep/er.md": "où, naïvely ☃".encode(),
    "scripts/run.py": b"print('hi')\n",
    **{f"references/{n}.md": f"page {n}".encode() for n in range(8)},
}


def skill(files: Mapping[str, bytes] = FILES, item_id: str = "acme/ship", version: str = "1.0.0") -> Admission:
    """A sealed admission of a skill with these files."""
    text = files["SKILL.md"].decode()
    sections = (Section("body", text, 1, 4),)
    item = Item(ItemRef(ItemType.SKILL, item_id, version), files, "SKILL.md", {"name": "ship"}, sections)
    envelope = KEY.sign(item, REGISTRY, SIGNED)
    digest = statement.digest_of(envelope)
    now = datetime(2026, 3, 2, tzinfo=UTC)
    return issue(Admission(item, envelope, digest, KEY.key_id, "ada@acme", "project", SIGNED, now))


def count(connection: psycopg.Connection, table: str) -> int:
    row = connection.execute(f"select count(*) from {table}".encode()).fetchone()
    return int(row[0]) if row else 0


async def test_a_skill_comes_back_byte_for_byte(store: RegistryVectorStore, connection: psycopg.Connection) -> None:
    one = skill()
    await store.publish(one)
    stored = await store.get(one.ref)
    assert stored is not None
    assert stored.files == FILES
    assert stored.content_sha256 == one.item.content_sha256
    some = await store.get(one.ref, ["scripts/run.py", "not there"])
    assert some is not None
    assert some.files == {"scripts/run.py": FILES["scripts/run.py"]}
    none = await store.get(one.ref, [])
    assert none is not None
    assert none.files == {}
    listed = "select path, sha256 from kiwi.statement_files order by path"
    assert dict(connection.execute(listed).fetchall()) == {n: sha256_hex(c) for n, c in FILES.items()}
    async with store.claim(one.digest, "test/0/384/mean/256") as claim:
        assert claim.files == FILES


@pytest.mark.parametrize(
    "change",
    [
        {"SKILL.md": b"---\nname: ship\n---\nShip it!\n"},
        {"more.md": b"x"},
        {"scripts/run.py": None},
        {"scripts/run.py": None, "scripts/Run.py": b"print('hi')\n"},
    ],
    ids=["another byte", "one more", "one less", "another name"],
)
def test_other_files_than_were_signed_are_refused(
    connection: psycopg.Connection, change: Mapping[str, bytes | None]
) -> None:
    one = skill()
    files = {name: content for name, content in {**FILES, **change}.items() if content is not None}
    values = [Jsonb(dsse.encode(one.envelope)), Jsonb(encoded(files)), None]
    (answer,) = connection.execute(CALL, values).fetchone() or ({},)
    assert answer["code"] == "KW020"
    assert set(change) & set(answer["message"].split())
    assert [count(connection, f"kiwi.{table}") for table in ("statements", "blobs", "statement_files")] == [0, 0, 0]


def test_no_row_stands_without_its_files(connection: psycopg.Connection) -> None:
    """Not even for a superuser: a foreign key and the CHECK of the blobs hold what the function promises."""
    one = skill()
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        connection.execute(INSERT, row_of(one.envelope, KEY.public_key))
    store_blobs(connection, one)
    connection.execute(INSERT, row_of(one.envelope, KEY.public_key))
    for statement_, error in {
        "insert into kiwi.blobs (holder, sha256, content) values (0, repeat('0', 64), 'x')": "blobs_digest",
        "update kiwi.blobs set content = 'x'": "never changed",
        "update kiwi.statement_files set path = 'x'": "never changed",
        "delete from kiwi.blobs": "statement_files",
    }.items():
        with pytest.raises(psycopg.Error, match=error):
            connection.execute(statement_.encode())


def test_public_items_share_files_and_a_private_one_has_its_own(connection: psycopg.Connection) -> None:
    bind(connection, ADA.public_key, ADA.principal, ANN)
    for item_id, visibility in (("acme/one", "public"), ("acme/two", "public"), ("acme/three", "private")):
        log_in(connection, "authenticated", ANN)
        assert "sequence" in published(connection, skill(item_id=item_id), visibility)
    log_in(connection, "kiwi_owner")
    assert (count(connection, "kiwi.blobs"), count(connection, "kiwi_private.blobs")) == (12, 12)
    log_in(connection, "authenticated", ANN)
    assert published(connection, skill(item_id="acme/three"), "public")["made_public"] is True
    log_in(connection, "kiwi_owner")
    assert (count(connection, "kiwi.blobs"), count(connection, "kiwi_private.blobs")) == (12, 0)
    connection.execute("reset role")
    connection.execute("alter table kiwi.statements disable trigger never_deleted")
    last = skill({**FILES, "SKILL.md": b"other"}, item_id="acme/four")
    published(connection, last)
    assert count(connection, "kiwi.blobs") == 13
    connection.execute("delete from kiwi.statements where item_id = 'acme/four'")
    assert count(connection, "kiwi.blobs") == 12
    connection.execute("delete from kiwi.statements")
    assert [count(connection, f"kiwi.{table}") for table in ("blobs", "statement_files")] == [0, 0]


NAMES = {
    "up": "../a.md", "absolute": "/a.md", "a backslash": "a\\b.md", "an empty step": "a//b.md", "a line": "a\nb.md",
    "a zero-width space": "a\u200bb.md", "a direction mark": "a\u202eb.md", "a private character": "a\ue000.md",
}  # fmt: skip


@pytest.mark.parametrize("name", [*NAMES.values(), *(f"{'a' * n}.md" for n in (1021, 1022))], ids=str)
def test_names_are_judged_as_in_python(shared: psycopg.Connection, name: str) -> None:
    row = shared.execute("select kiwi.is_file_name(%s)", [name]).fetchone()
    assert row == (statement.is_nameable(name),)
    assert not row[0] or len(name) == 1024


def _subject(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "digest": {"sha256": "0" * 64}} for name in names]


@pytest.mark.parametrize(
    ("subject", "valid"),
    [
        (_subject("a.md"), True),
        (_subject("B.md", "a.md"), True),
        (_subject("a.md", "B.md"), False),
        (_subject("A.md", "a.md"), False),
        (_subject("É.md", "é.md"), True),  # ASCII alone, on both sides
        (_subject("a.md", "a.md"), False),
        (_subject(*sorted(f"{n}.md" for n in range(200))), True),
        (_subject(*sorted(f"{n}.md" for n in range(201))), False),
        ([], False),
        ([{"name": "a.md"}], False),
        ([{"name": "a.md", "digest": {"sha256": "0" * 63}}], False),
        ([{"name": "a.md", "digest": {"sha256": "0" * 64, "md5": ""}}], False),
        ([{"name": "a.md", "digest": {"sha256": "0" * 64}, "uri": ""}], False),
        ([{"name": 3, "digest": {"sha256": "0" * 64}}], False),
    ],
)
def test_a_list_of_files_is_judged_as_in_python(
    shared: psycopg.Connection, subject: list[dict[str, Any]], valid: bool
) -> None:
    row = shared.execute("select kiwi.subject_names(%s) is not null", [Jsonb(subject)]).fetchone()
    assert row == (valid,)
    try:
        assert statement._digests(subject)
        judged = True
    except statement.MalformedEnvelope:
        judged = False
    assert judged == valid


@pytest.mark.parametrize(
    "changes",
    [
        {"main": "other.md"},
        {"executables": ["other.md"]},
        {"executables": ["scripts/run.py", "scripts/run.py"]},
        {"executables": ["scripts/run.py", "SKILL.md"]},
        {"executables": "SKILL.md"},
        {"executables": [1]},
        {"metadata": {"x": "y" * 65536}},
        {"content": "x"},
    ],
    ids=str,
)
def test_a_predicate_is_judged_as_in_python(shared: psycopg.Connection, changes: dict[str, Any]) -> None:
    import json

    one = skill()
    whole = json.loads(one.envelope.payload)
    whole["predicate"] |= changes
    payload = statement.canonical(whole)
    with pytest.raises(statement.MalformedEnvelope):
        statement.parse_item(payload)
    answer = published(shared, one, envelope=dsse.encode(KEY.sign_payload(payload)))
    assert answer["code"] == "KW001"


async def test_passages_know_their_file(store: RegistryVectorStore, connection: psycopg.Connection) -> None:
    from dataclasses import replace

    one = skill()
    found = [
        replace(record, passage=replace(record.passage, file=name, kind="section"))
        for record, name in zip(records(one, ["ship it", "page three"]), ["", "references/3.md"], strict=True)
    ]
    await store.put([found])
    stored = await store.client.read_passages(one.digest, found[0].fingerprint)
    assert [(p.passage.file, p.passage.kind) for p in stored] == [("", "section"), ("references/3.md", "section")]
    digests = connection.execute("select digest from kiwi.passages order by ordinal").fetchall()
    assert [row[0] for row in digests] == [statement.passage_digest(record.passage) for record in found]


def test_the_envelope_of_another_kind_is_refused(shared: psycopg.Connection) -> None:
    from tests.sql import documents

    found = documents.records("a.md", ["zebra"])
    assert published(shared, admission("acme/x"), envelope=dsse.encode(found[0].admission.envelope))["code"] == "KW001"
    call = "select public.put_document(%s, %s, %s)"
    _, fingerprint, passages = documents.arguments(found)
    item = Jsonb(dsse.encode(admission("acme/x").envelope))
    assert shared.execute(call, [item, fingerprint, passages]).fetchone()[0]["code"] == "KW001"
