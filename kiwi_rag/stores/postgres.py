"""The registry tier: `VectorStore` and `PublishingStore` over the registry's SQL functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
from kiwi_rag.registry.pool import Connections, become
from kiwi_rag.signing.trust import Signer
from kiwi_rag.stores.base import Capabilities, Receipt, StoreStatus
from kiwi_rag.validation.seal import require_sealed


class RegistryVectorStore:
    """A registry in Postgres.

    Nothing is deleted there: `delete` yanks, after which an item is kept and gettable by version, but not found.
    Publishing and indexing are two steps, which connections of two roles may run.

    Parameters
    ----------
    url
        ``postgresql://…``, or a blocking function that returns it, called when it is first needed.
    fingerprint
        The embedding model whose collection `statistics` and `status` are about; empty for the largest one.
    """

    def __init__(self, url: str | Callable[[], str], *, fingerprint: str = "") -> None:
        self._connections = Connections(url)
        self._fingerprint = fingerprint

    @property
    def capabilities(self) -> Capabilities:
        """Keeps every version; a receipt is durable."""
        return Capabilities(kind="postgres", keeps_versions=True, durable=True)

    @property
    def connections(self) -> Connections:
        """The connections, for the admins' functions in `kiwi_rag.registry.administration`."""
        return self._connections

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
        async with self._connections.transaction() as connection:
            answer = await functions.publish_item(connection, admission.envelope)
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
        async with self._connections.transaction(role="kiwi_indexer") as connection:
            await functions.store_passages(connection, records)

    async def upsert(self, records: Sequence[EmbeddingRecord]) -> None:
        """Publish an admitted item if it is not there yet, and store its passages: both or neither.

        The connection's role must be able to do both; where two roles do it, use `publish` and `index`.
        """
        _require_one_item(records)
        async with self._connections.transaction() as connection:
            await functions.publish_item(connection, records[0].admission.envelope)
            await become(connection, "kiwi_indexer")
            await functions.store_passages(connection, records)

    async def pending(self, fingerprint: str, limit: int = 100, after: int = 0) -> Sequence[tuple[int, Envelope]]:
        """Return up to `limit` published items without vectors of this model, as ``(sequence, envelope)``."""
        async with self._connections.transaction(role="kiwi_indexer") as connection:
            return await functions.pending_items(connection, fingerprint, limit, after)

    async def delete(self, ref: ItemRef) -> bool:
        """Yank a version, or all when `ref` names none; return whether that changed anything. Needs ``kiwi_admin``."""
        async with self._connections.transaction() as connection:
            return await administration.yank_item(connection, ref) > 0

    async def get(self, ref: ItemRef) -> StoredItem | None:
        """Return a version, the newest when `ref` names none; None for one that was yanked."""
        async with self._connections.transaction() as connection:
            return await functions.get_item(connection, ref)

    async def list(self, filters: Filters) -> Sequence[StoredItem]:
        """Return the newest version of each item that matches, ordered by type and id."""
        async with self._connections.transaction() as connection:
            return await functions.list_items(connection, filters)

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """Return every version ever published, yanked ones too, as version → content sha256 (hex)."""
        async with self._connections.transaction() as connection:
            versions = await functions.list_versions(connection, ref)
        return {str(row.ref.version): row.content_sha256 for row in versions}

    async def statistics(self, terms: Sequence[str]) -> CollectionStatistics:
        """Return what BM25 needs to know of the searchable passages."""
        async with self._connections.transaction() as connection:
            return await functions.collection_statistics(connection, terms, self._fingerprint)

    async def search(self, query: StoreQuery) -> Candidates:
        """Return the union of both legs' best `query.depth` passages, each with both scores.

        Raises
        ------
        FingerprintMismatch
            When the registry holds vectors, but none of the query's model.
        """
        async with self._connections.transaction() as connection:
            return Candidates(tuple(await functions.search_hybrid(connection, query)), "exact")

    async def status(self) -> StoreStatus:
        """Return counts and health."""
        async with self._connections.transaction() as connection:
            told = await functions.registry_status(connection)
        collections: dict[str, int] = dict(told["collections"])
        fingerprint = self._fingerprint or max(collections, key=lambda name: collections[name], default="")
        problems = () if told["audience"] else ("the registry has no name yet: kiwi registry migrate",)
        return StoreStatus(told["items"], collections.get(fingerprint, 0), fingerprint, problems, told)

    async def enrol(self, signer: Signer) -> str:
        """Let a signer publish, or change what it may publish; return its key id. Needs ``kiwi_admin``."""
        async with self._connections.transaction() as connection:
            return await administration.enrol_signer(connection, signer)

    async def signers(self) -> Sequence[Mapping[str, object]]:
        """Return who may publish: ``key_id``, ``principal``, ``patterns``, ``types``, ``status`` and the rest."""
        async with self._connections.transaction() as connection:
            enrolled = await administration.list_signers(connection)
        return [one.as_dict() for one in enrolled]

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()


def _require_one_item(records: Sequence[EmbeddingRecord]) -> None:
    if not records:
        raise UsageError("there are no passages to store")
    for record in records:
        require_sealed(record.admission)
    if len({(record.admission.digest, record.fingerprint) for record in records}) > 1:
        raise NotAdmitted("the passages of two items, or of two models, are mixed in one call")
