"""What the rounds of a search brought → candidates with both scores, and those of their items. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kiwi_rag.errors import StoreCorrupt
from kiwi_rag.lexical import bm25
from kiwi_rag.model import Candidate, ItemScores, RefusedHit
from kiwi_rag.stores.qdrant import layout, reading

if TYPE_CHECKING:
    from qdrant_client import models

    from kiwi_rag.model import StoreQuery
    from kiwi_rag.stores.qdrant.reading import Details, Head

_INCOMPLETE = "passages of it are missing in Qdrant"


@dataclass(frozen=True, slots=True)
class Told:
    """What a server told of the passages that the legs chose, by id.

    ``near`` are all passages of their items with their cosines, ``worded`` those with a term of the query. ``floors``
    are the cosine and the BM25 above which a leg takes everything.
    """

    chosen: Collection[str]
    floors: tuple[float, float]
    heads: Sequence[models.Record]
    texts: Sequence[models.Record]
    near: Sequence[models.ScoredPoint]
    worded: Sequence[models.ScoredPoint]


@dataclass(slots=True)
class Answered:
    """Candidates, and what is none: unreadable, of an item that is not whole, or ``moved`` by a writer meanwhile.

    ``overlooked`` are passages that belong to the legs' best, and that they did not find: an index that approximates
    may miss one, and so does a leg that looks while a writer is half-way. ``broken`` is by item and generation.
    """

    items: list[Candidate] = field(default_factory=list)
    refused: list[RefusedHit] = field(default_factory=list)
    broken: dict[tuple[str, str], RefusedHit] = field(default_factory=dict)
    overlooked: list[str] = field(default_factory=list)
    moved: bool = False


@dataclass(slots=True)
class _Whole:
    """An item that counts: its head, and by place what its passages have to do with the query."""

    head: Head
    details: Details
    cosines: dict[int, float] = field(default_factory=dict)
    counts: dict[int, Mapping[str, int]] = field(default_factory=dict)
    words: dict[int, float] = field(default_factory=dict)
    unreadable: bool = False

    @property
    def complete(self) -> bool:
        """Whether the server told of all its passages, in a way that can be read."""
        return len(self.cosines) == self.head.of and not self.unreadable

    def scores(self, weights: Mapping[str, float], average_item_length: float) -> ItemScores:
        """Return the item's scores over all its passages."""
        together = sum((Counter(counts) for counts in self.counts.values()), Counter[str]())
        centroid = sum(self.cosines.values()) / self.head.norm if self.head.norm > 0 else 0.0
        return ItemScores(
            best=max(self.cosines.values()),
            first=self.cosines[0],
            centroid=min(1.0, max(-1.0, centroid)),
            best_words=max(self.words.values(), default=0.0),
            words=bm25(together, self.head.total_length, weights, average_item_length),
        )


_Places = Mapping[str, tuple[_Whole, int]]


def candidates(query: StoreQuery, weights: Mapping[str, float], told: Told) -> Answered:
    """Return the chosen passages as candidates.

    Parameters
    ----------
    weights
        The inverse document frequency of each query term that occurs, under the statistics that were given.
    """
    answered = Answered()
    wholes = [whole for point in told.heads if (whole := _whole(point, answered)) is not None]
    places = _places(wholes, len(told.near))
    _fill(places, query, weights, told, answered)
    average = query.statistics.average_item_length
    scores = {whole.head.item: whole.scores(weights, average) for whole in wholes if whole.complete}
    for whole in wholes:
        if not (whole.complete or whole.unreadable):
            answered.broken[whole.head.item, whole.head.generation] = _hit(whole, _INCOMPLETE)
    texts = {str(point.id): point.payload for point in told.texts}
    for id_ in told.chosen:
        whole, place = places.get(id_, (None, 0))
        if whole is None or id_ not in texts:
            answered.moved = True
        elif whole.complete:
            _add(answered, whole, place, texts[id_], scores[whole.head.item])
    answered.overlooked += _overlooked(places, told)
    return answered


def _overlooked(places: _Places, told: Told) -> Iterator[str]:
    cosine, words = told.floors
    for id_, (whole, place) in places.items():
        belongs = whole.complete and (whole.cosines[place] > cosine or whole.words.get(place, 0.0) > words)
        if belongs and id_ not in told.chosen:
            yield id_


def _whole(point: models.Record, answered: Answered) -> _Whole | None:
    payload = point.payload or {}
    item = payload.get("item")
    try:
        if not isinstance(item, str) or str(point.id) != layout.head_id(item):
            raise StoreCorrupt("Qdrant gave the head of another item")
        head = reading.head(payload, item)
        return _Whole(head, reading.details(payload)) if head.generation else None
    except StoreCorrupt as error:
        answered.refused.append(reading.refused(payload, error))
        return None


def _places(wholes: Sequence[_Whole], told: int) -> _Places:
    """Return id → item and place of every passage that counts, of no more of an item than were told of at all."""
    return {
        layout.passage_id(whole.head.item, whole.head.generation, place): (whole, place)
        for whole in wholes
        for place in range(min(whole.head.of, told + 1))
    }


def _fill(places: _Places, query: StoreQuery, weights: Mapping[str, float], told: Told, answered: Answered) -> None:
    """Put the scores of every passage to its place; what is of no generation that counts has none."""
    average = query.statistics.average_length
    for point in (*told.near, *told.worded):
        whole, place = places.get(str(point.id), (None, 0))
        if whole is None:
            continue
        try:
            if point.payload:
                hit = reading.found(point)
                whole.counts[place], whole.words[place] = hit.counts, bm25(hit.counts, hit.length, weights, average)
            else:
                whole.cosines[place] = reading.cosine(point)
        except StoreCorrupt as error:
            whole.unreadable = True
            answered.refused.append(_hit(whole, error.message))


def _add(answered: Answered, whole: _Whole, place: int, payload: object, scores: ItemScores) -> None:
    try:
        passage = reading.passage(payload)
    except StoreCorrupt as error:
        answered.refused.append(_hit(whole, error.message))
        return
    ref, digest, content, metadata, key_id, signed_at = whole.details
    legs = whole.cosines[place], whole.words.get(place, 0.0)
    answered.items.append(Candidate(ref, digest, content, passage, *legs, metadata, key_id, signed_at, scores))


def _hit(whole: _Whole, reason: str) -> RefusedHit:
    return RefusedHit(whole.details.ref, "qdrant", StoreCorrupt.code, reason)
