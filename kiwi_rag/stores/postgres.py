"""The registry tier: `VectorStore` and `PublishingStore` over the registry's SQL functions."""

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
from kiwi_rag.registry.calls import Caller, Listening, Transport, with_retries
from kiwi_rag.registry.queue import ClaimState, IndexedItem, Progress, StoredPassage
from kiwi_rag.retry import READING, WRITING
from kiwi_rag.stores.base import Capabilities, Claim, Receipt, StoreStatus, one_admission
from kiwi_rag.validation.seal import require_sealed

INDEXER = "kiwi_indexer"
_DROPPED_AT_ONCE = 10_000  # passages; publishing and revoking wait for as long as one such step takes
_T = TypeVar("_T")


class RegistryVectorStore:
    """A registry in Postgres.

    Nothing is deleted there: `delete` yanks, after which an item is kept and gettable by version, but not found.
    Publishing and indexing are two steps, which connections of two roles may run.

    Parameters
    ----------
    transport
        The way to the registry: `kiwi_rag.registry.pool.Connections`, or Supabase's API.
    fingerprint
        The embedding model whose collection `statistics` and `status` are about; empty for the active one.
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
        """The way to the registry, for the admins' functions in `kiwi_rag.registry.client`."""
        return self._transport

    async def publish(self, admission: Admission, visibility: Visibility | None = None) -> Receipt:
        """Hand in an admitted item; handing it in again changes nothing, but that a private one may become public.

        Raises
        ------
        NotAdmitted
            When the gate did not admit it.
        RegistryRefused
            When the registry's own checks say no.
        """
        require_sealed(admission)

        def ask(caller: Caller) -> Awaitable[Mapping[str, Any]]:
            return client.publish_item(caller, admission.envelope, visibility)

        told = client.receipt(await self._ask(ask, WRITING))
        return Receipt(
            told["sequence"],
            told["digest"],
            told["audit_head"],
            told["known"],
            private=told["visibility"] == "private",
            opened=told["opened"],
            yanked=told.get("yanked_at") is not None,
        )

    async def upsert(self, records: Sequence[EmbeddingRecord]) -> None:
        """Publish an admitted item if it is not there yet, and store its passages: both or neither.

        The connection's role must be able to do both; where two roles do it, use `publish`, then `claim`.
        """
        admission = one_admission(records)
        async with self._transport.session() as caller:
            answer = await client.publish_item(caller, admission.envelope)
            if "code" not in answer:
                await caller.become(INDEXER)
                await queue.store_passages(caller, records)
        client.receipt(answer)

    async def pending(self, fingerprint: str, limit: int = 100, after: int = 0) -> Sequence[tuple[int, Envelope]]:
        """Return up to `limit` published items without vectors of this model, as ``(sequence, envelope)``."""

        def ask(caller: Caller) -> Awaitable[Sequence[tuple[int, Envelope]]]:
            return queue.pending_items(caller, fingerprint, limit, after)

        return await self._ask(ask, WRITING, role=INDEXER)

    @asynccontextmanager
    async def claim(self, digest: str, fingerprint: str, *, patient: bool = False) -> AsyncIterator[Claim]:
        """Claim a published item for the block; what is stored or noted in it becomes durable at its end.

        Raises
        ------
        FingerprintMismatch
            When the registry wants no vectors of this model.
        RegistryRefused
            When the connection's role may not act as ``kiwi_indexer``.
        """
        async with self._transport.session(role=INDEXER) as caller:
            state, received_at = await queue.claim_item(caller, digest, fingerprint, patient=patient)
            yield RegistryClaim(caller, digest, state, received_at)

    def listening(self) -> AbstractAsyncContextManager[Callable[[float], Awaitable[bool]]]:
        """Open a line on which publications are announced; see `kiwi_rag.registry.pool.Connections.listening`.

        Raises
        ------
        UsageError
            When this way to the registry has no such line.
        """
        if not isinstance(self._transport, Listening):
            raise UsageError("only a direct connection can watch a registry", hint="set KIWI_REGISTRY_URL")
        return self._transport.listening("kiwi_published")

    async def begin_model(self, fingerprint: str) -> str:
        """Start a model's collection if it has none, beside the active one; return its state."""
        return await self._ask(lambda caller: queue.begin_collection(caller, fingerprint), WRITING, role=INDEXER)

    async def finish_model(self, fingerprint: str, *, insist: bool = False) -> Progress:
        """Switch searches to a model if nothing waits for it; return its progress either way."""

        def finish(caller: Caller) -> Awaitable[Progress]:
            return queue.finish_collection(caller, fingerprint, insist=insist)

        return await self._ask(finish, WRITING, role=INDEXER)

    async def drop_model(self, fingerprint: str) -> int:
        """Remove the vectors of a model that is not the active one; return how many passages that were."""
        removed, gone = 0, _DROPPED_AT_ONCE
        while gone == _DROPPED_AT_ONCE:
            async with self._transport.session(role=INDEXER) as caller:
                gone = await queue.drop_collection(caller, fingerprint, _DROPPED_AT_ONCE)
            removed += gone
        return removed

    async def index_status(self) -> Mapping[str, Any]:
        """Return each model's progress and what waits, of public items; for indexers and admins."""
        return await self._ask(queue.index_status)

    async def indexed(self, fingerprint: str, limit: int, after: str | None = None) -> Sequence[IndexedItem]:
        """Return up to `limit` items that have vectors of this model: drawn at random, or the first after a digest."""

        def ask(caller: Caller) -> Awaitable[Sequence[IndexedItem]]:
            return queue.indexed_items(caller, fingerprint, limit, after)

        return await self._ask(ask, role=INDEXER)

    async def passages(self, digest: str, fingerprint: str) -> Sequence[StoredPassage]:
        """Return an item's passages of one model as they are stored, in order."""
        return await self._ask(lambda caller: queue.read_passages(caller, digest, fingerprint), role=INDEXER)

    async def delete(self, ref: ItemRef) -> bool:
        """Yank a version, or all when `ref` names none; return whether that changed anything. Needs ``kiwi_admin``."""
        async with self._transport.session() as caller:
            return await client.yank_item(caller, ref) > 0

    async def get(self, ref: ItemRef) -> StoredItem | None:
        """Return a version, the newest when `ref` names none; None for one that was yanked."""
        return await self._ask(lambda caller: client.get_item(caller, ref))

    async def list(self, filters: Filters) -> Sequence[StoredItem]:
        """Return the newest version of each item that matches, ordered by type and id."""
        return await self._ask(lambda caller: client.list_items(caller, filters))

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """Return every version ever published, yanked ones too, as version → content sha256 (hex)."""
        versions = await self._ask(
            lambda caller: client.list_versions(caller, ref), WRITING
        )  # what writing begins with
        return {str(row.ref.version): row.content_sha256 for row in versions}

    async def statistics(self, terms: Sequence[str]) -> CollectionStatistics:
        """Return what BM25 needs to know of the searchable passages."""
        return await self._ask(lambda caller: client.collection_statistics(caller, terms, self._fingerprint))

    async def similar_terms(self, terms: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return what each term may be a slip for, the most frequent first."""
        slips = [term for term in dict.fromkeys(terms) if max_edits(term)][:MAX_TERMS]
        told = await self._ask(lambda caller: client.similar_terms(caller, slips, self._fingerprint))
        return {term: tuple(find_similar(term, told.get(term, ()))) for term in slips}

    async def search(self, query: StoreQuery) -> Candidates:
        """Return the union of both legs' best `query.depth` passages, each with both scores.

        Raises
        ------
        FingerprintMismatch
            When the registry holds vectors, but none of the query's model.
        """
        return await self._ask(lambda caller: client.search_hybrid(caller, query))

    async def status(self) -> StoreStatus:
        """Return counts and health."""
        told = await self._ask(client.registry_status)
        collections: dict[str, int] = dict(told["collections"])
        fingerprint = self._fingerprint or told["active_model"] or ""
        problems = () if told["audience"] else ("the registry has no name yet: kiwi registry migrate",)
        return StoreStatus(told["items"], collections.get(fingerprint, 0), fingerprint, problems, told)

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def _ask(
        self, call: Callable[[Caller], Awaitable[_T]], pauses: Sequence[float] = READING, *, role: str = ""
    ) -> _T:
        """Make a call that may be made twice in a session of its own, again where the connection was lost."""

        async def once() -> _T:
            async with self._transport.session(role) as caller:
                return await call(caller)

        return await with_retries(once, pauses)


class RegistryClaim:
    """A published item that is the caller's to index until its session ends, or the reason why it is not."""

    def __init__(self, caller: Caller, digest: str, state: ClaimState, received_at: datetime | None) -> None:
        self._caller = caller
        self._digest = digest
        self.state = state
        self.received_at = received_at

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """Return every version of an item ever published."""
        versions = await client.list_versions(self._caller, ref)
        return {str(row.ref.version): row.content_sha256 for row in versions}

    async def store(self, records: Sequence[EmbeddingRecord]) -> int:
        """Store the item's passages; return how many."""
        if one_admission(records).digest != self._digest:
            raise NotAdmitted("these are the passages of another item than the claimed one")
        return await queue.store_passages(self._caller, records)

    async def requeue(self, problem: str) -> None:
        """Note why the item could not be indexed."""
        await queue.set_back_item(self._caller, self._digest, problem)
