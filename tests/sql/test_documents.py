"""Documents in the registry: what it checks itself, what replaces what, and who may do it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from kiwi_rag.errors import FingerprintMismatch, NotAdmitted, RegistryRefused, UsageError
from kiwi_rag.model import Envelope, Filters, Passage
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.registry.pool import Connections
from kiwi_rag.registry.supabase import SupabaseApi
from kiwi_rag.signing import dsse, keys
from kiwi_rag.signing.dsse import PAYLOAD_TYPE
from kiwi_rag.signing.statement import canonical, passage_digest
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.stores.postgres import RegistryVectorStore
from kiwi_rag.symbols import passage_terms
from tests.conformance.items import KEY, admission, query
from tests.conformance.items import records as item_records
from tests.examples import examples
from tests.sql.documents import WORKSPACE, admitted, arguments, enrol, paths, records, registry_of_documents
from tests.supabase.postgrest import PUBLISHABLE, project, token

EVE = keys.generate("eve")
READERS = ("authenticated", "service_role", "kiwi_publisher", "kiwi_indexer", "kiwi_admin")
PUT = "select public.put_document(%s, %s, %s)"
TABLES = {
    "collections": "fingerprint",
    "statements": "payload",
    "statement_files": "path",
    "passages": "embedding",
    "postings": "frequency",
    "term_statistics": "term",
    "removed_documents": "signed_at",
}


@pytest.fixture
def url() -> Iterator[str]:
    """A registry that takes `KEY`'s documents."""
    with registry_of_documents() as fresh:
        yield fresh


@pytest.fixture
def connection(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def empty() -> Iterator[psycopg.Connection]:
    """A connection to one that takes them, for tests after which it holds none."""
    with registry_of_documents() as fresh, psycopg.connect(fresh, autocommit=True) as opened:
        yield opened


@pytest.fixture
async def store(url: str) -> AsyncIterator[RegistryVectorStore]:
    opened = RegistryVectorStore(Connections(url), WORKSPACE)
    yield opened
    await opened.close()


def ref(path: str) -> ItemRef:
    return ItemRef(ItemType.DOCUMENT, path)


def put(connection: psycopg.Connection, found: list[Any], **changes: Any) -> dict[str, Any]:
    """Hand a document in, with the envelope or the passages changed; return the answer."""
    envelope, fingerprint, passages = arguments(found)
    told = connection.execute(PUT, [changes.get("envelope", envelope), fingerprint, changes.get("passages", passages)])
    return told.fetchone()[0]  # type: ignore[index]


def count(connection: psycopg.Connection, table: str) -> int:
    return connection.execute(f"select count(*) from kiwi_private.{table}").fetchone()[0]  # type: ignore[index,call-overload]


async def test_a_document_comes_back_as_it_was_signed(store: RegistryVectorStore) -> None:
    assert isinstance(store, VectorStore)
    found = records("docs/a b.md", ["first words", "second words"])
    await store.put([found])
    stored = await store.get(ref("docs/a b.md"))
    one = found[0].admission
    assert stored is not None
    assert (stored.ref, stored.envelope, stored.digest) == (one.ref, one.envelope, one.digest)
    assert (stored.content_sha256, stored.passages, stored.policy) == (one.item.content_sha256, 2, "shared")
    assert await store.list(Filters()) == [stored]
    assert await store.get(ref("docs/other.md")) is None
    assert await store.get(ItemRef(ItemType.KNOWLEDGE, "docs/a")) is None
    status = await store.status()
    assert (status.items, status.passages, status.problems) == (1, 2, ())
    assert status.details["file_types"] == {"markdown": 1}


async def test_every_passage_comes_back_as_it_was_signed(store: RegistryVectorStore) -> None:
    found = records("Ω/ünï.md", ['zebra "quoted" \\ back\tslash', "line\nfeed \u2028 é 𝄞"])
    await store.put([found])
    hits = await store.search(query("zebra", await store.statistics(["zebra"])))
    assert hits.plan == "exact"
    assert sorted(h.passage.ordinal for h in hits.items) == [0, 1]
    assert {h.passage for h in hits.items} == {r.passage for r in found}
    digests = [passage_digest(h.passage) for h in sorted(hits.items, key=lambda h: h.passage.ordinal)]
    assert digests == [passage_digest(r.passage) for r in found]
    assert {h.key_id for h in hits.items} == {KEY.key_id}
    assert {h.metadata["file_type"] for h in hits.items} == {"markdown"}


async def test_the_same_twice_changes_nothing(store: RegistryVectorStore, connection: psycopg.Connection) -> None:
    found = records("a.md", ["alpha beta", "gamma"])
    await store.put([found])
    before = connection.execute("select sequence, received_at from kiwi_private.statements").fetchall()
    await store.put([found])
    assert connection.execute("select sequence, received_at from kiwi_private.statements").fetchall() == before
    assert (await store.statistics(["alpha"])).document_frequency == {"alpha": 1}
    assert connection.execute("select count(*) from kiwi.audit where event = 'put-document'").fetchone() == (1,)


async def test_a_later_statement_replaces_all_passages(
    store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    await store.put([records("a.md", ["zebra", "zebra again", "zebra thrice"])])
    await store.put([records("b.md", ["zebra elsewhere"])])
    await store.put([records("a.md", ["giraffe"], after=1)])
    statistics = await store.statistics(["zebra", "giraff"])
    assert statistics.document_frequency == {"zebra": 1, "giraff": 1}
    assert (statistics.passages, statistics.items) == (2, 2)
    assert count(connection, "passages") == 2
    kept = {"a.md": records("a.md", ["giraffe"], after=1), "b.md": records("b.md", ["zebra elsewhere"])}
    terms = {(path, term) for path, (one,) in kept.items() for term in passage_terms(ref(path), one.passage)[0]}
    assert {("a.md", "giraff"), ("b.md", "zebra"), ("b.md", "·b·md")} <= terms
    assert count(connection, "postings") == len(terms)


async def test_what_was_signed_before_never_replaces_what_was_signed_later(store: RegistryVectorStore) -> None:
    newer = records("a.md", ["newer"], after=60)
    await store.put([newer])
    with pytest.raises(RegistryRefused, match=r"a\.md was signed at") as refused:
        await store.put([records("a.md", ["older"])])
    assert refused.value.state == "KW018"
    stored = await store.get(ref("a.md"))
    assert stored is not None
    assert stored.digest == newer[0].admission.digest
    same_second = records("a.md", ["as new"], after=60)
    await store.put([same_second])
    stored = await store.get(ref("a.md"))
    assert stored is not None
    assert stored.digest == same_second[0].admission.digest


async def deleted(store: RegistryVectorStore) -> None:
    assert await store.delete(ref("a.md"))


async def cleared(store: RegistryVectorStore) -> None:
    await store.clear()


async def replaced_and_cleared(store: RegistryVectorStore) -> None:
    await store.put([records("a.md", ["newest"], after=90)])
    await store.clear()


@pytest.mark.parametrize("take_away", [deleted, cleared, replaced_and_cleared])
async def test_nothing_older_comes_back_once_the_newer_is_gone(
    store: RegistryVectorStore, take_away: Callable[[RegistryVectorStore], Awaitable[None]]
) -> None:
    """Whoever deletes and puts needs no key: an old signed statement is no way around a newer one."""
    older = records("a.md", ["older"])
    await store.put([older])
    await store.put([records("a.md", ["newer"], after=60)])
    await take_away(store)
    for _ in range(2):
        with pytest.raises(RegistryRefused, match=r"a\.md was signed at") as refused:
            await store.put([older])
        assert refused.value.state == "KW018"
        assert not await store.delete(ref("a.md"))
    await store.put([records("b.md", ["another path"])])
    await store.put([records("a.md", ["as it is now"], after=120)])
    assert await paths(store) == ["a.md", "b.md"]


async def test_a_mark_of_a_compromised_key_counts_no_more_and_hides_no_other(
    store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    enrol(connection, EVE, "eve@acme", "*")
    await store.put([records("a.md", ["ada's"], after=30)])
    await store.put([records("a.md", ["eve's"], after=60, key=EVE, principal="eve@acme")])
    await store.delete(ref("a.md"))
    with pytest.raises(RegistryRefused, match="signed at"):
        await store.put([records("a.md", ["ada's"], after=40)])
    connection.execute("select public.revoke_signer(%s, 'lost')", [EVE.key_id])
    with pytest.raises(RegistryRefused, match="signed at"):
        await store.put([records("a.md", ["ada's, before"])])
    assert await paths(store) == []
    await store.put([records("a.md", ["ada's"], after=40)])
    assert await paths(store) == ["a.md"]


async def test_delete_leaves_nothing_but_a_mark(store: RegistryVectorStore, connection: psycopg.Connection) -> None:
    await store.put([records("a.md", ["zebra"])])
    await store.put([records("b.md", ["okapi"])])
    assert await store.delete(ref("a.md"))
    assert not await store.delete(ref("a.md"))
    assert await store.get(ref("a.md")) is None
    assert (await store.statistics(["zebra", "okapi"])).document_frequency == {"okapi": 1}
    assert [count(connection, t) for t in ("statements", "passages")] == [1, 1]
    assert await store.history(ref("a.md")) == {}


async def test_a_move_is_a_put_and_a_delete(store: RegistryVectorStore) -> None:
    await store.put([records("old/a.md", ["zebra"], source="x")])
    await store.put([records("new/a.md", ["zebra"], source="x")])
    await store.delete(ref("old/a.md"))
    assert await paths(store) == ["new/a.md"]


async def test_workspaces_are_apart(url: str, store: RegistryVectorStore) -> None:
    other = RegistryVectorStore(Connections(url), "other")
    await store.put([records("a.md", ["zebra"])])
    await other.put([records("a.md", ["okapi"], workspace="other", fingerprint="other/0/384/mean/256")])
    assert (await store.statistics(["zebra", "okapi"])).document_frequency == {"zebra": 1}
    assert (await other.statistics(["zebra", "okapi"])).document_frequency == {"okapi": 1}
    await other.clear()
    assert await paths(store) == ["a.md"]
    assert (await other.status()).items == 0
    with pytest.raises(NotAdmitted, match="signed for workspace"):
        await store.put([records("b.md", workspace="other")])
    await other.close()


async def test_a_workspace_has_one_model_until_it_is_cleared(
    store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    other = "other/0/384/mean/256"
    await store.put([records("a.md", ["zebra"])])
    with pytest.raises(FingerprintMismatch, match="holds vectors of"):
        await store.put([records("b.md", fingerprint=other)])
    with pytest.raises(FingerprintMismatch):
        await store.search(query("zebra", await store.statistics(["zebra"]), fingerprint=other))
    with pytest.raises(FingerprintMismatch, match="384"):
        await store.put([records("b.md", fingerprint="other/0/768/mean/256")])
    await store.clear()
    assert [count(connection, table) for table in TABLES] == [1] + [0] * 5 + [
        1
    ]  # an empty one, and when a.md was signed
    await store.put([records("b.md", fingerprint=other)])
    await store.delete(ref("b.md"))
    await store.put([records("b.md")])  # an empty one begins anew, too


async def test_only_admitted_documents_are_handed_in(store: RegistryVectorStore) -> None:
    found = records("a.md", ["one", "two"])
    with pytest.raises(NotAdmitted):
        await store.put([[replace(r, admission=replace(r.admission, principal="eve")) for r in found]])
    with pytest.raises(NotAdmitted, match="not those that were signed"):
        await store.put([found[:1]])
    with pytest.raises(NotAdmitted):
        await store.put([[*found, *records("b.md")]])
    with pytest.raises(UsageError):
        await store.put([[]])
    with pytest.raises(UsageError, match="is not a document"):
        await store.put([item_records(admission("acme/x"))])
    assert (await store.status()).items == 0


def test_the_registry_itself_verifies_the_signature(connection: psycopg.Connection) -> None:
    found = records("a.md", ["zebra"])
    envelope = found[0].admission.envelope
    other = records("b.md", ["zebra"])[0].admission.envelope
    cases = {
        "KW015": Envelope(PAYLOAD_TYPE, envelope.payload, other.signatures),
        "KW002": admitted("a.md", ["zebra"], key=EVE).envelope,
        "KW001": Envelope("application/vnd.kiwi.document.v1+json", envelope.payload, envelope.signatures),
    }
    for code, forged in cases.items():
        assert put(connection, found, envelope=Jsonb(dsse.encode(forged)))["code"] == code
    assert [count(connection, table) for table in TABLES] == [0] * len(TABLES)
    refusals = connection.execute("select details ->> 'code', ref from kiwi.audit where event = 'refused'").fetchall()
    assert {code for code, _ in refusals} == set(cases)
    assert {ref for _, ref in refusals} == {"document:acme-web/a.md"}


def signed(**members: Any) -> Jsonb:
    """The envelope of a statement with some members changed, or taken out where they are None."""
    import json

    whole = json.loads(admitted("a.md", ["zebra"]).envelope.payload)
    changed = whole["predicate"] | members
    whole["predicate"] = {name: value for name, value in changed.items() if value is not None}
    if whole["predicate"].get("path") != "a.md":
        whole["subject"][0]["name"] = whole["predicate"].get("path")
    if "subject" in members:
        whole["subject"] = whole["predicate"].pop("subject")
    payload = canonical(whole)
    return Jsonb(dsse.encode(KEY.sign_payload(payload)))


@pytest.mark.parametrize(
    ("code", "members"),
    [
        ("KW001", {"path": "../a.md"}),
        ("KW001", {"path": "/etc/passwd"}),
        ("KW001", {"path": "a//b.md"}),
        ("KW001", {"path": "a/./b.md"}),
        ("KW001", {"path": "a\\b.md"}),
        ("KW001", {"path": "a\nb.md"}),
        ("KW001", {"path": ""}),
        ("KW001", {"path": "x" * 1025}),
        ("KW001", {"collection": "Acme"}),
        ("KW001", {"collection": "a/b"}),
        ("KW001", {"collection": "items"}),
        ("KW001", {"metadata": {"file_type": 3}}),
        ("KW001", {"metadata": []}),
        ("KW001", {"passages": {}}),
        ("KW001", {"passages": ["x"]}),
        ("KW001", {"passages": [3]}),
        ("KW001", {"subject": [{"name": "a.md", "digest": {"sha256": "x"}}]}),
        ("KW001", {"subject": []}),
        ("KW001", {"subject": [{"name": "b.md", "digest": {"sha256": "0" * 64}}]}),
        ("KW001", {"signed_at": "2026-03-01"}),
        ("KW001", {"passages": None}),
        ("KW001", {"colour": "red"}),
        ("KW005", {"signed_at": "2099-01-01T00:00:00Z"}),
        ("KW008", {"registry": "elsewhere"}),
        ("KW017", {"passages": []}),
        ("KW017", {"passages": ["0" * 64]}),
    ],
)
def test_a_statement_is_read_strictly(empty: psycopg.Connection, code: str, members: dict[str, Any]) -> None:
    answer = put(empty, records("a.md", ["zebra"]), envelope=signed(**members))
    assert answer["code"] == code
    assert [count(empty, table) for table in TABLES] == [0] * len(TABLES)


@pytest.mark.parametrize(
    "change",
    [
        {"text": "okapi"},
        {"context": "elsewhere"},
        {"heading": ["Top"]},
        {"heading": []},
        {"start_line": 2},
        {"end_line": 2},
        {"kind": "endpoint"},
        {"file": "b.md"},
        {"ordinal": 1},
        {"ordinal": -1},
        {"embedding": "[1, 2]"},
        {"embedding": f"[{','.join(['0.5'] * 384)}]"},
        {"frequencies": []},
        {"length": -1},
        {"text": None},
        {"heading": None},
    ],
)
def test_passages_are_those_that_were_signed(empty: psycopg.Connection, change: dict[str, Any]) -> None:
    found = records("a.md", ["zebra"])
    (passage,) = arguments(found)[2].obj
    answer = put(empty, found, passages=Jsonb([passage | change]))
    assert answer["code"] == "KW017"
    assert "kiwi workspace index" in answer["hint"]
    assert [count(empty, table) for table in TABLES] == [0] * len(TABLES)


@pytest.mark.parametrize("change", ["missing", "twice", "swapped", "more", "object", "nothing"])
def test_passages_are_all_there_once_and_in_order(empty: psycopg.Connection, change: str) -> None:
    found = records("a.md", ["zebra", "okapi"])
    one, two = arguments(found)[2].obj
    other = arguments(records("a.md", ["x", "y", "more"]))[2].obj[2]
    changed = {
        "missing": [one],
        "twice": [one, one],
        "swapped": [one | {"ordinal": 1}, two | {"ordinal": 0}],
        "more": [one, two, other],
        "object": one,
        "nothing": None,
    }
    assert put(empty, found, passages=Jsonb(changed[change]))["code"] == "KW017"
    assert count(empty, "statements") == 0


async def test_a_refusal_leaves_what_was_there(store: RegistryVectorStore, connection: psycopg.Connection) -> None:
    await store.put([records("a.md", ["zebra"])])
    later = records("a.md", ["okapi"], after=5)
    assert put(connection, later, passages=Jsonb([]))["code"] == "KW017"
    assert (await store.statistics(["zebra", "okapi"])).document_frequency == {"zebra": 1}
    assert connection.execute("select public.verify_audit()").fetchone() == (None,)


def test_a_signer_signs_what_it_may(connection: psycopg.Connection) -> None:
    enrol(connection, EVE, "eve", "acme-web/docs/*")
    assert put(connection, records("docs/a.md", key=EVE))["already_published"] is False
    for changes in ({"path": "src/a.md"}, {"path": "docs/a.md", "workspace": "other"}):
        path = changes.pop("path")
        assert put(connection, records(path, key=EVE, **changes))["code"] == "KW004"
    connection.execute("select public.enrol_signer(%s, 'eve', '{*}')", [EVE.public_key.hex()])  # items alone
    assert put(connection, records("docs/b.md", key=EVE))["code"] == "KW004"
    connection.execute("select public.retire_signer(%s)", [EVE.key_id])
    assert put(connection, records("docs/b.md", key=EVE))["code"] == "KW003"
    assert count(connection, "statements") == 1


async def test_what_a_compromised_key_signed_is_gone_at_once(
    store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    enrol(connection, EVE, "eve", "*")
    await store.put([records("a.md", ["zebra hooves"], key=EVE, after=60)])
    await store.put([records("b.md", ["zebra stripes"], seed=9)])
    connection.execute("select public.revoke_signer(%s)", [EVE.key_id])
    statistics = await store.statistics(["zebra", "hoov"])
    assert (statistics.passages, statistics.items, statistics.document_frequency) == (1, 1, {"zebra": 1})
    assert [h.ref.item_id for h in (await store.search(query("zebra hooves", statistics))).items] == ["b.md"]
    assert await store.get(ref("a.md")) is None
    assert await paths(store) == ["b.md"]
    assert (await store.similar_terms(["hooes"]))["hooes"] == ()
    assert (await store.status()).items == 1
    with pytest.raises(RegistryRefused, match="compromised"):
        await store.put([records("a.md", ["zebra hooves"], key=EVE, after=60)])
    await store.put([records("a.md", ["okapi"])])  # older, and honest
    assert await paths(store) == ["a.md", "b.md"]


@pytest.mark.parametrize("role", ["owner", "replica"])
def test_no_row_stands_without_its_signature(url: str, role: str) -> None:
    """Not even those for whom triggers and rights do not count get one in."""
    columns = "payload_type, payload, signature, signer, public_key"
    good, other = records("a.md", ["zebra"])[0].admission, records("b.md")[0].admission
    insert = (
        f"insert into kiwi_private.statements ({columns}, owner_key, sequence)"
        " values (%s, %s, %s, %s, %s, 'collection:acme-web', 1000000000000)"
    )
    passage = (
        "insert into kiwi_private.passages (passage_id, statement_id, collection_id, dimension, ordinal, text, context,"
        " heading, start_line, end_line, kind, length, terms, frequencies, embedding)"
        " select 1, sequence, -1, 384, 0, %s, 'a.md', '{Top,Sub}', 1, 1, 'section', 1, '{}', '{}',"
        " (select array_agg(sqrt(1.0/384)) from generate_series(1, 384))::real[]::extensions.vector"
        " from kiwi_private.statements"
    )
    become = "set role kiwi_owner" if role == "owner" else "set session_replication_role = replica"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "insert into kiwi_private.collections (collection_id, name, owner_key, fingerprint, dimension)"
            " values (-1, 'acme-web', 'collection:acme-web', 'x', 384)"
        )
        connection.execute(become)  # type: ignore[call-overload]

        def row(signature: bytes, key: bytes) -> list[Any]:
            return [PAYLOAD_TYPE, good.envelope.payload, signature, KEY.key_id, key]

        with pytest.raises(psycopg.errors.CheckViolation, match="statements_signature"):
            connection.execute(insert, row(other.envelope.signatures[0][1], KEY.public_key))
        connection.execute(insert, row(good.envelope.signatures[0][1], EVE.public_key))
        with pytest.raises(psycopg.Error, match="not what was signed") as refused:
            connection.execute(passage, ["okapi"])
        assert refused.value.sqlstate == "KW017"
        connection.execute(passage, ["zebra"])
        for statement, state in {
            "update kiwi_private.statements set payload = payload || ' '": "KW014",
            "update kiwi_private.statements set signer = signer, received_at = now()": "KW014",
            "update kiwi_private.passages set text = 'okapi'": "KW017",
            "update kiwi_private.passages set ordinal = 1": "KW017",
        }.items():
            with pytest.raises(psycopg.Error) as refused:
                connection.execute(statement)  # type: ignore[call-overload]
            assert refused.value.sqlstate == state
        assert connection.execute(
            "select public_key = %s from kiwi_private.statements", [KEY.public_key]
        ).fetchone() == (True,)


async def test_over_supabases_api_a_user_reads_and_nobody_writes(url: str, store: RegistryVectorStore) -> None:
    found = records("a b.md", ["zebra"])
    await store.put([found])
    with project(url) as hosted:
        reader = RegistryVectorStore(SupabaseApi(hosted.url, PUBLISHABLE, token()), WORKSPACE)
        assert await reader.get(ref("a b.md")) == await store.get(ref("a b.md"))
        hits = await reader.search(query("zebra", await reader.statistics(["zebra"])))
        assert [hit.passage for hit in hits.items] == [found[0].passage]
        assert await reader.list(Filters(path="a*")) == await store.list(Filters())
        with pytest.raises(RegistryRefused):
            await reader.put([records("b.md")])
        with pytest.raises(RegistryRefused):
            await reader.delete(ref("a b.md"))
        await reader.close()
        stranger = RegistryVectorStore(SupabaseApi(hosted.url, PUBLISHABLE), WORKSPACE)
        with pytest.raises(RegistryRefused):
            await stranger.get(ref("a b.md"))
        with pytest.raises(RegistryRefused):
            await stranger.statistics(["zebra"])
        await stranger.close()


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=40)


@settings(examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=TEXT, context=TEXT, heading=st.lists(TEXT, max_size=4), start=st.integers(0, 2**31 - 1), kind=TEXT, file=TEXT
)
def test_a_passage_has_one_digest_everywhere(
    empty: psycopg.Connection, text: str, context: str, heading: list[str], start: int, kind: str, file: str
) -> None:
    passage = Passage(0, text, context, tuple(heading), start, start, kind, file)
    call = "select kiwi.passage_digest(%s, %s, %s, %s, %s, %s, %s)"
    told = empty.execute(call, [text, context, heading, start, start, kind, file]).fetchone()
    assert told == (passage_digest(passage),)


CALLS = {
    "put_document": ("select public.put_document('{}', 'x', '[]')", {"kiwi_indexer"}),
    "delete_document": ("select public.delete_document('w', 'a')", {"kiwi_indexer", "kiwi_admin"}),
    "clear_documents": ("select public.clear_documents('w')", {"kiwi_indexer", "kiwi_admin"}),
    "get_item": ("select * from public.get_item('document', 'a.md', collection => 'acme-web')", set(READERS)),
    "list_items": ("select * from public.list_items(collection => 'acme-web')", set(READERS)),
    "an unknown one": ("select * from public.list_items(collection => 'nothing-here')", set(READERS)),
    "collection_status": ("select public.collection_status('acme-web')", set(READERS)),
    "collection_statistics": ("select public.collection_statistics('{a}', collection => 'acme-web')", set(READERS)),
    "similar_terms": ("select public.similar_terms('{zebrra}', collection => 'acme-web')", set(READERS)),
    "search_hybrid": (
        "select * from public.search_hybrid(null, '{a}', '{1}', 1, collection => 'acme-web')",
        set(READERS),
    ),
    "the statements": ("select count(*) from kiwi_private.statements", set()),
    "the collections": ("select count(*) from kiwi_private.collections", set()),
    "the vectors": ("select count(*) from kiwi_private.passages", set()),
    "the words": ("select count(*) from kiwi_private.postings", set()),
}


async def test_each_function_has_its_callers(store: RegistryVectorStore, connection: psycopg.Connection) -> None:
    await store.put([records("a.md", ["zebra"])])
    for role in ("anon", *READERS):
        connection.execute(f"set session authorization {role}")  # type: ignore[call-overload]
        for name, (call, allowed) in CALLS.items():
            if role in allowed:
                connection.execute(call)  # type: ignore[call-overload]
            else:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(call)  # type: ignore[call-overload]
                    pytest.fail(f"{role} did {name}")
        for table, column in TABLES.items():
            for statement in (
                f"insert into kiwi_private.{table} default values",
                f"update kiwi_private.{table} set {column} = default",
                f"delete from kiwi_private.{table}",
                f"truncate kiwi_private.{table} cascade",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement)  # type: ignore[call-overload]
        connection.execute("reset session authorization")
