"""Two legs into one score an item. Pure, and independent of the order and the tier in which candidates arrive.

A convex combination of normalised scores (Bruch, Gai, Ingber: "An Analysis of Fusion Functions for Hybrid Retrieval",
ACM TOIS 2023), each normalised by itself and not by what else was found: an item's score is the same whoever stands
beside it, and nobody's hit can push another's down by being there. A cosine goes from -1 to 1. BM25 has no end, so it
is saturated by what one word is worth that stands in a single passage of the collection.

Every candidate carries the scores of both legs, of its passage and of its whole item, so nothing has to be guessed for
a leg that did not find it. Reciprocal rank fusion (Cormack, Clarke, Büttcher, SIGIR 2009) is for where scores cannot
be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from kiwi_rag.model import Candidate, FusionMethod, FusionWeights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Numbers = TypeVar("_Numbers", "float", "NDArray[np.float64]")

RRF_K = 60
"""The constant of RRF, as its authors have it."""
SATURATION = 3
"""How many of the rarest words make half of the highest score in the words leg."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A candidate, and the tier that gave it."""

    tier: str
    rank: int
    plan: str
    candidate: Candidate


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """An item of a tier by its best passage, with the item's fused score in [0, 1] and the parts it is made of."""

    found: Found
    score: float
    parts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recency:
    """An optional prior: a score halves with every `half_life_days` of the signature's age at `now`."""

    half_life_days: float
    now: datetime

    def factor(self, signed_at: datetime) -> float:
        """Return what to multiply a score with, in (0, 1]."""
        age = max((self.now - signed_at).total_seconds() / 86_400, 0.0)
        return float(0.5 ** (age / self.half_life_days))


@dataclass(frozen=True, slots=True)
class Fusion:
    """How to fuse.

    ``rarest`` is what one word can be worth in BM25: `kiwi_rag.lexical.max_term_score` of the statistics that scored
    the candidates. Without a ``recency`` age does not count.
    """

    weights: FusionWeights
    rarest: float
    method: FusionMethod = "convex"
    recency: Recency | None = None


@dataclass(frozen=True, slots=True)
class _Legs:
    """An item's score in each leg, each in [0, 1], and its rank there."""

    vectors: float
    words: float
    vector_rank: int
    lexical_rank: int | None

    def convex(self, alpha: float) -> float:
        return alpha * self.vectors + (1 - alpha) * self.words

    def reciprocal(self) -> float:
        """Return the RRF score, scaled so that the first of both legs has 1."""
        ranks = [rank for rank in (self.vector_rank, self.lexical_rank) if rank is not None]
        return sum((RRF_K + 1) / (RRF_K + rank) for rank in ranks) / 2


def fuse(found: Sequence[Found], depth: int, fusion: Fusion) -> list[Scored]:
    """Return the items of the shortlist of both legs, scored, best first: one entry for each tier that has an item.

    Only items with a passage among the best `depth` of a leg over *all* tiers count, as in one index of everything.
    """
    shown = [_best_passage(passages, fusion) for passages in _items(_shortlist(found, depth))]
    scored = [_scored(f, legs, fusion) for f, legs in zip(shown, _legs(shown, fusion), strict=True)]
    return sorted(scored, key=lambda s: (-s.score, *_identity(s.found)))


def _shortlist(found: Sequence[Found], depth: int) -> list[Found]:
    near = _ordered(found, lambda c: c.cosine)[:depth]
    worded = _ordered([f for f in found if f.candidate.bm25 > 0], lambda c: c.bm25)[:depth]
    return list({id(f): f for f in [*near, *worded]}.values())


def _items(shortlist: Iterable[Found]) -> list[list[Found]]:
    """Group passages by item and tier."""
    entries: dict[object, list[Found]] = {}
    for f in shortlist:
        entries.setdefault((f.rank, f.candidate.ref.key), []).append(f)
    return list(entries.values())


def _best_passage(passages: Sequence[Found], fusion: Fusion) -> Found:
    """Return the passage that an item is shown by: the one that the legs like best, the first one on a tie."""
    alpha = fusion.weights.alpha

    def key(f: Found) -> tuple[float, int]:
        score = alpha * near(f.candidate.cosine) + (1 - alpha) * saturated(f.candidate.bm25, fusion.rarest)
        return -score, f.candidate.passage.ordinal

    return min(passages, key=key)


def near(cosine: _Numbers) -> _Numbers:
    """Return a cosine, or an array of them, as a share of 1."""
    return (cosine + 1) / 2


def saturated(bm25: float, rarest: float) -> float:
    """Return a BM25 score as a share of 1: half of it at the worth of `SATURATION` of the rarest words."""
    return bm25 / (bm25 + SATURATION * rarest) if bm25 > 0 else 0.0


def _legs(shown: Sequence[Found], fusion: Fusion) -> list[_Legs]:
    items, weights = [f.candidate.item for f in shown], fusion.weights
    vectors = [near(mixed_cosine(i.best, i.first, i.centroid, weights)) for i in items]
    words = [saturated(mixed_bm25(i.best_words, i.words, weights), fusion.rarest) for i in items]
    vector_ranks, lexical_ranks = _ranks(shown, vectors), _ranks(shown, words)
    return [
        _Legs(v, w, vector_ranks[n], lexical_ranks[n] if w > 0 else None)
        for n, (v, w) in enumerate(zip(vectors, words, strict=True))
    ]


def mixed_cosine(best: _Numbers, first: _Numbers, centroid: _Numbers, weights: FusionWeights) -> _Numbers:
    """Return an item's cosine by the shares of its best and first passage and of its centroid; of arrays alike."""
    return (1 - weights.first - weights.centroid) * best + weights.first * first + weights.centroid * centroid


def mixed_bm25(best: _Numbers, whole: _Numbers, weights: FusionWeights) -> _Numbers:
    """Return an item's BM25 by the shares of its best passage and of its whole; of arrays alike."""
    return (1 - weights.whole) * best + weights.whole * whole


def _scored(f: Found, legs: _Legs, fusion: Fusion) -> Scored:
    prior = fusion.recency.factor(f.candidate.signed_at) if fusion.recency else 1.0
    score = legs.reciprocal() if fusion.method == "rrf" else legs.convex(fusion.weights.alpha)
    item = f.candidate.item
    parts = {
        "cosine": f.candidate.cosine,
        "bm25": f.candidate.bm25,
        "best_cosine": item.best,
        "first_cosine": item.first,
        "centroid_cosine": item.centroid,
        "best_bm25": item.best_words,
        "item_bm25": item.words,
        "vectors": legs.vectors,
        "words": legs.words,
        "vector_rank": legs.vector_rank,
        "lexical_rank": legs.lexical_rank,
        "alpha": fusion.weights.alpha,
        "fusion": fusion.method,
        "prior": prior,
        "plan": f.plan,
    }
    return Scored(f, prior * score, parts)


def _ordered(found: Sequence[Found], leg: Callable[[Candidate], float]) -> list[Found]:
    return sorted(found, key=lambda f: (-leg(f.candidate), *_identity(f)))


def _ranks(shown: Sequence[Found], scores: Sequence[float]) -> dict[int, int]:
    """Return position → rank, from 1."""
    ordered = sorted(range(len(shown)), key=lambda n: (-scores[n], *_identity(shown[n])))
    return {n: rank for rank, n in enumerate(ordered, start=1)}


def _identity(found: Found) -> tuple[Any, ...]:
    candidate = found.candidate
    return candidate.ref.item_type, candidate.ref.item_id, candidate.passage.ordinal, found.rank
