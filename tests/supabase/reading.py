"""A registry that is read over Supabase's API, with the publishable key alone, and written over a connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from kiwi_rag.model import EmbeddingRecord
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.registry.pool import Connections
from kiwi_rag.registry.supabase import SupabaseApi
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.sql.databases import database, template
from tests.supabase.postgrest import PUBLISHABLE, project


class ReadOverApi(RegistryVectorStore):
    """Everything but `put` and `delete` goes over the API."""

    def __init__(self, url: str, writer: RegistryVectorStore) -> None:
        super().__init__(SupabaseApi(url, PUBLISHABLE))
        self._writer = writer

    async def put(self, entries: Sequence[Sequence[EmbeddingRecord]]) -> None:
        await self._writer.put(entries)

    async def delete(self, ref: ItemRef) -> bool:
        return await self._writer.delete(ref)

    async def close(self) -> None:
        await super().close()
        await self._writer.close()


@asynccontextmanager
async def read_over_api(folder: Path) -> AsyncIterator[VectorStore]:
    """Open an empty one."""
    with database(like=template()) as url, project(url) as hosted:
        store = ReadOverApi(hosted.url, RegistryVectorStore(Connections(url)))
        yield store
        await store.close()
