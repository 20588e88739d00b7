"""One generation of the catalog in memory, as searches need it: keys, lengths, vectors, and the postings read so far.

FTS5's own ``bm25()`` uses the statistics of this collection only. A search gives its statistics, so that several tiers
rank as one. So FTS5 is used for postings and document frequencies alone, and NumPy computes the sums.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kiwi_rag.lexical import MAX_CANDIDATES, MAX_TERMS, find_similar, max_edits, split_halves, swap_middle
from kiwi_rag.model import CollectionStatistics, Filters
from kiwi_rag.stores.local.catalog import matching_items, meta, state
from kiwi_rag.stores.local.records import DetailsCache

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kiwi_rag.model import Vector

    Rows = NDArray[np.int64]
    Matrix = NDArray[np.float32]
    Posting = tuple[NDArray[np.int64], NDArray[np.float64]]

MAX_CACHED_TERMS = 4096
BLOCK = 200_000  # floats in one block of the matrix product

_SIMILAR = """
SELECT term FROM posting_terms
WHERE term >= :first AND term < :after AND length(term) BETWEEN :least AND :most
    AND (substr(term, 1, length(:begin)) = :begin OR substr(term, -length(:end)) = :end OR term = :swapped)
ORDER BY doc DESC, term LIMIT :limit
"""
_SOME_VECTORS = """
SELECT vector FROM vectors WHERE passage_key IN (SELECT value FROM json_each(?)) ORDER BY passage_key
"""


class Snapshot:
    """One generation of a catalog. A row number *r* is that of the passage with key ``keys[r]``; keys ascend.

    It is valid only inside a read transaction that sees the same generation, which `is_current` tells.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.state = state(connection)
        self.fingerprint = str(meta(connection, "fingerprint"))
        self.dimension = int(meta(connection, "dimension"))
        # The covering index alone answers this query, so that the texts of the passages are not read.
        rows = _execute(connection, "SELECT passage_key, item_key, length FROM passages INDEXED BY passages_by_item")
        table = np.array(rows.fetchall(), dtype=np.int64).reshape(-1, 3)
        # The table is in the index's order, by item and ordinal: an item's passages are next to each other in it.
        # `order` sorts it by passage key; `_by_item`, its inverse, leads from a place in the table to a row number.
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
        """Return all vectors, of shape ``(rows, dimension)``; they are read once."""
        if self._matrix is None:
            blobs = _execute(connection, "SELECT vector FROM vectors ORDER BY passage_key")
            self._matrix = _stack(blobs, self.dimension)
        return self._matrix

    def vectors(self, connection: sqlite3.Connection, rows: Rows) -> Matrix:
        """Return the vectors of some distinct rows, in their order, from the matrix if it was read."""
        if self._matrix is not None:
            return self._matrix[rows]
        stored = _execute(connection, _SOME_VECTORS, json.dumps(self.keys[rows].tolist()))
        # SQLite gives them by key, that is by row number. The rank of each row is its place there.
        return _stack(stored, self.dimension)[np.argsort(np.argsort(rows))]

    def passages_of(self, items: Rows) -> tuple[Rows, Rows]:
        """Return the rows of all passages of some ascending items, item by item, and where each item begins."""
        begin, end = (np.searchsorted(self._item_order, items, side) for side in ("left", "right"))
        counts = end - begin
        starts = np.cumsum(counts) - counts
        # The concatenated ranges begin[i]:end[i], without a loop: a running number, shifted for each item.
        return self._by_item[np.arange(counts.sum()) + np.repeat(begin - starts, counts)], starts

    def posting(self, connection: sqlite3.Connection, term: str) -> Posting:
        """Return the rows that have `term`, and how often each has it."""
        found = self._postings.get(term)
        if found is None:
            keys, counts = read_posting(connection, term)
            found = np.searchsorted(self.keys, keys), counts
            if len(self._postings) >= MAX_CACHED_TERMS:
                self._postings.clear()
            self._postings[term] = found
        return found

    def statistics(self, connection: sqlite3.Connection, terms: Sequence[str]) -> CollectionStatistics:
        """Return the number and total length of passages, and the document frequency of each term that occurs.

        Whole postings are read, because the search that follows needs them, and FTS5 counts no faster.
        """
        frequency = {term: len(self.posting(connection, term)[0]) for term in terms}
        occurring = {term: count for term, count in frequency.items() if count}
        return CollectionStatistics(len(self), int(self.lengths.sum()), occurring, self.items)

    @property
    def items(self) -> int:
        """The number of items."""
        return len(self._items)

    def matching(self, connection: sqlite3.Connection, filters: Filters) -> NDArray[np.bool_] | None:
        """Return which rows match the filters; None when there are none."""
        if filters.is_empty:
            return None
        return np.isin(self.item_keys, np.array(matching_items(connection, filters), dtype=np.int64))

    def centroid_norms(self, connection: sqlite3.Connection, items: Rows) -> NDArray[np.float64]:
        """Return the length of the sum of each item's vectors, computed once for each; items ascend."""
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
        self._computed = np.full(len(snapshot), np.nan, dtype=np.float32)

    def all(self, connection: sqlite3.Connection) -> NDArray[np.float32]:
        """Return the cosine of every row."""
        self._computed = np.clip(products(self._snapshot.matrix(connection), self._vector), -1.0, 1.0)
        return self._computed

    def of(self, connection: sqlite3.Connection, rows: Rows) -> NDArray[np.float32]:
        """Return the cosines of some distinct rows."""
        unknown = rows[np.isnan(self._computed[rows])]
        if len(unknown):
            vectors = self._snapshot.vectors(connection, unknown)
            self._computed[unknown] = np.clip(products(vectors, self._vector), -1.0, 1.0)
        return self._computed[rows]


def read_posting(connection: sqlite3.Connection, term: str) -> Posting:
    """Return the passages that have `term`: keys, ascending, and how often each has it."""
    # One concatenated value instead of one row for each occurrence: a third of the time for a common term.
    joined = connection.execute("SELECT group_concat(doc) FROM posting_instances WHERE term = ?", (term,)).fetchone()[0]
    occurrences = np.fromstring(joined or "", dtype=np.int64, sep=",")
    keys, counts = np.unique(occurrences, return_counts=True)
    return keys, counts.astype(np.float64)


def similar_terms(connection: sqlite3.Connection, terms: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the indexed terms that each term may be a misspelling of, the most frequent first."""
    checked = [term for term in dict.fromkeys(terms) if max_edits(term)]
    return {term: _similar(connection, term) for term in checked[:MAX_TERMS]}


def _similar(connection: sqlite3.Connection, term: str) -> tuple[str, ...]:
    begin, end = split_halves(term)
    # FTS5 keeps its terms in order, so that only those with the same first letter are read.
    parameters: dict[str, str | int] = {
        "first": term[0],
        "after": chr(ord(term[0]) + 1),
        "begin": begin,
        "end": end,
        "swapped": swap_middle(term),
    }
    parameters |= {"least": len(term) - 2, "most": len(term) + 2, "limit": MAX_CANDIDATES}
    found = [row[0] for row in connection.execute(_SIMILAR, parameters)]
    similar = find_similar(term, found)
    return tuple(other for other in found if other in similar)


def products(matrix: Matrix, vector: Vector) -> NDArray[np.float32]:
    """Return ``matrix @ vector``."""
    # In blocks too small for BLAS to spread over threads. The product is bound by memory, so that threads gain nothing,
    # and waiting for them on busy cores made it twenty times slower (10,000 × 384 on two: 9.9 ms against 0.5 ms).
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
    """Return each number of an ascending array once, as `numpy.unique` does."""
    # `numpy.unique` imports masked arrays at its first call, which takes 20 ms.
    if not len(ordered):
        return ordered
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]


def _execute(connection: sqlite3.Connection, statement: str, *parameters: str) -> sqlite3.Cursor:
    # Tuples instead of `sqlite3.Row`, which NumPy takes several times as long to read.
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(statement, parameters)


def _stack(blobs: sqlite3.Cursor, dimension: int) -> Matrix:
    joined = b"".join(row[0] for row in blobs)
    return np.frombuffer(joined, dtype="<f4").reshape(-1, dimension) if joined else np.empty((0, dimension), "<f4")
