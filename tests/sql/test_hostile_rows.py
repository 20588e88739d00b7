"""What a registry may not do to its reader: one row that cannot be read, or far too much, spoils nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import httpx
import psycopg
import pytest

from kiwi_rag.collection import Collection
from kiwi_rag.errors import MalformedEnvelope, RegistryContradicted, RegistryError
from kiwi_rag.model import CollectionStatistics, Filters
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.registry import calls, supabase
from kiwi_rag.registry.client import RegistryClient, parse_receipt
from kiwi_rag.search.verify import HitChanged, verify_stored
from kiwi_rag.signing.trust import TrustPolicy
from kiwi_rag.stores.local.audit import SqliteAuditLog
from kiwi_rag.stores.postgres import RegistryVectorStore
from kiwi_rag.validation.admission import policy_of
from tests.conformance.items import REGISTRY, admission, query, records
from tests.sql.databases import ADA

ENVELOPES = {
    "no object": "to_jsonb(1)",
    "no base64": """jsonb_set(kiwi.true_envelope(v), '{payload}', '"*"')""",
    "unsigned": "jsonb_set(kiwi.true_envelope(v), '{signatures}', '[]')",
    "10 MB": "jsonb_set(kiwi.true_envelope(v), '{payload}', to_jsonb(repeat('QUJD', 2500000)))",
    "unknown member": """kiwi.true_envelope(v) || '{"x": 1}'""",
}


def serve(connection: psycopg.Connection, envelope: str) -> None:
    """Let the registry give this for the envelope of acme/bad."""
    (true,) = connection.execute("select pg_get_functiondef('kiwi.envelope_of'::regproc)").fetchone() or ("",)
    connection.execute(true.replace("kiwi.envelope_of(", "kiwi.true_envelope("))
    connection.execute(f"""
        create or replace function kiwi.envelope_of(statement kiwi_private.all_statements) returns jsonb
            language sql stable set search_path = pg_catalog, pg_temp
            as $$ select case (v).item_id when 'acme/bad' then {envelope} else kiwi.true_envelope(v) end
            from (select statement as v) as one $$
    """)


@pytest.mark.parametrize("envelope", ENVELOPES.values(), ids=ENVELOPES)
async def test_one_bad_envelope_spoils_no_list(
    store: RegistryVectorStore, connection: psycopg.Connection, envelope: str
) -> None:
    for name in ("acme/bad", "acme/good"):
        await store.publish(admission(name))
    serve(connection, envelope)
    bad, good = await store.list(Filters())
    trust, log = TrustPolicy((ADA,)), SqliteAuditLog(lambda: pytest.fail("nothing is logged"))
    tier = Collection("registry", 2, store, policy_of("registry"), lambda: trust, REGISTRY, log)
    verify_stored(good, good.ref, trust, tier)
    assert bad.ref.item_id == "acme/bad"
    with pytest.raises(Exception) as refused:  # which one depends on what is wrong
        verify_stored(bad, bad.ref, trust, tier)
    assert isinstance(refused.value, HitChanged) or refused.value.code in ("envelope", "unsigned", "bad-signature")
    with pytest.raises(Exception) as got:
        stored = await store.get(ItemRef(ItemType.DIRECTIVE, "acme/bad"))
        assert stored is not None
        verify_stored(stored, stored.ref, trust, tier)
    assert hasattr(got.value, "code")


ROWS = {
    "a type that is none": "item_type := 'poem'",
    "an id that is none": "item_id := '../../etc/passwd'",
    "no version": "version := null",
    "a huge version": "version := repeat('9', 1000)",
    "no heading": "heading := null",
    "no line": "start_line := null",
    "no text": "text := null",
    "metadata that are none": """metadata := '"x"'::jsonb""",
}


@pytest.mark.parametrize("change", ROWS.values(), ids=ROWS)
async def test_one_bad_row_spoils_no_search(
    store: RegistryVectorStore, connection: psycopg.Connection, change: str
) -> None:
    for seed, name in enumerate(("acme/bad", "acme/good")):
        await store.put([records(admission(name), ["zebra"], seed=seed)])
    column, value = change.split(" := ")
    (definition,) = connection.execute("select pg_get_functiondef('public.search_hybrid'::regproc)").fetchone() or ("",)
    named = "select array_agg(n) from pg_proc, unnest(proargnames[pronargs + 1:]) as n where oid = %s::regproc"
    (names,) = connection.execute(named, ["public.search_hybrid"]).fetchone() or ([],)
    chosen = ", ".join(
        f"case f.item_id when 'acme/bad' then {value} else f.{n} end" if n == column else f"f.{n}" for n in names
    )
    assert definition.count("select * from kiwi.search_hybrid(") == 1
    head, _, tail = definition.partition("select * from kiwi.search_hybrid(")
    connection.execute(f"{head}select {chosen} from kiwi.search_hybrid({tail.replace(')', ') as f', 1)}")
    found = await store.search(query("zebra", CollectionStatistics(2, 2, {"zebra": 2})))
    assert [c.ref.item_id for c in found.items] == ["acme/good"]
    (refused,) = found.refused
    assert refused.tier == "registry"
    assert "the registry gave" in refused.reason


async def test_an_answer_without_end_is_cut_off(
    store: RegistryVectorStore, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MAX_ROWS", 1000)
    connection.execute("drop function public.list_signers()")
    connection.execute(
        "create function public.list_signers() returns table (key_id text) language sql "
        "as $$ select 'x' from generate_series(1, 100000) $$"
    )
    with pytest.raises(RegistryError, match="over 1000 rows"):
        async with store.client.session() as caller:
            await caller.list_signers()
    assert (await store.status()).items == 0


NEWS = {
    "no object": "to_jsonb(3)",
    "no head": """'{"signers": [], "yanked": []}'::jsonb""",
    "a head that is none": """'{"audit_head": "12:xyz", "signers": [], "yanked": []}'::jsonb""",
    "no yanks": """'{"audit_head": "0:", "signers": []}'::jsonb""",
    "a yank that is none": """'{"audit_head": "0:", "signers": [], "yanked": [1]}'::jsonb""",
    "a signer that is none": """'{"audit_head": "0:", "signers": [{"key_id": 4}], "yanked": []}'::jsonb""",
    "a signer that is a number": """'{"audit_head": "0:", "signers": [4], "yanked": []}'::jsonb""",
    "trust given": """jsonb_build_object('audit_head', '0:', 'yanked', '[]'::jsonb,
        'signers', jsonb_build_array(jsonb_build_object(
        'key_id', repeat('a', 64), 'principal', 'x', 'status', 'active', 'status_changed_at', now(),
        'status_reason', '')))""",
}


@pytest.mark.parametrize("checkpoint", NEWS.values(), ids=NEWS)
async def test_news_that_are_none_are_an_error(
    store: RegistryVectorStore, connection: psycopg.Connection, checkpoint: str
) -> None:
    connection.execute(
        "create or replace function"
        " public.registry_checkpoint(known_seq bigint default 0, signers_since bigint default 0) "
        f"returns jsonb language sql as $$ select {checkpoint} $$"
    )
    with pytest.raises(RegistryError) as error:
        async with store.client.session() as caller:
            await caller.registry_checkpoint(0, 0, "test")
    assert not isinstance(error.value, RegistryContradicted)
    assert error.value.message.startswith("the registry gave")


class Answering:
    """A registry that gives the same for whatever it is asked, as Supabase's API would hand it on."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    async def value(self, function: str, arguments: Mapping[str, Any]) -> Any:
        return self._answer

    async def rows(self, function: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [self._answer] if isinstance(self._answer, dict) else []

    async def become(self, role: str) -> None:
        pass


def bound(answer: object) -> RegistryClient:
    """The functions of a registry that gives this answer to everything."""
    return RegistryClient(cast("Any", None), caller=Answering(answer))


X = ItemRef(ItemType.DIRECTIVE, "acme/x", "1.0.0")
MODEL = "model"
CALLS: dict[str, Callable[[RegistryClient], Awaitable[object]]] = {
    "enrol_signer": lambda caller: caller.enrol_signer(ADA),
    "retire_signer": lambda caller: caller.retire_signer("k"),
    "revoke_signer": lambda caller: caller.revoke_signer("k"),
    "yank_item": lambda caller: caller.yank_item(X),
    "collection_statistics": lambda caller: caller.collection_statistics(["zebra"]),
    "registry_status": lambda caller: caller.registry_status(),
    "registry_checkpoint": lambda caller: caller.registry_checkpoint(0, 0, "test"),
    "claim_item": lambda caller: caller.claim_item("d", MODEL),
    "begin_collection": lambda caller: caller.begin_collection(MODEL),
    "finish_collection": lambda caller: caller.finish_collection(MODEL),
    "drop_collection": lambda caller: caller.drop_collection(MODEL, 9),
}
TABLES: dict[str, Callable[[RegistryClient], Awaitable[object]]] = {
    "list_signers": lambda caller: caller.list_signers(),
    "audit_records": lambda caller: caller.audit_records(0, 10),
    "get_item": lambda caller: caller.get_item(X, yanked_too=True),
    "item_status": lambda caller: caller.item_status(X),
    "indexed_items": lambda caller: caller.indexed_items(MODEL, 9),
    "read_passages": lambda caller: caller.read_passages("d", MODEL),
}
VALUES: Sequence[object] = ({}, {"passages": "many", "collections": 3}, [1], 1.5)
_COLUMNS = [
    "item_type",
    "item_id",
    "version",
    "digest",
    "content_sha256",
    "received_at",
    "yanked_at",
    "yank_reason",
    "signer_status",
    "passages",
    "envelope",
    "visibility",
    "key_id",
    "principal",
    "public_key",
    "item_patterns",
    "item_types",
    "valid_after",
    "valid_before",
    "status",
    "status_changed_at",
    "seq",
    "at",
    "event",
    "ref",
    "details",
    "previous_hash",
    "hash",
    "ordinal",
    "text",
    "context",
    "heading",
    "start_line",
    "end_line",
    "embedding",
    "terms",
    "frequencies",
    "length",
    "file",
    "kind",
    "files",
]
WRONG_ROWS: Sequence[Mapping[str, object]] = (
    {},
    *(dict.fromkeys(_COLUMNS, one) for one in (3, "x", [1], {"a": 1}, 2.5)),
)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_value_of_another_type_is_an_error_of_the_registry(
    call: Callable[[RegistryClient], Awaitable[object]],
) -> None:
    for answer in VALUES:
        with pytest.raises(RegistryError, match=r"^the registry gave"):
            await call(bound(answer))


@pytest.mark.parametrize("call", TABLES.values(), ids=TABLES)
async def test_a_row_of_another_shape_is_an_error_of_the_registry(
    call: Callable[[RegistryClient], Awaitable[object]],
) -> None:
    for row in WRONG_ROWS:
        with pytest.raises((RegistryError, MalformedEnvelope)):
            await call(bound(dict(row)))


@pytest.mark.parametrize("answer", [{}, {"sequence": "1"}, {"code": 4}, [1], None])
async def test_a_receipt_that_is_none_is_an_error_of_the_registry(answer: object) -> None:
    with pytest.raises(RegistryError):
        parse_receipt(await bound(answer).publish_item(admission("acme/x")))


async def test_a_status_that_is_none_is_an_error_of_the_registry(
    store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    connection.execute(
        "create or replace function public.registry_status() returns jsonb language sql "
        """as $$ select '{"items": "many", "collections": [], "audience": 3}'::jsonb $$"""
    )
    with pytest.raises(RegistryError, match="invalid answer to registry_status"):
        await store.status()


async def test_over_the_api_an_answer_without_end_is_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry says that it has a billion rows, and gives them."""
    monkeypatch.setattr(calls, "MAX_CHARACTERS", 1 << 20)
    pages: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        pages.append(request.url.path)
        if request.url.path.endswith("list_signers"):
            return httpx.Response(206, json=[{"key_id": "x"}] * 1000, headers={"Content-Range": "0-999/1000000000"})
        return httpx.Response(200, json=["x" * 1000] * 2000)

    http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    monkeypatch.setattr(supabase, "_http_client", lambda _: http)
    api = supabase.SupabaseApi("http://localhost", "key")
    with pytest.raises(RegistryError, match="over 100000 rows"):
        await api.rows("list_signers", {})
    assert pages == ["/rest/v1/rpc/list_signers"]
    with pytest.raises(RegistryError, match="1 MiB of text"):
        await api.value("registry_status", {})
    await api.close()


async def test_one_value_without_end_is_refused(
    store: RegistryVectorStore, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MAX_CHARACTERS", 1 << 20)
    connection.execute(
        "create or replace function public.registry_status() returns jsonb language sql "
        "as $$ select jsonb_build_object(repeat('x', 2000000), 1) $$"
    )
    with pytest.raises(RegistryError, match=r"over \d+ rows or 1 MiB of text"):
        await store.status()
