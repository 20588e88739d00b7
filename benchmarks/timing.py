"""How long things take, and how figures of repeats are told: medians with least and greatest, p50 and p95."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
Spread = dict[str, float]
"""``median`` of what repeats gave, with ``min`` and ``max`` where there were any."""


def timed(action: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds that `action` took, and what it returned."""
    begun = time.perf_counter()
    found = action()
    return time.perf_counter() - begun, found


def spread(values: Sequence[float], digits: int = 3) -> Spread:
    """Return median, min and max of `values`; of a single one only the median, for nothing was repeated."""
    shown = {"median": statistics.median(values)}
    if len(values) > 1:
        shown |= {"min": min(values), "max": max(values)}
    return {name: round(value, digits) for name, value in shown.items()}


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile, never above the greatest; of a single value that value."""
    return statistics.quantiles(values, n=20, method="inclusive")[18] if len(values) > 1 else values[0]


async def taken(work: Awaitable[object]) -> float:
    """Return the milliseconds that something takes."""
    begun = time.perf_counter()
    await work
    return (time.perf_counter() - begun) * 1000


def named_percentiles(name: str, milliseconds: Sequence[float]) -> dict[str, float]:
    """Return p50 and p95 under names that begin with `name`."""
    return {f"{name}_{which}_ms": value for which, value in percentiles(milliseconds, 1).items()}


def percentiles(values: Sequence[float], digits: int = 2) -> dict[str, float]:
    """Return p50 and p95 of `values`, in their unit."""
    return {"p50": round(statistics.median(values), digits), "p95": round(p95(values), digits)}
