"""How a search is answered, in three rounds of requests.

1. Whether the collection is of the query's model, and what is being written at this moment.
2. Both legs in one request: the nearest vectors, and the words' first choice (`kiwi_rag.stores.qdrant.weights`), read
   on until nothing better can follow. Their union are the candidates.
3. Of the candidates: their texts, their items' heads, and every passage of these items with both scores.

What is not of the generation that its head names is no candidate. A writer may have replaced an item between two
rounds; then all of it is asked anew. What a leg should have found and did not is seen by its fellows, and added.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection as Many
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kiwi_rag.errors import StoreCorrupt
from kiwi_rag.lexical import bm25, bm25_weights
from kiwi_rag.model import Candidates, RefusedHit, StoreQuery
from kiwi_rag.stores.qdrant import layout, narrowing, reading, weights
from kiwi_rag.stores.qdrant.scoring import Answered, Told, candidates

if TYPE_CHECKING:
    from qdrant_client import models

    from kiwi_rag.stores.qdrant.collection import Collection
    from kiwi_rag.stores.qdrant.reading import Found

_ROUNDS = 3
_MAX_WORDS = 20_000
_MAX_MATES = 100_000
_EXPLORE = 128
_TIE = 1e-6
_LEG_FIELDS = ("item", "generation", "of")


async def answer(collection: Collection, query: StoreQuery) -> Candidates:
    """Return the union of both legs' best passages, each with both scores.

    Raises
    ------
    FingerprintMismatch
        When the collection holds vectors of another model.
    """
    facts = await collection.facts()
    if facts is None:
        return Candidates((), "exact")
    facts.require_model(query.fingerprint, len(query.vector))
    broken: set[tuple[str, str]] = set()
    for _ in range(_ROUNDS):
        told, refused = await _Search(collection, query).run()
        lasting = [hit for key, hit in told.broken.items() if key in broken]
        broken = set(told.broken)
        if not (told.moved or told.broken):
            break
    # What is not whole twice over in one generation is damaged; what is not whole once is being replaced.
    refused = dict.fromkeys((*refused, *told.refused, *lasting))
    return Candidates(tuple(told.items), "hnsw" if facts.indexed else "exact", tuple(refused))


class _Search:
    """One attempt at a query: what its rounds share."""

    def __init__(self, collection: Collection, query: StoreQuery) -> None:
        self._collection, self._query = collection, query
        self._weights = bm25_weights(query.statistics, query.terms)
        self._refused: dict[RefusedHit, None] = {}
        self._floors = (-math.inf, 0.0)

    async def run(self) -> tuple[Answered, dict[RefusedHit, None]]:
        """Return the candidates, and the points of the legs that cannot be read."""
        pending = await narrowing.unsettled(self._collection)
        within = await narrowing.passages_of(self._collection, self._query.filters, pending)
        chosen = await self._legs(within)
        if not chosen:
            return Answered(), self._refused
        items = sorted({hit.item for hit in chosen.values()})
        heads, texts, (near, worded) = await asyncio.gather(
            self._collection.retrieve(list(map(layout.head_id, items)), reading.TURN_FIELDS + reading.DETAIL_FIELDS),
            self._collection.retrieve(list(chosen), reading.PASSAGE_FIELDS),
            self._mates(list(chosen.values()), pending),
        )
        told = Told(chosen, self._floors, heads, texts, near, worded)
        answered = await asyncio.to_thread(candidates, self._query, self._weights, told)
        if answered.overlooked:
            more = await self._collection.retrieve(answered.overlooked, reading.PASSAGE_FIELDS)
            told = replace(told, chosen={*chosen, *answered.overlooked}, texts=[*texts, *more])
            answered = await asyncio.to_thread(candidates, self._query, self._weights, told)
        return answered, self._refused

    async def _legs(self, within: models.Filter | None) -> dict[str, Found]:
        depth = self._query.depth
        found = await self._collection.query([self._vectors(within, depth), *self._words(within, 2 * depth)])
        near, worded = self._read(found[0])[:depth], self._read(found[1]) if self._weights else []
        best = await self._best_words(worded, within)
        if len(near) >= depth:
            self._floors = min(hit.score for hit in near) + _TIE, self._floors[1]
        if len(best) >= depth:
            self._floors = self._floors[0], best[-1][0] + _TIE
        return {hit.id: hit for hit in (*near, *(hit for _, hit in best))}

    async def _best_words(self, worded: Sequence[Found], within: models.Filter | None) -> list[tuple[float, Found]]:
        """Return the passages with the best BM25, best first, having asked for all that could be among them."""
        depth, average = self._query.depth, self._query.statistics.average_length
        scored = self._scored(worded)
        if len(worded) >= 2 * depth:
            least, following = scored[depth - 1][0], min(hit.score for hit in worded)
            if weights.highest_score(following, average) > least:
                enough = weights.lowest_product(least, average)
                (more,) = await self._collection.query(self._words(within, _MAX_WORDS, enough))
                scored = self._scored(list({hit.id: hit for hit in (*worded, *self._read(more))}.values()))
        return [(score, hit) for score, hit in scored[:depth] if score > 0]

    def _scored(self, found: Sequence[Found]) -> list[tuple[float, Found]]:
        average = self._query.statistics.average_length
        scored = [(bm25(hit.counts, hit.length, self._weights, average), hit) for hit in found]
        return sorted(scored, key=lambda pair: -pair[0])

    async def _mates(
        self, hits: Many[Found], pending: Sequence[models.Filter]
    ) -> tuple[Sequence[models.ScoredPoint], Sequence[models.ScoredPoint]]:
        """Return every passage of some items with its cosine, and those with a query term with what they have."""
        from qdrant_client import models

        theirs = models.Filter(must=[self._of_items(hits)], must_not=list(pending) or None)
        count = min(_MAX_MATES, sum({hit.item: hit.of for hit in hits}.values()))
        near = self._vectors(theirs, count, every=True)
        found = await self._collection.query([near, *self._words(theirs, count)])
        return found[0], found[1] if len(found) > 1 else ()

    def _of_items(self, hits: Many[Found]) -> models.Condition:
        from qdrant_client import models

        items = {hit.item: hit for hit in hits}
        if not self._collection.connection.local:
            return narrowing.one_of("item", sorted(items))
        # Local mode has no indexes and compares each point with each value of a list; ids it looks up.
        ids: list[Any] = [
            layout.passage_id(item, hit.generation, place)
            for item, hit in items.items()
            for place in range(min(hit.of, _MAX_MATES))
        ]
        return models.HasIdCondition(has_id=ids)

    def _vectors(self, within: models.Filter | None, limit: int, *, every: bool = False) -> models.QueryRequest:
        from qdrant_client import models

        # Local mode is always exact, and says on standard error that it was told so.
        exactly = models.SearchParams(exact=every, hnsw_ef=None if every else max(_EXPLORE, 2 * limit))
        return models.QueryRequest(
            query=self._query.vector.tolist(),
            using=layout.DENSE,
            filter=within,
            limit=max(1, limit),
            params=None if self._collection.connection.local else exactly,
            with_payload=False if every else list(_LEG_FIELDS),
        )

    def _words(self, within: models.Filter | None, limit: int, enough: float | None = None) -> list[Any]:
        from qdrant_client import models

        wanted = weights.query_weights(self._weights)
        if not wanted:
            return []
        sparse = models.SparseVector(indices=list(wanted), values=list(wanted.values()))
        request = models.QueryRequest(
            query=sparse,
            using=layout.WORDS,
            filter=within,
            limit=max(1, limit),
            score_threshold=enough,
            with_payload=[*_LEG_FIELDS, "length", *(f'counts."{term}"' for term in self._weights)],
        )
        return [request]

    def _read(self, points: Sequence[models.ScoredPoint]) -> list[Found]:
        found: list[Found] = []
        for point in points:
            try:
                found.append(reading.found(point))
            except StoreCorrupt as error:
                self._refused[reading.refused(point.payload, error)] = None
        return found
