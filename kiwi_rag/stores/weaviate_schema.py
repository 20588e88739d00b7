"""A Weaviate class of documents: its name, properties and objects, and conditions on them.

A class holds three kinds of objects, by their property ``kind``:

``passage``
    One passage of one generation of a document, with the model's vector ``dense``; ``searchText`` has its terms.
``head``
    One a document, without a vector: the generation that counts, and the signed envelope.
``write``
    One a write that has not ended, without a vector: the generation that is being written.

`kiwi_rag.stores.payload` has their fields. ``projectId``, ``filePath``, ``commitSha``, ``title``, ``language`` and
``chunkRange`` (lines) are there for other readers of the class.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from weaviate.classes.config import Configure, DataType, Property, StopwordsPreset, Tokenization, VectorDistances
from weaviate.classes.data import DataObject
from weaviate.classes.query import Filter

from kiwi_rag.lexical import K1, B
from kiwi_rag.model.items import EmbeddingRecord
from kiwi_rag.model.search import Filters
from kiwi_rag.stores import payload
from kiwi_rag.stores.base import timestamp

DENSE = "dense"
SEARCHED = "searchText"
_PREFIX = "KiwiDocument_"
_MAX_NAME = 255  # Weaviate allows [A-Z][_0-9A-Za-z]{0,254}
_KEYWORDS = (
    "kind", "docId", "generation", "item_type", "item_id", "namespace", "category", "author", "principal", "key_id",
    "file_type", "service", "domain",
)  # fmt: skip
_PLAIN = (
    "projectId", "filePath", "commitSha", "chunkRange", "title", "language", "passage", "digest", "content_sha256",
    "envelope", "policy", "metadata",
)  # fmt: skip
SHAPES: Mapping[str, tuple[DataType, Tokenization | None, bool, bool]] = {
    **dict.fromkeys(_KEYWORDS, (DataType.TEXT, Tokenization.FIELD, True, False)),
    **dict.fromkeys(("folders", "tags", "terms"), (DataType.TEXT_ARRAY, Tokenization.FIELD, True, False)),
    # Kiwi's own terms, separated by spaces: words find stems and parts of identifiers as in every other store.
    SEARCHED: (DataType.TEXT, Tokenization.WHITESPACE, False, True),
    **dict.fromkeys(("length", "turn", "of", "position"), (DataType.INT, None, True, False)),
    **dict.fromkeys(("signed_at", "at", "admitted_at"), (DataType.DATE, None, True, False)),
    **dict.fromkeys(_PLAIN, (DataType.TEXT, Tokenization.FIELD, False, False)),
}
"""Property → its type and tokens, and whether filters and BM25 have an index of it."""


def class_name(collection: str) -> str:
    """Return the name of a collection's class: no two collections have the same, also where case does not count.

    What is not a lower-case letter or digit becomes its code between underscores. A name that is too long then is cut
    and gets a digest, after an underscore and an ``x``, which no code begins with.
    """
    escaped = re.sub("[^a-z0-9]", lambda found: f"_{ord(found[0]):x}_", collection)
    if len(_PREFIX + escaped) > _MAX_NAME:
        escaped = f"_x{hashlib.sha256(collection.encode()).hexdigest()}_{escaped}"
    return (_PREFIX + escaped)[:_MAX_NAME]


def class_options(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the client's ``collections.create`` takes. Vectors are given, and compared by cosine."""
    index = Configure.VectorIndex.hnsw(distance_metric=VectorDistances.COSINE)
    return {
        "description": json.dumps(description),
        "properties": [
            Property(name=name, data_type=kind, tokenization=tokens, index_filterable=filters, index_searchable=words)
            for name, (kind, tokens, filters, words) in SHAPES.items()
        ],
        "vector_config": Configure.Vectors.self_provided(name=DENSE, vector_index_config=index),
        "inverted_index_config": Configure.inverted_index(bm25_k1=K1, bm25_b=B, stopwords_preset=StopwordsPreset.NONE),
    }


def find_differences(config: Any) -> list[str]:
    """Return in which properties and vectors a class is not as Kiwi makes it."""
    found = {p.name: (p.data_type, p.tokenization, p.index_filterable, p.index_searchable) for p in config.properties}
    wrong = {name: name in found for name, shape in SHAPES.items() if found.get(name) != shape}
    vector = (config.vector_config or {}).get(DENSE)
    if vector is None or getattr(vector.vector_index_config, "distance_metric", None) != VectorDistances.COSINE:
        wrong[DENSE] = vector is not None
    return [f"{name!r} is {'of another kind' if is_there else 'missing'}" for name, is_there in wrong.items()]


def read_point(found: Any) -> payload.Point:
    """Return an object of the client."""
    fields = {name: value for name, value in found.properties.items() if value is not None}
    fields |= {name: _parse(fields[name]) for name in ("passage", "envelope") if name in fields}
    distance, score = found.metadata.distance, found.metadata.score
    score = score if distance is None else 1.0 - distance
    return payload.Point(str(found.uuid), fields, math.nan if score is None else score)


def _parse(text: object) -> object:
    try:
        return json.loads(str(text))
    except (ValueError, RecursionError):
        return None  # which is malformed wherever it is read


def _object(id_: str, fields: Mapping[str, Any], vector: Any = None) -> DataObject[Any, None]:
    texts = {name: json.dumps(fields[name]) for name in ("passage", "envelope") if name in fields}
    about = {"docId": payload.head_id(fields["item_id"]), "filePath": fields["item_id"]}
    about["language"] = fields.get("file_type", "")
    return DataObject(uuid=UUID(id_), properties={**fields, **texts, **about}, vector=vector)


def passage_objects(
    records: Sequence[EmbeddingRecord], head: payload.DocumentHead, project: str
) -> list[DataObject[Any, None]]:
    """Return the passages of a generation of a document."""
    commit = str(records[0].admission.item.metadata.get("commit") or "")
    state = {"kind": "passage", "projectId": project, "commitSha": commit}
    objects = []
    for record, id_, fields, frequencies in payload.passage_payloads(records, head):
        passage = record.passage
        own = {"title": " > ".join(passage.heading), "chunkRange": f"{passage.start_line}:{passage.end_line}"}
        own[SEARCHED] = " ".join(frequencies.elements())
        objects.append(_object(id_, fields | state | own, {DENSE: record.vector.tolist()}))
    return objects


def head_object(head: payload.DocumentHead, fields: Mapping[str, Any], project: str) -> DataObject[Any, None]:
    """Return the head of a document; `fields` are those of `payload.head_payload`."""
    id_ = payload.head_id(head.item_id)
    # Lists are read page by page in this order: 52 bits, which a number of JSON holds exactly.
    return _object(id_, {**fields, **asdict(head), "projectId": project, "position": UUID(id_).int >> 76})


def write_object(head: payload.DocumentHead) -> DataObject[Any, None]:
    """Return the note that a generation is being written."""
    fields = {"kind": "write", "item_id": head.item_id, "generation": head.generation}
    return _object(str(uuid4()), fields | {"at": timestamp(datetime.now(UTC))})


def one_of(field: str, values: Sequence[str]) -> Any:
    """Return the condition that a field has, or contains, one of some values; without values, nothing meets it."""
    return Filter.by_property(field).contains_any(list(values) or ["\0"])


def objects_of(kind: str, filters: Filters | None = None, *others: Any, **values: str) -> Any:
    """Return the condition for objects of a kind that pass the filters and other conditions, and have some values."""
    filters = filters or Filters()
    every = [*others, *(_condition(*one) for one in payload.conditions(kind, filters, values))]
    if pattern := payload.path_pattern(filters):
        path = Filter.by_property("item_id")
        every.append(Filter.any_of([path.like(pattern), path.like(f"{pattern}/*")]))
    return Filter.all_of(every)


def _condition(fields: Sequence[str], wanted: Sequence[str] | datetime) -> Any:
    if isinstance(wanted, datetime):
        return Filter.by_property(fields[0]).greater_or_equal(wanted)
    return Filter.any_of([one_of(field, wanted) for field in fields])
