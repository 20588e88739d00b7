"""The ranking of documents: each passage by itself, with bonuses for intent and path, and a cap for each file.

Items are ranked as wholes (`kiwi_rag.search.ranking`). Of documents the passage is what is looked for, and a file may
have several.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from kiwi_rag.lexical import max_term_score, terms
from kiwi_rag.model import (
    Candidate,
    CollectionStatistics,
    FusionMethod,
    FusionWeights,
    ItemState,
    SearchQuery,
    SearchResult,
    StoreQuery,
)
from kiwi_rag.search.hits import Verifier
from kiwi_rag.search.query_intent import parse_intent
from kiwi_rag.search.ranking import RankedHit, default_weights, normalise_cosine, reciprocal, saturate_bm25
from kiwi_rag.search.state import read_document_state
from kiwi_rag.search.tier_query import TierQuery

PATH_SHARE = 0.05
"""What is added to the score of a file whose path contains all words of the query."""
RANK_ALPHA = 0.5
"""The vector leg's share where scores are only an order: alpha was tuned for scores, and ranks count the same (RRF)."""


@dataclass(slots=True)
class PassageChoice:
    """The choice among the passages of a workspace's documents, with a cap for each file.

    ``gone`` are the paths of hits whose file no longer exists, ``seconds`` is what ranking took.
    """

    query: SearchQuery
    workspace: TierQuery
    verifier: Verifier
    hits: list[SearchResult] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    seconds: float = 0.0
    signers: int = 0
    cap: int | None = None
    suppressed: int = 0
    _states: dict[str, ItemState | None] = field(default_factory=dict)

    @property
    def is_comparable(self) -> bool:
        """Whether the scores are more than an order."""
        return self.workspace.tier.store.capabilities.scores

    @property
    def fusion(self) -> FusionMethod:
        """How both legs are fused."""
        return "convex" if self.is_comparable else "rrf"

    @property
    def weights(self) -> FusionWeights:
        """The weights of the legs; a passage counts by itself."""
        alpha = default_weights().alpha if self.is_comparable else RANK_ALPHA
        return FusionWeights(alpha if self.query.alpha is None else self.query.alpha)

    @property
    def kind(self) -> str:
        """The recognised intent of the query."""
        return parse_intent(self.query.text).kind.name

    async def choose(self, store_query: StoreQuery) -> None:
        """Verify passages, best first, until there are enough hits."""
        started = time.monotonic()
        ranked = self._rank(store_query.statistics)
        self.seconds += time.monotonic() - started
        self.hits, per_file, cap = [], Counter[str](), self.query.per_file
        for hit in ranked:
            if len(self.hits) >= self.query.limit or not self.workspace.answers:
                break
            path = hit.candidate.ref.item_id
            if not (cap and per_file[path] >= cap) and (verified := await self._verify(hit, path)):
                per_file[path] += 1
                self.hits.append(verified)

    async def finish(self) -> tuple[SearchResult, ...]:
        """Return the hits, best first."""
        return tuple(self.hits)

    def _rank(self, statistics: CollectionStatistics) -> Sequence[RankedHit]:
        """Return the candidates with their scores, best first."""
        # Without passages there is no candidate either: their scores need no bound.
        rarest = max_term_score(statistics) if statistics.passages else 0.0
        return sorted(
            self._scored(rarest), key=lambda r: (-r.score, r.candidate.ref.item_id, r.candidate.passage.ordinal)
        )

    def _scored(self, rarest: float) -> Iterator[RankedHit]:
        tier, found, alpha = self.workspace.tier, self.workspace.candidates, self.weights.alpha
        intent, query_terms = parse_intent(self.query.text), set(terms(self.query.text))
        legs = _legs(found.items, rarest, self.is_comparable)
        for candidate, (vectors, words) in zip(found.items, legs, strict=True):
            # Both are added and not mixed in: a better match whose kind or path differs still comes first.
            kind = intent.score_bonus(candidate)
            path = PATH_SHARE * _share_in_path(query_terms, candidate.ref.item_id)
            parts = {
                "cosine": candidate.cosine, "bm25": candidate.bm25, "vectors": vectors, "words": words,
                "alpha": alpha, "kind": kind, "path": path, "plan": found.plan, "fusion": self.fusion,
            }  # fmt: skip
            score = alpha * vectors + (1 - alpha) * words + kind + path
            yield RankedHit(tier.name, tier.rank, found.plan, candidate, score, parts)

    async def _verify(self, hit: RankedHit, path: str) -> SearchResult | None:
        """Return a passage if it verifies and its file exists."""
        if path in self._states and self._states[path] is None:
            return None
        result = await self.verifier.verify(hit)
        if result is None:
            return None
        if path not in self._states:
            item = self.verifier.item(result)
            self._states[path] = await asyncio.to_thread(read_document_state, item, self.workspace.tier)
            self.gone += [path] if self._states[path] is None else []
        state = self._states[path]
        return replace(result, state=state) if state else None


def _legs(candidates: Sequence[Candidate], rarest: float, comparable: bool) -> list[tuple[float, float]]:
    """Return each candidate's share of 1 in both legs: by its scores, or by its ranks where they are only an order."""
    if comparable:
        return [(normalise_cosine(c.cosine), saturate_bm25(c.bm25, rarest)) for c in candidates]
    vectors, words = _reciprocals([c.cosine + 1 for c in candidates]), _reciprocals([c.bm25 for c in candidates])
    return list(zip(vectors, words, strict=True))


def _reciprocals(scores: Sequence[float]) -> list[float]:
    """Return what each score's rank adds to an RRF score; equal scores share a rank, and 0 means not found."""
    ranks: dict[float, int] = {}
    for rank, score in enumerate(sorted(scores, reverse=True), start=1):
        ranks.setdefault(score, rank)
    return [reciprocal(ranks[score]) if score > 0 else 0.0 for score in scores]


def _share_in_path(query_terms: set[str], path: str) -> float:
    """Return the share of a query's terms that occur in a path."""
    return len(query_terms & set(terms(path))) / len(query_terms) if query_terms else 0.0
