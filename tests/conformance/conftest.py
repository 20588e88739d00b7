"""Every `VectorStore` that the suite runs over. A backend joins by one entry in `BACKENDS`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest
import pytest_asyncio

from kiwi_rag.registry.pool import Connections
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.stores.local import LocalVectorStore
from kiwi_rag.stores.postgres import RegistryVectorStore
from kiwi_rag.stores.qdrant import QdrantConnection, QdrantVectorStore
from kiwi_rag.stores.weaviate import WeaviateVectorStore
from tests.conformance import documents as documents_
from tests.conformance import items
from tests.conformance.contents import KINDS, Kind
from tests.qdrant_server import API_KEY, LocalQdrant, QdrantServer
from tests.sql.databases import database, template
from tests.sql.documents import registry_of_documents
from tests.supabase.reading import read_over_api
from tests.weaviate_server import weaviate

Backend = Callable[[Path], AbstractAsyncContextManager[VectorStore]]
"""Given an empty folder, yields an empty store that trusts `tests.conformance.items.KEY`, and closes it."""


class Place(NamedTuple):
    """A store, and the kind of content that it is to keep."""

    store: VectorStore
    kind: Kind


def local(exact_limit: int) -> Backend:
    @asynccontextmanager
    async def opened(folder: Path) -> AsyncIterator[VectorStore]:
        store = LocalVectorStore(folder / "vectors", "owner", exact_limit=exact_limit)
        yield store
        await store.close()

    return opened


@asynccontextmanager
async def registry(folder: Path) -> AsyncIterator[VectorStore]:
    with database(like=template()) as url:
        store = RegistryVectorStore(Connections(url))
        yield store
        await store.close()


@asynccontextmanager
async def registry_documents(folder: Path) -> AsyncIterator[VectorStore]:
    with registry_of_documents() as url:
        store = RegistryVectorStore(Connections(url), documents_.WORKSPACE)
        yield store
        await store.close()


@asynccontextmanager
async def qdrant(folder: Path) -> AsyncIterator[VectorStore]:
    store = QdrantVectorStore(LocalQdrant(), "shared")
    yield store
    await store.close()


@asynccontextmanager
async def qdrant_server(folder: Path) -> AsyncIterator[VectorStore]:
    with QdrantServer(api_key=API_KEY) as server:
        store = QdrantVectorStore(QdrantConnection(server.url, API_KEY), "shared")
        yield store
        await store.close()


@asynccontextmanager
async def qdrant_partition(folder: Path) -> AsyncIterator[VectorStore]:
    """A partition of a collection in which another one has documents, too."""
    connection = LocalQdrant()
    neighbour = QdrantVectorStore(connection, "one", partition="neighbour")
    texts = ["berth number 1 is free", "canary database restore"]
    await neighbour.put([KINDS["document"].entry(name, texts) for name in ("docs/a/File 01", "acme/deploy")])
    store = QdrantVectorStore(connection, "one", partition="shared")
    yield store
    await store.close()


@asynccontextmanager
async def weaviate_class(folder: Path) -> AsyncIterator[VectorStore]:
    with weaviate() as connect:
        store = WeaviateVectorStore(connect(), f"shared-{uuid4().hex[:8]}")
        yield store
        await store.clear()
        await store.close()


_LOCAL: dict[str, Backend] = {"local": local(50_000), "local-over-limit": local(0)}
_SERVERS: dict[str, Backend] = {
    "qdrant": qdrant,
    "qdrant-server": qdrant_server,
    "qdrant-partition": qdrant_partition,
    "weaviate": weaviate_class,
}
_REGISTRY: dict[str, Backend] = {"registry": registry, "supabase": read_over_api}

BACKENDS: dict[str, dict[str, Backend]] = {
    "item": _LOCAL | _REGISTRY,
    "skill": _LOCAL | _REGISTRY,
    "document": _LOCAL | _SERVERS | {"registry": registry_documents},
}
"""Kind → the stores that keep it; those of documents keep the collection `tests.conformance.documents.WORKSPACE`."""


def places(*kinds: str) -> list[object]:
    """The parameters of a fixture: kinds of content, each with every store that keeps it."""
    return [pytest.param((kind, name), id=f"{kind}-{name}") for kind in kinds for name in BACKENDS[kind]]


@asynccontextmanager
async def opened(param: tuple[str, str], folder: Path) -> AsyncIterator[Place]:
    """Yield an empty place."""
    kind, name = param
    async with BACKENDS[kind][name](folder) as store:
        yield Place(store, KINDS[kind])


@pytest.fixture(params=places(*KINDS))
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """An empty store of each backend in turn, with each kind of content."""
    async with opened(request.param, tmp_path) as empty:
        yield empty


@pytest.fixture(params=places("item", "skill"))
async def versioned(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """An empty store of each backend in turn, with each kind of content that has versions."""
    async with opened(request.param, tmp_path) as empty:
        yield empty


_ON_SERVERS = [
    pytest.param(("document", name), id=f"document-{name}") for name in ("qdrant", "qdrant-server", "weaviate")
]


@pytest.fixture(params=[*places("item"), *_ON_SERVERS])
async def words(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """An empty store of each backend in turn, for items, or documents where a backend keeps no items."""
    async with opened(request.param, tmp_path) as empty:
        yield empty


@pytest.fixture(params=places("document"))
async def documents(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorStore]:
    """An empty store of each backend in turn, for documents."""
    async with opened(request.param, tmp_path) as empty:
        yield empty.store


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=places(*KINDS))
async def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Place, dict[str, list[str]]]]:
    """A store of each backend in turn with 30 of each kind, for tests that only read; and the texts by name."""
    async with opened(request.param, tmp_path_factory.mktemp("filled")) as empty:
        yield empty, await empty.kind.fill(empty.store)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=places("item"))
async def filled_items(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[VectorStore, dict[str, list[str]]]]:
    """A store of each backend in turn with 30 items of different metadata, for tests that only read."""
    async with opened(request.param, tmp_path_factory.mktemp("filled")) as empty:
        yield empty.store, await items.fill(empty.store)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=places("document"))
async def filled_documents(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[VectorStore]:
    """A store of each backend in turn with 12 documents of different metadata, for tests that only read."""
    async with opened(request.param, tmp_path_factory.mktemp("filled")) as empty:
        await documents_.fill(empty.store)
        yield empty.store
