"""Two runs, query by query: who won where, by how much, and whether that is more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kiwi_rag.errors import UsageError
from kiwi_rag.evaluation.bootstrap import Difference, difference
from kiwi_rag.evaluation.runs import Answer, Run

SAME = 1e-9
SHOWN = 3


@dataclass(frozen=True, slots=True)
class QueryChange:
    """One query's metric before and after, with the first items of both rankings."""

    id: str
    text: str
    kind: str
    before: float
    after: float
    first_before: tuple[str, ...]
    first_after: tuple[str, ...]

    @property
    def by(self) -> float:
        """How much higher it is after."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changed from one run to another in one metric, the queries that changed most first.

    ``unmatched`` counts queries that only one of the runs has; ``differs`` names what else was not the same.
    """

    metric: str
    methods: tuple[str, str]
    before: float
    after: float
    change: Difference
    changes: tuple[QueryChange, ...]
    unmatched: int
    differs: tuple[str, ...]

    @property
    def wins(self) -> int:
        """How many queries got better."""
        return sum(c.by > SAME for c in self.changes)

    @property
    def losses(self) -> int:
        """How many queries got worse."""
        return sum(c.by < -SAME for c in self.changes)

    @property
    def ties(self) -> int:
        """How many stayed the same."""
        return len(self.changes) - self.wins - self.losses

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        return {
            "metric": self.metric,
            "methods": self.methods,
            "before": self.before,
            "after": self.after,
            "change": self.change.as_dict(),
            "wins": self.wins,
            "losses": self.losses,
            "ties": self.ties,
            "unmatched": self.unmatched,
            "differs": self.differs,
            "queries": [_change_document(change) for change in self.changes],
        }


def compare(first: Run, second: Run, metric: str, methods: tuple[str, str]) -> Comparison:
    """Compare a method of `first` with one of `second`, on the queries that both have with the same judgements.

    Raises
    ------
    UsageError
        When a run has no such method or metric, or the two share no query.
    """
    for run, method in zip((first, second), methods, strict=True):
        _check(run, metric, method)
    index = {query.id: n for n, query in enumerate(second.queries)}
    changes, matched = [], 0
    for number, query in enumerate(first.queries):
        other = index.get(query.id)
        if other is None or second.queries[other].grades != query.grades:
            continue
        matched += 1
        before, after = first.answers[methods[0]][number], second.answers[methods[1]][other]
        values = before.metrics[metric], after.metrics[metric]
        changes.append(QueryChange(query.id, query.text, query.kind, *values, _first(before), _first(after)))
    if not changes:
        raise UsageError("the two runs share no judged query", hint="run both over the same dataset")
    unmatched = len(first.queries) + len(second.queries) - 2 * matched
    return _comparison(metric, methods, changes, unmatched, _differs(first, second))


def _comparison(
    metric: str, methods: tuple[str, str], changes: Sequence[QueryChange], unmatched: int, differs: tuple[str, ...]
) -> Comparison:
    before, after = [c.before for c in changes], [c.after for c in changes]
    ordered = tuple(sorted(changes, key=lambda c: (-abs(c.by), c.id)))
    means = sum(before) / len(before), sum(after) / len(after)
    return Comparison(metric, methods, *means, difference(after, before), ordered, unmatched, differs)


def _check(run: Run, metric: str, method: str) -> None:
    if method not in run.answers:
        raise UsageError(f"the run has no method {method!r}", hint=f"one of {', '.join(run.answers)}")
    if metric not in run.metrics:
        raise UsageError(f"the run has no metric {metric!r}", hint=f"one of {', '.join(run.metrics)}")


def _first(answer: Answer) -> tuple[str, ...]:
    return tuple(ref for ref, _ in answer.ranked[:SHOWN])


def _differs(first: Run, second: Run) -> tuple[str, ...]:
    names = [name for name in first.about if name not in ("at", "tiers")]
    return tuple(name for name in names if first.about[name] != second.about.get(name))


def _change_document(change: QueryChange) -> dict[str, Any]:
    return {
        "id": change.id,
        "query": change.text,
        "kind": change.kind,
        "before": change.before,
        "after": change.after,
        "first_before": change.first_before,
        "first_after": change.first_after,
    }
