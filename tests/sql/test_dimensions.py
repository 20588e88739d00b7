"""Collections of several dimensions side by side, each searched right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import psycopg
import pytest

from kiwi_rag.errors import FingerprintMismatch
from kiwi_rag.model import CollectionStatistics, EmbeddingRecord
from kiwi_rag.registry import tuning
from kiwi_rag.registry.pool import Connections
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import FINGERPRINT, admission, query, records, unit_vector
from tests.registry_calls import store_passages
from tests.sql import documents

WIDE = "text-embedding-3-small/0/1536/mean/8191"
HUGE = "huge/0/4096/mean/8191"


def wide(
    found: list[EmbeddingRecord], seed: int, fingerprint: str = WIDE, dimension: int = 1536
) -> list[EmbeddingRecord]:
    """The same passages with vectors of another dimension."""
    return [
        replace(record, vector=unit_vector(seed + n, dimension), fingerprint=fingerprint)
        for n, record in enumerate(found)
    ]


async def test_two_models_of_items_are_searched_side_by_side(
    store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    items = [admission(f"acme/item-{n}", f"text number {n}") for n in range(12)]
    for n, item in enumerate(items):
        await store.put([records(item, seed=100 + n)])
    assert await store.client.begin_collection(WIDE) == "building"
    for n, item in enumerate(items):
        await store_passages(store, wide(records(item), 500 + n))
    assert (await store.client.finish_collection(WIDE)).state == "active"
    statistics = CollectionStatistics(1, 1, {})
    for n, item in enumerate(items):
        narrow = await store.search(query("", statistics, seed=100 + n, depth=3))
        broad = replace(query("", statistics, depth=3, fingerprint=WIDE), vector=unit_vector(500 + n, 1536))
        for found in (narrow, await store.search(broad)):
            best = max(found.items, key=lambda hit: hit.cosine)
            assert (best.ref, round(best.cosine, 4)) == (item.ref, 1)
    call = "select public.search_embeddings(%s::text::extensions.vector)"
    with pytest.raises(psycopg.Error) as refused:  # the active model's is 1,536
        connection.execute(call, ["[" + ",".join(["0.1"] * 384) + "]"])
    assert refused.value.sqlstate == "KW011"
    assert len(connection.execute(call, ["[" + ",".join(["0.1"] * 1536) + "]"]).fetchall()) == 12


async def test_a_workspace_of_1536_beside_one_of_384() -> None:
    with documents.registry_of_documents() as url:
        stores = [RegistryVectorStore(Connections(url), name) for name in ("narrow", "broad")]
        await stores[0].put([documents.records("a.md", ["zebra"], seed=1, workspace="narrow")])
        broad = wide(documents.records("a.md", ["okapi"], workspace="broad"), 7)
        await stores[1].put([broad])
        found = await stores[0].search(query("", CollectionStatistics(1, 1, {}), seed=1))
        assert [round(hit.cosine, 4) for hit in found.items] == [1]
        asked = replace(query("", CollectionStatistics(1, 1, {}), fingerprint=WIDE), vector=unit_vector(7, 1536))
        assert [round(hit.cosine, 4) for hit in (await stores[1].search(asked)).items] == [1]
        with pytest.raises(FingerprintMismatch):
            await stores[0].search(asked)
        for store in stores:
            await store.close()


@pytest.mark.usefixtures("few_samples")
@pytest.mark.parametrize(("fingerprint", "dimension", "method"), [(WIDE, 1536, "ivfflat"), (HUGE, 4096, "exact")])
async def test_an_index_over_halves_up_to_4000_dimensions(
    store: RegistryVectorStore, url: str, fingerprint: str, dimension: int, method: str
) -> None:
    rng = np.random.default_rng(3)
    one = admission("acme/long")
    texts = [f"passage {n}" for n in range(60)]
    await store.put([wide(records(one, texts), int(rng.integers(1000)), fingerprint, dimension)])
    assert (await tuning.tune(url, method="ivfflat")).choice.method == method
    asked = replace(query("", CollectionStatistics(1, 1, {}), fingerprint=fingerprint), depth=10)
    found = await store.search(replace(asked, vector=unit_vector(3, dimension)))
    assert found.plan == method
    assert len(found.items) == 10


async def test_a_passage_may_come_before_its_vector(connection: psycopg.Connection) -> None:
    """Words first: found by them, and not in the way of the vectors' search."""
    from psycopg.types.json import Jsonb

    from kiwi_rag.registry import rows
    from tests.sql.publication import published

    one = admission("acme/x", "zebra")
    published(connection, one)
    passages = [rows.passage_object(record) for record in records(one, ["zebra one", "zebra two"])]
    passages[1]["embedding"] = None
    connection.execute("select public.store_passages(%s, %s, %s)", [one.digest, FINGERPRINT, Jsonb(passages)])
    assert len(connection.execute("select * from public.search_lexical('zebra')").fetchall()) == 2
    near = "select * from public.search_embeddings(%s::extensions.vector)"
    assert len(connection.execute(near, [rows.vector_text(unit_vector(1))]).fetchall()) == 1
