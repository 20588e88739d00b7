"""What a registry may not do to its reader: one row that cannot be read, or far too much, spoils nothing else."""

from __future__ import annotations

import psycopg
import pytest

from kiwi_rag.errors import RegistryContradicted, RegistryError
from kiwi_rag.model import CollectionStatistics, Filters
from kiwi_rag.refs import ItemRef, ItemType
from kiwi_rag.registry import administration, calls, functions
from kiwi_rag.search.verify import HitChanged, verify_stored
from kiwi_rag.signing.trust import TrustPolicy
from kiwi_rag.stores.postgres import RegistryVectorStore
from kiwi_rag.validation.policy import policy_of
from tests.conformance.items import REGISTRY, admission, query, records
from tests.sql.databases import ADA

ENVELOPES = {
    "no object": "to_jsonb(1)",
    "no base64": """jsonb_set(kiwi.envelope_of(v), '{payload}', '"*"')""",
    "unsigned": "jsonb_set(kiwi.envelope_of(v), '{signatures}', '[]')",
    "10 MB": "jsonb_set(kiwi.envelope_of(v), '{payload}', to_jsonb(repeat('QUJD', 2500000)))",
    "unknown member": """kiwi.envelope_of(v) || '{"x": 1}'""",
}


def serve(connection: psycopg.Connection, envelope: str) -> None:
    """Let the registry give this for the envelope of acme/bad."""
    definition = connection.execute("select pg_get_viewdef('kiwi.stored_versions'::regclass)").fetchone()
    assert definition
    view = definition[0].replace(
        "kiwi.envelope_of(v.*)", f"case when v.item_id = 'acme/bad' then {envelope} else kiwi.envelope_of(v) end"
    )
    assert "acme/bad" in view
    connection.execute(f"create or replace view kiwi.stored_versions with (security_invoker = true) as {view}")


@pytest.mark.parametrize("envelope", ENVELOPES.values(), ids=ENVELOPES)
async def test_one_bad_envelope_spoils_no_list(
    store: RegistryVectorStore, connection: psycopg.Connection, envelope: str
) -> None:
    for name in ("acme/bad", "acme/good"):
        await store.publish(admission(name))
    serve(connection, envelope)
    bad, good = await store.list(Filters())
    verify_stored(good, good.ref, TrustPolicy((ADA,)), REGISTRY, policy_of("registry"))
    assert bad.ref.item_id == "acme/bad"
    with pytest.raises(Exception) as refused:  # which one depends on what is wrong
        verify_stored(bad, bad.ref, TrustPolicy((ADA,)), REGISTRY, policy_of("registry"))
    assert isinstance(refused.value, HitChanged) or refused.value.code in ("envelope", "unsigned", "bad-signature")
    with pytest.raises(Exception) as got:
        stored = await store.get(ItemRef(ItemType.DIRECTIVE, "acme/bad"))
        assert stored is not None
        verify_stored(stored, stored.ref, TrustPolicy((ADA,)), REGISTRY, policy_of("registry"))
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
        await store.upsert(records(admission(name), ["zebra"], seed=seed))
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
        async with store.transport.session() as caller:
            await administration.list_signers(caller)
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


@pytest.mark.parametrize("news", NEWS.values(), ids=NEWS)
async def test_news_that_are_none_are_an_error(
    store: RegistryVectorStore, connection: psycopg.Connection, news: str
) -> None:
    connection.execute(
        "create or replace function public.registry_news(known_seq bigint default 0, signers_since bigint default 0) "
        f"returns jsonb language sql as $$ select {news} $$"
    )
    with pytest.raises(RegistryError) as error:
        async with store.transport.session() as caller:
            await functions.registry_news(caller, 0, 0, "test")
    assert not isinstance(error.value, RegistryContradicted)
    assert error.value.message.startswith("the registry gave")
