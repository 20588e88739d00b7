"""The protocol every store implements.

Writing takes admitted records only: the type says so, an import contract keeps others from making an
`Admission`, and each store calls `kiwi_rag.validation.seal.require_sealed` before it writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from kiwi_rag.model import (
    Candidates,
    CollectionStatistics,
    EmbeddingRecord,
    Filters,
    ItemRef,
    StoredItem,
    StoreQuery,
)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do, declared: never discovered by an exception."""

    kind: str
    keeps_versions: bool
    durable: bool


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """A store's health: counts, fingerprint, and problems in plain words (empty when healthy)."""

    items: int
    passages: int
    fingerprint: str
    problems: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class VectorStore(Protocol):
    """A tier's storage. Every method raises `StoreError` (or a subclass) when the backend fails."""

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do."""
        ...

    async def upsert(self, records: Sequence[EmbeddingRecord]) -> None:
        """Store all passages of one admitted item, replacing what the item had. Atomic and idempotent.

        Raises
        ------
        NotAdmitted
            When a record's admission does not carry the gate's seal, or records of two items are mixed.
        FingerprintMismatch
            When the collection holds vectors of another model.
        """
        ...

    async def delete(self, ref: ItemRef) -> bool:
        """Remove an item; return whether it was there."""
        ...

    async def get(self, ref: ItemRef) -> StoredItem | None:
        """Return an item (its newest version when `ref` names none), or None."""
        ...

    async def list(self, filters: Filters) -> Sequence[StoredItem]:
        """Return the items that match, ordered by type and id."""
        ...

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """Return every version ever admitted here, deleted ones too, as version → content sha256 (hex)."""
        ...

    async def statistics(self, terms: Sequence[str]) -> CollectionStatistics:
        """Return what BM25 needs to know of this collection for these terms."""
        ...

    async def search(self, query: StoreQuery) -> Candidates:
        """Return the union of both legs' best `query.depth` passages, each with both scores."""
        ...

    async def status(self) -> StoreStatus:
        """Return counts and health."""
        ...

    async def close(self) -> None:
        """Release what is held."""
        ...
