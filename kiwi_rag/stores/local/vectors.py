"""What a reader keeps in memory of one generation of the catalog: keys, lengths, the matrix, postings it has met."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kiwi_rag.model import CollectionStatistics, Filters
from kiwi_rag.stores.local.catalog import matching_items, meta, state
from kiwi_rag.stores.local.postings import posting
from kiwi_rag.stores.local.records import DetailsCache

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kiwi_rag.model import Vector
    from kiwi_rag.stores.local.postings import Posting

    Rows = NDArray[np.int64]
    Matrix = NDArray[np.float32]

MAX_CACHED_TERMS = 4096
BLOCK = 200_000  # numbers a block of the matrix product

_SOME_VECTORS = """
SELECT vector FROM vectors WHERE passage_key IN (SELECT value FROM json_each(?)) ORDER BY passage_key
"""


class Snapshot:
    """One generation of a catalog. Row *r* everywhere means the passage with key ``keys[r]``; keys ascend.

    Only valid inside a read transaction that sees the same generation; `is_current` says whether it does.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.state = state(connection)
        self.fingerprint = str(meta(connection, "fingerprint"))
        self.dimension = int(meta(connection, "dimension"))
        # The covering index alone answers this; the passages' texts are not read.
        shape = _plain(connection, "SELECT passage_key, item_key, length FROM passages INDEXED BY passages_by_item")
        table = np.array(shape.fetchall(), dtype=np.int64).reshape(-1, 3)  # in the index's order: by item, then ordinal
        order = np.argsort(table[:, 0])
        self._by_item = np.argsort(order)
        self._item_order = table[:, 1]
        self._items = distinct(self._item_order)
        self._norms = np.full(len(self._items), np.nan)
        table = table[order]
        self.keys, self.item_keys = np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])
        self.lengths: NDArray[np.float64] = table[:, 2].astype(np.float64)
        self.details = DetailsCache()
        self._matrix: Matrix | None = None
        self._postings: dict[str, Posting] = {}

    def __len__(self) -> int:
        return len(self.keys)

    def is_current(self, connection: sqlite3.Connection) -> bool:
        """Whether `connection` still sees this generation."""
        return self.state == state(connection)

    def matrix(self, connection: sqlite3.Connection) -> Matrix:
        """Return all vectors, shape ``(rows, dimension)``, read once."""
        if self._matrix is None:
            blobs = _plain(connection, "SELECT vector FROM vectors ORDER BY passage_key")
            self._matrix = _stack(blobs, self.dimension)
        return self._matrix

    def vectors(self, connection: sqlite3.Connection, rows: Rows) -> Matrix:
        """Return the vectors of some distinct rows, in their order, from memory when the matrix is there."""
        if self._matrix is not None:
            return self._matrix[rows]
        stored = _plain(connection, _SOME_VECTORS, json.dumps(self.keys[rows].tolist()))
        return _stack(stored, self.dimension)[np.argsort(np.argsort(rows))]

    def passages_of(self, items: Rows) -> tuple[Rows, Rows]:
        """Return the rows of all passages of some ascending items, item by item, and where each item begins."""
        begin, end = (np.searchsorted(self._item_order, items, side) for side in ("left", "right"))
        counts = end - begin
        starts = np.cumsum(counts) - counts
        return self._by_item[np.arange(counts.sum()) + np.repeat(begin - starts, counts)], starts

    def posting(self, connection: sqlite3.Connection, term: str) -> Posting:
        """Return the rows that have `term`, and how often each has it."""
        found = self._postings.get(term)
        if found is None:
            keys, counts = posting(connection, term)
            found = np.searchsorted(self.keys, keys), counts
            if len(self._postings) >= MAX_CACHED_TERMS:
                self._postings.clear()
            self._postings[term] = found
        return found

    def statistics(self, connection: sqlite3.Connection, terms: Sequence[str]) -> CollectionStatistics:
        """Return N, total length and the document frequency of each term that occurs.

        Reads whole postings, because the search that follows needs them: counting alone is no cheaper in FTS5.
        """
        frequency = {term: len(self.posting(connection, term)[0]) for term in terms}
        occurring = {term: count for term, count in frequency.items() if count}
        return CollectionStatistics(len(self), int(self.lengths.sum()), occurring, self.items)

    @property
    def items(self) -> int:
        """How many items the passages are of."""
        return len(self._items)

    def matching(self, connection: sqlite3.Connection, filters: Filters) -> NDArray[np.bool_] | None:
        """Return which rows pass the filters; None when nothing is narrowed."""
        if filters.is_empty:
            return None
        return np.isin(self.item_keys, np.array(matching_items(connection, filters), dtype=np.int64))

    def centroid_norms(self, connection: sqlite3.Connection, items: Rows) -> NDArray[np.float64]:
        """Return the length of the sum of each item's vectors; items ascend. Kept once it is known."""
        unknown = items[np.isnan(self._norms[np.searchsorted(self._items, items)])]
        if len(unknown):
            rows, starts = self.passages_of(unknown)
            sums = np.add.reduceat(self.vectors(connection, rows), starts).astype(np.float64)
            self._norms[np.searchsorted(self._items, unknown)] = np.linalg.norm(sums, axis=1)
        norms: NDArray[np.float64] = self._norms[np.searchsorted(self._items, items)]
        return norms


class Cosines:
    """The cosines of one query's vector with the passages of a snapshot, each computed once."""

    def __init__(self, snapshot: Snapshot, vector: Vector) -> None:
        self._snapshot, self._vector = snapshot, vector
        self._known = np.full(len(snapshot), np.nan, dtype=np.float32)

    def all(self, connection: sqlite3.Connection) -> NDArray[np.float32]:
        """Return the cosine of every row."""
        self._known = np.clip(products(self._snapshot.matrix(connection), self._vector), -1.0, 1.0)
        return self._known

    def of(self, connection: sqlite3.Connection, rows: Rows) -> NDArray[np.float32]:
        """Return the cosines of some distinct rows."""
        unknown = rows[np.isnan(self._known[rows])]
        if len(unknown):
            vectors = self._snapshot.vectors(connection, unknown)
            self._known[unknown] = np.clip(products(vectors, self._vector), -1.0, 1.0)
        return self._known[rows]


def products(matrix: Matrix, vector: Vector) -> NDArray[np.float32]:
    """Return ``matrix @ vector``, in blocks too small for BLAS to spread over threads.

    The product is bound by memory, so threads gain nothing; where other processes keep the cores busy, waiting for
    them made it twenty times slower (10,000 × 384 on two busy cores: 9.9 ms against 0.5 ms).
    """
    scores = np.empty(len(matrix), dtype=np.float32)
    step = max(1, BLOCK // max(1, matrix.shape[1]))
    for start in range(0, len(matrix), step):
        np.matmul(matrix[start : start + step], vector, out=scores[start : start + step])
    return scores


def best(scores: NDArray[Any], depth: int) -> Rows:
    """Return the positions of the `depth` highest scores, in no particular order."""
    if depth >= len(scores):
        return np.arange(len(scores))
    return np.argpartition(scores, len(scores) - depth)[len(scores) - depth :]


def distinct(ordered: Rows) -> Rows:
    """Return each number of an ascending array once: `numpy.unique`, without its import of masked arrays (20 ms)."""
    if not len(ordered):
        return ordered
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]


def _plain(connection: sqlite3.Connection, statement: str, *parameters: str) -> sqlite3.Cursor:
    # Tuples in place of `sqlite3.Row`: NumPy takes several times as long to read a Row.
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(statement, parameters)


def _stack(blobs: sqlite3.Cursor, dimension: int) -> Matrix:
    joined = b"".join(row[0] for row in blobs)
    return np.frombuffer(joined, dtype="<f4").reshape(-1, dimension) if joined else np.empty((0, dimension), "<f4")
