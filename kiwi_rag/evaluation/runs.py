"""Runs: every judged query through every method, and how good the answers are.

``grep`` stands for having no index at all. The other methods are the searcher that `kiwi search` uses, verification
included: ``bm25`` and ``vectors`` are its legs alone, ``rrf`` fuses them by ranks, ``hybrid`` is its default.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from kiwi_rag import __version__
from kiwi_rag.collection import Collection
from kiwi_rag.errors import StoreError, UsageError
from kiwi_rag.evaluation.judgements import Dataset, JudgedQuery, RankedAnswer, item_key, ref_of, score
from kiwi_rag.model import Filters, SearchQuery, SearchResult
from kiwi_rag.search import Searcher
from kiwi_rag.search.ranking import weights_of
from kiwi_rag.stores.base import VectorStore

FORMAT = 2
MAIN = "ndcg@10"
METHODS: Mapping[str, Mapping[str, Any]] = {
    "grep": {},
    "bm25": {"alpha": 0.0},
    "vectors": {"alpha": 1.0},
    "rrf": {"fusion": "rrf"},
    "hybrid": {},
}
"""The methods in the order of the table, each with what it changes of a search."""
_WORD = re.compile(r"[a-z0-9]{3,}")

Tiers = Sequence[Collection[VectorStore]]
_Answer = tuple[list[tuple[tuple[str, ...], float]], bool]
_Ranker = Callable[[str], Awaitable[_Answer]]  # hits, each the `item_key` of it and its copies; is the answer complete?


@dataclass(frozen=True, slots=True)
class Run:
    """Queries with their answers; ``about`` is what the figures depend on."""

    queries: Sequence[JudgedQuery]
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def methods(self) -> list[str]:
        """Names of the methods that were measured."""
        return list(self.queries[0].answers)

    @property
    def kinds(self) -> list[str]:
        """Names of the kinds that queries were given."""
        return sorted({query.kind for query in self.queries} - {""})

    def of_kind(self, kind: str) -> Run:
        """Return the queries of one kind."""
        return Run([query for query in self.queries if query.kind == kind], self.about)

    def answers(self, method: str) -> list[RankedAnswer]:
        """Return a method's answers, one a query."""
        return [query.answers[method] for query in self.queries]

    def column(self, method: str, metric: str) -> list[float]:
        """Return a metric of a method, one value a query."""
        return [answer.metrics[metric] for answer in self.answers(method)]


def check_methods(names: Sequence[str]) -> list[str]:
    """Return the names in the order of `METHODS`, all of them when none is given; raise `UsageError` for another."""
    for name in names:
        if name not in METHODS:
            raise UsageError(f"there is no method {name!r}", hint=f"one of {', '.join(METHODS)}")
    return [name for name in METHODS if not names or name in names]


async def evaluate(  # noqa: PLR0913
    dataset: Dataset,
    methods: Sequence[str],
    searcher: Searcher,
    tiers: Tiers,
    query: SearchQuery,
    *,
    k: int = 10,
    about: Mapping[str, Any] | None = None,
    progress: Callable[[int], object] = lambda _: None,
) -> Run:
    """Measure every method on every query.

    Parameters
    ----------
    tiers
        The searcher's tiers; ``grep`` reads their items.
    query
        Limit and weights of every search; its text is not used.
    k
        Depth of the recall.
    """
    queries = [replace(query, answers={}) for query in dataset.queries]
    for name in methods:
        is_grep = name == "grep"
        rank = grep(await _texts(tiers), query.limit) if is_grep else _search(searcher, replace(query, **METHODS[name]))
        await rank(queries[0].query)  # what is loaded once is not part of a latency
        for measured in queries:
            measured.answers[name] = await _answer(rank, measured, k)
            progress(1)
    return Run(queries, about or {})


async def conditions(dataset: Dataset, tiers: Tiers, query: SearchQuery, model: str) -> dict[str, Any]:
    """Return what the figures of a run depend on; ``missing`` are relevant items that no method can find."""
    status = {tier.name: await tier.store.status() for tier in tiers}
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "kiwi": __version__,
        "dataset": {"name": dataset.name, "sha256": dataset.sha256, "left_out": dataset.unanswerable},
        "tiers": {name: {"items": s.items, "passages": s.passages} for name, s in status.items()},
        "model": model,
        "weights": asdict(weights_of(query)),
        **{name: getattr(query, name) for name in ("source", "limit", "half_life_days", "per_signer")},
        "missing": await missing_items(dataset, tiers),
    }


async def missing_items(dataset: Dataset, tiers: Tiers) -> list[str]:
    """Return the relevant items that none of the tiers holds, in order."""
    judged = {ref for query in dataset.queries for ref, grade in query.relevant.items() if grade > 0}
    stored = {item_key(item.ref) for tier in tiers for item in await tier.store.list(Filters())}
    return sorted(judged - stored)


async def _answer(rank: _Ranker, query: JudgedQuery, k: int) -> RankedAnswer:
    started = time.perf_counter()
    hits, complete = await rank(query.query)
    ms = (time.perf_counter() - started) * 1000
    # A hit stands for all items with its content: it counts as the one of them with the highest grade.
    ranked = [(max(names, key=lambda name: query.relevant.get(name, 0)), points) for names, points in hits]
    return RankedAnswer(ranked, score([ref for ref, _ in ranked], query.relevant, k), round(ms, 3), complete)


def _search(searcher: Searcher, query: SearchQuery) -> _Ranker:
    async def rank(text: str) -> _Answer:
        reply = await searcher.search(replace(query, text=text))
        return [(_names(hit), hit.score) for hit in reply.hits], reply.complete

    return rank


def _names(hit: SearchResult) -> tuple[str, ...]:
    """Return the `item_key` of a hit and those of the items with the same content that it stands for."""
    copies = [item_key(ref_of(address.partition("@")[0])) for address in hit.duplicates]
    return item_key(hit.ref), *copies


def grep(texts: Mapping[str, str], limit: int) -> _Ranker:
    """Rank lower-case texts as ``grep -i -c`` for each word would: by distinct words found, how often, then name."""

    async def rank(text: str) -> _Answer:
        words = set(_WORD.findall(text.lower()))
        counts = {ref: [content.count(word) for word in words] for ref, content in texts.items()}
        keyed = [(-sum(n > 0 for n in found), -sum(found), ref) for ref, found in counts.items() if any(found)]
        return [((ref,), float(-distinct)) for distinct, _, ref in sorted(keyed)[:limit]], True

    return rank


async def _texts(tiers: Tiers) -> dict[str, str]:
    texts: dict[str, str] = {}
    for tier in tiers:
        for listed in await tier.store.list(Filters()):
            stored = await tier.store.get(listed.ref, [listed.ref.main_file])
            if stored is not None:
                texts[item_key(stored.ref)] = stored.files[stored.ref.main_file].decode().lower()
    return texts


def summarise(run: Run) -> list[dict[str, Any]]:
    """Return each method's means over all queries, and the median and 95th percentile of its milliseconds a query."""
    import numpy as np

    rows = []
    for method in run.methods:
        answers = run.answers(method)
        means = {metric: fmean(run.column(method, metric)) for metric in answers[0].metrics}
        p50, p95 = np.percentile([answer.ms for answer in answers], [50, 95])
        rows.append({"method": method, "metrics": means, "latency_ms": {"p50": float(p50), "p95": float(p95)}})
    return rows


def table(run: Run) -> Iterator[str]:
    """Yield a header and one line a method: the mean of each metric, and the latency."""
    rows = summarise(run)
    titles = "".join(f"  {metric:>9}" for metric in rows[0]["metrics"])
    yield f"{'method':<8}{titles}  {'p50 ms':>8}  {'p95 ms':>8}"
    for row in rows:
        means = "".join(f"  {mean:9.3f}" for mean in row["metrics"].values())
        yield f"{row['method']:<8}{means}  {row['latency_ms']['p50']:8.2f}  {row['latency_ms']['p95']:8.2f}"


def as_document(run: Run) -> dict[str, Any]:
    """Return a run as JSON-ready data: its conditions, the figures, those of each kind, and everything per query."""
    return {
        "format": FORMAT,
        **run.about,
        "rows": summarise(run),
        "kinds": {kind: summarise(run.of_kind(kind)) for kind in run.kinds},
        "queries": [asdict(query) for query in run.queries],
    }


def check_output(path: Path | None, dataset: Path) -> None:
    """Raise `UsageError` if a run cannot be written to `path`, or the dataset is read from it."""
    if path and not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise UsageError(f"cannot write {path}: {path.parent} is no folder that can be written to")
    if path and (path.is_dir() or path.resolve() == dataset.resolve()):
        raise UsageError(f"{path} is a folder, or the file of the dataset", hint="give --out another name")


def write(run: Run, path: Path) -> None:
    """Write a run as a JSON file, which `benchmarks.compare` reads; raise `StoreError` when that fails."""
    try:
        path.write_text(json.dumps(as_document(run), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error}") from error
