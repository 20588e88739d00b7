"""Ranking quality, as the field defines it. Pure: ranked ids and judgements in, a number in [0, 1] out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def ndcg(ranked: Sequence[str], grades: Mapping[str, int], k: int = 10) -> float:
    """Return nDCG@k (Järvelin, Kekäläinen 2002): gain is the grade, discount ``1 / log2(rank + 1)``."""
    gained = _dcg([grades.get(ref, 0) for ref in ranked[:k]])
    ideal = ideal_dcg(grades, k)
    return gained / ideal if ideal else 0.0


def recall(ranked: Sequence[str], grades: Mapping[str, int], k: int = 10) -> float:
    """Return the share of all relevant items (grade above 0) that stand among the first `k`."""
    relevant = {ref for ref, grade in grades.items() if grade > 0}
    return len(relevant.intersection(ranked[:k])) / len(relevant) if relevant else 0.0


def hit(ranked: Sequence[str], grades: Mapping[str, int], k: int = 3) -> float:
    """Return 1.0 when a relevant item stands among the first `k`, else 0.0."""
    return float(any(grades.get(ref, 0) > 0 for ref in ranked[:k]))


def reciprocal_rank(ranked: Sequence[str], grades: Mapping[str, int], k: int = 10) -> float:
    """Return 1 / rank of the first relevant item among the first `k`, else 0.0; its mean over queries is MRR@k."""
    ranks = (rank for rank, ref in enumerate(ranked[:k], start=1) if grades.get(ref, 0) > 0)
    return next((1 / rank for rank in ranks), 0.0)


def names(k: int) -> tuple[str, str, str, str]:
    """Return the names of what `score` gives, in its order."""
    return "ndcg@10", f"recall@{k}", "hit@3", "mrr@10"


def score(ranked: Sequence[str], grades: Mapping[str, int], k: int) -> dict[str, float]:
    """Return nDCG@10, recall@k, hit@3 and the reciprocal rank within ten, by the names of `names`."""
    values = ndcg(ranked, grades), recall(ranked, grades, k), hit(ranked, grades), reciprocal_rank(ranked, grades)
    return dict(zip(names(k), values, strict=True))


def ideal_dcg(grades: Mapping[str, int], k: int) -> float:
    """Return the DCG@k of the best order that there is."""
    return _dcg(sorted(grades.values(), reverse=True)[:k])


def discount(rank: int) -> float:
    """Return what a gain is multiplied with at a rank, counted from 1."""
    return 1 / math.log2(rank + 1)


def _dcg(gains: Sequence[int]) -> float:
    return sum(gain * discount(rank) for rank, gain in enumerate(gains, start=1))
