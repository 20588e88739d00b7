"""Searching: what is asked of stores and by people, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kiwi_rag.model.items import ItemState, Passage
from kiwi_rag.model.refs import ItemRef, ItemType

if TYPE_CHECKING:
    from kiwi_rag.model.items import Vector


@dataclass(frozen=True, slots=True)
class Filters:
    """What a search is narrowed to; empty fields do not narrow. All are pushed into both legs.

    ``tags``: all of them must be there. ``since``: signed at or after. ``signer``: principal or key id. Of documents:
    ``file_type``, ``service``, ``domain``, and ``path``, in which ``*`` stands for any characters, slashes too, and
    ``?`` for one; without either it is a file, or a folder and all below it.
    """

    item_type: ItemType | None = None
    category: str = ""
    author: str = ""
    tags: tuple[str, ...] = ()
    namespace: str = ""
    signer: str = ""
    since: datetime | None = None
    file_type: str = ""
    service: str = ""
    domain: str = ""
    path: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is narrowed."""
        return self == Filters()

    @property
    def file_types(self) -> tuple[str, ...]:
        """The file types that `file_type` means: decisions are Markdown, too."""
        return ("markdown", "adr") if self.file_type == "markdown" else (self.file_type,) if self.file_type else ()


@dataclass(frozen=True, slots=True)
class CollectionStatistics:
    """What BM25 needs to know of a collection: passages, their total length in terms, df per query term, and items."""

    passages: int = 0
    total_length: int = 0
    document_frequency: Mapping[str, int] = field(default_factory=dict)
    items: int = 0

    @property
    def average_length(self) -> float:
        """Mean passage length in terms; 1.0 where there are none."""
        return self.total_length / self.passages if self.total_length and self.passages else 1.0

    @property
    def average_item_length(self) -> float:
        """Mean length of an item's passages together, in terms; 1.0 where there are none."""
        return self.total_length / self.items if self.total_length and self.items else 1.0

    def __add__(self, other: CollectionStatistics) -> CollectionStatistics:
        terms = {*self.document_frequency, *other.document_frequency}
        merged = {t: self.document_frequency.get(t, 0) + other.document_frequency.get(t, 0) for t in terms}
        passages, length = self.passages + other.passages, self.total_length + other.total_length
        return CollectionStatistics(passages, length, merged, self.items + other.items)


@dataclass(frozen=True, slots=True, eq=False)
class StoreQuery:
    """What a store is asked: both legs' inputs, the merged statistics, filters and how many candidates a leg."""

    vector: Vector
    terms: tuple[str, ...]
    statistics: CollectionStatistics
    filters: Filters
    fingerprint: str
    depth: int = 100


class ItemScores(NamedTuple):
    """What the query has to do with an item as a whole: raw scores over *all* of its passages, found or not.

    ``best`` is the highest cosine of a passage, ``first`` that of its first passage (its summary, where it has one),
    ``centroid`` that of the mean of its vectors; all in [-1, 1]. ``best_words`` is the highest BM25 of a passage,
    ``words`` the BM25 of the item taken as one document; both ≥ 0.
    """

    best: float
    first: float
    centroid: float
    best_words: float
    words: float


class Candidate(NamedTuple):
    """A passage that at least one leg of one tier found, with *both* legs' raw scores, and those of its item.

    ``cosine`` is in [-1, 1]; ``bm25`` ≥ 0 and 0 when no query term occurs. ``digest`` names the payload. A named tuple,
    because a search makes hundreds, and a frozen dataclass takes four times as long to make.
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
    item: ItemScores


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


TierName = Literal["project", "user", "registry"]
TierState = Literal["ok", "timeout", "error", "stale", "refused"]


@dataclass(frozen=True, slots=True)
class TierOutcome:
    """How one tier answered: state, seconds taken, candidates given, and what went wrong if it did.

    ``timings`` splits the seconds into ``statistics``, ``candidates`` and ``verification``; ``statistics`` are its own.
    """

    tier: str
    state: TierState
    seconds: float
    rows: int
    plan: str = ""
    error: Mapping[str, object] | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    statistics: CollectionStatistics = CollectionStatistics()


@dataclass(frozen=True, slots=True)
class FusionWeights:
    """How much each score counts: shares in [0, 1].

    ``alpha`` is the vector leg's share of the whole, words have the rest. Within the vector leg ``first`` and
    ``centroid`` are the shares of `ItemScores.first` and `ItemScores.centroid`, the best passage has the rest; within
    the words leg ``whole`` is the share of the item as one document, its best passage has the rest.
    """

    alpha: float
    first: float = 0.0
    centroid: float = 0.0
    whole: float = 0.0


FusionMethod = Literal["convex", "rrf"]


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What a person or an agent asks.

    ``weights`` are those of the fusion, ``None`` for the tuned ones; ``alpha`` overrides theirs. ``fusion`` is
    ``convex``, or ``rrf`` for ranks alone, which uses no weights. ``per_signer`` is how many hits one signer may have:
    0 any number, ``None`` half of them once three signers are found.
    """

    text: str
    source: str = "local"
    filters: Filters = Filters()
    limit: int = 10
    alpha: float | None = None
    half_life_days: float | None = None
    weights: FusionWeights | None = None
    fusion: FusionMethod = "convex"
    per_signer: int | None = None


@dataclass(frozen=True, slots=True)
class VersionConflict:
    """A version of an item that has other content in another tier: tier → hex SHA-256, and what ends it."""

    ref: ItemRef
    digests: Mapping[str, str]
    hint: str = ""

    def __str__(self) -> str:
        contents = ", ".join(f"{digest[:16]}… in {tier}" for tier, digest in self.digests.items())
        return f"{self.ref} has two contents: {contents}"

    def as_dict(self) -> dict[str, object]:
        """Return it JSON-ready."""
        return {"ref": str(self.ref), "digests": dict(self.digests), "hint": self.hint}


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A hit: one item, shown by its best passage, whose statement verified a moment ago.

    ``state`` says whether its file was changed since, or its version yanked.
    ``score`` is the fused score in [0, 1]; ``parts`` explains it: ``cosine`` and ``bm25`` of the passage;
    ``best_cosine``, ``first_cosine``, ``centroid_cosine``, ``best_bm25`` and ``item_bm25`` of its item; ``vectors`` and
    ``words``, the legs in [0, 1], with the item's ``vector_rank`` and ``lexical_rank`` there; ``alpha``, ``fusion``,
    ``prior``, ``plan``. ``shadows`` lists tiers whose item of the same id this one hides, as ``tier`` or
    ``tier!principal`` where another principal signed the hidden one; ``tiers`` every tier that holds the same content.
    ``duplicates`` are addresses of items with the same content under other ids, which this hit stands for,
    ``more_duplicates`` says how many more there are said to be. ``private`` tells that only its owner sees it.
    ``conflict`` is set where another tier has other content under the same version.
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
    duplicates: tuple[str, ...] = ()
    more_duplicates: int = 0
    state: ItemState = field(default_factory=ItemState)
    conflict: VersionConflict | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a reply came about, beside what each hit and each tier says of itself.

    ``statistics`` are those of all tiers together, ``seconds`` those of ``embedding``, ``fusion`` and the ``whole``.
    ``rounds`` is how often candidates were asked for, ``depth`` how many a leg in the last of them. ``signers`` counts
    those of what was found, ``cap`` is how many hits one may have (None: any number), ``suppressed`` counts the better
    ones that were left out for it.
    """

    terms: tuple[str, ...]
    statistics: CollectionStatistics
    fusion: FusionMethod
    weights: FusionWeights
    seconds: Mapping[str, float]
    rounds: int
    depth: int
    signers: int
    cap: int | None
    suppressed: int


@dataclass(frozen=True, slots=True)
class SearchReply:
    """Hits, best first, with what each tier did and what was dropped.

    ``corrections`` names the words of the query that are nowhere, each with the one that was searched for in its place.
    """

    query: SearchQuery
    hits: tuple[SearchResult, ...]
    tiers: tuple[TierOutcome, ...]
    refused: tuple[RefusedHit, ...] = ()
    explanation: Explanation | None = None
    corrections: Mapping[str, str] = field(default_factory=dict)

    @property
    def conflicts(self) -> tuple[VersionConflict, ...]:
        """The versions among the hits that have other content in another tier."""
        return tuple(hit.conflict for hit in self.hits if hit.conflict)

    @property
    def complete(self) -> bool:
        """Whether every asked tier answered, nothing was refused, and no version of a hit has two contents."""
        return not self.refused and not self.conflicts and all(t.state == "ok" for t in self.tiers)


@dataclass(frozen=True, slots=True)
class DocumentQuery:
    """What is asked of a workspace. ``per_file`` is how many passages of one file may be among the hits, 0 any number.

    ``alpha`` is the vector leg's share of a score, None for the tuned one.
    """

    text: str
    filters: Filters = field(default_factory=Filters)
    limit: int = 10
    per_file: int = 2
    alpha: float | None = None


@dataclass(frozen=True, slots=True)
class DocumentHit:
    """A passage of a document, verified a moment ago; its metadata are those that were signed.

    ``score`` is in [0, 1], but for what its kind and its path add to it, which ``parts`` tells: ``cosine``, ``bm25``,
    the legs ``vectors`` and ``words`` in [0, 1], ``alpha``, ``kind`` and ``path``. ``changed`` says that the file has
    changed since it was indexed, so that lines may have moved; None where there is no file to look at.
    """

    path: str
    passage: Passage
    metadata: Mapping[str, str]
    score: float
    parts: Mapping[str, Any]
    content_sha256: str
    digest: str
    key_id: str
    principal: str
    signed_at: datetime
    changed: bool | None = None


@dataclass(frozen=True, slots=True)
class DocumentReply:
    """What a search of a workspace found. ``kind`` is what the query was read as asking for, empty for nothing special.

    ``refused`` are hits that did not verify, ``gone`` paths of hits whose file is not there any more; neither is shown.
    ``unfinished`` tells that the last index run was broken off, or is still under way: files may be missing.
    """

    query: DocumentQuery
    hits: tuple[DocumentHit, ...]
    outcome: TierOutcome
    kind: str = ""
    refused: tuple[RefusedHit, ...] = ()
    gone: tuple[str, ...] = ()
    corrections: Mapping[str, str] = field(default_factory=dict)
    unfinished: bool = False

    @property
    def complete(self) -> bool:
        """Whether the index is whole and answered, and everything it gave verified."""
        return self.outcome.state == "ok" and not self.refused and not self.unfinished
