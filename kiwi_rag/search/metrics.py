"""Ranking quality, as the field defines it. Pure: ranked ids and judgements in, a number in [0, 1] out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def ndcg(ranked: Sequence[str], grades: Mapping[str, int], k: int = 10) -> float:
    """Return nDCG@k (Järvelin, Kekäläinen 2002): gain is the grade, discount ``1 / log2(rank + 1)``."""
    gained = _dcg([grades.get(ref, 0) for ref in ranked[:k]])
    ideal = _dcg(sorted(grades.values(), reverse=True)[:k])
    return gained / ideal if ideal else 0.0


def hit(ranked: Sequence[str], grades: Mapping[str, int], k: int = 3) -> float:
    """Return 1.0 when a judged item stands among the first `k`, else 0.0."""
    return float(any(grades.get(ref, 0) > 0 for ref in ranked[:k]))


def reciprocal_rank(ranked: Sequence[str], grades: Mapping[str, int]) -> float:
    """Return 1 / rank of the first judged item, 0.0 when none is there; its mean over queries is MRR."""
    return next((1 / rank for rank, ref in enumerate(ranked, start=1) if grades.get(ref, 0) > 0), 0.0)


def mean(values: Sequence[float]) -> float:
    """Return the mean, 0.0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def _dcg(gains: Sequence[int]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))
