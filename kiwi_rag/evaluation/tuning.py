"""Weights of the fusion, chosen on one half of the judged queries and reported on the other.

Every query is asked once, for the candidates of both legs; each trial of weights then fuses them again in memory. The
half to choose on has queries whose text has an even SHA-256, so that a query is on the same side whenever it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from kiwi_rag.collection import Tier
from kiwi_rag.embedding.base import EmbeddingProvider
from kiwi_rag.errors import UsageError
from kiwi_rag.evaluation import metrics
from kiwi_rag.evaluation.bootstrap import Interval, difference, intervals
from kiwi_rag.evaluation.datasets import Dataset
from kiwi_rag.evaluation.trials import Captured, Trials, mean_ndcg
from kiwi_rag.lexical import max_term_score
from kiwi_rag.model import FusionWeights, SearchQuery
from kiwi_rag.search.tier_query import TierQuery, ask_candidates, ask_first, found
from kiwi_rag.stores.base import VectorStore

LIMIT = 10
MAX_ROUNDS = 5
GRID = {
    "alpha": tuple(n / 100 for n in range(101)),
    "first": tuple(n / 10 for n in range(11)),
    "centroid": tuple(n / 10 for n in range(11)),
    "whole": tuple(n / 10 for n in range(11)),
}
"""The values that are tried of each weight while the others stay."""
LEAST_GAIN = 0.0005
"""A smaller gain in nDCG@10 is no reason to leave the weights that stand."""
TRIALS_AT_LEAST = 2 * sum(map(len, GRID.values()))
"""About so many trials a tuning takes: one round that changes something, and one that does not."""


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
        """Whether the half that the weights were not chosen on likes them better, too."""
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
    tiers: Sequence[Tier[VectorStore]],
    embed: EmbeddingProvider,
    deadline: float,
    progress: Callable[[int], object] = lambda _: None,
) -> list[Captured]:
    """Ask the tiers every query once and return what they gave.

    Raises
    ------
    KiwiError
        When a tier fails: weights chosen on half of the candidates would be wrong.
    """
    captured = []
    for query in dataset.queries:
        asked = [TierQuery(tier, deadline) for tier in tiers]
        question, _, _ = await ask_first(SearchQuery(query.text, limit=LIMIT), asked, embed)
        question = await ask_candidates(asked, question)
        for tier in asked:
            if tier.error:
                raise tier.error
        rarest = max_term_score(question.statistics)
        captured.append(Captured(query, tuple(found(asked)), question.depth, rarest))
        progress(1)
    return captured


def tune(
    captured: Sequence[Captured], start: FusionWeights, progress: Callable[[int], object] = lambda _: None
) -> Tuned:
    """Choose weights on the even half, one after the other until none gets better; report on the odd half.

    Parameters
    ----------
    start
        Where to begin; on a tie what stands stays.
    progress
        Called with 1 after each trial.

    Raises
    ------
    UsageError
        When a half has no queries.
    """
    even = [Trials(c) for c in captured if c.query.is_even]
    odd = [c for c in captured if not c.query.is_even]
    if not even or not odd:
        raise UsageError(f"{len(captured)} queries are too few to choose weights on one half and report on the other")
    weights, best = start, mean_ndcg(even, start)
    before = best
    for _ in range(MAX_ROUNDS):
        stood = weights
        for name in GRID:
            for trial in _trials(weights, name):
                reached = mean_ndcg(even, trial)
                progress(1)
                if reached >= best + LEAST_GAIN:
                    weights, best = trial, reached
        if weights == stood:
            break
    return Tuned(weights, start, before, best, _report(odd, weights, start))


def _trials(weights: FusionWeights, name: str) -> list[FusionWeights]:
    """Return `weights` with every other value of one of them that leaves room for the rest of its leg."""
    trials = [replace(weights, **{name: value}) for value in GRID[name]]
    return [trial for trial in trials if trial != weights and trial.first + trial.centroid <= 1 + 1e-9]


def _report(odd: Sequence[Captured], weights: FusionWeights, before: FusionWeights) -> dict[str, list[float]]:
    legs = {"bm25": replace(weights, alpha=0.0), "vectors": replace(weights, alpha=1.0)}
    shown = {**legs, "before": before, "tuned": weights}
    return {name: [metrics.ndcg(c.ranked(w), c.query.grades) for c in odd] for name, w in shown.items()}
