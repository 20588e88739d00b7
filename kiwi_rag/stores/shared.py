"""An index that several people and machines write to and read, beside one's own.

Nobody's files are the truth of it: each document stands by itself, under the signature of whoever indexed it. So it
remembers no sizes and times, is never emptied because one checkout lacks a file, and holds no lock for a whole run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from kiwi_rag.errors import MalformedEnvelope, UsageError
from kiwi_rag.model import Candidates, CollectionStatistics, EmbeddingRecord, Filters, StoredItem, StoreQuery
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.signing.document_statement import DocumentStatement, parse
from kiwi_rag.stores.base import Capabilities, SourceStamp, StoreStatus, VectorStore

RULES = "rules"
"""The name in a document's metadata of the rules that it was read and split by."""


class SharedStore:
    """A `VectorStore` that takes part in index runs as a `FileStore` does: its documents are what it knows of files.

    Parameters
    ----------
    inner
        The store; closed by this one.
    """

    def __init__(self, inner: VectorStore) -> None:
        self._inner = inner
        self._notes: dict[str, str] = {}

    @property
    def capabilities(self) -> Capabilities:
        """The inner store's."""
        return self._inner.capabilities

    async def upsert(self, records: Sequence[EmbeddingRecord], source: SourceStamp | None = None) -> None:
        """As `VectorStore.upsert`; of a file's stamp nothing is kept but what the document itself says."""
        await self._inner.upsert(records)

    async def upsert_all(self, items: Sequence[tuple[Sequence[EmbeddingRecord], SourceStamp | None]]) -> None:
        """Store several documents one after another, as `upsert` does."""
        for records, source in items:
            await self.upsert(records, source)

    async def delete(self, ref: ItemRef) -> bool:
        """Remove a document; return whether it was there."""
        return await self._inner.delete(ref)

    async def get(self, ref: ItemRef) -> StoredItem | None:
        """Return a document, or None."""
        return await self._inner.get(ref)

    async def list(self, filters: Filters) -> Sequence[StoredItem]:
        """Return the documents that match, ordered by path."""
        return await self._inner.list(filters)

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """Return nothing: documents have no versions."""
        return {}

    async def statistics(self, terms: Sequence[str]) -> CollectionStatistics:
        """As the inner store has it."""
        return await self._inner.statistics(terms)

    async def similar_terms(self, terms: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """As the inner store has it."""
        return await self._inner.similar_terms(terms)

    async def search(self, query: StoreQuery) -> Candidates:
        """As the inner store has it."""
        return await self._inner.search(query)

    async def status(self) -> StoreStatus:
        """As the inner store has it."""
        return await self._inner.status()

    async def close(self) -> None:
        """Release the inner store."""
        await self._inner.close()

    async def sources(self) -> Mapping[str, SourceStamp]:
        """Return path → what is known of its file: its digest and the rules it was read by, no size and no times."""
        found = [_statement(stored) for stored in await self.list(Filters())]
        return {read.path: _stamp(read) for read in found if read}

    async def put_source(self, stamp: SourceStamp) -> None:
        """Keep nothing: what there is to know of a file stands in its document."""

    async def delete_source(self, path: str) -> bool:
        """Keep nothing."""
        return False

    async def clear(self) -> None:
        """Refuse: an index that others read is not emptied.

        Raises
        ------
        UsageError
            Always.
        """
        hint = "index it under another workspace's name: KIWI_WORKSPACE_NAME"
        raise UsageError("a shared index is not emptied: others read it", hint=hint)

    async def put_note(self, name: str, text: str) -> None:
        """Keep a text for this process alone."""
        self._notes[name] = text

    async def get_note(self, name: str) -> str:
        """Return the text that was kept under a name."""
        return self._notes.get(name, "")

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Hold nothing: others write at the same time."""
        yield

    async def check(self) -> tuple[str, ...]:
        """Return the problems that the inner store tells of."""
        return (await self.status()).problems

    async def repair(self) -> Sequence[str]:
        """Do nothing: it is its operator's to mend."""
        return ()


def _statement(stored: StoredItem) -> DocumentStatement | None:
    """Return what a stored document says; nothing where it cannot be read, so that it is written anew."""
    try:
        return None if stored.problem else parse(stored.envelope)
    except MalformedEnvelope:
        return None


def _stamp(read: DocumentStatement) -> SourceStamp:
    rules = read.metadata.get(RULES, "")
    return SourceStamp(
        read.path, -1, 0, read.content_sha256, "", rules, ItemType.DOCUMENT, read.path, read.content_sha256
    )
