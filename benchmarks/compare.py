"""Two runs of ``kiwi eval --out``, query by query: how many got better and worse, and which changed most.

Run: ``python -m benchmarks.compare BEFORE AFTER [--metric mrr@10] [--method NAME]… [--limit N] [--json]``. A method
that is given once is compared in both runs; of two, the first is that of BEFORE and the second that of AFTER. Give the
same file twice to compare two of its methods.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from kiwi_rag.errors import KiwiError, SourceUnreadable, UsageError
from kiwi_rag.evaluation.judgements import JudgedQuery
from kiwi_rag.evaluation.runs import FORMAT, MAIN, Run

_EQUAL = 1e-9  # metrics this close are the same
_SHOWN = 3  # first items of a ranking that a comparison shows
_UNSTABLE = ("at", "tiers")  # differ between any two runs


@dataclass(frozen=True, slots=True)
class QueryChange:
    """One query's metric before and after, with the first items of both rankings."""

    id: str
    query: str
    kind: str
    before: float
    after: float
    first_before: list[str]
    first_after: list[str]

    @property
    def difference(self) -> float:
        """How much higher it is after."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class RunComparison:
    """What changed from one run to another in one metric, the queries that changed most first.

    ``unmatched`` counts queries that only one of the runs has; ``differs`` names the conditions that were not the same.
    """

    metric: str
    methods: tuple[str, str]
    before: float
    after: float
    wins: int
    losses: int
    ties: int
    unmatched: int
    differs: list[str]
    queries: list[QueryChange]


def read(path: Path) -> Run:
    """Read a run that `write` wrote.

    Raises
    ------
    SourceUnreadable
        When the file cannot be read.
    UsageError
        When it is no such run.
    """
    from pydantic import ConfigDict, TypeAdapter
    from pydantic_core import from_json

    try:
        document = from_json(path.read_bytes(), allow_inf_nan=False)
        if not isinstance(document, dict) or document.get("format") != FORMAT or not document.get("queries"):
            raise ValueError(f"it has not the format {FORMAT}, or holds no queries")
        adapter = TypeAdapter(list[JudgedQuery], config=ConfigDict(strict=True, allow_inf_nan=False))
        queries = adapter.validate_json(json.dumps(document.pop("queries")))
    except OSError as error:
        raise SourceUnreadable(f"cannot read {path}: {error}") from error
    except ValueError as error:
        why = "; ".join(str(error).splitlines()[:3])
        hint = "kiwi eval QUERIES --out run.json makes one"
        raise UsageError(f"{path} is not a run of `kiwi eval`: {why}", hint=hint) from error
    return Run(queries, {name: value for name, value in document.items() if name not in ("format", "rows", "kinds")})


def compare(first: Run, second: Run, metric: str, methods: tuple[str, str]) -> RunComparison:
    """Compare a method of `first` with one of `second`, on the queries that both have with the same judgements.

    Raises
    ------
    UsageError
        When a run has no such method or metric, or the two share no query.
    """
    _check_measured(first, metric, methods[0])
    _check_measured(second, metric, methods[1])
    others = {query.id: query for query in second.queries}
    pairs = [(query, others[query.id]) for query in first.queries if query.id in others]
    changes = [_change(one, other, metric, methods) for one, other in pairs if one.relevant == other.relevant]
    if not changes:
        raise UsageError("the two runs share no judged query", hint="run both over the same dataset")
    means = fmean(c.before for c in changes), fmean(c.after for c in changes)
    wins, losses = sum(c.difference > _EQUAL for c in changes), sum(c.difference < -_EQUAL for c in changes)
    counts = wins, losses, len(changes) - wins - losses, len(first.queries) + len(second.queries) - 2 * len(changes)
    differs = [n for n in first.about if n not in _UNSTABLE and first.about[n] != second.about.get(n)]
    changes.sort(key=lambda c: (-abs(c.difference), c.id))
    return RunComparison(metric, methods, *means, *counts, differs, changes)


def _check_measured(run: Run, metric: str, method: str) -> None:
    answers = [query.answers.get(method) for query in run.queries]
    if not all(answers):
        raise UsageError(f"the run has no method {method!r}", hint=f"one of {', '.join(run.methods)}")
    if not all(answer and metric in answer.metrics for answer in answers):
        hint = f"one of {', '.join(run.answers(method)[0].metrics)}"
        raise UsageError(f"the run has no metric {metric!r}", hint=hint)


def _change(before: JudgedQuery, after: JudgedQuery, metric: str, methods: tuple[str, str]) -> QueryChange:
    old, new = before.answers[methods[0]], after.answers[methods[1]]
    first = [[ref for ref, _ in answer.ranked[:_SHOWN]] for answer in (old, new)]
    return QueryChange(before.id, before.query, before.kind, old.metrics[metric], new.metrics[metric], *first)


def comparison_lines(found: RunComparison, limit: int) -> Iterator[str]:
    """Yield the means, the counts, and the queries that changed most."""
    means = [f"{method} {mean:.3f}" for method, mean in zip(found.methods, (found.before, found.after), strict=True)]
    yield f"{found.metric}: {' → '.join(means)}, difference {found.after - found.before:+.3f}"
    yield f"{found.wins} better, {found.losses} worse, {found.ties} the same, of {len(found.queries)} queries"
    for change in found.queries[:limit]:
        if abs(change.difference) <= _EQUAL:
            break
        kind = f"  [{change.kind}]" if change.kind else ""
        yield f"{change.difference:+.3f}  {change.before:.3f} → {change.after:.3f}  {change.query}{kind}"
        if change.first_before != change.first_after:
            yield f"        before  {', '.join(change.first_before) or 'nothing'}"
            yield f"        after   {', '.join(change.first_after) or 'nothing'}"


def main() -> None:
    """Compare two runs, and print what changed."""
    parser = argparse.ArgumentParser(description="Compare two runs of kiwi eval query by query.")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--metric", default=MAIN)
    parser.add_argument("--method", action="append", dest="methods", default=[])
    parser.add_argument("--limit", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if len(given.methods) > 2:
        raise SystemExit("--method was given more than twice: give it once, or once for each run")
    methods = given.methods or ["hybrid"]
    try:
        found = compare(read(given.before), read(given.after), given.metric, (methods[0], methods[-1]))
    except KiwiError as error:
        raise SystemExit(error.message) from error
    lines = [json.dumps(asdict(found), ensure_ascii=False)] if given.json else comparison_lines(found, given.limit)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    if found.differs:
        sys.stderr.write(f"the runs also differ in: {', '.join(found.differs)}\n")
    if found.unmatched:
        sys.stderr.write(f"queries in one run only, or judged differently: {found.unmatched}\n")


if __name__ == "__main__":
    main()
