"""The usage log, added up: a row a day and model."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from kiwi_rag.embedding.usage import usage_lines


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What was asked of one model on one day (UTC).

    ``tokens`` and ``cost_usd`` add up what is known; ``tokens_unknown`` and ``cost_unknown`` count the calls that are
    not in them. Seconds are of the calls that succeeded, 0 where none did.
    """

    day: date
    provider: str
    model: str
    calls: int
    texts: int
    tokens: int
    tokens_unknown: int
    cost_usd: float
    cost_unknown: int
    p50_seconds: float
    p95_seconds: float
    failures: int

    def as_dict(self) -> dict[str, Any]:
        """Return the row, JSON-ready."""
        return {name: getattr(self, name) for name in self.__slots__} | {"day": self.day.isoformat()}


def usage_rows(path: Path, since: date | None = None) -> Sequence[UsageRow]:
    """Return the rows of the log at `path` and of those moved aside, by day, provider and model.

    Lines that are no record of a call, such as half a line from a disk that was full, are left out.
    """
    calls: dict[tuple[date, str, str], list[Mapping[str, Any]]] = defaultdict(list)
    lines = (line for data in usage_lines(path).contents() for line in data.splitlines())
    for call in filter(None, map(_parsed, lines)):
        day = call["day"]
        if since is None or day >= since:
            calls[day, str(call["provider"]), str(call["model"])].append(call)
    return [_row(*key, calls[key]) for key in sorted(calls)]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of `values` that `share` of them do not exceed (nearest rank); 0 where there are none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def _row(day: date, provider: str, model: str, calls: Sequence[Mapping[str, Any]]) -> UsageRow:
    good = [call for call in calls if call["outcome"] == "ok"]
    seconds = [call["seconds"] for call in good]
    tokens = [call["tokens"] for call in good if call["tokens"] is not None]
    costs = [call["cost_usd"] for call in good if call["cost_usd"] is not None]
    return UsageRow(
        day, provider, model, len(calls), sum(call["texts"] for call in good),
        sum(tokens), len(good) - len(tokens), sum(costs), len(good) - len(costs),
        percentile(seconds, 0.5), percentile(seconds, 0.95), len(calls) - len(good),
    )  # fmt: skip


_NUMBER = int | float
_FIELDS: Mapping[str, Any] = {
    "provider": str, "model": str, "outcome": str, "texts": int, "seconds": _NUMBER,
    "tokens": int | None, "cost_usd": _NUMBER | None,
}  # fmt: skip


def _parsed(line: bytes) -> Mapping[str, Any] | None:
    try:
        call = json.loads(line)
        day = datetime.fromisoformat(call["at"]).date()
        whole = all(isinstance(call[name], kind) for name, kind in _FIELDS.items())
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return {**call, "day": day} if whole else None
