"""Two legs into one score. Pure, and independent of the order and the tier in which candidates arrive.

A convex combination of scores normalised between their theoretical minimum and the observed maximum ("TM2C2" in
Bruch, Gai, Ingber: "An Analysis of Fusion Functions for Hybrid Retrieval", ACM TOIS 2023): a cosine starts at -1, a
BM25 score at 0. Every candidate carries both scores, so nothing has to be guessed for a leg that did not find it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kiwi_rag.model import Candidate

DEFAULT_ALPHA = 0.84
"""Weight of the vector leg; how it was obtained stands in docs/search.md."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A candidate, and the tier that gave it."""

    tier: str
    rank: int
    plan: str
    candidate: Candidate


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """A found passage with its fused score in [0, 1] and the parts it is made of."""

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


def fuse(found: Sequence[Found], alpha: float, depth: int, recency: Recency | None = None) -> list[Scored]:
    """Return the shortlist of both legs, scored, best first.

    Only passages among the best `depth` of a leg over *all* tiers count, as they would in one index holding everything.
    """
    vector_ranks = _ranks(found, depth, lambda c: c.cosine)
    lexical_ranks = _ranks([f for f in found if f.candidate.bm25 > 0], depth, lambda c: c.bm25)
    shortlist = [f for f in found if id(f) in vector_ranks or id(f) in lexical_ranks]
    top_cosine = max((f.candidate.cosine for f in shortlist), default=0.0)
    top_bm25 = max((f.candidate.bm25 for f in shortlist), default=0.0)
    scored = []
    for f in shortlist:
        prior = recency.factor(f.candidate.signed_at) if recency else 1.0
        vector = _normalised(f.candidate.cosine + 1, top_cosine + 1)
        score = prior * (alpha * vector + (1 - alpha) * _normalised(f.candidate.bm25, top_bm25))
        ranks = {"vector_rank": vector_ranks.get(id(f)), "lexical_rank": lexical_ranks.get(id(f))}
        scores = {"cosine": f.candidate.cosine, "bm25": f.candidate.bm25}
        scored.append(Scored(f, score, {**scores, **ranks, "alpha": alpha, "prior": prior, "plan": f.plan}))
    return sorted(scored, key=lambda s: (-s.score, *_identity(s.found)))


def _ranks(found: Sequence[Found], depth: int, leg: Callable[[Candidate], float]) -> dict[int, int]:
    ordered = sorted(found, key=lambda f: (-leg(f.candidate), *_identity(f)))
    return {id(f): rank for rank, f in enumerate(ordered[:depth], start=1)}


def _identity(found: Found) -> tuple[Any, ...]:
    candidate = found.candidate
    return candidate.ref.item_type, candidate.ref.item_id, candidate.passage.ordinal, found.rank


def _normalised(value: float, top: float) -> float:
    return value / top if top > 0 else 0.0
