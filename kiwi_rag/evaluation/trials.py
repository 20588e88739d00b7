"""One query's candidates, fused again with other weights, without asking anybody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from kiwi_rag.evaluation import metrics
from kiwi_rag.evaluation.datasets import JudgedQuery, item_key
from kiwi_rag.model import FusionWeights
from kiwi_rag.search.ranking import (
    SATURATION,
    Fusion,
    Group,
    Scored,
    TierCandidate,
    fuse,
    groups,
    mixed_bm25,
    mixed_cosine,
    normalise_cosine,
    order,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TOP = 10


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """A judged query and every candidate that the tiers gave for it, from the best `depth` of each leg.

    ``rarest`` is what one word can be worth in BM25, as `kiwi_rag.search.ranking.Fusion` has it.
    """

    query: JudgedQuery
    found: tuple[TierCandidate, ...]
    depth: int
    rarest: float

    def ranked(self, weights: FusionWeights) -> list[str]:
        """Return the items as a search with these weights orders them, each content once."""
        seen: dict[str, list[str]] = {}
        for group in sorted(self.groups(weights), key=lambda g: order(g.winner)):
            candidate = group.winner.found.candidate
            seen.setdefault(candidate.content_sha256, []).append(item_key(candidate.ref))
        return [max(names, key=lambda name: self.query.grades.get(name, 0)) for names in seen.values()]

    def groups(self, weights: FusionWeights) -> list[Group]:
        """Return the fused entries by item."""
        return groups(fuse(self.found, self.depth, Fusion(weights, self.rarest)))


class Trials:
    """nDCG@10 of a captured query under many weights: the arithmetic of `kiwi_rag.search.ranking` on whole arrays.

    A test holds it to `Captured.ranked`. It is here because a search for weights fuses each query some hundred times.
    """

    def __init__(self, captured: Captured) -> None:
        import numpy as np

        self._captured = captured
        winners = sorted((g.winner for g in captured.groups(FusionWeights(0.5))), key=lambda winner: order(winner)[1:])
        contents = {winner.found.candidate.content_sha256 for winner in winners}
        self._one_each = len(contents) == len(winners)
        self._scores = np.array([_features(winner) for winner in winners], dtype=np.float64).reshape(-1, 5)
        grades = captured.query.grades
        self._gains = np.array([grades.get(item_key(w.found.candidate.ref), 0) for w in winners], dtype=np.float64)
        self._ideal = metrics.ideal_dcg(grades, TOP)

    def ndcg(self, weights: FusionWeights) -> float:
        """Return nDCG@10 of the ranking with these weights."""
        if not self._one_each:
            return metrics.ndcg(self._captured.ranked(weights), self._captured.query.grades, TOP)
        first = (-self._fused(weights)).argsort(kind="stable")[:TOP]
        gained = self._gains[first] @ _discounts()[: len(first)]
        return float(gained / self._ideal) if self._ideal else 0.0

    def _fused(self, weights: FusionWeights) -> NDArray[np.float64]:
        best, first, centroid, best_words, whole = self._scores.T
        cosine = mixed_cosine(best, first, centroid, weights)
        bm25 = mixed_bm25(best_words, whole, weights)
        half = SATURATION * self._captured.rarest
        words = bm25 / (bm25 + half) if half > 0 else (bm25 > 0) * 1.0  # `saturated`, which asks of one number
        fused: NDArray[np.float64] = weights.alpha * normalise_cosine(cosine) + (1 - weights.alpha) * words
        return fused


def mean_ndcg(queries: Sequence[Trials], weights: FusionWeights) -> float:
    """Return the mean nDCG@10 of all queries under these weights."""
    return sum(query.ndcg(weights) for query in queries) / len(queries)


def _features(entry: Scored) -> tuple[float, float, float, float, float]:
    item = entry.found.candidate.item
    return item.best, item.first, item.centroid, item.best_words, item.words


@lru_cache(maxsize=1)
def _discounts() -> NDArray[np.float64]:
    import numpy as np

    return np.array([metrics.discount(rank) for rank in range(1, TOP + 1)])
