"""Two models in one registry: the second is built beside the first, and searches move to it when it is complete."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from kiwi_rag.errors import FingerprintMismatch, NotFound, RegistryRefused
from kiwi_rag.ingest import IngestContext
from kiwi_rag.ingest.registry_indexer import index_pending
from kiwi_rag.model import SearchQuery
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.registry import rows
from kiwi_rag.search import HybridSearchHandler
from kiwi_rag.signing import keys
from kiwi_rag.signing.trust import Signer
from tests.registry_calls import enrol
from tests.sql.shelves import SmallModel, candidate, index, publish, refs, tier, writer

OLD, NEW = SmallModel("old"), SmallModel("new")
OLD_NAME, NEW_NAME = str(OLD.fingerprint), str(NEW.fingerprint)


async def states(registry) -> dict[str, tuple]:
    models = (await registry.store.client.index_status())["models"]
    return {row["fingerprint"].split("/")[0]: (row["state"], row["items"], row["waiting"]) for row in models}


async def search(registry, by: IngestContext):
    handler = HybridSearchHandler([replace(registry, trust=lambda: by.gate.trust)], by.embed)
    return await handler.search(SearchQuery("which pump feeds the basin", "registry", limit=50))


async def search_found(registry, by: IngestContext) -> set[str]:
    reply = await search(registry, by)
    assert [outcome.state for outcome in reply.tiers] == ["ok"]
    return {hit.ref.item_id for hit in reply.hits}


@pytest.fixture
async def registry(url: str, tmp_path: Path):
    """A registry with four items, indexed with the old model."""
    async with tier(url, tmp_path) as opened:
        await publish(opened, *(candidate(f"acme/n{n}") for n in range(4)))
        await index(opened, writer(model=OLD))
        yield opened


ALL = {"acme/n0", "acme/n1", "acme/n2", "acme/n3"}


async def test_searches_go_on_while_the_second_is_built_and_then_switch(registry) -> None:
    old, new = writer(model=OLD), writer(model=NEW)
    assert await registry.store.client.begin_collection(NEW_NAME) == "building"
    async with aclosing(
        index_pending(registry, new, concurrency=1)
    ) as outcomes:  # an indexer that is stopped after two
        assert [(await anext(outcomes)).item_id for _ in range(2)] == ["acme/n0", "acme/n1"]
    done = (await states(registry))["new"][1]
    assert 2 <= done < 4
    assert await states(registry) == {"old": ("active", 4, 0), "new": ("building", done, 4 - done)}
    assert await search_found(registry, old) == ALL
    (told,) = (await search(registry, new)).tiers
    assert (told.state, told.rows) == ("stale", 0)
    assert f"being made: {done} of 4 items" in told.error["message"]
    assert (await registry.store.client.finish_collection(NEW_NAME)).state == "building"
    assert len(refs(await index(registry, new))) == 4 - done  # goes on where it stopped
    assert (await registry.store.client.finish_collection(NEW_NAME)).state == "active"
    assert await states(registry) == {"old": ("superseded", 4, 0), "new": ("active", 4, 0)}
    assert await search_found(registry, new) == ALL
    assert await search_found(registry, old) == ALL  # complete still, so honest still


async def test_the_old_model_says_so_once_it_misses_something(registry) -> None:
    old, new = writer(model=OLD), writer(model=NEW)
    await registry.store.client.begin_collection(NEW_NAME)
    await index(registry, new)
    await registry.store.client.finish_collection(NEW_NAME)
    await publish(registry, candidate("acme/later"))
    await index(registry, new)
    assert await search_found(registry, new) == {*ALL, "acme/later"}
    (told,) = (await search(registry, old)).tiers
    assert told.state == "stale"
    assert "moved on to new/" in told.error["message"]
    assert refs(await index(registry, old)) == ["acme/later"]  # whoever keeps the old one complete keeps it searchable
    assert await search_found(registry, old) == {*ALL, "acme/later"}
    assert (
        await registry.store.client.finish_collection(OLD_NAME)
    ).state == "superseded"  # that alone does not switch back
    assert (await registry.store.client.finish_collection(OLD_NAME, insist=True)).state == "active"


async def test_a_search_without_a_model_uses_the_active_one(registry, connection: psycopg.Connection) -> None:
    async def nearest() -> float:
        text = "The pump of acme/n1 feeds the basin."
        vector = rows.vector_text((NEW if switched else OLD).encode([text])[0])
        query = "select item_id, similarity from public.search_embeddings(%s::extensions.vector, 1)"
        return connection.execute(query, [vector]).fetchone()

    switched = False
    before = await nearest()
    await registry.store.client.begin_collection(NEW_NAME)
    await index(registry, writer(model=NEW))
    assert await nearest() == before
    assert connection.execute("select count(*) from public.search_lexical('pump', 50)").fetchone()[0] == 4
    assert (await registry.store.client.finish_collection(NEW_NAME)).state == "active"
    assert connection.execute("select public.registry_status() ->> 'active_model'").fetchone() == (NEW_NAME,)
    switched = True
    assert (await nearest())[0] == "acme/n1"
    statistics = "select public.collection_statistics('{pump}') ->> 'passages'"
    assert connection.execute(statistics).fetchone() == ("8",)  # of one collection, not of both


async def test_only_an_indexer_that_says_so_starts_a_second_one(registry, connection: psycopg.Connection) -> None:
    from kiwi_rag.ingest.registry_indexer import index_admitted

    new = writer(model=NEW)
    (admission,) = await publish(registry, candidate("acme/more"))
    with pytest.raises(FingerprintMismatch, match=r"holds vectors of old/.*none of new/") as told:
        await index_admitted(admission, registry, new)
    assert "kiwi registry index" in told.value.hint
    with pytest.raises(FingerprintMismatch):
        await index(registry, new)
    (answer,) = (await search(registry, new)).tiers
    assert answer.state == "stale"
    assert connection.execute("select count(*) from kiwi_private.collections").fetchone() == (1,)


async def test_another_dimension_begins_beside_and_what_names_none_is_refused(registry) -> None:
    assert await registry.store.client.begin_collection("openai/0123456789abcdef/1536/api/8191") == "building"
    for fingerprint in ("openai/0123456789abcdef/many/api/8191", "openai/0123456789abcdef/0/api/8191", "openai"):
        with pytest.raises(FingerprintMismatch, match="names no model"):
            await registry.store.client.begin_collection(fingerprint)


async def test_a_refused_item_keeps_the_switch_waiting_until_somebody_insists(url: str, tmp_path: Path) -> None:
    eve = keys.generate("eve")
    both = (Signer("eve", eve.public_key), *writer().gate.trust.signers)
    async with tier(url, tmp_path) as registry:
        await enrol(registry.store, both[0])
        await publish(registry, candidate("acme/x"), candidate("acme/y", key=eve), by=writer(*both))
        await index(registry, writer(*both, model=OLD))
        await registry.store.client.begin_collection(NEW_NAME)
        apply_revocations = writer(model=NEW)  # trusts ada alone
        assert refs(await index(registry, apply_revocations)) == ["acme/x"]
        progress = await registry.store.client.finish_collection(NEW_NAME)
        assert (progress.state, progress.items, progress.waiting, progress.refused) == ("building", 1, 1, 1)
        assert (await registry.store.client.finish_collection(NEW_NAME, insist=True)).state == "active"
        assert await search_found(registry, apply_revocations) == {"acme/x"}


async def test_a_superseded_collection_is_dropped_the_active_one_never(
    registry, connection: psycopg.Connection
) -> None:
    await registry.store.client.begin_collection(NEW_NAME)
    await index(registry, writer(model=NEW))
    with pytest.raises(RegistryRefused, match="can be dropped"):
        await registry.store.drop_model(OLD_NAME)  # still the active one
    await registry.store.client.finish_collection(NEW_NAME)
    assert await registry.store.drop_model(OLD_NAME) == 8
    assert list(await states(registry)) == ["new"]
    for table in ("passages", "postings", "term_statistics"):
        held = f"select count(distinct collection_id) from kiwi.{table}"
        assert connection.execute(held).fetchone() == (1,)
    with pytest.raises(RegistryRefused):
        await registry.store.drop_model(NEW_NAME)
    assert await search_found(registry, writer(model=NEW)) == ALL
    events = "select event from kiwi.audit where event like 'model-%%' order by seq"
    assert [row[0] for row in connection.execute(events)] == ["model-begun", "model-switched", "model-dropped"]


async def test_a_yank_while_the_second_is_built_counts_in_both(registry) -> None:
    await registry.store.client.begin_collection(NEW_NAME)
    await index(registry, writer(model=NEW))
    await registry.store.delete(ItemRef(ItemType.KNOWLEDGE, "acme/n2"))
    assert (await registry.store.client.finish_collection(NEW_NAME)).state == "active"
    assert await search_found(registry, writer(model=NEW)) == ALL - {"acme/n2"}
    assert await search_found(registry, writer(model=OLD)) == ALL - {"acme/n2"}


async def test_a_model_that_nobody_began_cannot_be_finished(registry) -> None:
    with pytest.raises(NotFound, match="no vectors of new/"):
        await registry.store.client.finish_collection(NEW_NAME)


async def test_what_waits_for_every_model_does_not_make_the_old_one_stale(registry) -> None:
    await registry.store.client.begin_collection(NEW_NAME)
    await index(registry, writer(model=NEW))
    await registry.store.client.finish_collection(NEW_NAME)
    await publish(registry, candidate("acme/later"))
    assert await search_found(registry, writer(model=OLD)) == ALL  # the active one does not find it either


async def test_who_may_not_see_the_queue_sees_the_rest_of_the_status(registry, connection: psycopg.Connection) -> None:
    connection.execute("set session authorization anon")
    (told,) = connection.execute("select public.registry_status()").fetchone()
    assert told["items"] == 4
    assert not {"queue", "models"} & set(told)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("select public.index_status()")
