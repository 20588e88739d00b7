"""The records of the read path: queries of users and of stores, candidates, results and replies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from kiwi_rag.model.items import ItemState, Passage, Vector
from kiwi_rag.model.refs import ItemRef, ItemType


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a search; empty fields do not filter. Stores apply all of them to both legs.

    ``tags``: an item must have all of them. ``since``: signed at or after. ``signer``: principal or key id. For
    documents: ``file_type``, ``service``, ``domain``, and ``path``, in which ``*`` matches any characters, slashes too,
    and ``?`` one; without either it names a file, or a folder and everything below it. ``ids`` are the only ones that
    are searched, where it is not None; a local store alone has this filter.
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
    ids: tuple[str, ...] | None = None

    @property
    def file_types(self) -> tuple[str, ...]:
        """The file types that `file_type` includes: decision records are Markdown, too."""
        return ("markdown", "adr") if self.file_type == "markdown" else (self.file_type,) if self.file_type else ()


@dataclass(frozen=True, slots=True)
class CollectionStatistics:
    """The statistics of a collection for BM25: passages, their total length in terms, df per query term, and items.

    ``unembedded`` is how many of the passages have no vector yet.
    """

    passages: int = 0
    total_length: int = 0
    document_frequency: Mapping[str, int] = field(default_factory=dict)
    items: int = 0
    unembedded: int = 0

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
        missing = self.unembedded + other.unembedded
        return CollectionStatistics(passages, length, merged, self.items + other.items, missing)


@dataclass(frozen=True, slots=True, eq=False)
class StoreQuery:
    """The query of a store: both legs' inputs, the merged statistics, filters, and the number of candidates a leg.

    An empty ``vector`` is for a local store alone, where nothing has a vector yet: words find everything.
    """

    vector: Vector
    terms: tuple[str, ...]
    statistics: CollectionStatistics
    filters: Filters
    fingerprint: str
    depth: int = 100


class ItemScores(NamedTuple):
    """The scores of a whole item for a query: raw scores over *all* of its passages, found or not.

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
    because a search makes hundreds, and a frozen dataclass takes four times as long to make. The cosine of a passage
    that is not ``embedded`` yet is estimated.
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
    embedded: bool = True


@dataclass(frozen=True, slots=True)
class RefusedHit:
    """A hit that did not verify, or whose stored data cannot be read."""

    ref: ItemRef
    tier: str
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Candidates:
    """A store's answer: candidates in no particular order, and the plan it chose (``exact``, ``chroma``, …).

    ``refused`` holds items that the store left out because their data cannot be read.
    """

    items: tuple[Candidate, ...]
    plan: str
    refused: tuple[RefusedHit, ...] = ()


TierState = Literal["ok", "timeout", "error", "stale", "refused"]


@dataclass(frozen=True, slots=True)
class TierOutcome:
    """How one tier answered: state, seconds, number of candidates, and the error if there was one.

    ``timings`` splits the seconds into ``statistics``, ``candidates`` and ``verification``; ``statistics`` are
    those of this tier.
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
    """The weights of the scores in the fusion: shares in [0, 1].

    ``alpha`` is the share of the vector leg, the lexical leg has the rest. Within the vector leg ``first`` and
    ``centroid`` are the shares of `ItemScores.first` and `ItemScores.centroid`, the best passage has the rest. Within
    the lexical leg ``whole`` is the share of the item as one document, its best passage has the rest.
    """

    alpha: float
    first: float = 0.0
    centroid: float = 0.0
    whole: float = 0.0


FusionMethod = Literal["convex", "rrf"]


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """The query of a user or an agent.

    ``weights`` are those of the fusion, ``None`` for the tuned ones; ``alpha`` replaces theirs. ``fusion`` is
    ``convex``, or ``rrf`` for ranks alone, which uses no weights. ``per_signer`` is how many hits one signer may have:
    0 for any number, ``None`` for half of them once three signers are found. For documents count ``alpha`` alone, and
    ``per_file``: how many hits may be passages of one file, 0 for any number; for exchanges also ``fusion`` and
    ``half_life_days``.
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
    per_file: int = 2


@dataclass(frozen=True, slots=True)
class VersionConflict:
    """A version with different contents in two tiers: tier → hex SHA-256, and the command that resolves it."""

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
    """A verified hit: one item, shown by its best passage, or a passage of a document, whose id is its path.

    ``state`` says whether its file was changed since it was signed, or its version yanked.
    ``score`` is the fused score in [0, 1]; ``parts`` explains it: ``cosine`` and ``bm25`` of the passage;
    ``best_cosine``, ``first_cosine``, ``centroid_cosine``, ``best_bm25`` and ``item_bm25`` of its item; ``vectors`` and
    ``words``, the legs in [0, 1], with the item's ``vector_rank`` and ``lexical_rank`` there; ``alpha``, ``fusion``,
    ``prior``, ``plan``. Of a document there are no ranks and no ``prior``, but what is added: ``kind``,
    ``path``, ``headings``, ``page`` and ``symbol``, of an exchange ``speaker``, ``neighbours`` and ``recency``: a score
    may exceed 1. ``shadows`` lists tiers whose item of the same id this one shadows, as ``tier`` or ``tier!principal``
    where another principal signed that item; ``tiers`` every tier that has the same content.
    A document's ``cosine`` is None as long as the passage has no vector.
    ``duplicates`` are addresses of items with the same content under other ids, or places of passages with nearly the
    same text, which are not shown; ``more_duplicates`` counts further ones. ``passages`` is how many the item or
    document has. Only its owner sees a ``private`` one. ``conflict`` is set where another
    tier has other content under the same version. ``content_sha256`` is the content digest, ``content_key`` that of the
    same files whatever the main file is called, by which copies under other ids are recognised. ``included`` are the
    other files that a document shows.
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
    content_sha256: str = ""
    content_key: str = ""
    passages: int = 0
    included: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """The argument with which `kiwi show` finds it."""
        return f"{self.ref}@{self.tier}"


@dataclass(frozen=True, slots=True)
class SearchExplanation:
    """How a reply was computed, in addition to what hits and tier outcomes contain.

    ``statistics`` are the sum over all tiers, ``seconds`` those of ``embedding``, ``fusion`` and the ``whole``.
    ``rounds`` is how often candidates were fetched, ``depth`` how many of each leg in the last round. ``signers``
    counts those of the best items, ``cap`` is how many hits one may have (None: any number), ``suppressed`` counts the
    better hits that were left out for it.
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
    """Hits, best first, with the outcome of each tier and the refused hits.

    ``corrections`` is word → the word that was searched for instead, for words of the query that occur in no tier. Of
    documents, ``kind`` is the recognised intent of the query, empty for none; ``gone`` are paths of hits whose file was
    deleted, which are not shown; ``unfinished``: the last index run was interrupted or is still running, so files may
    be missing. ``close`` says whether the best hit reaches the score that the right answers of judged queries reach;
    None where no such score was measured.
    """

    query: SearchQuery
    hits: tuple[SearchResult, ...]
    tiers: tuple[TierOutcome, ...]
    refused: tuple[RefusedHit, ...] = ()
    explanation: SearchExplanation | None = None
    corrections: Mapping[str, str] = field(default_factory=dict)
    kind: str = ""
    gone: tuple[str, ...] = ()
    unfinished: bool = False
    close: bool | None = None

    @property
    def conflicts(self) -> tuple[VersionConflict, ...]:
        """The versions among the hits that have other content in another tier."""
        return tuple(hit.conflict for hit in self.hits if hit.conflict)

    @property
    def embedded(self) -> float:
        """The share of the searched passages that have a vector; the others were searched by words alone."""
        whole = sum((tier.statistics for tier in self.tiers), CollectionStatistics())
        return (whole.passages - whole.unembedded) / whole.passages if whole.passages else 1.0

    @property
    def complete(self) -> bool:
        """Whether every searched tier is complete and answered, all hits verified, and no version has two contents."""
        answered = all(tier.state == "ok" for tier in self.tiers) and self.embedded == 1
        return answered and not self.refused and not self.conflicts and not self.unfinished
