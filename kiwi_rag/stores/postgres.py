"""The store of the registry tier: `PublishingStore` over the registry's SQL functions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any, TypeVar

from kiwi_rag.errors import NotAdmitted, UsageError
from kiwi_rag.lexical import MAX_TERMS, find_similar, max_edits
from kiwi_rag.model import (
    Admission,
    Candidates,
    CollectionStatistics,
    EmbeddingRecord,
    Envelope,
    Filters,
    StoredItem,
    StoreQuery,
    Visibility,
)
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.registry import client, queue
from kiwi_rag.registry.calls import Caller, NotificationSource, Transport, call
from kiwi_rag.registry.queue import ClaimState, IndexedItem, Progress, StoredPassage
from kiwi_rag.retry import READING, WRITING
from kiwi_rag.stores.base import Capabilities, Claim, Receipt, StoreStatus, one_admission
from kiwi_rag.validation.seal import require_sealed

INDEXER = "kiwi_indexer"
_DROP_BATCH = 10_000  # passages; publishing and revoking wait while one batch is removed
_T = TypeVar("_T")


class RegistryVectorStore:
    """A registry in Postgres.

    `delete` yanks: the item is kept, `get` returns it by its version, and no search finds it. Publishing and indexing
    are two steps, which connections of two roles may run.

    Parameters
    ----------
    transport
        `kiwi_rag.registry.pool.Connections`, or Supabase's API.
    fingerprint
        The embedding model whose collection `statistics` and `status` describe; empty for the active one.
    """

    def __init__(self, transport: Transport, *, fingerprint: str = "") -> None:
        self._transport = transport
        self._fingerprint = fingerprint

    @property
    def capabilities(self) -> Capabilities:
        """Keeps every version; a receipt is durable."""
        return Capabilities(kind="postgres", keeps_versions=True, durable=True)

    @property
    def transport(self) -> Transport:
        """The transport, for the admins' functions in `kiwi_rag.registry.client`."""
        return self._transport

    async def publish(self, admission: Admission, visibility: Visibility | None = None) -> Receipt:
        """Publish an admitted item. Publishing it again changes nothing, except that a private one may become public.

        Raises
        ------
        NotAdmitted
            When the gate did not admit it.
        RegistryRefused
            When the registry's own checks refuse the item.
        """
        require_sealed(admission)

        def publish(caller: Caller) -> Awaitable[Mapping[str, Any]]:
            return client.publish_item(caller, admission.envelope, visibility)

        receipt = client.parse_receipt(await self._call(publish, WRITING))
        return Receipt(
            receipt["sequence"],
            receipt["digest"],
            receipt["audit_head"],
            already_published=receipt["known"],
            private=receipt["visibility"] == "private",
            made_public=receipt["opened"],
            yanked=receipt.get("yanked_at") is not None,
        )

    async def upsert(self, records: Sequence[EmbeddingRecord]) -> None:
        """Publish an admitted item if the registry does not have it, and store its passages, in one transaction.

        The connection's role must be allowed to do both. Otherwise use `publish`, then `claim`.
        """
        admission = one_admission(records)
        async with self._transport.session() as caller:
            answer = await client.publish_item(caller, admission.envelope)
            if "code" not in answer:
                await caller.set_role(INDEXER)
                await queue.store_passages(caller, records)
        client.parse_receipt(answer)

    async def pending(self, fingerprint: str, limit: int = 100, after: int = 0) -> Sequence[tuple[int, Envelope]]:
        """Return up to `limit` published items without vectors of this model, as ``(sequence, envelope)``."""

        def pending(caller: Caller) -> Awaitable[Sequence[tuple[int, Envelope]]]:
            return queue.pending_items(caller, fingerprint, limit, after)

        return await self._call(pending, WRITING, INDEXER)

    @asynccontextmanager
    async def claim(self, digest: str, fingerprint: str, *, patient: bool = False) -> AsyncIterator[Claim]:
        """Claim a published item for the block; what is stored in it becomes durable at its end.

        Raises
        ------
        FingerprintMismatch
            When the registry has no collection of this model.
        RegistryRefused
            When the connection's role may not act as ``kiwi_indexer``.
        """
        async with self._transport.session(INDEXER) as caller:
            state, received_at = await queue.claim_item(caller, digest, fingerprint, patient=patient)
            yield RegistryClaim(caller, digest, state, received_at)

    def listen(self) -> AbstractAsyncContextManager[Callable[[float], Awaitable[bool]]]:
        """Return a function that waits for a publication; see `kiwi_rag.registry.pool.Connections.listen`.

        Raises
        ------
        UsageError
            When this transport delivers no notifications.
        """
        if not isinstance(self._transport, NotificationSource):
            raise UsageError("only a direct connection can watch a registry", hint="set KIWI_REGISTRY_URL")
        return self._transport.listen("kiwi_published")

    async def begin_model(self, fingerprint: str) -> str:
        """Create a model's collection beside the active one if it has none; return its state."""
        return await self._call(lambda caller: queue.begin_collection(caller, fingerprint), WRITING, role=INDEXER)

    async def finish_model(self, fingerprint: str, *, insist: bool = False) -> Progress:
        """Switch searches to a model if no item waits for its vectors; return the model's progress."""

        def finish(caller: Caller) -> Awaitable[Progress]:
            return queue.finish_collection(caller, fingerprint, insist=insist)

        return await self._call(finish, WRITING, role=INDEXER)

    async def drop_model(self, fingerprint: str) -> int:
        """Remove the vectors of a model that is not the active one; return the number of passages."""
        removed, batch = 0, _DROP_BATCH
        while batch == _DROP_BATCH:
            async with self._transport.session(INDEXER) as caller:
                batch = await queue.drop_collection(caller, fingerprint, _DROP_BATCH)
            removed += batch
        return removed

    async def index_status(self) -> Mapping[str, Any]:
        """Return each model's progress and the queue, of public items; for indexers and admins."""
        return await self._call(queue.index_status)

    async def indexed_items(self, fingerprint: str, limit: int, after: str | None = None) -> Sequence[IndexedItem]:
        """Return up to `limit` items that have vectors of this model: a random sample, or the first after a digest."""

        def indexed(caller: Caller) -> Awaitable[Sequence[IndexedItem]]:
            return queue.indexed_items(caller, fingerprint, limit, after)

        return await self._call(indexed, READING, INDEXER)

    async def stored_passages(self, digest: str, fingerprint: str) -> Sequence[StoredPassage]:
        """Return an item's passages of one model as the registry has them, in order."""
        return await self._call(lambda caller: queue.read_passages(caller, digest, fingerprint), READING, INDEXER)

    async def delete(self, ref: ItemRef) -> bool:
        """Yank the version that `ref` names, or all; return whether that changed anything. Needs ``kiwi_admin``."""
        async with self._transport.session() as caller:
            return await client.yank_item(caller, ref) > 0

    async def get(self, ref: ItemRef) -> StoredItem | None:
        """Return the version that `ref` names, or the newest; None when it was yanked."""
        return await self._call(lambda caller: client.get_item(caller, ref))

    async def list(self, filters: Filters) -> Sequence[StoredItem]:
        """Return the newest version of each item that matches, ordered by type and id."""
        return await self._call(lambda caller: client.list_items(caller, filters))

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """Return every version ever published, yanked ones too, as version → content sha256 (hex)."""
        # As patient as writing: the indexer reads the history before it writes.
        return await self._call(lambda caller: _history(caller, ref), WRITING)

    async def statistics(self, terms: Sequence[str]) -> CollectionStatistics:
        """Return the statistics for BM25 of the searchable passages."""
        return await self._call(lambda caller: client.collection_statistics(caller, terms, self._fingerprint))

    async def similar_terms(self, terms: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the indexed terms that each term may be a misspelling of, the most frequent first."""
        checked = [term for term in dict.fromkeys(terms) if max_edits(term)][:MAX_TERMS]
        similar = await self._call(lambda caller: client.similar_terms(caller, checked, self._fingerprint))
        return {term: tuple(find_similar(term, similar.get(term, ()))) for term in checked}

    async def search(self, query: StoreQuery) -> Candidates:
        """Return the union of both legs' best `query.depth` passages, each with both scores.

        Raises
        ------
        FingerprintMismatch
            When the registry holds vectors, but none of the query's model.
        """
        return await self._call(lambda caller: client.search_hybrid(caller, query))

    async def status(self) -> StoreStatus:
        """Return counts and health."""
        status = await self._call(client.registry_status)
        collections: dict[str, int] = dict(status["collections"])
        fingerprint = self._fingerprint or status["active_model"] or ""
        problems = () if status["audience"] else ("the registry has no name yet: kiwi registry migrate",)
        return StoreStatus(status["items"], collections.get(fingerprint, 0), fingerprint, problems, status)

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def _call(
        self, function: Callable[[Caller], Awaitable[_T]], pauses: Sequence[float] = READING, role: str = ""
    ) -> _T:
        return await call(self._transport, function, pauses, role)


class RegistryClaim:
    """A `Claim` that lasts until its session ends: the database releases it with the transaction."""

    def __init__(self, caller: Caller, digest: str, state: ClaimState, received_at: datetime | None) -> None:
        self._caller = caller
        self._digest = digest
        self.state = state
        self.received_at = received_at

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """Return every version of an item ever published."""
        return await _history(self._caller, ref)

    async def store(self, records: Sequence[EmbeddingRecord]) -> int:
        """Store the item's passages; return how many."""
        if one_admission(records).digest != self._digest:
            raise NotAdmitted(f"the claim is on {self._digest[:16]}…, and these are the passages of another item")
        return await queue.store_passages(self._caller, records)

    async def requeue(self, problem: str) -> None:
        """Record why the item could not be indexed."""
        await queue.set_back_item(self._caller, self._digest, problem)


async def _history(caller: Caller, ref: ItemRef) -> Mapping[str, str]:
    return {str(row.ref.version): row.content_sha256 for row in await client.list_versions(caller, ref)}
