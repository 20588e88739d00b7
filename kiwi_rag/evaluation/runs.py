"""A run: every judged query through every method, with what came back, how good it was and how long it took."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kiwi_rag.collection import Tier
from kiwi_rag.errors import InvalidItemId, SourceUnreadable, StoreError, UsageError
from kiwi_rag.evaluation import metrics
from kiwi_rag.evaluation.bootstrap import Difference, Interval, difference, intervals
from kiwi_rag.evaluation.datasets import SHOWN, Dataset, JudgedQuery, files_of, ref_of
from kiwi_rag.evaluation.methods import LEGS, Method, Ranking
from kiwi_rag.model.refs import check_item_id
from kiwi_rag.stores.base import VectorStore

FORMAT = 1
MAIN = "ndcg@10"
"""The metric that methods are compared by."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one method gave for one query: items with scores, metrics by name, milliseconds taken."""

    ranked: tuple[tuple[str, float], ...]
    metrics: Mapping[str, float]
    ms: float


@dataclass(frozen=True, slots=True)
class Run:
    """The answers of each method, in the order of the queries; ``about`` is what the figures depend on."""

    queries: tuple[JudgedQuery, ...]
    answers: Mapping[str, tuple[Answer, ...]]
    about: Mapping[str, Any] = field(default_factory=dict)

    def column(self, method: str, metric: str) -> list[float]:
        """Return a metric of a method, one value a query."""
        return [answer.metrics[metric] for answer in self.answers[method]]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of what was measured."""
        first = next(iter(self.answers.values()))[0]
        return tuple(first.metrics)

    @property
    def kinds(self) -> list[str]:
        """Names of the kinds that queries were given."""
        return sorted({query.kind for query in self.queries} - {""})

    def of_kind(self, kind: str) -> Run:
        """Return the queries of one kind, with their answers."""
        kept = [n for n, query in enumerate(self.queries) if query.kind == kind]
        answers = {name: tuple(given[n] for n in kept) for name, given in self.answers.items()}
        return Run(tuple(self.queries[n] for n in kept), answers, self.about)


@dataclass(frozen=True, slots=True)
class Row:
    """One method's figures: metrics with intervals, median and 95th percentile of milliseconds a query.

    ``gain`` is the difference in `MAIN` to the better of the two legs; None for a leg, and where no leg was measured.
    """

    method: str
    metrics: Mapping[str, Interval]
    p50_ms: float
    p95_ms: float
    gain: Difference | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        figures = {name: interval.as_dict() for name, interval in self.metrics.items()}
        latency = {"p50": self.p50_ms, "p95": self.p95_ms}
        gain = self.gain.as_dict() if self.gain else None
        return {"method": self.method, "metrics": figures, "latency_ms": latency, "versus_better_leg": gain}


async def evaluate(
    dataset: Dataset,
    asked: Mapping[str, Method],
    k: int,
    about: Mapping[str, Any],
    progress: Callable[[int], object] = lambda _: None,
) -> Run:
    """Ask every method every query. The first is asked twice: what is loaded once is not part of a latency."""
    answers: dict[str, tuple[Answer, ...]] = {}
    for name, method in asked.items():
        await method.rank(dataset.queries[0].text)
        method.incomplete = 0
        given = []
        for query in dataset.queries:
            given.append(await _answer(method.rank, query, k))
            progress(1)
        answers[name] = tuple(given)
    return Run(dataset.queries, answers, about)


async def _answer(rank: Callable[[str], Awaitable[Ranking]], query: JudgedQuery, k: int) -> Answer:
    started = time.perf_counter()
    hits = await rank(query.text)
    ms = (time.perf_counter() - started) * 1000
    ranked = tuple((max(names, key=lambda name: query.grades.get(name, 0)), score) for names, score in hits)
    return Answer(ranked, metrics.score([ref for ref, _ in ranked], query.grades, k), ms)


async def not_held(dataset: Dataset, tiers: Sequence[Tier[VectorStore]]) -> list[str]:
    """Return the relevant items that none of the tiers holds, in order: no method can find them."""
    judged = {ref for query in dataset.queries for ref, grade in query.grades.items() if grade > 0}
    return [ref for ref in sorted(judged) if not await _held(ref, tiers)]


async def _held(key: str, tiers: Sequence[Tier[VectorStore]]) -> bool:
    ref = ref_of(key)
    with suppress(InvalidItemId):
        check_item_id(ref.item_id)
        for tier in tiers:
            if await tier.store.get(ref) is not None:
                return True
    return False


def rows(run: Run) -> list[Row]:
    """Return one row a method, each but the legs compared with the better leg."""
    import numpy as np

    best = better_leg(run)
    table = []
    for method, given in run.answers.items():
        p50, p95 = np.percentile([answer.ms for answer in given], [50, 95])
        figures = intervals({name: run.column(method, name) for name in run.metrics})
        gain = difference(run.column(method, MAIN), run.column(best, MAIN)) if best and method not in LEGS else None
        table.append(Row(method, figures, float(p50), float(p95), gain))
    return table


def better_leg(run: Run) -> str | None:
    """Return the leg with the higher mean of `MAIN`, of those that were measured."""
    legs = [leg for leg in LEGS if leg in run.answers]
    return max(legs, key=lambda leg: sum(run.column(leg, MAIN)), default=None)


def document(run: Run) -> dict[str, Any]:
    """Return a run as JSON-ready data: what it depends on, the rows, those of each kind, and everything per query."""
    return {
        "format": FORMAT,
        **run.about,
        "rows": [row.as_dict() for row in rows(run)],
        "kinds": {kind: [row.as_dict() for row in rows(run.of_kind(kind))] for kind in run.kinds},
        "queries": [_query_document(run, n) for n in range(len(run.queries))],
    }


def _query_document(run: Run, number: int) -> dict[str, Any]:
    query = run.queries[number]
    given = {name: answers[number] for name, answers in run.answers.items()}
    return {
        "id": query.id,
        "query": query.text,
        "kind": query.kind,
        "relevant": dict(query.grades),
        "answers": {
            name: {"ranked": answer.ranked, "metrics": answer.metrics, "ms": round(answer.ms, 3)}
            for name, answer in given.items()
        },
    }


def check_outputs(outputs: Sequence[Path | None], inputs: Sequence[Path]) -> None:
    """Return if these files can be written, and none of them is another, or one that the dataset is read from.

    Raises
    ------
    UsageError
        When one cannot, or is.
    """
    taken = {path.resolve() for path in files_of(inputs)}
    for path in filter(None, outputs):
        if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
            raise UsageError(f"cannot write {path}: there is no folder {path.parent} to write to")
        if path.is_dir() or path.resolve() in taken:
            raise UsageError(f"{path} is read, or written to already", hint="give the result a name of its own")
        taken.add(path.resolve())


def write(document: Mapping[str, Any], path: Path) -> None:
    """Write a run's document.

    Raises
    ------
    StoreError
        When the file cannot be written.
    """
    try:
        path.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error}") from error


def read(path: Path) -> Run:
    """Read a run that `write` wrote.

    Raises
    ------
    SourceUnreadable
        When the file cannot be read.
    UsageError
        When it is no such run.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SourceUnreadable(f"cannot read {path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise _not_a_run(path, f"not JSON: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise _not_a_run(path, f"its format is not {FORMAT}")
    if not found.get("queries"):
        raise _not_a_run(path, "it holds no queries")
    try:
        return _run(found)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _not_a_run(path, f"{type(error).__name__}: {error}") from error


def _run(found: Mapping[str, Any]) -> Run:
    queries = tuple(
        JudgedQuery(_text(q["id"]), _text(q["query"]), _text(q["kind"]), dict(q["relevant"])) for q in found["queries"]
    )
    answers = {
        name: tuple(_answer_of(query["answers"][name]) for query in found["queries"])
        for name in found["queries"][0]["answers"]
    }
    about = {name: value for name, value in found.items() if name not in ("format", "rows", "kinds", "queries")}
    if len({tuple(answer.metrics) for given in answers.values() for answer in given}) != 1:
        raise ValueError("not every answer has the same metrics")
    return Run(queries, answers, about)


def _answer_of(found: Mapping[str, Any]) -> Answer:
    ranked = tuple((_text(ref), _number(score)) for ref, score in found["ranked"])
    return Answer(ranked, {name: _number(value) for name, value in found["metrics"].items()}, _number(found["ms"]))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text is wanted, not a {type(value).__name__}")
    value.encode()  # half of a surrogate pair is no text
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"a number is wanted, not {str(value)[:SHOWN]}")
    return float(value)


def _not_a_run(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is not a run of `kiwi eval`: {why}", hint="kiwi eval QUERIES --out run.json makes one")
