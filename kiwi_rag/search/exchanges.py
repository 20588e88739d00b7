"""The ranking of a conversation memory: each message with its exchange, and with the exchanges before and after it.

A message is found by its own score and by that of its exchange, as a passage of a document is (`kiwi_rag.search.
passages`). What precedes or follows an answer often says what it is about, so an exchange gains by the better of its
two neighbours among the candidates of its session. Where messages are ranked and not exchanges, one gains if the query
names its speaker, and where the query has a half-life, what is recent gains. One leg alone, and the fusion of ranks,
rank by these alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise

from kiwi_rag.lexical import max_term_score, query_terms
from kiwi_rag.model import (
    Candidate,
    CollectionStatistics,
    FusionMethod,
    FusionWeights,
    Passage,
    SearchResult,
)
from kiwi_rag.search.passages import PassageChoice
from kiwi_rag.search.ranking import ITEM_PARTS, Fusion, RankedHit, Recency, normalise_cosine, passage_legs
from kiwi_rag.search.tier_query import collect_candidates

# Chosen on one conversation of LoCoMo (conv-26; Maharana et al., ACL 2024), where everything from 0.3 to 0.7 differs by
# less than the sampling error; docs/memory-quality.md has the figures of others.
WEIGHTS = FusionWeights(alpha=0.5, centroid=0.5, whole=0.5)
NEIGHBOUR_SHARE = 0.5
"""The share of a neighbour's score above that of the worst candidate that an exchange gains."""
SPEAKER_BONUS = 0.02
"""What a message gains if the query names its speaker, and more than one of an exchange may be a hit."""
RECENCY_BONUS = 0.1
"""What a message gains that is written now; half of it after each half-life. No judged query asks for it."""
FLOOR_SHARE = 0.8
"""The share of the best score below which the dynamic floor is. On the same conversation it leaves out a sixth of ten
hits, and with them 0.006 of the recall; 0.85 would cost 0.05."""


@dataclass
class ExchangeChoice(PassageChoice):
    """The choice among the messages of a memory: of each exchange as many as the query's ``per_file``."""

    _now: datetime = field(default_factory=lambda: datetime.now(UTC), init=False)

    @property
    def fusion(self) -> FusionMethod:
        """The query's; by ranks where the scores are only an order."""
        return self.query.fusion if self.is_comparable else "rrf"

    def is_close(self, model: str) -> bool | None:
        """Return None: what a query without an answer scores here was not measured."""
        return None

    async def _verify(self, hit: RankedHit, path: str) -> SearchResult | None:
        """Return a message if it verifies, and its exchange is stored as it was indexed."""
        result = await super()._verify(hit, path)
        return None if result is None or result.state.changed else result

    @property
    def _tuned(self) -> FusionWeights:
        return WEIGHTS

    @property
    def _is_plain(self) -> bool:
        """Whether one leg alone ranks, or the ranks in both."""
        return self.fusion == "rrf" or self.query.alpha in (0, 1)

    def _scored(self, statistics: CollectionStatistics) -> Iterator[RankedHit]:
        hits = [hit for hit in collect_candidates(self.tier_queries) if self._is_wanted(hit.candidate)]
        alpha = self.weights.alpha
        method = self.fusion
        fusion = Fusion(self.weights, max_term_score(statistics), method, comparable=method == "convex")
        # An exchange has what both said: who said it counts among messages alone.
        is_by_name = not self._is_plain and self.query.per_file != 1
        names = frozenset(query_terms(self.query.text) if is_by_name else ())
        legs = list(zip(*passage_legs(hits, fusion), strict=True))
        speakers = [SPEAKER_BONUS * is_said_by(hit.candidate.passage, names) for hit in hits]
        alone = [alpha * v + (1 - alpha) * w + speaker for (v, w), speaker in zip(legs, speakers, strict=True)]
        gains = {} if self._is_plain else neighbour_gains(hits, alone)
        for hit, (vectors, words), speaker, score in zip(hits, legs, speakers, alone, strict=True):
            if not (alpha or words):
                continue  # it was found by its vector alone
            candidate, recency = hit.candidate, self._recency(hit.candidate)
            gain = gains.get(candidate.ref.item_id, 0.0)
            parts = {
                "cosine": candidate.cosine if candidate.embedded else None, "bm25": candidate.bm25,
                **dict(zip(ITEM_PARTS, candidate.item, strict=True)), "vectors": vectors, "words": words,
                "alpha": alpha, "speaker": speaker, "neighbours": gain, "recency": recency,
                "plan": hit.plan, "fusion": fusion.method,
            }  # fmt: skip
            yield replace(hit, score=score + gain + recency, parts=parts)

    def _recency(self, candidate: Candidate) -> float:
        """Return what an exchange gains by its age; nothing without a half-life."""
        half_life = self.query.half_life_days
        return RECENCY_BONUS * Recency(half_life, self._now).factor(moment_of(candidate)) if half_life else 0.0

    def _is_wanted(self, candidate: Candidate) -> bool:
        """Whether an exchange is recent enough; stores compare only when it was signed, which is later."""
        since = self.query.filters.since
        return since is None or moment_of(candidate) >= since


def moment_of(candidate: Candidate) -> datetime:
    """Return when an exchange took place: its `last_modified`, or else when it was signed."""
    try:
        moment = datetime.fromisoformat(candidate.metadata["last_modified"])
    except (KeyError, TypeError, ValueError):
        return candidate.signed_at
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def is_said_by(message: Passage, names: Set[str]) -> bool:
    """Whether all terms of the name of a message's speaker are among `names`."""
    name = query_terms(message.heading[-1]) if message.heading else ()
    return bool(name) and names >= set(name)


def neighbour_gains(hits: Sequence[RankedHit], scores: Sequence[float]) -> Mapping[str, float]:
    """Return what each exchange gains by those before and after it among the candidates of its session.

    That is a share of the better one's score, by its best message, above the lowest score of all.
    """
    best, places = dict[str, float](), dict[str, tuple[str, datetime, str]]()
    for hit, score in zip(hits, scores, strict=True):
        path = hit.candidate.ref.item_id
        best[path] = max(best.get(path, score), score)
        places[path] = path.partition("/")[0], moment_of(hit.candidate), path
    gains, lowest = dict.fromkeys(best, 0.0), min(scores, default=0.0)
    for (session, _, one), (other_session, _, other) in pairwise(sorted(places.values())):
        if session == other_session:
            gains[one] = max(gains[one], NEIGHBOUR_SHARE * (best[other] - lowest))
            gains[other] = max(gains[other], NEIGHBOUR_SHARE * (best[one] - lowest))
    return gains


def above_floor(hits: Sequence[SearchResult], threshold: float, *, dynamic: bool) -> Sequence[SearchResult]:
    """Return the hits that are above a floor, in their order.

    Parameters
    ----------
    threshold
        The least similarity of the query and the best message of the exchange, ``(cosine + 1) / 2``; 0 for none.
    dynamic
        Whether hits are left out that score less than `FLOOR_SHARE` of the best one.
    """
    least = FLOOR_SHARE * max((hit.score for hit in hits), default=0.0) if dynamic else 0.0
    similar = (hit for hit in hits if normalise_cosine(hit.parts["best_cosine"]) >= threshold)
    return [hit for hit in similar if hit.score >= least]
