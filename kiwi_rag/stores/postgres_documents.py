"""The store of a workspace's documents in a registry, for all who index it: `FileStore` over the SQL functions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from kiwi_rag.errors import NotAdmitted, UsageError
from kiwi_rag.lexical import MAX_TERMS, find_similar, max_edits
from kiwi_rag.model import Admission, Candidates, CollectionStatistics, EmbeddingRecord, Filters, StoredItem, StoreQuery
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.registry import documents
from kiwi_rag.registry.calls import Caller, Transport, call
from kiwi_rag.registry.documents import DocumentRow
from kiwi_rag.retry import READING, WRITING
from kiwi_rag.signing.document_statement import check_workspace, parse
from kiwi_rag.stores.base import Capabilities, SourceStamp, StoreStatus, one_admission
from kiwi_rag.stores.postgres import INDEXER

_CLEAR_BATCH = 500  # documents, with all their passages and postings
_T = TypeVar("_T")


class DocumentRegistryStore:
    """One workspace's documents in a registry.

    Several processes may write at once. Each document is one write, and of two writes of the same path the one that was
    signed last stays. Writing requires a connection that may act as ``kiwi_indexer``, reading any role but ``anon``.

    Parameters
    ----------
    transport
        `kiwi_rag.registry.pool.Connections`; to read, also Supabase's API.
    workspace
        The workspace's name; a registry may hold the documents of several.
    fingerprint
        The embedding model whose collection `statistics` and `status` describe; empty for that of the workspace.
    """

    def __init__(self, transport: Transport, workspace: str, *, fingerprint: str = "") -> None:
        self._transport = transport
        self._workspace = check_workspace(workspace)
        self._fingerprint = fingerprint
        # Path → SHA-256 of the file, and rules, as the registry has them, so that `put_source` writes only changes.
        self._stored: dict[str, tuple[str, str]] = {}

    @property
    def capabilities(self) -> Capabilities:
        """Durable; it keeps the last signed version of a document."""
        return Capabilities(kind="postgres", keeps_versions=False, durable=True)

    @property
    def transport(self) -> Transport:
        """The transport."""
        return self._transport

    async def upsert(self, records: Sequence[EmbeddingRecord], source: SourceStamp | None = None) -> None:
        """Store all passages of one admitted document, replacing what its path had. Atomic and idempotent.

        Of the file's stamp the registry keeps the rules; its size and time are those of one machine.

        Raises
        ------
        NotAdmitted
            When the gate did not admit it, its signed passages are others, or records are mixed.
        RegistryRefused
            When the registry's own checks refuse it; ``state`` is ``KW018`` when it holds one that was signed later.
        FingerprintMismatch
            When the workspace holds vectors of another model.
        """
        admission = one_admission(records)
        self._check_workspace(admission)
        rules = source.gate_stamp if source else ""
        answer = await self._write(lambda caller: documents.put_document(caller, records, rules))
        documents.parse_receipt(answer)
        self._stored[admission.item.ref.item_id] = (admission.item.content_sha256, rules)

    async def upsert_all(self, items: Sequence[tuple[Sequence[EmbeddingRecord], SourceStamp | None]]) -> None:
        """Store several documents one after another, as `upsert` does."""
        for records, source in items:
            await self.upsert(records, source)

    async def delete(self, ref: ItemRef) -> bool:
        """Remove a document; return whether it was there."""
        self._stored.pop(ref.item_id, None)
        return await self._write(lambda caller: documents.delete_document(caller, self._workspace, ref.item_id))

    async def clear(self) -> None:
        """Remove all documents of the workspace, in batches; another model may be used afterwards."""
        self._stored.clear()
        removed = _CLEAR_BATCH
        while removed == _CLEAR_BATCH:
            removed = await self._write(lambda caller: documents.clear_documents(caller, self._workspace, _CLEAR_BATCH))

    async def get(self, ref: ItemRef) -> StoredItem | None:
        """Return a document; None when there is none, or when the key that signed it was revoked."""
        if ref.item_type is not ItemType.DOCUMENT:
            return None
        return await self._read(lambda caller: documents.get_document(caller, self._workspace, ref.item_id))

    async def list(self, filters: Filters) -> Sequence[StoredItem]:
        """Return the documents that match, ordered by path."""
        return await self._read(lambda caller: documents.list_documents(caller, self._workspace, filters))

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """Return an empty mapping: a document has no versions."""
        return {}

    async def statistics(self, terms: Sequence[str]) -> CollectionStatistics:
        """Return the statistics for BM25 of the workspace."""
        return await self._read(
            lambda caller: documents.document_statistics(caller, self._workspace, terms, self._fingerprint)
        )

    async def similar_terms(self, terms: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the indexed terms that each term may be a misspelling of, the most frequent first."""
        checked = [term for term in dict.fromkeys(terms) if max_edits(term)][:MAX_TERMS]
        similar = await self._read(
            lambda caller: documents.similar_document_terms(caller, self._workspace, checked, self._fingerprint)
        )
        return {term: tuple(find_similar(term, similar.get(term, ()))) for term in checked}

    async def search(self, query: StoreQuery) -> Candidates:
        """Return the union of both legs' best `query.depth` passages, each with both scores.

        Raises
        ------
        FingerprintMismatch
            When the workspace holds vectors of another model than the query's.
        """
        return await self._read(lambda caller: documents.search_documents(caller, self._workspace, query))

    async def status(self) -> StoreStatus:
        """Return counts and health; ``details`` has ``file_types`` and ``last_received_at``."""
        status = await self._read(lambda caller: documents.document_status(caller, self._workspace))
        problems = () if status["audience"] else ("the registry has no name yet: kiwi registry migrate",)
        fingerprint = status["fingerprint"] or self._fingerprint
        return StoreStatus(status["documents"], status["passages"], fingerprint, problems, status)

    async def sources(self) -> Mapping[str, SourceStamp]:
        """Return the stamps of all documents by path, without size and time: files are compared by their digests."""
        rows = await self._read(lambda caller: documents.list_document_rows(caller, self._workspace))
        self._stored = {row.path: (row.content_sha256, row.rules) for row in rows}
        return {row.path: _stamp(row) for row in rows}

    async def put_source(self, stamp: SourceStamp) -> None:
        """Record the rules that an unchanged document was judged by, if they changed."""
        judged = (stamp.sha256, stamp.gate_stamp)
        if self._stored.get(stamp.path) != judged:
            await self._write(lambda caller: documents.note_rules(caller, self._workspace, stamp.path, *judged))
            self._stored[stamp.path] = judged

    async def delete_source(self, path: str) -> bool:
        """Return False: a file's stamp is part of its document, and is removed with it."""
        return False

    async def put_note(self, name: str, text: str) -> None:
        """Store a short text under a name, for later index runs of any machine."""
        await self._write(lambda caller: documents.note_workspace(caller, self._workspace, name, text))

    async def get_note(self, name: str) -> str:
        """Return the text stored under a name; empty when there is none."""
        return await self._read(lambda caller: documents.workspace_note(caller, self._workspace, name))

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Hold nothing: any number of processes may write at once."""
        yield

    async def check(self) -> tuple[str, ...]:
        """Return the problems of `status`: the database's constraints keep its rows consistent."""
        return tuple((await self.status()).problems)

    async def repair(self) -> Sequence[str]:
        """Do nothing: the registry keeps no derived data that could differ."""
        return ()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    def _check_workspace(self, admission: Admission) -> None:
        if admission.ref.item_type is not ItemType.DOCUMENT:
            raise UsageError(f"{admission.ref} is not a document", hint="items are published: kiwi publish PATH")
        workspace = parse(admission.envelope).workspace
        if workspace != self._workspace:
            raise NotAdmitted(f"{admission.ref} is signed for workspace {workspace!r}, not for {self._workspace!r}")

    async def _read(self, function: Callable[[Caller], Awaitable[_T]]) -> _T:
        return await call(self._transport, function, READING)

    async def _write(self, function: Callable[[Caller], Awaitable[_T]]) -> _T:
        return await call(self._transport, function, WRITING, INDEXER)


def _stamp(row: DocumentRow) -> SourceStamp:
    return SourceStamp(row.path, 0, 0, row.content_sha256, "", row.rules, ItemType.DOCUMENT, row.path, row.digest)
