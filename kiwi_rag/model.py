"""The records that travel through the house: frozen values without behaviour of their own.

Imports nothing of Kiwi but the errors. Arrays are ``numpy.ndarray`` of ``float32``; numpy itself is only
named in annotations here, so that importing this module stays cheap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from kiwi_rag.refs import ItemRef, ItemType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing the gate has to say about a candidate.

    ``code`` is stable and dotted (``structure.two-directives``); ``line`` is 1-based, 0 when no line is meant;
    ``hint`` says what mends it.
    """

    code: str
    message: str
    line: int = 0
    path: str = ""
    hint: str = ""
    severity: Severity = "error"

    @property
    def is_error(self) -> bool:
        """Whether this finding alone refuses the candidate."""
        return self.severity == "error"

    @property
    def where(self) -> str:
        """``file:line``, or as much of it as is known."""
        return f"{self.path}:{self.line}" if self.line else self.path

    def as_dict(self) -> dict[str, object]:
        """Return the finding as JSON-ready data."""
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "path": self.path,
            "line": self.line,
            "hint": self.hint,
        }


@dataclass(frozen=True, slots=True)
class Section:
    """A stretch of a file that belongs together.

    ``start_line`` and ``end_line`` are 1-based and inclusive, and true: they are where ``text`` stands in the
    file. ``heading`` is the path of headings above it. The ``summary`` section is composed from metadata, so
    that an item is found by what it says of itself; its lines are those of the block the metadata came from.
    """

    kind: Literal["summary", "body"]
    text: str
    start_line: int
    end_line: int
    heading: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """A parsed directive, script or knowledge entry. ``content`` is the whole file, as text.

    ``metadata`` is the part that gets signed beside the content: JSON-ready, and the same for the same content.
    Keys: ``name``, ``description``, ``category``, ``author``, ``tags`` (list), and, where the format has them,
    ``title``, ``model``, ``limits``, ``permissions``, ``context``, ``inputs``, ``outputs``, ``steps``, ``imports``.
    ``findings`` holds what parsing noticed without being stopped by it.
    """

    ref: ItemRef
    content: str
    metadata: Mapping[str, Any]
    sections: tuple[Section, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def title(self) -> str:
        """Title of a knowledge entry, name of anything else."""
        return str(self.metadata.get("title") or self.metadata.get("name") or self.ref.item_id)

    @property
    def content_sha256(self) -> str:
        """Hex SHA-256 of the content's UTF-8 bytes."""
        return sha256_hex(self.content.encode())


@dataclass(frozen=True, slots=True)
class Passage:
    """The piece of an item that is embedded and found.

    ``context`` (title and heading path) is embedded in front of ``text`` but is not part of the lines.
    ``ordinal`` counts from 0 within the item.
    """

    ordinal: int
    text: str
    context: str
    heading: tuple[str, ...]
    start_line: int
    end_line: int

    @property
    def embedded_text(self) -> str:
        """What the model and the words leg see."""
        return f"{self.context}\n{self.text}" if self.context else self.text


@dataclass(frozen=True, slots=True)
class Envelope:
    """A DSSE v1.0.2 envelope, decoded: payload type, payload bytes, ``(keyid, signature bytes)`` pairs."""

    payload_type: str
    payload: bytes
    signatures: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Admission:
    """What the gate hands out: the proof that an item was admitted, by whom and under which policy.

    ``digest`` is the hex SHA-256 of the signed payload. ``seal`` is made by the gate alone; a store checks it
    (``kiwi_rag.validation.seal.require_sealed``) before it writes anything.
    """

    item: Item
    envelope: Envelope
    digest: str
    key_id: str
    principal: str
    findings: tuple[Finding, ...]
    policy: str
    signed_at: datetime
    admitted_at: datetime
    seal: bytes = field(default=b"", repr=False)

    @property
    def ref(self) -> ItemRef:
        """The admitted item, with its version."""
        return self.item.ref


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddingRecord:
    """One passage of an admitted item, with its vector and the fingerprint of the model that made it.

    ``vector`` has shape ``(dimension,)``, ``float32``, L2-normalised.
    """

    admission: Admission
    passage: Passage
    vector: Vector
    fingerprint: str


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as a store gives it back: the signed bytes, and what was known when it was admitted.

    Nothing in here is trusted on its own; ``search`` verifies ``envelope`` again before a door shows any of it.
    ``yanked_at`` and ``yank_reason`` tell that it was taken back, ``private`` that only its owner sees it. ``problem``
    says why what a store gave cannot be read; such an item never verifies.
    """

    ref: ItemRef
    envelope: Envelope
    digest: str
    content_sha256: str
    admitted_at: datetime
    policy: str
    path: str = ""
    passages: int = 0
    yanked_at: datetime | None = None
    yank_reason: str = ""
    private: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Filters:
    """What a search is narrowed to; empty fields do not narrow. All are pushed into both legs.

    ``tags``: all of them must be there. ``since``: signed at or after. ``signer``: principal or key id.
    """

    item_type: ItemType | None = None
    category: str = ""
    author: str = ""
    tags: tuple[str, ...] = ()
    namespace: str = ""
    signer: str = ""
    since: datetime | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is narrowed."""
        return self == Filters()


@dataclass(frozen=True, slots=True)
class CollectionStatistics:
    """What BM25 needs to know of a collection: passages, their total length in terms, and df per query term."""

    passages: int = 0
    total_length: int = 0
    document_frequency: Mapping[str, int] = field(default_factory=dict)

    @property
    def average_length(self) -> float:
        """Mean passage length in terms; 1.0 for an empty collection."""
        return self.total_length / self.passages if self.passages else 1.0

    def __add__(self, other: CollectionStatistics) -> CollectionStatistics:
        terms = {*self.document_frequency, *other.document_frequency}
        merged = {t: self.document_frequency.get(t, 0) + other.document_frequency.get(t, 0) for t in terms}
        return CollectionStatistics(self.passages + other.passages, self.total_length + other.total_length, merged)


@dataclass(frozen=True, slots=True, eq=False)
class StoreQuery:
    """What a store is asked: both legs' inputs, the merged statistics, filters and how many candidates a leg."""

    vector: Vector
    terms: tuple[str, ...]
    statistics: CollectionStatistics
    filters: Filters
    fingerprint: str
    depth: int = 100


@dataclass(frozen=True, slots=True)
class Candidate:
    """A passage that at least one leg of one tier found, with *both* legs' raw scores.

    ``cosine`` is in [-1, 1]; ``bm25`` ≥ 0 and 0 when no query term occurs. ``digest`` names the payload.
    """

    ref: ItemRef
    digest: str
    content_sha256: str
    passage: Passage
    cosine: float
    bm25: float
    metadata: Mapping[str, Any]
    key_id: str
    signed_at: datetime


@dataclass(frozen=True, slots=True)
class RefusedHit:
    """A hit that did not verify when it was about to be shown, or that cannot even be read."""

    ref: ItemRef
    tier: str
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Candidates:
    """A store's answer: candidates in no particular order, and the plan it chose (``exact``, ``chroma``, …).

    ``refused`` holds what the store had to leave out because it cannot be read.
    """

    items: tuple[Candidate, ...]
    plan: str
    refused: tuple[RefusedHit, ...] = ()


Visibility = Literal["public", "private"]
TierName = Literal["project", "user", "registry"]
TierState = Literal["ok", "timeout", "error", "stale", "refused"]


@dataclass(frozen=True, slots=True)
class TierOutcome:
    """How one tier answered: state, seconds taken, candidates given, and what went wrong if it did."""

    tier: str
    state: TierState
    seconds: float
    rows: int
    plan: str = ""
    error: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What a person or an agent asks. ``alpha`` is the vector leg's weight, ``None`` for the tuned one."""

    text: str
    source: str = "local"
    filters: Filters = Filters()
    limit: int = 10
    alpha: float | None = None
    half_life_days: float | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A hit: one item, shown by its best passage, verified again a moment ago.

    ``score`` is the fused score in [0, 1]; ``parts`` explains it (``cosine``, ``bm25``, ``vector_rank``,
    ``lexical_rank``, ``alpha``, ``prior``, ``plan``). ``shadows`` lists tiers whose item of the same id this one
    hides, as ``tier`` or ``tier!principal`` where another principal signed the hidden one; ``tiers`` every tier
    that holds the same content. ``private`` tells that only its owner sees it.
    """

    ref: ItemRef
    tier: str
    tiers: tuple[str, ...]
    shadows: tuple[str, ...]
    passage: Passage
    metadata: Mapping[str, Any]
    score: float
    parts: Mapping[str, Any]
    digest: str
    key_id: str
    principal: str
    signed_at: datetime
    path: str = ""
    private: bool = False


@dataclass(frozen=True, slots=True)
class SearchReply:
    """Hits, best first, with what each tier did and what was dropped."""

    query: SearchQuery
    hits: tuple[SearchResult, ...]
    tiers: tuple[TierOutcome, ...]
    refused: tuple[RefusedHit, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every asked tier answered and nothing was refused."""
        return not self.refused and all(t.state == "ok" for t in self.tiers)


def sha256_hex(data: bytes) -> str:
    """Return the hex SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def has_errors(findings: Sequence[Finding]) -> bool:
    """Whether any finding refuses."""
    return any(f.is_error for f in findings)
