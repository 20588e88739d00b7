"""Rows of usage → a picture: tokens a day, stacked by model, with the cost as a line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from kiwi_rag.errors import StoreError

_DAYS_NAMED = 10


def draw_usage(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw `rows` to `path` with matplotlib, which must be there.

    Raises
    ------
    StoreError
        When the file cannot be written.
    """
    from matplotlib.figure import Figure

    days = _days(rows)
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes: Any = figure.subplots()
    base = [0] * len(days)
    for model, tokens in _by_model(rows).items():
        counts = [tokens[day] for day in days]
        axes.bar(days, counts, bottom=base, label=model.replace("$", r"\$"))  # a pair of them would begin a formula
        base = [below + count for below, count in zip(base, counts, strict=True)]
    _draw_cost(axes, rows, days)
    _label(axes, days, max(base))
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        hint = "name a file in a folder that is there: --chart usage.png"
        raise StoreError(f"cannot write {path}: {error.strerror or error}", hint=hint) from error


def _label(axes: Any, days: Sequence[date], most: int) -> None:
    from matplotlib.dates import ConciseDateFormatter, DayLocator

    locator = DayLocator(interval=max(1, len(days) // _DAYS_NAMED))
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set(ylabel="tokens", title=f"Remote embedding, {days[0]} to {days[-1]} (UTC)", ylim=(0, max(most, 1) * 1.3))
    axes.legend(loc="upper left")


def _draw_cost(axes: Any, rows: Sequence[Mapping[str, Any]], days: Sequence[date]) -> None:
    costs: dict[date, float] = defaultdict(float)
    for row in rows:
        costs[date.fromisoformat(row["day"])] += row["cost_usd"]
    dollars = axes.twinx()
    dollars.plot(days, [costs[day] for day in days], color="black", marker="o", markersize=3)
    dollars.set(ylabel="US dollars, where the price is known")
    dollars.set_ylim(0, max(*costs.values(), 1e-6) * 1.3)


def _days(rows: Sequence[Mapping[str, Any]]) -> Sequence[date]:
    """Return every day from the first row's to the last one's: a day without calls is an empty place, not left out."""
    first, last = (date.fromisoformat(end(row["day"] for row in rows)) for end in (min, max))
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def _by_model(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Mapping[date, int]]:
    found: dict[str, dict[date, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        found[f"{row['provider']} {row['model']}"][date.fromisoformat(row["day"])] += row["tokens"]
    return found
