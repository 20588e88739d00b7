"""Rows of usage → a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kiwi_rag.render.explanation import table
from kiwi_rag.render.items import safe

_HEADINGS = ("day", "model", "calls", "texts", "tokens", "cost", "p50", "p95", "failures")
_SUMS = ("calls", "texts", "tokens", "tokens_unknown", "cost_usd", "cost_unknown", "failures")


def usage_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table with a line for each row, and a sum if there are several.

    A ``+`` after tokens or cost means that some calls are not included, as the server did not report tokens or the
    price is unknown; a ``?`` means that none is included.
    """
    total = {name: sum(row[name] for row in rows) for name in _SUMS} | {"day": "all", "provider": "", "model": ""}
    shown = [*rows, total] if len(rows) > 1 else rows
    return [safe(line) for line in table([_HEADINGS, *map(_cells, shown)], left=(0, 1))]


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    successes = row["calls"] - row["failures"]
    return (
        row["day"], f"{row['provider']} {row['model']}".strip(), f"{row['calls']:,}", f"{row['texts']:,}",
        _with_mark(f"{row['tokens']:,}", row["tokens_unknown"], successes),
        _with_mark(_dollars(row["cost_usd"]), row["cost_unknown"], successes),
        _seconds(row.get("p50_seconds")), _seconds(row.get("p95_seconds")), f"{row['failures']:,}",
    )  # fmt: skip


def _with_mark(text: str, unknown: int, of: int) -> str:
    if unknown and unknown == of:
        return "?"
    return f"{text}+" if unknown else text


def _dollars(amount: float) -> str:
    if not amount or amount >= 1:
        return f"${amount:,.2f}"
    return f"${amount:.4f}" if amount >= 0.01 else f"${amount:.6f}"


def _seconds(seconds: float | None) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds else ""
