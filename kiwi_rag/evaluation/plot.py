"""Quality against latency, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kiwi_rag.errors import MissingExtra, StoreError, UsageError
from kiwi_rag.evaluation.runs import MAIN, Row

SUFFIXES = (".png", ".svg", ".pdf")


def check(path: Path) -> None:
    """Return if a plot can be drawn to `path`.

    Raises
    ------
    MissingExtra
        When the extra ``plot`` is not installed.
    UsageError
        When the suffix is not one of `SUFFIXES`.
    """
    import importlib.util

    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path} is no name for a plot", hint=f"end it in one of {', '.join(SUFFIXES)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtra("a plot needs the extra 'plot'", hint="pip install 'kiwi-rag[plot]'")


def draw(rows: Sequence[Row], path: Path, title: str) -> None:
    """Draw each row at its median latency and mean `MAIN`, with whiskers: up to p95, and the 95% interval.

    Raises
    ------
    MissingExtra, UsageError
        As `check`.
    StoreError
        When the file cannot be written.
    """
    check(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for row in rows:
        quality = row.metrics[MAIN]
        tall = [[quality.mean - quality.low], [quality.high - quality.mean]]
        wide = [[0.0], [max(row.p95_ms - row.p50_ms, 0.0)]]
        axes.errorbar(row.p50_ms, quality.mean, yerr=tall, xerr=wide, fmt="o", capsize=3)
        axes.annotate(row.method, (row.p50_ms, quality.mean), xytext=(6, 6), textcoords="offset points")
    axes.set(xscale="log", xlabel="ms a query: median, whisker to p95", ylabel="nDCG@10, 95% interval", title=title)
    axes.grid(alpha=0.3)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error}") from error
