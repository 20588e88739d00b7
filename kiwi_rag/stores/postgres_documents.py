"""A workspace's documents in the registry, shared by everybody who works on it: `FileStore` over its SQL functions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from kiwi_rag.errors import NotAdmitted, UsageError
from kiwi_rag.lexical import MAX_TERMS, find_similar, max_edits
from kiwi_rag.model import Admission, Candidates, CollectionStatistics, EmbeddingRecord, Filters, StoredItem, StoreQuery
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.registry import documents
from kiwi_rag.registry.calls import Caller, Transport, with_retries
from kiwi_rag.registry.documents import DocumentRow
from kiwi_rag.retry import READING, WRITING
from kiwi_rag.signing.document_statement import check_workspace, parse
from kiwi_rag.stores.base import Capabilities, SourceStamp, StoreStatus, one_admission
from kiwi_rag.stores.postgres import INDEXER

_CLEARED_AT_ONCE = 500  # documents; each takes its passages and their words along
_T = TypeVar("_T")


class DocumentRegistryStore:
    """One workspace's documents in a registry.

    Several may write at once, each document by itself: of two that write the same path, what was signed last stays.
    Writing needs a connection that may act as ``kiwi_indexer``, reading any role but ``anon``.

    Parameters
    ----------
    transport
        The way to the registry: `kiwi_rag.registry.pool.Connections`, or, to read, Supabase's API.
    workspace
        The workspace's name; documents of several stand in one registry.
    fingerprint
        The embedding model that `statistics` and `status` are about; empty for the one that the workspace has.
    """

    def __init__(self, transport: Transport, workspace: str, *, fingerprint: str = "") -> None:
        self._transport = transport
        self._workspace = check_workspace(workspace)
        self._fingerprint = fingerprint
        self._noted: dict[
            str, tuple[str, str]
        ] = {}  # path → SHA-256 of the file and rules, as last seen in the registry

    @property
    def capabilities(self) -> Capabilities:
        """Durable; of a document it keeps what was signed last."""
        return Capabilities(kind="postgres", keeps_versions=False, durable=True)

    @property
    def transport(self) -> Transport:
        """The way to the registry."""
        return self._transport

    async def upsert(self, records: Sequence[EmbeddingRecord], source: SourceStamp | None = None) -> None:
        """Store all passages of one admitted document, replacing what its path had. Atomic and idempotent.

        Of the file's stamp the registry keeps the name of the rules; size and time are those of one machine.

        Raises
        ------
        NotAdmitted
            When the gate did not admit it, these are not the passages that were signed, or records are mixed.
        RegistryRefused
            When the registry's own checks say no; ``state`` is ``KW018`` where what is there was signed later.
        FingerprintMismatch
            When the workspace holds vectors of another model.
        """
        admission = one_admission(records)
        self._require_own(admission)
        rules = source.gate_stamp if source else ""
        answer = await self._write(lambda caller: documents.put_document(caller, records, rules))
        documents.receipt(answer)
        self._noted[admission.item.ref.item_id] = (admission.item.content_sha256, rules)

    async def upsert_all(self, items: Sequence[tuple[Sequence[EmbeddingRecord], SourceStamp | None]]) -> None:
        """Store several documents one after another, as `upsert` does."""
        for records, source in items:
            await self.upsert(records, source)

    async def delete(self, ref: ItemRef) -> bool:
        """Remove a document; return whether it was there."""
        self._noted.pop(ref.item_id, None)
        return await self._write(lambda caller: documents.delete_document(caller, self._workspace, ref.item_id))

    async def clear(self) -> None:
        """Remove all documents of the workspace, step by step; it may then begin anew with another model."""
        self._noted.clear()
        gone = _CLEARED_AT_ONCE
        while gone == _CLEARED_AT_ONCE:
            gone = await self._write(
                lambda caller: documents.clear_documents(caller, self._workspace, _CLEARED_AT_ONCE)
            )

    async def get(self, ref: ItemRef) -> StoredItem | None:
        """Return a document; None for what is not there, or was signed by a key that was compromised."""
        if ref.item_type is not ItemType.DOCUMENT:
            return None
        return await self._read(lambda caller: documents.get_document(caller, self._workspace, ref.item_id))

    async def list(self, filters: Filters) -> Sequence[StoredItem]:
        """Return the documents that match, by path."""
        return await self._read(lambda caller: documents.list_documents(caller, self._workspace, filters))

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """Return nothing: a document has no versions."""
        return {}

    async def statistics(self, terms: Sequence[str]) -> CollectionStatistics:
        """Return what BM25 needs to know of the workspace."""
        return await self._read(
            lambda caller: documents.document_statistics(caller, self._workspace, terms, self._fingerprint)
        )

    async def similar_terms(self, terms: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return what each term may be a slip for, the most frequent first."""
        slips = [term for term in dict.fromkeys(terms) if max_edits(term)][:MAX_TERMS]
        told = await self._read(
            lambda caller: documents.similar_document_terms(caller, self._workspace, slips, self._fingerprint)
        )
        return {term: tuple(find_similar(term, told.get(term, ()))) for term in slips}

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
        told = await self._read(lambda caller: documents.document_status(caller, self._workspace))
        problems = () if told["audience"] else ("the registry has no name yet: kiwi registry migrate",)
        fingerprint = told["fingerprint"] or self._fingerprint
        return StoreStatus(told["documents"], told["passages"], fingerprint, problems, told)

    async def sources(self) -> Mapping[str, SourceStamp]:
        """Return path → stamp of every document; without size and time, so that files are compared by their digests."""
        found = await self._read(lambda caller: documents.list_document_rows(caller, self._workspace))
        self._noted = {row.path: (row.content_sha256, row.rules) for row in found}
        return {row.path: _stamp(row) for row in found}

    async def put_source(self, stamp: SourceStamp) -> None:
        """Note the rules by which a document that is stored already was judged, where these are others than before."""
        seen = (stamp.sha256, stamp.gate_stamp)
        if self._noted.get(stamp.path) != seen:
            await self._write(lambda caller: documents.note_rules(caller, self._workspace, stamp.path, *seen))
            self._noted[stamp.path] = seen

    async def delete_source(self, path: str) -> bool:
        """Return False: what is known of a file stands in its document, and goes with it."""
        return False

    async def note(self, name: str, text: str) -> None:
        """Keep a short text under a name, for whoever indexes the workspace next."""
        await self._write(lambda caller: documents.note_workspace(caller, self._workspace, name, text))

    async def noted(self, name: str) -> str:
        """Return the text that was kept under a name, an empty one where none was."""
        return await self._read(lambda caller: documents.workspace_note(caller, self._workspace, name))

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Hold nothing: any number may write at once."""
        yield

    async def check(self) -> tuple[str, ...]:
        """Return every problem that there is, as `status` does: the registry's own constraints keep its rows whole."""
        return tuple((await self.status()).problems)

    async def repair(self) -> Sequence[str]:
        """Return nothing: there is nothing that is kept twice."""
        return ()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    def _require_own(self, admission: Admission) -> None:
        if admission.ref.item_type is not ItemType.DOCUMENT:
            raise UsageError(f"{admission.ref} is no document", hint="items are published: kiwi publish PATH")
        signed_for = parse(admission.envelope).workspace
        if signed_for != self._workspace:
            raise NotAdmitted(f"{admission.ref} is signed for workspace {signed_for!r}, not for {self._workspace!r}")

    async def _read(self, call: Callable[[Caller], Awaitable[_T]]) -> _T:
        return await self._ask(call, READING, "")

    async def _write(self, call: Callable[[Caller], Awaitable[_T]]) -> _T:
        return await self._ask(call, WRITING, INDEXER)

    async def _ask(self, call: Callable[[Caller], Awaitable[_T]], pauses: Sequence[float], role: str) -> _T:
        """Make a call that may be made twice in a session of its own, again where the connection was lost."""

        async def once() -> _T:
            async with self._transport.session(role) as caller:
                return await call(caller)

        return await with_retries(once, pauses)


def _stamp(row: DocumentRow) -> SourceStamp:
    return SourceStamp(row.path, 0, 0, row.content_sha256, "", row.rules, ItemType.DOCUMENT, row.path, row.digest)
