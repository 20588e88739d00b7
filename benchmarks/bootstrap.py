"""How sure is a mean over queries? Percentile intervals from resampled queries (Efron, Tibshirani 1993, chapter 13).

Queries are drawn with replacement; everything that is measured on them is drawn together, so differences between
methods are paired (Sakai, "Evaluating evaluation metrics based on the bootstrap", SIGIR 2006). The seed is fixed: the
same figures give the same interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RESAMPLES = 2_000
SEED = 2026
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and the 95% interval around it."""

    mean: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        """Return it as JSON-ready data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean difference of two methods on the same queries, its 95% interval, and how often chance alone does it.

    ``p`` is two-sided: twice the smaller share of resamples on either side of zero, at most 1.
    """

    mean: float
    low: float
    high: float
    p: float

    def as_dict(self) -> dict[str, float]:
        """Return it as JSON-ready data."""
        return asdict(self)


def intervals(columns: Mapping[str, Sequence[float]], resamples: int = RESAMPLES) -> dict[str, Interval]:
    """Return each column's mean with its interval; a column holds one value a query, all in the same order."""
    import numpy as np

    values = np.array(list(columns.values()), dtype=np.float64).T
    low, high = np.quantile(_means(values, resamples), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    means = values.mean(axis=0)
    return {
        name: Interval(float(mean), float(a), float(b))
        for name, mean, a, b in zip(columns, means, low, high, strict=True)
    }


def difference(first: Sequence[float], second: Sequence[float], resamples: int = RESAMPLES) -> Difference:
    """Return how much higher `first` is than `second`, value by value of the same queries."""
    import numpy as np

    values = np.subtract(first, second, dtype=np.float64)[:, np.newaxis]
    means = _means(values, resamples)[:, 0]
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    p = 2 * min(float((means <= 0).mean()), float((means >= 0).mean()))
    return Difference(float(values.mean()), float(low), float(high), min(p, 1.0))


def ratio(first: Sequence[float], second: Sequence[float], resamples: int = RESAMPLES) -> Interval:
    """Return how many times `second`'s mean `first`'s is, with its interval; NaN where `second` is all zeros."""
    import numpy as np

    values = np.array([first, second], dtype=np.float64).T
    means = _means(values, resamples)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = means[:, 0] / means[:, 1]
        low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        whole = values[:, 0].mean() / values[:, 1].mean()
    return Interval(float(whole), float(low), float(high))


def _means(values: NDArray[np.float64], resamples: int) -> NDArray[np.float64]:
    """Return the column means of `resamples` samples of the rows, drawn with replacement."""
    import numpy as np

    chance = np.random.default_rng(SEED)
    count = len(values)
    return np.array([values[chance.integers(0, count, count)].mean(axis=0) for _ in range(resamples)])
