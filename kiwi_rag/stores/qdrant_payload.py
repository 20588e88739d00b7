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
import sys
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


def equals(field: str, value: str | int) -> models.FieldCondition:
    """Return the condition that a field has a value, or that a list of values contains it."""
    return models.FieldCondition(key=field, match=models.MatchValue(value=value))


def one_of(field: str, values: Sequence[str]) -> models.FieldCondition:
    """Return the condition that a field has one of some values; without values, one that nothing meets."""
    return models.FieldCondition(key=field, match=models.MatchAny(any=list(values) or [""]))


def any_of(conditions: list[Any]) -> models.Filter:
    """Return the condition that one of several is met."""
    return models.Filter(should=conditions)


def at_least(field: str, moment: datetime) -> models.FieldCondition:
    """Return the condition that a time is not before another one."""
    return models.FieldCondition(key=field, range=models.DatetimeRange(gte=moment))


def points_of(kind: str, filters: Filters | None = None, *others: Any, **values: str) -> models.Filter:
    """Return the condition for points of a kind that pass the filters and other conditions, and have some values.

    Heads and passages are filtered alike. Of a path's pattern only its folder is a condition.
    """
    filters = filters or Filters()
    must: list[Any] = [equals("kind", kind), *others, *(equals(field, value) for field, value in values.items())]
    must += payload.filter_conditions(filters, sys.modules[__name__])
    # The folder that a pattern names before its first wildcard.
    if folder := re.split(r"[*?]", payload.path_pattern(filters))[0].rpartition("/")[0]:
        must.append(equals("folders", folder))
    return models.Filter(must=must)
