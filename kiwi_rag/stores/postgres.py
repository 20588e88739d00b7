"""The registry tier: `VectorStore` and `PublishingStore` over the registry's SQL functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kiwi_rag.errors import NotAdmitted, UsageError
from kiwi_rag.model import (
    Admission,
    Candidates,
    CollectionStatistics,
    EmbeddingRecord,
    Envelope,
    Filters,
    StoredItem,
    StoreQuery,
)
from kiwi_rag.refs import ItemRef
from kiwi_rag.registry import administration, functions
from kiwi_rag.registry.calls import Transport
from kiwi_rag.signing.trust import Signer
from kiwi_rag.stores.base import Capabilities, Receipt, StoreStatus
from kiwi_rag.validation.seal import require_sealed


class RegistryVectorStore:
    """A registry in Postgres.

    Nothing is deleted there: `delete` yanks, after which an item is kept and gettable by version, but not found.
    Publishing and indexing are two steps, which connections of two roles may run.

    Parameters
    ----------
    transport
        The way to the registry: `kiwi_rag.registry.pool.Connections`, or Supabase's API.
    fingerprint
        The embedding model whose collection `statistics` and `status` are about; empty for the largest one.
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
        """The way to the registry, for the admins' functions in `kiwi_rag.registry.administration`."""
        return self._transport

    async def publish(self, admission: Admission) -> Receipt:
        """Hand in an admitted item; handing it in again changes nothing.

        Raises
        ------
        NotAdmitted
            When the gate did not admit it.
        RegistryRefused
            When the registry's own checks say no.
        """
        require_sealed(admission)
        async with self._transport.session() as caller:
            answer = await functions.publish_item(caller, admission.envelope)
        return Receipt(answer["sequence"], answer["digest"], answer["audit_head"], answer["known"])

    async def index(self, records: Sequence[EmbeddingRecord]) -> None:
        """Store the passages of a published item, which makes its newest version searchable.

        Raises
        ------
        NotAdmitted
            When a record was not admitted, or records of two items or two models are mixed.
        NotFound
            When the item was not published.
        RegistryRefused
            When the connection's role may not act as ``kiwi_indexer``.
        """
        _require_one_item(records)
        async with self._transport.session(role="kiwi_indexer") as caller:
            await functions.store_passages(caller, records)

    async def upsert(self, records: Sequence[EmbeddingRecord]) -> None:
        """Publish an admitted item if it is not there yet, and store its passages: both or neither.

        The connection's role must be able to do both; where two roles do it, use `publish` and `index`.
        """
        _require_one_item(records)
        async with self._transport.session() as caller:
            await functions.publish_item(caller, records[0].admission.envelope)
            await caller.become("kiwi_indexer")
            await functions.store_passages(caller, records)

    async def pending(self, fingerprint: str, limit: int = 100, after: int = 0) -> Sequence[tuple[int, Envelope]]:
        """Return up to `limit` published items without vectors of this model, as ``(sequence, envelope)``."""
        async with self._transport.session(role="kiwi_indexer") as caller:
            return await functions.pending_items(caller, fingerprint, limit, after)

    async def delete(self, ref: ItemRef) -> bool:
        """Yank a version, or all when `ref` names none; return whether that changed anything. Needs ``kiwi_admin``."""
        async with self._transport.session() as caller:
            return await administration.yank_item(caller, ref) > 0

    async def get(self, ref: ItemRef) -> StoredItem | None:
        """Return a version, the newest when `ref` names none; None for one that was yanked."""
        async with self._transport.session() as caller:
            return await functions.get_item(caller, ref)

    async def list(self, filters: Filters) -> Sequence[StoredItem]:
        """Return the newest version of each item that matches, ordered by type and id."""
        async with self._transport.session() as caller:
            return await functions.list_items(caller, filters)

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """Return every version ever published, yanked ones too, as version → content sha256 (hex)."""
        async with self._transport.session() as caller:
            versions = await functions.list_versions(caller, ref)
        return {str(row.ref.version): row.content_sha256 for row in versions}

    async def statistics(self, terms: Sequence[str]) -> CollectionStatistics:
        """Return what BM25 needs to know of the searchable passages."""
        async with self._transport.session() as caller:
            return await functions.collection_statistics(caller, terms, self._fingerprint)

    async def search(self, query: StoreQuery) -> Candidates:
        """Return the union of both legs' best `query.depth` passages, each with both scores.

        Raises
        ------
        FingerprintMismatch
            When the registry holds vectors, but none of the query's model.
        """
        async with self._transport.session() as caller:
            return Candidates(tuple(await functions.search_hybrid(caller, query)), "exact")

    async def status(self) -> StoreStatus:
        """Return counts and health."""
        async with self._transport.session() as caller:
            told = await functions.registry_status(caller)
        collections: dict[str, int] = dict(told["collections"])
        fingerprint = self._fingerprint or max(collections, key=lambda name: collections[name], default="")
        problems = () if told["audience"] else ("the registry has no name yet: kiwi registry migrate",)
        return StoreStatus(told["items"], collections.get(fingerprint, 0), fingerprint, problems, told)

    async def enrol(self, signer: Signer) -> str:
        """Let a signer publish, or change what it may publish; return its key id. Needs ``kiwi_admin``."""
        async with self._transport.session() as caller:
            return await administration.enrol_signer(caller, signer)

    async def signers(self) -> Sequence[Mapping[str, object]]:
        """Return who may publish: ``key_id``, ``principal``, ``patterns``, ``types``, ``status`` and the rest."""
        async with self._transport.session() as caller:
            enrolled = await administration.list_signers(caller)
        return [one.as_dict() for one in enrolled]

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()


def _require_one_item(records: Sequence[EmbeddingRecord]) -> None:
    if not records:
        raise UsageError("there are no passages to store")
    for record in records:
        require_sealed(record.admission)
    if len({(record.admission.digest, record.fingerprint) for record in records}) > 1:
        raise NotAdmitted("the passages of two items, or of two models, are mixed in one call")
