"""Every `VectorStore` that the suite runs over. A backend joins by one entry in `BACKENDS`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from kiwi_rag.stores.postgres_documents import DocumentRegistryStore

from kiwi_rag.registry.pool import Connections
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.stores.local import LocalVectorStore
from kiwi_rag.stores.postgres import RegistryVectorStore
from kiwi_rag.stores.qdrant import QdrantConnection, QdrantVectorStore
from tests.conformance import items
from tests.conformance.documents import WORKSPACE, fill
from tests.qdrant_server import API_KEY, QdrantServer
from tests.sql.databases import database, template
from tests.sql.documents import registry_of_documents
from tests.supabase.reading import read_over_api

Backend = Callable[[Path], AbstractAsyncContextManager[VectorStore]]
"""Given an empty folder, yields an empty store that trusts `tests.conformance.items.KEY`, and closes it."""


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
async def qdrant(folder: Path) -> AsyncIterator[VectorStore]:
    store = QdrantVectorStore(QdrantConnection(str(folder / "qdrant")), "shared")
    yield store
    await store.close()


@asynccontextmanager
async def qdrant_server(folder: Path) -> AsyncIterator[VectorStore]:
    with QdrantServer(api_key=API_KEY) as server:
        store = QdrantVectorStore(QdrantConnection(server.url, API_KEY), "shared")
        yield store
        await store.close()


BACKENDS: dict[str, Backend] = {
    "local": local(50_000),
    "local-over-limit": local(0),
    "registry": registry,
    "qdrant": qdrant,
    "qdrant-server": qdrant_server,
    "supabase": read_over_api,
}


@asynccontextmanager
async def shared_registry(folder: Path) -> AsyncIterator[VectorStore]:
    with registry_of_documents() as url:
        store = DocumentRegistryStore(Connections(url), WORKSPACE)
        yield store
        await store.close()


DOCUMENT_BACKENDS: dict[str, Backend] = {
    "local": local(50_000),
    "local-over-limit": local(0),
    "registry": shared_registry,
    "qdrant": qdrant,
    "qdrant-server": qdrant_server,
}
"""Those that keep documents; the one that `tests.conformance.documents` signs for is ``harbour``."""


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=BACKENDS)
async def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[VectorStore, dict[str, list[str]]]]:
    """A store of each backend in turn with 30 items, for tests that only read; and the texts by id."""
    async with BACKENDS[request.param](tmp_path_factory.mktemp("filled")) as opened:
        yield opened, await items.fill(opened)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=DOCUMENT_BACKENDS)
async def filled_documents(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[VectorStore]:
    """A store of each backend in turn with 12 documents, for tests that only read."""
    async with DOCUMENT_BACKENDS[request.param](tmp_path_factory.mktemp("filled")) as opened:
        await fill(opened)
        yield opened


@pytest.fixture(params=DOCUMENT_BACKENDS)
async def documents(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorStore]:
    """An empty store of documents of each backend in turn."""
    async with DOCUMENT_BACKENDS[request.param](tmp_path) as opened:
        yield opened


@pytest.fixture(params=BACKENDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VectorStore]:
    """An empty store of each backend in turn."""
    async with BACKENDS[request.param](tmp_path) as opened:
        yield opened
