"""Rows of usage → a table and bars for people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from kiwi_rag.present.text import safe

BAR_WIDTH = 40
_HEADINGS = ("day", "model", "calls", "texts", "tokens", "cost", "p50", "p95", "failures")
_LEFT = 2
_EIGHTHS = " ▏▎▍▌▋▊▉"


def usage_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table with a line a row, and a last one that adds up where there are several rows.

    A ``+`` behind tokens or cost says that some calls are not in it, because the server did not count, or the price is
    not known.
    """
    cells = [_HEADINGS, *map(_cells, rows)]
    if len(rows) > 1:
        cells.append(_total(rows))
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEADINGS))]
    return [safe(_line(row, widths)) for row in cells]


def usage_bars(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a bar a day, as long as its tokens; empty where there is but one day, or nothing was counted."""
    tokens: dict[str, int] = defaultdict(int)
    for row in rows:
        tokens[row["day"]] += row["tokens"]
    most = max(tokens.values(), default=0)
    if len(tokens) < 2 or not most:
        return []
    return [f"{day}  {_bar(count / most)} {count:,} tokens" for day, count in sorted(tokens.items())]


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        row["day"], f"{row['provider']} {row['model']}", f"{row['calls']:,}", f"{row['texts']:,}",
        _known(f"{row['tokens']:,}", row["tokens_unknown"], row["calls"] - row["failures"]),
        _known(_dollars(row["cost_usd"]), row["cost_unknown"], row["calls"] - row["failures"]),
        _seconds(row["p50_seconds"]), _seconds(row["p95_seconds"]), f"{row['failures']:,}",
    )  # fmt: skip


def _total(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    calls, texts, tokens, failures = (sum(row[n] for row in rows) for n in ("calls", "texts", "tokens", "failures"))
    good = calls - failures
    return (
        "all", "", f"{calls:,}", f"{texts:,}",
        _known(f"{tokens:,}", sum(row["tokens_unknown"] for row in rows), good),
        _known(_dollars(sum(row["cost_usd"] for row in rows)), sum(row["cost_unknown"] for row in rows), good),
        "", "", f"{failures:,}",
    )  # fmt: skip


def _known(text: str, unknown: int, of: int) -> str:
    if unknown and unknown == of:
        return "?"
    return f"{text}+" if unknown else text


def _dollars(amount: float) -> str:
    if not amount or amount >= 1:
        return f"${amount:,.2f}"
    return f"${amount:.4f}" if amount >= 0.01 else f"${amount:.6f}"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds else ""


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    aligned = (
        cell.ljust(width) if column < _LEFT else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(aligned).rstrip()


def _bar(share: float) -> str:
    whole, eighths = divmod(round(share * BAR_WIDTH * 8), 8)
    return ("█" * whole + _EIGHTHS[eighths].strip()).ljust(BAR_WIDTH)
