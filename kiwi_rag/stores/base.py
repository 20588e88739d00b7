"""The protocol every store implements.

Writing takes admitted records only: the type says so, an import contract keeps others from making an
`Admission`, and each store calls `kiwi_rag.stores.base.one_admission` before it writes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from kiwi_rag.errors import EmbeddingError, FingerprintMismatch, NotAdmitted, UsageError
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
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.validation.seal import require_passages, require_sealed

if TYPE_CHECKING:
    from datetime import datetime

    from kiwi_rag.registry.queue import ClaimState, IndexedItem, Progress, StoredPassage


NOT_FOUND_BY_VECTOR = -1.0
"""The cosine of a passage that only the words leg of a store without comparable scores found."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do, declared: never discovered by an exception.

    ``scores`` says that its scores are what the protocol says, and not just an order: cosines, and BM25 under the
    statistics that it was given. A search that asks a store without them fuses by ranks. Such a store scores each
    passage by the legs that found it, with `NOT_FOUND_BY_VECTOR` or 0 for the other, and an item by what was found.
    """

    kind: str
    keeps_versions: bool
    durable: bool
    scores: bool = True


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """A store's health: counts, fingerprint, and problems in plain words (empty when healthy)."""

    items: int
    passages: int
    fingerprint: str
    problems: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceStamp:
    """What a file was when it was last indexed; equal stamps mean that nothing has to be done.

    ``sha256`` is of the file, ``sig_sha256`` of its ``.sig`` (empty when it has none), both hex. ``gate_stamp``
    names the rules it was judged by (policy, trust, gate version), as one text; when it differs, the file is judged
    again.
    """

    path: str
    size: int
    mtime_ns: int
    sha256: str
    sig_sha256: str
    gate_stamp: str
    item_type: ItemType
    item_id: str
    digest: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a registry answers to a publication: its sequence number, the digest, and the audit head after it.

    ``known`` tells that the very same statement was there already, ``private`` that its owner alone sees it, ``opened``
    that it was private until now, ``yanked`` that it was taken back and is not found.
    """

    sequence: int
    digest: str
    audit_head: str
    known: bool
    private: bool = False
    opened: bool = False
    yanked: bool = False


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

    async def similar_terms(self, terms: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return what each term that can be a slip may be one for, the most frequent first.

        The first `kiwi_rag.lexical.MAX_TERMS` of those are looked up.

        As `kiwi_rag.lexical.find_similar` has it, over the terms of what everybody may see. The cost is bounded: of a
        very large vocabulary rare terms may be left out.
        """
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


class FileStore(VectorStore, Protocol):
    """A store of a tier whose truth is files: it remembers what each file was when it was last indexed."""

    async def upsert(self, records: Sequence[EmbeddingRecord], source: SourceStamp | None = None) -> None:
        """As `VectorStore.upsert`, with the file's stamp in the same transaction."""
        ...

    async def upsert_all(self, items: Sequence[tuple[Sequence[EmbeddingRecord], SourceStamp | None]]) -> None:
        """Store several items in their order, as `upsert` does each; where the store can, all of them or none."""
        ...

    async def sources(self) -> Mapping[str, SourceStamp]:
        """Return path → stamp of every indexed file."""
        ...

    async def put_source(self, stamp: SourceStamp) -> None:
        """Remember a file whose item is stored already."""
        ...

    async def delete_source(self, path: str) -> bool:
        """Forget a file; return whether it was known."""
        ...

    async def clear(self) -> None:
        """Remove all items and stamps, for a change of model; versions and audit stay."""
        ...

    async def note(self, name: str, text: str) -> None:
        """Keep a short text under a name, for who comes next: where a run stands, for instance."""
        ...

    async def noted(self, name: str) -> str:
        """Return the text that was kept under a name, an empty one where none was."""
        ...

    def writing(self) -> AbstractAsyncContextManager[None]:
        """Hold the writer lock for a whole run."""
        ...

    async def check(self) -> tuple[str, ...]:
        """Return every problem that a full check finds; empty when healthy."""
        ...

    async def repair(self) -> Sequence[str]:
        """Mend what a full check finds, without embedding; return what was done."""
        ...


class Claim(Protocol):
    """A published item that is the caller's to index until the block ends, or the reason why it is not.

    Attributes
    ----------
    state
        ``claimed``; ``busy``: another indexer has it; ``later``: it failed and is not to be tried yet; ``done``: it
        has its vectors, or none are wanted of it.
    received_at
        When the item arrived in the registry; None unless claimed.
    """

    state: ClaimState
    received_at: datetime | None

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """As `VectorStore.history`, over the claim's own connection: a second one could be waited for in vain."""
        ...

    async def store(self, records: Sequence[EmbeddingRecord]) -> int:
        """Store the item's passages, durable once the block ends; return how many.

        Raises
        ------
        NotAdmitted
            When the gate did not admit them, or they are another item's.
        RegistryRefused
            When the registry cannot use them (``state`` KW017).
        """
        ...

    async def requeue(self, problem: str) -> None:
        """Note why the item could not be indexed; patient indexers try it again after a while, ever longer."""
        ...


class PublishingStore(VectorStore, Protocol):
    """A registry: publishing and indexing are two steps, which two roles may run."""

    async def publish(self, admission: Admission, visibility: Visibility | None = None) -> Receipt:
        """Hand in an admitted item; idempotent.

        Without a `visibility` a new item is public, and one that is there stays what it is.

        Raises
        ------
        RegistryRefused
            When the registry's own checks say no.
        """
        ...

    async def pending(self, fingerprint: str, limit: int = 100, after: int = 0) -> Sequence[tuple[int, Envelope]]:
        """Return up to `limit` published items without vectors of this model, as ``(sequence, envelope)``."""
        ...

    def claim(self, digest: str, fingerprint: str, *, patient: bool = False) -> AbstractAsyncContextManager[Claim]:
        """Claim a published item for the block, to make it searchable; `patient` leaves what failed a moment ago."""
        ...

    def listening(self) -> AbstractAsyncContextManager[Callable[[float], Awaitable[bool]]]:
        """Open a line on which publications are announced: call it with seconds to wait; it tells if any came."""
        ...

    async def begin_model(self, fingerprint: str) -> str:
        """Start a model's collection if it has none, beside the active one; return its state."""
        ...

    async def finish_model(self, fingerprint: str, *, insist: bool = False) -> Progress:
        """Switch searches to a model if nothing waits for it; return its progress either way."""
        ...

    async def drop_model(self, fingerprint: str) -> int:
        """Remove the vectors of a model that is not the active one; return how many passages that were."""
        ...

    async def index_status(self) -> Mapping[str, Any]:
        """Return each model's progress and what waits, of public items; for indexers and admins."""
        ...

    async def indexed(self, fingerprint: str, limit: int, after: str | None = None) -> Sequence[IndexedItem]:
        """Return up to `limit` items that have vectors of this model, in the order of their digests.

        They are drawn at random, or the first after the digest `after` where one is given (empty: from the beginning).
        """
        ...

    async def passages(self, digest: str, fingerprint: str) -> Sequence[StoredPassage]:
        """Return an item's passages of one model as they are stored, in order."""
        ...


_UNIT_TOLERANCE = 1e-3


def one_admission(records: Sequence[EmbeddingRecord]) -> Admission:
    """Return the one sealed admission that all `records` belong to.

    Raises
    ------
    UsageError
        When there are no records, or two passages have one ordinal.
    NotAdmitted
        When a seal is missing, two items are mixed, or these are not the passages that were signed of a document.
    FingerprintMismatch
        When two models made the vectors.
    EmbeddingError
        When a vector is not a finite unit vector.
    """
    if not records:
        raise UsageError("an item is stored by its passages, and there are none")
    first = require_sealed(records[0].admission)
    for record in records:
        if record.admission is not first and require_sealed(record.admission) != first:
            raise NotAdmitted(f"records of two admissions are mixed: {first.ref} and {record.admission.ref}")
    if len({(record.fingerprint, record.vector.shape) for record in records}) > 1:
        raise FingerprintMismatch(f"{first.ref}: its passages were embedded by two models")
    if len({record.passage.ordinal for record in records}) < len(records):
        raise UsageError(f"{first.ref}: two passages have one ordinal")
    _check_vectors(records)
    require_passages(first, [record.passage for record in records])
    return first


def _check_vectors(records: Sequence[EmbeddingRecord]) -> None:
    import numpy as np

    rows = np.stack([record.vector for record in records]).astype(np.float64)
    unit = abs(np.linalg.norm(rows, axis=1) - 1.0) < _UNIT_TOLERANCE if rows.ndim == 2 else np.zeros(1, bool)
    if not unit.all():
        bad = records[int(np.argmin(unit))]
        raise EmbeddingError(f"{bad.admission.ref}: passage {bad.passage.ordinal} has no unit vector")
