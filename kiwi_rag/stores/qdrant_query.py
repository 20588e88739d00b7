"""Queries to a Qdrant collection: filters as its conditions, the two legs, and what they find as candidates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING, Any

from kiwi_rag.errors import StoreCorrupt
from kiwi_rag.model import Candidate, ItemScores, Passage, RefusedHit
from kiwi_rag.stores import qdrant_payload as payload
from kiwi_rag.stores.base import NOT_FOUND_BY_VECTOR
from kiwi_rag.stores.qdrant_connection import models

if TYPE_CHECKING:
    from kiwi_rag.model import Filters, StoreQuery

_WILDCARDS = "*?"
_EXPLORE = 128


def equals(key: str, value: str | int) -> models.FieldCondition:
    """Return the condition that a field has a value, or that a list of values contains it."""
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


def one_of(key: str, values: Sequence[str]) -> models.FieldCondition:
    """Return the condition that a field has one of some values; without values, one that nothing meets."""
    return models.FieldCondition(key=key, match=models.MatchAny(any=list(values) or [""]))


def conditions(filters: Filters) -> list[Any]:
    """Return the conditions that heads and passages are filtered by alike; of a path's pattern only its folder."""
    texts = {
        "item_type": filters.item_type.value if filters.item_type else "",
        "folders": _folder(path_pattern(filters)),
        **{name: getattr(filters, name) for name in ("category", "author", "namespace", "service", "domain")},
    }
    must: list[Any] = [equals(key, value) for key, value in texts.items() if value]
    must += [one_of("file_type", filters.file_types)] if filters.file_types else []
    must += [equals("tags", tag) for tag in sorted(set(filters.tags))]
    if (path := filters.path.rstrip("/")) and not path_pattern(filters):
        must.append(models.Filter(should=[equals("item_id", path), equals("folders", path)]))
    if filters.signer:
        must.append(models.Filter(should=[equals(key, filters.signer) for key in ("principal", "key_id")]))
    if filters.since:
        since = filters.since if filters.since.tzinfo else filters.since.replace(tzinfo=UTC)
        must.append(models.FieldCondition(key="signed_at", range=models.DatetimeRange(gte=since)))
    return must


def path_pattern(filters: Filters) -> str:
    """Return the filters' path if it holds wildcards; Qdrant has no condition for those."""
    return filters.path.rstrip("/") if any(sign in filters.path for sign in _WILDCARDS) else ""


def matches_path(filters: Filters, item_id: str) -> bool:
    """Whether a path passes the filters: itself, or one of the folders above it."""
    pattern = filters.path.rstrip("/")
    parts = ((".*" if sign == "*" else "." if sign == "?" else re.escape(sign)) for sign in pattern)
    return not pattern or re.fullmatch(f"(?s:{''.join(parts)})(?:/.*)?", item_id) is not None


def _folder(pattern: str) -> str:
    """Return the folder that a pattern names before its first wildcard."""
    literal = pattern[: min((pattern.index(sign) for sign in _WILDCARDS if sign in pattern), default=0)]
    return literal.rpartition("/")[0]


def points_of(kind: str, filters: Filters | None = None, *others: Any, **values: str) -> models.Filter:
    """Return the condition for points of a kind that pass the filters and other conditions, and have some values."""
    must: list[Any] = [equals("kind", kind), *(conditions(filters) if filters else ()), *others]
    return models.Filter(must=[*must, *(equals(key, value) for key, value in values.items())])


@dataclass(slots=True)
class FoundPassages:
    """What both legs found, by point id: (item, generation, passage), cosines, and scores of the words leg."""

    passages: dict[str, tuple[str, str, Passage]] = field(default_factory=dict)
    cosines: dict[str, float] = field(default_factory=dict)
    words: dict[str, float] = field(default_factory=dict)
    refused: list[RefusedHit] = field(default_factory=list)

    @property
    def items(self) -> list[str]:
        """The keys of the items that the passages are of."""
        return sorted({item for item, _, _ in self.passages.values()})


def read_legs(legs: Sequence[Sequence[models.ScoredPoint]]) -> FoundPassages:
    """Return what the vector leg and the words leg found; a malformed point is refused."""
    found = FoundPassages()
    for scores, points in zip((found.cosines, found.words), legs, strict=False):
        for point in points:
            try:
                read, score = payload.read_passage(point), payload.read_score(point)
            except StoreCorrupt as error:
                found.refused.append(payload.refused(point.payload, error))
                continue
            found.passages[str(point.id)] = read
            scores[str(point.id)] = min(1.0, max(-1.0, score)) if scores is found.cosines else max(0.0, score)
    return found


def candidates_of(found: FoundPassages, heads: Iterable[models.Record]) -> tuple[list[Candidate], bool]:
    """Return the passages of the generations that count, and whether there were no others."""
    items = {payload.head_id(item): item for item in found.items}
    counting: dict[tuple[str, str], Candidate] = {}
    malformed: set[str] = set()
    for point in heads:
        item = items.get(str(point.id), "")
        try:
            head = payload.read_head(point.payload, item)
            if head.generation:
                counting[head.item, head.generation] = payload.read_candidate(point.payload)
        except StoreCorrupt as error:
            malformed.add(item)
            found.refused.append(payload.refused(point.payload, error))
    candidates: dict[tuple[str, str], list[Candidate]] = {}
    is_complete = True
    for id_, (item, generation, passage) in found.passages.items():
        if (of_item := counting.get((item, generation))) is not None:
            cosine, words = found.cosines.get(id_, NOT_FOUND_BY_VECTOR), found.words.get(id_, 0.0)
            one = of_item._replace(passage=passage, cosine=cosine, bm25=words)
            candidates.setdefault((item, generation), []).append(one)
        else:
            is_complete &= item in malformed
    return [candidate for passages in candidates.values() for candidate in _with_item_scores(passages)], is_complete


def _with_item_scores(passages: Sequence[Candidate]) -> list[Candidate]:
    """Return an item's candidates with the best scores among them as the item's: of other passages none is known."""
    cosine, words = max(c.cosine for c in passages), max(c.bm25 for c in passages)
    return [c._replace(item=ItemScores(cosine, cosine, cosine, words, words)) for c in passages]


def leg_requests(query: StoreQuery, condition: models.Filter, *, local: bool) -> list[models.QueryRequest]:
    """Return the requests of the vector leg and, where the query has terms, of the words leg."""
    limit = max(1, query.depth)
    shared: dict[str, Any] = {"filter": condition, "limit": limit, "with_payload": list(payload.PASSAGE_FIELDS)}
    # Local mode is always exact, and warns when it gets parameters of an index.
    params = None if local else models.SearchParams(hnsw_ef=max(_EXPLORE, 2 * limit))
    requests = [models.QueryRequest(query=query.vector.tolist(), using=payload.DENSE, params=params, **shared)]
    if indices := list(dict.fromkeys(payload.sparse_index(term) for term in query.terms)):
        words = models.SparseVector(indices=indices, values=[1.0] * len(indices))
        requests.append(models.QueryRequest(query=words, using=payload.WORDS, **shared))
    return requests
