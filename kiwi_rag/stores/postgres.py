"""The registry as a store, bound to one collection: its items, or the documents of one workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from kiwi_rag.errors import NotAdmitted
from kiwi_rag.lexical import MAX_TERMS, find_similar, max_edits
from kiwi_rag.model.items import Admission, EmbeddingRecord, StoredItem, Visibility
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.model.search import Candidates, CollectionStatistics, Filters, StoreQuery
from kiwi_rag.registry.calls import Transport
from kiwi_rag.registry.client import INDEXER, Receipt, RegistryClient, parse_receipt
from kiwi_rag.registry.rows import Claimed
from kiwi_rag.signing.statement import ITEMS, check_collection, parse_index
from kiwi_rag.stores.base import Capabilities, StoreStatus, one_admission, require_document
from kiwi_rag.validation.admission import require_sealed

_BATCH = 10_000  # passages; publishing and revoking wait while one batch is removed
_CLEAR_BATCH = 500  # documents, with all their passages and postings


class RegistryVectorStore:
    """A collection of a registry in Postgres.

    Of items `delete` yanks: the item is kept, `get` returns it by its version, and no search finds it. Publishing and
    indexing are two steps, which connections of two roles may run. Documents are removed, and several processes may
    write them at once: of two writes of the same path the one that was signed last stays.

    Parameters
    ----------
    transport
        `kiwi_rag.registry.pool.Connections`, or Supabase's API.
    collection
        ``items``, or the name of a workspace: a registry may hold the documents of several.
    fingerprint
        The embedding model whose collection `statistics` and `status` describe; empty for the active one.
    """

    capabilities = Capabilities("postgres")
    """It keeps every version of an item, and of a document the one that was signed last."""

    def __init__(self, transport: Transport, collection: str = ITEMS, *, fingerprint: str = "") -> None:
        self.transport = transport
        self.client = RegistryClient(transport)
        """The registry's functions, for those that no other store has."""
        self._collection = collection if collection == ITEMS else check_collection(collection)
        self._fingerprint = fingerprint

    async def put(self, entries: Sequence[Sequence[EmbeddingRecord]]) -> None:
        """Store admitted items or documents in their order, each in a transaction of its own.

        An item is published if the registry does not have it; the connection's role must be allowed to do that and to
        act as the indexer. Otherwise use `publish`, then `claim`.

        Raises
        ------
        NotAdmitted
            When the gate did not admit it, its signed passages are others, or records are mixed.
        RegistryRefused
            When the registry's own checks refuse it; ``state`` is ``KW018`` when it holds a document that was signed
            later.
        FingerprintMismatch
            When the collection holds vectors of another model.
        """
        for records in entries:
            admission = one_admission(records)
            if self._collection == ITEMS:
                await self._put_item(admission, records)
            else:
                self._check_collection(admission)
                await self.client.put_document(records)

    async def _put_item(self, admission: Admission, records: Sequence[EmbeddingRecord]) -> None:
        async with self.client.session() as session:
            answer = await session.publish_item(admission)
            if "code" not in answer:
                await session.set_role(INDEXER)
                await session.store_passages(records)
        parse_receipt(answer)

    def _check_collection(self, admission: Admission) -> None:
        collection = parse_index(require_document(admission).envelope.payload).collection
        if collection != self._collection:
            raise NotAdmitted(f"{admission.ref} is signed for workspace {collection!r}, not for {self._collection!r}")

    async def delete(self, ref: ItemRef) -> bool:
        """Yank the version that `ref` names, or all, or remove a document; return whether that changed anything."""
        if self._collection == ITEMS:
            return await self.client.yank_item(ref) > 0
        return await self.client.delete_document(self._collection, ref.item_id)

    async def clear(self) -> None:
        """Remove all documents of the workspace, in batches; another model may be used afterwards."""
        removed = _CLEAR_BATCH
        while removed == _CLEAR_BATCH:
            removed = await self.client.clear_documents(self._collection, _CLEAR_BATCH)

    async def get(self, ref: ItemRef, files: Sequence[str] | None = None) -> StoredItem | None:
        """Return the version that `ref` names, or the newest; None when it was yanked. Or a document."""
        if (ref.item_type is ItemType.DOCUMENT) is (self._collection == ITEMS):
            return None
        return await self.client.get_item(ref, files, self._collection)

    async def list(self, filters: Filters) -> Sequence[StoredItem]:
        """Return the newest version of each item that matches, or documents, ordered by type and id."""
        return await self.client.list_items(filters, self._collection)

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """Return every version ever published, yanked ones too, as version → content digest; a document has none."""
        return await _history(self.client, ref) if self._collection == ITEMS else {}

    async def statistics(self, terms: Sequence[str]) -> CollectionStatistics:
        """Return the statistics for BM25 of the searchable passages."""
        return await self.client.collection_statistics(terms, self._fingerprint, self._collection)

    async def similar_terms(self, terms: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the indexed terms that each term may be a misspelling of, the most frequent first."""
        checked = [term for term in dict.fromkeys(terms) if max_edits(term)][:MAX_TERMS]
        similar = await self.client.similar_terms(checked, self._fingerprint, self._collection)
        return {term: tuple(find_similar(term, similar.get(term, ()))) for term in checked}

    async def search(self, query: StoreQuery) -> Candidates:
        """Return the union of both legs' best `query.depth` passages, each with both scores.

        Raises
        ------
        FingerprintMismatch
            When the collection holds vectors, but none of the query's model.
        """
        return await self.client.search_hybrid(query, self._collection)

    async def status(self) -> StoreStatus:
        """Return counts and health; of documents ``details`` has ``file_types`` and ``last_received_at``."""
        if self._collection == ITEMS:
            status = await self.client.registry_status()
            fingerprint = self._fingerprint or status["active_model"] or ""
            items, passages = status["items"], status["collections"].get(fingerprint, 0)
        else:
            status = await self.client.collection_status(self._collection)
            fingerprint = status["fingerprint"] or self._fingerprint
            items, passages = status["documents"], status["passages"]
        problems = () if status["audience"] else ("the registry has no name yet: kiwi registry migrate",)
        return StoreStatus(items, passages, fingerprint, problems, status)

    async def close(self) -> None:
        """Close the connections."""
        await self.transport.close()

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
        return parse_receipt(await self.client.publish_item(admission, visibility))

    @asynccontextmanager
    async def claim(self, digest: str, fingerprint: str, *, patient: bool = False) -> AsyncIterator[RegistryClaim]:
        """Claim a published item for the block; what is stored in it becomes durable at its end.

        Raises
        ------
        FingerprintMismatch
            When the registry has no collection of this model.
        RegistryRefused
            When the connection's role may not act as ``kiwi_indexer``.
        """
        async with self.client.session(INDEXER) as session:
            claimed = await session.claim_item(digest, fingerprint, patient=patient)
            yield RegistryClaim(session, digest, claimed)

    def listen(self) -> AbstractAsyncContextManager[Callable[[float], Awaitable[bool]]]:
        """Return a function that waits for a publication; see `kiwi_rag.registry.pool.Connections.listen`.

        Raises
        ------
        UsageError
            When this transport delivers no notifications.
        """
        return self.transport.listen("kiwi_published")

    async def drop_model(self, fingerprint: str) -> int:
        """Remove the vectors of a model that is not the active one; return the number of passages."""
        removed, batch = 0, _BATCH
        while batch == _BATCH:
            batch = await self.client.drop_collection(fingerprint, _BATCH)
            removed += batch
        return removed


class RegistryClaim:
    """An indexer's hold on a published item until its session ends, or the reason why it has none.

    Attributes
    ----------
    state
        ``claimed``; ``busy``: another indexer holds it; ``later``: it failed and the pause before the next attempt has
        not passed; ``done``: it has its vectors, or the model needs none of it.
    received_at
        When the item arrived in the registry; None unless claimed.
    files
        The item's files by name, which its statement lists; empty unless claimed.
    """

    def __init__(self, session: RegistryClient, digest: str, claimed: Claimed) -> None:
        self._session = session
        self._digest = digest
        self.state, self.received_at, self.files = claimed.state, claimed.received_at, claimed.files

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """As `VectorStore.history`, over the claim's connection: waiting for a second one could be a deadlock."""
        return await _history(self._session, ref)

    async def store(self, records: Sequence[EmbeddingRecord]) -> int:
        """Store the item's passages, which become durable when the session ends; return how many.

        Raises
        ------
        NotAdmitted
            When the gate did not admit them, or they belong to another item.
        RegistryRefused
            When the registry rejects them (``state`` KW017).
        """
        if one_admission(records).digest != self._digest:
            raise NotAdmitted(f"the claim is on {self._digest[:16]}…, and these are the passages of another item")
        return await self._session.store_passages(records)

    async def requeue(self, problem: str) -> None:
        """Record why the item could not be indexed; patient indexers retry it later, after ever longer pauses."""
        await self._session.requeue_item(self._digest, problem)


async def _history(client: RegistryClient, ref: ItemRef) -> Mapping[str, str]:
    return {row["version"]: row["content_sha256"] for row in reversed(await client.item_status(ref))}
