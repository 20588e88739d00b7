"""The protocols of stores, and the check that each store makes before it writes.

Stores write admitted records only. The parameter's type requires an `Admission`, an import contract lets only
`kiwi_rag.validation` make one, and each store verifies its seal with `one_admission`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, runtime_checkable

from kiwi_rag.errors import EmbeddingError, FingerprintMismatch, NotAdmitted, UsageError
from kiwi_rag.model.items import Admission, EmbeddingRecord, StoredItem, Vector
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.model.search import Candidates, CollectionStatistics, Filters, StoreQuery
from kiwi_rag.validation.admission import require_passages, require_sealed

_UNIT_TOLERANCE = 1e-3
NOT_FOUND_BY_VECTOR = -1.0
"""The cosine of a passage that only the lexical leg of a store without comparable scores found."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do, declared so that callers need not try.

    ``scores``: its scores are cosines, and BM25 under the statistics of the query. Without it they only order the
    passages, and a search fuses this store's results by rank. Such a store scores each passage by the legs that found
    it, with `NOT_FOUND_BY_VECTOR` or 0 for the other, and an item by its passages that were found.
    """

    kind: str
    scores: bool = True


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """A store's health: counts, fingerprint, and a message for each problem.

    ``unembedded`` is how many of the passages have no vector yet.
    """

    items: int
    passages: int
    fingerprint: str
    problems: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    unembedded: int = 0


@dataclass(frozen=True, slots=True)
class UnembeddedDocument:
    """A document with passages that have no vector yet: its path, type and time of change, and the passages' keys."""

    path: str
    file_type: str
    last_modified: str
    keys: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SourceStamp:
    """The state of a file, or of an item's folder, when it was last indexed: an equal one need not be indexed again.

    ``sha256`` is of the file (of a folder the content digest of its files), ``sig_sha256`` of its ``.sig`` (empty when
    it has none), both hex. ``gate_stamp`` names the rules that admitted it (policy, trust, gate version) as one text. A
    file whose rules changed is judged again. ``digest`` is that of the statement that was stored. It counts only as
    long as the store has this very statement: the store may have been repaired, dropped, or written by another machine.
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

    @property
    def ref(self) -> ItemRef:
        """The item or document, without a version."""
        return ItemRef(self.item_type, self.item_id)


@runtime_checkable
class VectorStore(Protocol):
    """The storage of a collection. Every method raises `StoreError` (or a subclass) when the backend fails."""

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do."""

    async def put(self, entries: Sequence[Sequence[EmbeddingRecord]]) -> None:
        """Store admitted items or documents in their order; each entry is all passages of one of them.

        An entry replaces what the store had under its reference. It is stored wholly or not at all, and a second time
        changes nothing. With an item its files are stored.

        Raises
        ------
        NotAdmitted
            When a record's admission does not carry the gate's seal, or one entry has records of two items.
        FingerprintMismatch
            When the collection holds vectors of another model.
        """

    async def delete(self, ref: ItemRef) -> bool:
        """Remove an item or document; return whether it was there."""

    async def get(self, ref: ItemRef, files: Sequence[str] | None = None) -> StoredItem | None:
        """Return an item (its newest version when `ref` names none) or a document; None when it is not there.

        Parameters
        ----------
        files
            The names of the files to return with an item; None for all of them. A name that it does not have is left
            out. Documents have none.
        """

    async def list(self, filters: Filters) -> Sequence[StoredItem]:
        """Return what matches, ordered by type and id, without files."""

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """Return every version ever admitted here, deleted ones too, as version → content sha256 (hex)."""

    async def statistics(self, terms: Sequence[str]) -> CollectionStatistics:
        """Return what BM25 needs to know of this collection for these terms."""

    async def similar_terms(self, terms: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return the indexed terms that each term may be a misspelling of, the most frequent first.

        `kiwi_rag.lexical.find_similar` defines them, over the terms of public passages. The cost is bounded: only the
        first `kiwi_rag.lexical.MAX_TERMS` terms that may be misspelt count, and rare terms of a very large vocabulary
        may be missing.
        """

    async def search(self, query: StoreQuery) -> Candidates:
        """Return the union of both legs' best `query.depth` passages, each with both scores."""

    async def status(self) -> StoreStatus:
        """Return counts and health."""

    async def clear(self) -> None:
        """Remove everything of this collection."""

    async def close(self) -> None:
        """Close files and connections."""


def one_admission(records: Sequence[EmbeddingRecord]) -> Admission:
    """Return the one sealed admission that all `records` belong to.

    Raises
    ------
    UsageError
        When there are no records, or two passages have the same ordinal.
    NotAdmitted
        When a seal is missing, two items are mixed, or a document's signed passages are others.
    FingerprintMismatch
        When the vectors are of different models.
    EmbeddingError
        When a vector is not a finite unit vector.
    """
    if not records:
        raise UsageError("an item needs at least one passage to be stored")
    first = require_sealed(records[0].admission)
    for record in records:
        if record.admission is not first and require_sealed(record.admission) != first:
            raise NotAdmitted(f"one write has records of two items: {first.ref} and {record.admission.ref}")
    if len({(record.fingerprint, record.vector.shape) for record in records}) > 1:
        raise FingerprintMismatch(f"{first.ref}: its passages were embedded by different models")
    if len({record.passage.ordinal for record in records}) < len(records):
        raise UsageError(f"{first.ref}: two passages have the same ordinal")
    require_unit_vectors({record.passage.ordinal: record.vector for record in records}, f"{first.ref}: ")
    require_passages(first, [record.passage for record in records])
    return first


def require_document(admission: Admission) -> Admission:
    """Return the admission of a document; `UsageError` for an item's."""
    if admission.ref.item_type is not ItemType.DOCUMENT:
        raise UsageError(f"{admission.ref} is not a document", hint="items are published: kiwi publish PATH")
    return admission


def require_model(stored: tuple[str, int], wanted: tuple[str, int], hint: str) -> None:
    """Return if the stored vectors are of the wanted model and dimension, otherwise raise `FingerprintMismatch`."""
    if stored != wanted:
        raise FingerprintMismatch(f"the stored vectors are of {stored[0]}, not of {wanted[0]}", hint=hint)


def timestamp(moment: datetime) -> str:
    """Return `moment` as text in UTC with microseconds, which sorts by time; a naive one counts as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="microseconds")


def require_unit_vectors(vectors: Mapping[int, Vector], where: str = "") -> None:
    """Return if all vectors, by the numbers of their passages, are finite and of length 1; else `EmbeddingError`."""
    import numpy as np

    rows = np.stack(list(vectors.values())).astype(np.float64)
    unit = abs(np.linalg.norm(rows, axis=1) - 1.0) < _UNIT_TOLERANCE if rows.ndim == 2 else np.zeros(1, bool)
    if not unit.all():
        bad = list(vectors)[int(np.argmin(unit))]  # the first that is not
        raise EmbeddingError(f"{where}passage {bad} has no unit vector")
