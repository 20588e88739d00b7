"""A class of a Weaviate server, in process: objects, filters, BM25 over words and cosine over vectors.

As strict as the server where Kiwi could go wrong: a property has to be in the schema, to be indexed for what it is
used for, and to have values of its type; vectors of a class have one size.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from weaviate.proto.v1 import base_pb2

Predicate = Callable[["Stored"], bool]
_FILTERS = base_pb2.Filters
_COMPARED: Mapping[int, Callable[[Any, Any], bool]] = {
    _FILTERS.OPERATOR_GREATER_THAN: lambda one, other: one > other,
    _FILTERS.OPERATOR_GREATER_THAN_EQUAL: lambda one, other: one >= other,
    _FILTERS.OPERATOR_LESS_THAN: lambda one, other: one < other,
    _FILTERS.OPERATOR_LESS_THAN_EQUAL: lambda one, other: one <= other,
    _FILTERS.OPERATOR_EQUAL: lambda one, other: one == other,
}


@dataclass
class Stored:
    """An object."""

    id: str
    properties: dict[str, Any]
    vectors: dict[str, np.ndarray]


class WeaviateClass:
    """The objects of one class. `schema` is that of the REST interface."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self.objects: dict[str, Stored] = {}
        self.properties = {one["name"]: one for one in schema["properties"]}

    def put(self, stored: Stored) -> None:
        """Store an object in place of that of the same id."""
        for name, value in stored.properties.items():
            self._check_type(name, value)
        for name, vector in stored.vectors.items():
            if name not in self.schema["vectorConfig"]:
                raise ValueError(f"vector {name!r} is not configured")
            sizes = {len(other.vectors[name]) for other in self.objects.values() if name in other.vectors}
            if sizes - {len(vector)}:
                raise ValueError(f"new node has a vector with length {len(vector)}. Existing nodes have {sizes}")
        self.objects[stored.id] = stored

    def matching(self, filters: Any) -> list[Stored]:
        """Return the objects that pass a filter."""
        passes = self.predicate(filters) if filters is not None else lambda _: True
        return [one for one in self.objects.values() if passes(one)]

    def predicate(self, filters: Any) -> Predicate:
        """Compile a filter."""
        operator = filters.operator
        if operator in (_FILTERS.OPERATOR_AND, _FILTERS.OPERATOR_OR):
            inner, decide = (
                [self.predicate(one) for one in filters.filters],
                (all if operator == _FILTERS.OPERATOR_AND else any),
            )
            return lambda stored: decide(one(stored) for one in inner)
        name, wanted = filters.target.property, getattr(filters, filters.WhichOneof("test_value"))
        values = [self._filter_value(name, one) for one in getattr(wanted, "values", [wanted])]
        if operator == _FILTERS.OPERATOR_CONTAINS_ANY:
            return lambda stored: bool(set(values) & set(self._values(stored, name)))
        if operator == _FILTERS.OPERATOR_NOT_EQUAL:
            return lambda stored: values[0] not in self._values(stored, name)
        if operator == _FILTERS.OPERATOR_LIKE:
            text = re.escape(values[0]).replace(r"\*", ".*").replace(r"\?", ".")
            pattern = re.compile(text, re.DOTALL)
            return lambda stored: any(pattern.fullmatch(one) for one in self._values(stored, name))
        compare = _COMPARED[operator]
        return lambda stored: any(compare(one, values[0]) for one in self._values(stored, name))

    def near(self, name: str, vector: np.ndarray, filters: Any, limit: int) -> list[tuple[Stored, float]]:
        """Return the nearest objects with their cosine distances."""
        found = [one for one in self.matching(filters) if name in one.vectors]
        if found and len(found[0].vectors[name]) != len(vector):
            raise ValueError("vector lengths don't match")
        if not found:
            return []
        rows = np.stack([one.vectors[name] for one in found]).astype(np.float64)
        cosines = rows @ vector / np.linalg.norm(rows, axis=1) / np.linalg.norm(vector)
        best = np.argsort(-cosines, kind="stable")[:limit]
        return [(found[at], 1.0 - float(cosines[at])) for at in best]

    def bm25(self, query: str, name: str, filters: Any, limit: int) -> list[tuple[Stored, float]]:
        """Return the best objects by BM25 with the statistics of the class; a word that is repeated weighs more."""
        if not self.properties[name].get("indexSearchable"):
            raise ValueError(f"property {name!r} is not indexed for BM25")
        if self.properties[name]["tokenization"] != "whitespace":
            raise NotImplementedError
        config = self.schema["invertedIndexConfig"]["bm25"]
        counts = {key: Counter(one.properties[name].split()) for key, one in self.objects.items()
                  if one.properties.get(name)}  # fmt: skip
        average = sum(count.total() for count in counts.values()) / max(len(counts), 1)
        scores = Counter[str]()
        for word, repeated in Counter(query.split()).items():
            having = {key: count for key, count in counts.items() if word in count}
            idf = math.log1p((len(counts) - len(having) + 0.5) / (len(having) + 0.5)) * repeated
            for key, count in having.items():
                norm = config["k1"] * (1 - config["b"] + config["b"] * count.total() / average)
                scores[key] += idf * count[word] * (config["k1"] + 1) / (count[word] + norm)
        passing = [(one, scores[one.id]) for one in self.matching(filters) if scores[one.id] > 0]
        return sorted(passing, key=lambda found: -found[1])[:limit]

    def _values(self, stored: Stored, name: str) -> Sequence[Any]:
        if name == "_id":
            return [stored.id]
        value = stored.properties.get(name)
        values = value if isinstance(value, list) else [] if value is None else [value]
        return [self._filter_value(name, one) for one in values]

    def _filter_value(self, name: str, value: Any) -> Any:
        """As the index has it: Weaviate trims what it does not split, and compares times and not their texts."""
        if name == "_id":
            return value
        found = self.properties.get(name)
        if found is None or not found.get("indexFilterable"):
            raise ValueError(f"no such prop with name {name!r} found in class, or it has no index for filters")
        kind = found["dataType"][0]
        if kind == "date":
            return datetime.fromisoformat(value)
        if isinstance(value, str) != kind.startswith("text") or found.get("tokenization", "field") != "field":
            raise ValueError(f"data type filter cannot use {value!r} on {name!r}")
        return value.strip() if isinstance(value, str) else value

    def _check_type(self, name: str, value: Any) -> None:
        kind = self.properties[name]["dataType"][0] if name in self.properties else "nothing"
        right = {
            "text": isinstance(value, str),
            "date": isinstance(value, str) and "T" in value,
            "int": isinstance(value, float) and value.is_integer(),  # a number of JSON
            "text[]": isinstance(value, list) and all(isinstance(one, str) for one in value),
        }
        if not right.get(kind):
            raise ValueError(f"invalid {kind} property {name!r} on class {self.schema['class']!r}: {str(value)[:40]!r}")


def sorted_by(objects: Sequence[Stored], sort: Sequence[Any]) -> Iterator[Stored]:
    """Yield objects in the order of properties."""
    found = list(objects)
    for by in reversed(sort):
        found.sort(key=lambda one, name=by.path[0]: one.properties[name], reverse=not by.ascending)
    yield from found
