"""Points of a Qdrant collection: a document as points, and conditions on them.

A collection holds four kinds of points, by their payload's ``kind``:

``passage``
    One passage of one generation of a document, with two vectors: ``dense``, the model's, and ``words``, its terms.
``staged``
    The same before its generation is complete; no reader looks at it.
``head``
    One a document, without vectors: the generation that counts, and the signed envelope.
``gone``
    The head of a document that was deleted: its turn.

`kiwi_rag.stores.payload` has their fields.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from qdrant_client import models

from kiwi_rag.lexical import K1, B
from kiwi_rag.model import EmbeddingRecord, Filters
from kiwi_rag.stores import payload
from kiwi_rag.stores.base import timestamp
from kiwi_rag.symbols import passage_terms

DENSE = "dense"
WORDS = "words"
PARTITION = "partition"
_KEYWORDS = (
    "kind", "generation", "item_type", "item_id", "folders", "namespace", "category", "author", "tags", "principal",
    "key_id", "file_type", "service", "domain", "terms",
)  # fmt: skip
INDEXES: Mapping[str, str] = {
    **dict.fromkeys(_KEYWORDS, "keyword"),
    **dict.fromkeys(("turn", "length", "of"), "integer"),
    **dict.fromkeys(("signed_at", "at"), "datetime"),
}
"""Payload key → type of its index; every key that is filtered, counted or ordered by has one."""
_AVERAGE_LENGTH = 100.0
"""The average passage length, in terms, that the ``words`` vectors are computed for: the true one changes with every
write, and Qdrant cannot apply it."""


def sparse_index(term: str) -> int:
    """Return a term's index in sparse vectors, 32 bits of its hash; two terms may share one."""
    return int.from_bytes(hashlib.blake2b(term.encode(), digest_size=4).digest(), "big")


def passage_points(
    records: Sequence[EmbeddingRecord], turn: int, generation: str, partition: str = ""
) -> list[models.PointStruct]:
    """Return a document's passages as staged points."""
    state = {"kind": "staged", "turn": turn, "generation": generation, "at": timestamp(datetime.now(UTC))}
    points = []
    for record in records:
        passage, (frequencies, length) = record.passage, passage_terms(record.admission.ref, record.passage)
        vector: dict[str, Any] = {DENSE: record.vector.tolist()}
        if weights := _term_weights(frequencies, length):
            vector[WORDS] = models.SparseVector(indices=list(weights), values=list(weights.values()))
        own = {"length": length, "terms": list(frequencies), "passage": payload.passage_fields(passage)}
        id_ = payload.passage_id(record.admission.ref.item_id, generation, passage.ordinal, partition)
        fields = payload.filtered_fields(record.admission) | state | own
        points.append(models.PointStruct(id=id_, vector=vector, payload=fields))
    return points


def _term_weights(frequencies: Mapping[str, int], length: int) -> dict[int, float]:
    """Return index → what a term adds to BM25 per unit of its IDF."""
    norm = K1 * (1 - B + B * length / _AVERAGE_LENGTH)
    return {sparse_index(term): tf * (K1 + 1) / (tf + norm) for term, tf in frequencies.items()}


def matches(field: str, *values: Any) -> models.FieldCondition:
    """Return the condition that a field has, or contains, one of some values; without values, nothing meets it."""
    match = models.MatchValue(value=values[0]) if len(values) == 1 else models.MatchAny(any=list(values) or [""])
    return models.FieldCondition(key=field, match=match)


def points_of(kind: str, filters: Filters | None = None, *others: Any, **values: str) -> models.Filter:
    """Return the condition for points of a kind that pass the filters and other conditions, and have some values.

    Heads and passages are filtered alike. Of a path's pattern only its folder is a condition.
    """
    filters = filters or Filters()
    must = [*others, *(_condition(*one) for one in payload.conditions(kind, filters, values))]
    # The folder that a pattern names before its first wildcard.
    if folder := re.split(r"[*?]", payload.path_pattern(filters))[0].rpartition("/")[0]:
        must.append(matches("folders", folder))
    return models.Filter(must=must)


def _condition(fields: Sequence[str], wanted: Sequence[str] | datetime) -> Any:
    if isinstance(wanted, datetime):
        return models.FieldCondition(key=fields[0], range=models.DatetimeRange(gte=wanted))
    return models.Filter(should=[matches(field, *wanted) for field in fields])
