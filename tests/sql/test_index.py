"""store_passages, pending_items, yank_item: the inverted index and its statistics follow what is searchable."""

from __future__ import annotations

import asyncio
import dataclasses

import psycopg
import pytest
from psycopg.types.json import Jsonb

from kiwi_rag.errors import FingerprintMismatch, NotAdmitted, NotFound
from kiwi_rag.model import CollectionStatistics
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.registry import rows
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import FINGERPRINT, admission, query, records
from tests.registry_calls import store_passages

RECOUNT = """
    select
        (select count(*) from kiwi.passages where searchable),
        (select coalesce(sum(length), 0) from kiwi.passages where searchable),
        (select coalesce(jsonb_object_agg(term, n), '{}') from (
            select term, count(*) as n from kiwi.passages, unnest(terms) as term where searchable group by term
        ) as counted)
"""
KEPT = """
    select coalesce(sum(passages), 0), coalesce(sum(total_length), 0),
        (select coalesce(jsonb_object_agg(term, passages), '{}') from kiwi.term_statistics)
    from kiwi_private.collections
"""


def assert_statistics_are_true(connection: psycopg.Connection) -> None:
    counted, kept = connection.execute(RECOUNT).fetchone(), connection.execute(KEPT).fetchone()
    assert counted == kept
    postings = connection.execute("select count(*) from kiwi.postings").fetchone()
    terms = "select coalesce(sum(cardinality(terms)), 0) from kiwi.passages where searchable"
    assert postings == connection.execute(terms).fetchone()


async def test_a_new_version_replaces_the_old_once_it_is_indexed(
    store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    old, new = admission("acme/x", "old", version="1.0.0"), admission("acme/x", "new", version="1.1.0")
    await store.put([records(old, ["zebra one", "zebra two"])])
    await store.publish(new)
    assert (await store.statistics(["zebra"])).document_frequency == {"zebra": 2}
    await store_passages(store, records(new, ["tiger"], seed=9))
    assert (await store.statistics(["zebra", "tiger"])).document_frequency == {"tiger": 1}
    assert_statistics_are_true(connection)
    assert (await store.get(old.ref)).digest == old.digest


async def test_indexing_an_old_version_late_does_not_bring_it_back(store: RegistryVectorStore) -> None:
    old, new = admission("acme/x", "old", version="1.0.0"), admission("acme/x", "new", version="1.1.0")
    await store.publish(old)
    await store.put([records(new, ["tiger"])])
    await store_passages(store, records(old, ["zebra"]))
    assert (await store.statistics(["zebra", "tiger"])).document_frequency == {"tiger": 1}


async def test_reindexing_with_other_passages_leaves_nothing_of_the_first(
    store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    one = admission("acme/x")
    await store.put([records(one, ["zebra one", "zebra two", "zebra three"])])
    await store_passages(store, records(one, ["tiger"]))
    assert (await store.statistics(["zebra", "tiger"])).document_frequency == {"tiger": 1}
    assert connection.execute("select count(*) from kiwi.passages").fetchone() == (1,)
    assert_statistics_are_true(connection)


async def test_yanking_the_newest_brings_the_one_before_it_back(
    store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    old, new = admission("acme/x", "old", version="1.0.0"), admission("acme/x", "new", version="1.1.0")
    await store.put([records(old, ["zebra"])])
    await store.put([records(new, ["tiger"])])
    assert await store.delete(new.ref)
    assert (await store.statistics(["zebra", "tiger"])).document_frequency == {"zebra": 1}
    assert (await store.get(ItemRef(ItemType.DIRECTIVE, "acme/x"))).digest == old.digest
    assert_statistics_are_true(connection)


async def test_statistics_hold_under_concurrent_indexing(
    store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    async def work(n: int) -> None:
        for version in ("1.0.0", "1.1.0"):
            one = admission(f"acme/item-{n}", f"text {version}", version=version)
            await store.put([records(one, [f"alpha beta w{n}", f"beta gamma {version}"], seed=n)])
            await store_passages(store, records(one, ["alpha delta"], seed=n))
        if n % 3 == 0:
            await store.delete(ItemRef(ItemType.DIRECTIVE, f"acme/item-{n}"))

    await asyncio.gather(*(work(n) for n in range(12)))
    assert_statistics_are_true(connection)
    assert (await store.statistics(["alpha"])).document_frequency == {"alpha": 8}


async def test_what_waits_is_given_once_until_it_is_indexed(store: RegistryVectorStore) -> None:
    waiting = [admission(f"acme/item-{n}") for n in range(5)]
    for one in waiting:
        await store.publish(one)
    first = await store.client.pending_items(FINGERPRINT, limit=3)
    rest = await store.client.pending_items(FINGERPRINT, limit=3, after=first[-1][0])
    assert [e for _, e in [*first, *rest]] == [one.envelope for one in waiting]
    await store_passages(store, records(waiting[0]))
    assert [e for _, e in await store.client.pending_items(FINGERPRINT)] == [one.envelope for one in waiting[1:]]
    assert len(await store.client.pending_items("other/1/384/mean/256")) == 5


async def test_only_published_and_admitted_items_are_indexed(store: RegistryVectorStore) -> None:
    with pytest.raises(NotFound):
        await store_passages(store, records(admission("acme/never")))
    with pytest.raises(NotAdmitted):
        entry = [
            dataclasses.replace(r, admission=dataclasses.replace(r.admission, seal=b""))
            for r in records(admission("acme/x"))
        ]
        await store.put([entry])


@pytest.mark.parametrize(
    "embedding", ["[1,2,3]", "[" + ",".join(["0"] * 384) + "]", "[" + ",".join(["1"] * 384) + "]", "no"]
)
async def test_a_wrong_vector_is_refused_in_the_database_too(
    store: RegistryVectorStore, connection: psycopg.Connection, embedding: str
) -> None:
    one = admission("acme/x")
    await store.publish(one)
    passage = rows.passage_object(records(one)[0]) | {"embedding": embedding}
    with pytest.raises(psycopg.Error) as error:
        connection.execute("select public.store_passages(%s, %s, %s)", [one.digest, FINGERPRINT, Jsonb([passage])])
    assert error.value.sqlstate == "KW017"  # of this item, not of the model: an indexer goes on


async def test_a_failed_put_publishes_nothing(store: RegistryVectorStore, connection: psycopg.Connection) -> None:
    await store.put([records(admission("acme/one"))])
    with pytest.raises(FingerprintMismatch):
        await store.put([records(admission("acme/two"), fingerprint="other/1/384/mean/256")])
    assert await store.get(ItemRef(ItemType.DIRECTIVE, "acme/two")) is None
    assert connection.execute("select public.verify_audit()").fetchone() == (None,)


async def test_a_long_item_with_many_passages(store: RegistryVectorStore, connection: psycopg.Connection) -> None:
    one = admission("acme/long", "x" * 200_000)
    await store.put([records(one, [f"passage {n} of words" for n in range(300)])])
    assert (await store.status()).passages == 300
    found = await store.search(query("words", CollectionStatistics(1, 1, {"word": 1}), depth=500))
    assert len(found.items) == 300
    assert_statistics_are_true(connection)
