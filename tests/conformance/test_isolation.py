"""Two collections of one store hold the same files with other texts: nothing of one is seen, counted or changed by the
other, whatever they are called, and whether a store has a collection for each or a filter.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from kiwi_rag.lexical import query_terms
from kiwi_rag.model import Filters, StoredItem
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.registry.pool import Connections
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.stores.local import LocalVectorStore
from kiwi_rag.stores.postgres import RegistryVectorStore
from kiwi_rag.stores.qdrant import QdrantVectorStore
from kiwi_rag.stores.weaviate import WeaviateVectorStore
from tests.conformance.documents import document, records_of
from tests.conformance.items import query
from tests.qdrant_server import LocalQdrant
from tests.sql.documents import registry_of_documents
from tests.weaviate_server import weaviate

Open = Callable[[str], VectorStore]
"""Returns the store of a collection; all of them share one folder, database or server."""
ONE_LOOP = pytest.mark.asyncio(loop_scope="module")
PATHS = ("docs/tides.md", "README.md")
NAMES = [
    ("harbour", "harbour2"),  # one contains the other
    ("quay-one", "quay_one"),
    ("quay-2", "quay_2d_2"),  # as an escape of the first could be
]


@asynccontextmanager
async def local(folder: Path) -> AsyncIterator[Open]:
    yield lambda name: LocalVectorStore(folder / name, "owner")


@asynccontextmanager
async def registry(folder: Path) -> AsyncIterator[Open]:
    with registry_of_documents() as url:
        connections = Connections(url)
        yield lambda name: RegistryVectorStore(connections, name)
        await connections.close()


@asynccontextmanager
async def qdrant(folder: Path) -> AsyncIterator[Open]:
    connection = LocalQdrant()
    yield lambda name: QdrantVectorStore(connection, f"kiwi100-{name}")
    await connection.close()


@asynccontextmanager
async def qdrant_in_one_collection(folder: Path) -> AsyncIterator[Open]:
    connection = LocalQdrant()
    yield lambda name: QdrantVectorStore(connection, "one", partition=name)
    await connection.close()


@asynccontextmanager
async def weaviate_classes(folder: Path) -> AsyncIterator[Open]:
    with weaviate() as connect:
        connection = connect()
        yield lambda name: WeaviateVectorStore(connection, name)
        await connection.close()


STORES: dict[str, Callable[[Path], AbstractAsyncContextManager[Open]]] = {
    "local": local,
    "registry": registry,
    "qdrant": qdrant,
    "qdrant-in-one-collection": qdrant_in_one_collection,
    "weaviate": weaviate_classes,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=list(STORES))
async def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Open]:
    """What opens collections of each store in turn."""
    async with STORES[request.param](tmp_path_factory.mktemp("isolated")) as open_:
        yield open_


async def put(store: VectorStore, name: str, word: str, seed: int) -> None:
    """Store the same files in a collection, with texts of its own."""
    await store.put([
        records_of(document(path, [f"the {word} of {path}", f"more {word} at berth nine"], workspace=name), seed + n)
        for n, path in enumerate(PATHS)
    ])  # fmt: skip


async def seen(store: VectorStore, seed: int) -> tuple[object, ...]:
    """Everything that a collection shows and counts, whatever is asked for."""
    terms = query_terms("zebra giraffe berth")
    statistics = await store.statistics(terms)
    found = [await store.search(query("zebra giraffe berth", statistics, seed=at, depth=20)) for at in (1, 500)]
    legs = [sorted((c.ref, c.passage.text, round(c.cosine, 5), round(c.bm25, 5)) for c in one.items) for one in found]
    status = await store.status()
    gets = [await store.get(ItemRef(ItemType.DOCUMENT, path)) for path in PATHS]
    slips = {slip: sorted(near) for slip, near in (await store.similar_terms(["zebrq", "girafef"])).items()}
    listed = [digests(await store.list(filters)) for filters in (Filters(), Filters(path="docs/*"))]
    return (statistics, legs, [one.refused for one in found], status.items, status.passages, status.problems,
            [one and digests([one]) for one in gets], slips, listed)  # fmt: skip


def digests(items: object) -> list[tuple[str, str]]:
    assert isinstance(items, (list, tuple))
    found: list[StoredItem] = [*items]
    return [(one.ref.item_id, one.digest) for one in found]


@ONE_LOOP
@pytest.mark.parametrize("names", NAMES, ids="-".join)
async def test_a_collection_neither_sees_nor_counts_nor_changes_another(opened: Open, names: tuple[str, str]) -> None:
    one, other = map(opened, names)
    await put(one, names[0], "zebra", seed=1)
    alone = await seen(one, seed=1)
    await put(other, names[1], "giraffe", seed=500)
    assert await seen(one, seed=1) == alone, "another one with the same files and other texts changes nothing"
    both = await seen(other, seed=500)
    assert "zebra" not in str(both) and "giraffe" not in str(alone)

    assert await one.delete(ItemRef(ItemType.DOCUMENT, PATHS[0]))
    await put(one, names[0], "tiger", seed=7)
    assert await seen(other, seed=500) == both
    await one.clear()
    assert await one.list(Filters()) == []
    assert (await one.status()).passages == (await one.statistics(["tiger"])).passages == 0
    assert await seen(other, seed=500) == both
    await other.clear()


@ONE_LOOP
async def test_tasks_in_several_collections_at_once_stay_apart(opened: Open) -> None:
    names = {"north": "zebra", "north-1": "giraffe", "north_1": "tiger"}

    async def work(name: str, word: str, seed: int) -> tuple[object, ...]:
        store = opened(name)
        await put(store, name, word, seed)
        for _ in range(2):
            assert await store.delete(ItemRef(ItemType.DOCUMENT, PATHS[1]))
            statistics = await store.statistics(query_terms("zebra giraffe tiger"))
            assert set(statistics.document_frequency) <= set(query_terms(word))
            found = await store.search(query("zebra giraffe tiger", statistics, seed=seed))
            assert found.items and all(word in one.passage.text for one in found.items)
            await put(store, name, word, seed)
        return await seen(store, seed)

    results = await asyncio.gather(*(work(name, word, 100 * n) for n, (name, word) in enumerate(names.items())))
    for (name, word), result in zip(names.items(), results, strict=True):
        assert all(text not in str(result) for text in {*names.values()} - {word}), name
        await opened(name).clear()
