"""Weights of the fusion, chosen on one half of the judged queries and reported on the other.

Run: ``python -m benchmarks.weights QUERIES [JUDGEMENTS] --source project --out weights.json``, in a project that is
indexed. ``kiwi search --weights weights.json`` takes the file; the weights that Kiwi comes with are such a file.

Every query is searched once, for the candidates of both legs; each trial of weights then fuses them again in memory.
Weights are chosen on the queries whose text has an even SHA-256, so that a query is always in the same half.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.bootstrap import Difference, Interval, difference, intervals
from kiwi_rag.collection import Collection
from kiwi_rag.embedding import EmbeddingProvider
from kiwi_rag.errors import KiwiError, UsageError
from kiwi_rag.evaluation import judgements
from kiwi_rag.evaluation.judgements import Dataset, JudgedQuery, item_key, load
from kiwi_rag.lexical import max_term_score
from kiwi_rag.model import FusionWeights, SearchQuery, sha256_hex
from kiwi_rag.search.ranking import (
    SATURATION,
    Fusion,
    RankedHit,
    apply_shadowing,
    default_weights,
    fuse,
    mix_bm25,
    mix_cosine,
    normalise_cosine,
    sort_key,
)
from kiwi_rag.search.tier_query import TierQuery, collect_candidates, fetch_candidates, prepare_query
from kiwi_rag.services import Services
from kiwi_rag.stores.base import VectorStore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TOP = 10
MAX_ROUNDS = 5
GRID = {
    "alpha": tuple(n / 100 for n in range(101)),
    "first": tuple(n / 10 for n in range(11)),
    "centroid": tuple(n / 10 for n in range(11)),
    "whole": tuple(n / 10 for n in range(11)),
}
"""The values of each weight that are tried while the others stay as they are."""
LEAST_GAIN = 0.0005
"""The gain in nDCG@10 from which on a weight is changed."""


def is_even(query: JudgedQuery) -> bool:
    """Return whether the SHA-256 of a query's text is even: whether weights may be chosen on it."""
    return int(sha256_hex(query.query.encode()), 16) % 2 == 0


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """A judged query and every candidate that the tiers gave for it, from the best `depth` of each leg.

    ``rarest`` is what one word can be worth in BM25, as `kiwi_rag.search.ranking.Fusion` has it.
    """

    query: JudgedQuery
    found: tuple[RankedHit, ...]
    depth: int
    rarest: float

    def ranked(self, weights: FusionWeights) -> list[str]:
        """Return the items as a search with these weights orders them, each content once."""
        seen: dict[str, list[str]] = {}
        for hit in sorted(self.hits(weights), key=sort_key):
            seen.setdefault(hit.candidate.content_sha256, []).append(item_key(hit.candidate.ref))
        return [max(names, key=lambda name: self.query.relevant.get(name, 0)) for names in seen.values()]

    def hits(self, weights: FusionWeights) -> list[RankedHit]:
        """Return the fused entries by item."""
        return apply_shadowing(fuse(self.found, self.depth, Fusion(weights, self.rarest)))


class Trials:
    """nDCG@10 of a captured query under many weights: the arithmetic of `kiwi_rag.search.ranking` on whole arrays.

    Choosing weights fuses each query some hundred times, which one item at a time would be too slow. A property test
    compares it with `Captured.ranked`.
    """

    def __init__(self, captured: Captured) -> None:
        import numpy as np

        self._captured = captured
        hits = sorted(captured.hits(FusionWeights(0.5)), key=lambda hit: sort_key(hit)[1:])
        contents = {hit.candidate.content_sha256 for hit in hits}
        self._one_each = len(contents) == len(hits)
        self._scores = np.array([_features(hit) for hit in hits], dtype=np.float64).reshape(-1, 5)
        grades = captured.query.relevant
        self._gains = np.array([grades.get(item_key(hit.candidate.ref), 0) for hit in hits], dtype=np.float64)
        self._ideal = judgements.ideal_dcg(grades, TOP)

    def ndcg(self, weights: FusionWeights) -> float:
        """Return nDCG@10 of the ranking with these weights."""
        if not self._one_each:
            return judgements.ndcg(self._captured.ranked(weights), self._captured.query.relevant, TOP)
        first = (-self._fused(weights)).argsort(kind="stable")[:TOP]
        gained = self._gains[first] @ _discounts()[: len(first)]
        return float(gained / self._ideal) if self._ideal else 0.0

    def _fused(self, weights: FusionWeights) -> NDArray[np.float64]:
        best, first, centroid, best_words, whole = self._scores.T
        cosine = mix_cosine(best, first, centroid, weights)
        bm25 = mix_bm25(best_words, whole, weights)
        half = SATURATION * self._captured.rarest
        words = bm25 / (bm25 + half) if half > 0 else (bm25 > 0) * 1.0  # `saturate_bm25`, for arrays
        fused: NDArray[np.float64] = weights.alpha * normalise_cosine(cosine) + (1 - weights.alpha) * words
        return fused


def mean_ndcg(queries: Sequence[Trials], weights: FusionWeights) -> float:
    """Return the mean nDCG@10 of all queries under these weights."""
    return sum(query.ndcg(weights) for query in queries) / len(queries)


def _features(hit: RankedHit) -> tuple[float, float, float, float, float]:
    item = hit.candidate.item
    return item.best, item.first, item.centroid, item.best_words, item.words


@lru_cache(maxsize=1)
def _discounts() -> NDArray[np.float64]:
    import numpy as np

    return np.array([judgements.discount(rank) for rank in range(1, TOP + 1)])


@dataclass(frozen=True, slots=True)
class Tuned:
    """Weights that were chosen, and what they reach.

    ``chosen_before`` and ``chosen_on`` are the mean nDCG@10 of the half that they were chosen on, with the weights to
    begin with and with these; ``columns`` holds nDCG@10 a query of the other half: of both, and of each leg alone.
    """

    weights: FusionWeights
    before: FusionWeights
    chosen_before: float
    chosen_on: float
    columns: dict[str, list[float]]

    @property
    def is_better(self) -> bool:
        """Whether nDCG@10 is higher on the half that the weights were not chosen on, too."""
        return sum(self.columns["tuned"]) > sum(self.columns["before"])

    def figures(self) -> dict[str, Interval]:
        """Return the means over the half that the weights were not chosen on, with intervals."""
        return intervals(self.columns)

    def document(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """Return a weights file's content: the weights, and how they were obtained."""
        figures = {name: figure.as_dict() for name, figure in self.figures().items()}
        change = difference(self.columns["tuned"], self.columns["before"])
        obtained = {
            **about,
            "split": "chosen on queries whose text has an even SHA-256, reported on the others",
            "chosen_on": {"before": self.chosen_before, "tuned": self.chosen_on},
            "reported_on": {"queries": len(self.columns["tuned"]), **figures},
            "tuned_minus_before": change.as_dict(),
            "weights_before": asdict(self.before),
        }
        return {"weights": asdict(self.weights), "obtained": obtained}


async def capture(
    dataset: Dataset,
    tiers: Sequence[Collection[VectorStore]],
    embed: EmbeddingProvider,
    deadline: float,
) -> list[Captured]:
    """Search the tiers for every query once and return the candidates that they gave.

    Raises
    ------
    KiwiError
        When a tier fails: weights chosen on half of the candidates would be wrong.
    """
    captured = []
    for query in dataset.queries:
        tier_queries = [TierQuery(tier, deadline) for tier in tiers]
        store_query, _, _ = await prepare_query(SearchQuery(query.query, limit=TOP), tier_queries, embed)
        store_query = await fetch_candidates(tier_queries, store_query)
        for tier_query in tier_queries:
            if tier_query.error:
                raise tier_query.error
        rarest = max_term_score(store_query.statistics)
        captured.append(Captured(query, tuple(collect_candidates(tier_queries)), store_query.depth, rarest))
    return captured


def tune(captured: Sequence[Captured], start: FusionWeights) -> Tuned:
    """Choose weights on the even half, one after the other until none gets better; report on the odd half.

    Parameters
    ----------
    start
        Where to begin. A gain below `LEAST_GAIN` changes no weight.

    Raises
    ------
    UsageError
        When a half has no queries.
    """
    even = [Trials(c) for c in captured if is_even(c.query)]
    odd = [c for c in captured if not is_even(c.query)]
    if not even or not odd:
        raise UsageError(f"{len(captured)} queries are too few to choose weights on one half and report on the other")
    before = best = mean_ndcg(even, start)
    weights = start
    for _ in range(MAX_ROUNDS):
        at_first = weights
        for name in GRID:
            for trial in _trials(weights, name):
                reached = mean_ndcg(even, trial)
                if reached >= best + LEAST_GAIN:
                    weights, best = trial, reached
        if weights == at_first:
            break
    return Tuned(weights, start, before, best, _report(odd, weights, start))


def _trials(weights: FusionWeights, name: str) -> list[FusionWeights]:
    """Return `weights` with every other value of one of them that leaves room for the rest of its leg."""
    trials = [replace(weights, **{name: value}) for value in GRID[name]]
    return [trial for trial in trials if trial != weights and trial.first + trial.centroid <= 1 + 1e-9]


def _report(odd: Sequence[Captured], weights: FusionWeights, before: FusionWeights) -> dict[str, list[float]]:
    legs = {"bm25": replace(weights, alpha=0.0), "vectors": replace(weights, alpha=1.0)}
    shown = {**legs, "before": before, "tuned": weights}
    return {name: [judgements.ndcg(c.ranked(w), c.query.relevant) for c in odd] for name, w in shown.items()}


def report(found: Tuned) -> Iterator[str]:
    """Yield what the weights reach on the half that they were chosen on, and, with intervals, on the other."""
    yield f"chosen on the even half: nDCG@10 {found.chosen_before:.3f} → {found.chosen_on:.3f}"
    yield f"reported on the odd half, {len(found.columns['tuned'])} queries:"
    figures = found.figures()
    for name, figure in figures.items():
        yield f"  {name:<8}  {figure.mean:.3f}  {figure.low:.3f} to {figure.high:.3f}"
    better_leg = max(("bm25", "vectors"), key=lambda leg: figures[leg].mean)
    for other in ("before", better_leg):
        yield _gain(other, difference(found.columns["tuned"], found.columns[other]))
    yield "weights: " + ",".join(f"{name}={value:g}" for name, value in asdict(found.weights).items())
    if found.weights != found.before and not found.is_better:
        yield "warning: on the other half they are no better: these queries are too few, or too unlike"


def _gain(other: str, change: Difference) -> str:
    p = "< 0.001" if change.p < 0.001 else f"{change.p:.3f}"
    return f"tuned − {other}: {change.mean:+.3f} nDCG@10, {change.low:+.3f} to {change.high:+.3f}, p {p}"


async def captured_from(env: Mapping[str, str], project: Path, source: str, dataset: Dataset) -> list[Captured]:
    """Capture a dataset's candidates in the tiers of `source` of a project."""
    async with Services.open(env, project) as app:
        tiers = [app.tier(name) for name in app.source_names(source)]
        return await capture(dataset, tiers, app.embed, deadline=60.0)


def write(found: Tuned, dataset: Dataset, path: Path) -> None:
    """Write a file of weights."""
    about = {"dataset": {"name": dataset.name, "sha256": dataset.sha256, "left_out": dataset.unanswerable}}
    path.write_text(json.dumps(found.document(about), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Choose weights on judged queries, print the report and write the file."""
    parser = argparse.ArgumentParser(description="Choose the fusion's weights on judged queries.")
    parser.add_argument("path", metavar="QUERIES", type=Path)
    parser.add_argument("--source", default="all")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    try:
        dataset = load(given.path)
        captured = asyncio.run(captured_from(os.environ, Path.cwd(), given.source, dataset))
        found = tune(captured, default_weights())
    except KiwiError as error:
        raise SystemExit(error.message) from error
    if given.out:
        write(found, dataset, given.out)
    sys.stdout.writelines(f"{line}\n" for line in report(found))


if __name__ == "__main__":
    main()
