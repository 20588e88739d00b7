"""A workspace index that several users and machines share.

It does not mirror one checkout: each document is signed by the user who indexed it. So the store keeps no file sizes
and times, is never emptied because one checkout lacks a file, and holds no lock during a run.
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
"""The metadata key of the digest of the rules that a document was indexed by."""


class SharedStore:
    """A `VectorStore` as a `FileStore`: what it knows of files is read from its documents.

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
        """As `VectorStore.upsert`; the stamp is not stored, because `sources` derives it from the document."""
        await self._inner.upsert(records)

    async def upsert_all(self, items: Sequence[tuple[Sequence[EmbeddingRecord], SourceStamp | None]]) -> None:
        """Store several documents one after another, as `upsert` does."""
        for records, source in items:
            await self.upsert(records, source)

    async def delete(self, ref: ItemRef) -> bool:
        """Remove a document; return whether it existed."""
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
        """Forward to the inner store."""
        return await self._inner.statistics(terms)

    async def similar_terms(self, terms: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Forward to the inner store."""
        return await self._inner.similar_terms(terms)

    async def search(self, query: StoreQuery) -> Candidates:
        """Forward to the inner store."""
        return await self._inner.search(query)

    async def status(self) -> StoreStatus:
        """Forward to the inner store."""
        return await self._inner.status()

    async def close(self) -> None:
        """Release the inner store."""
        await self._inner.close()

    async def sources(self) -> Mapping[str, SourceStamp]:
        """Return path → the stamp of its file: its digest and the rules it was indexed by, without size and times."""
        statements = [_statement(stored) for stored in await self.list(Filters())]
        return {statement.path: _stamp(statement) for statement in statements if statement}

    async def put_source(self, stamp: SourceStamp) -> None:
        """Do nothing: `sources` derives a file's stamp from its document."""

    async def delete_source(self, path: str) -> bool:
        """Do nothing; return False, because no stamp is stored."""
        return False

    async def clear(self) -> None:
        """Refuse to empty an index that others read.

        Raises
        ------
        UsageError
            Always.
        """
        hint = "index under another workspace name: KIWI_WORKSPACE_NAME"
        raise UsageError("a shared index cannot be emptied, because others read it", hint=hint)

    async def put_note(self, name: str, text: str) -> None:
        """Keep a text in this process only."""
        self._notes[name] = text

    async def get_note(self, name: str) -> str:
        """Return the text kept under a name; empty where there is none."""
        return self._notes.get(name, "")

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Take no lock: others write at the same time."""
        yield

    async def check(self) -> tuple[str, ...]:
        """Return the problems that the inner store reports."""
        return (await self.status()).problems

    async def repair(self) -> Sequence[str]:
        """Do nothing: a shared store is repaired by its operator."""
        return ()


def _statement(stored: StoredItem) -> DocumentStatement | None:
    """Return a stored document's statement; None where it cannot be read, so that the file is indexed again."""
    try:
        return None if stored.problem else parse(stored.envelope)
    except MalformedEnvelope:
        return None


def _stamp(statement: DocumentStatement) -> SourceStamp:
    path, digest, rules = statement.path, statement.content_sha256, statement.metadata.get(RULES, "")
    # Size -1 equals that of no file, so a run compares the file's digest.
    return SourceStamp(path, -1, 0, digest, "", rules, ItemType.DOCUMENT, path, digest)
