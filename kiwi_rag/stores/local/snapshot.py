"""One generation of a catalog in memory: keys, lengths, vectors and postings, each read once, and rows of items.

Blocking; a snapshot is valid only inside a read transaction that sees the same generation.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from kiwi_rag.lexical import MAX_CANDIDATES, MAX_TERMS, find_similar, max_edits, split_halves, swap_middle
from kiwi_rag.model import CollectionStatistics, Filters, ItemRef, Passage
from kiwi_rag.stores.local.catalog import PASSAGES, item_ref, matching_items, meta, read_passage, state

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]
    Matrix = NDArray[np.float32]
    Posting = tuple[Rows, NDArray[np.float64]]

MAX_CACHED_TERMS = 4096
MAX_ADDED = 2_000
"""Passages by which a snapshot is extended; with more it is read anew."""
MAX_CACHED = 20_000  # items, and passages
Shared = tuple[tuple[ItemRef, str, str], tuple[Mapping[str, Any], str, datetime]]
"""What all candidates of an item have in common: the fields of `Candidate` before and after those of the passage."""
_Cached = TypeVar("_Cached")
_READ_TOGETHER = 4_096  # vectors
_SIMILAR = """
SELECT term FROM posting_terms
WHERE term >= :first AND term < :after AND length(term) BETWEEN :least AND :most
    AND (substr(term, 1, length(:begin)) = :begin OR substr(term, -length(:end)) = :end OR term = :swapped)
ORDER BY doc DESC, term LIMIT :limit
"""
# The covering index alone answers this query, so that the texts of the passages are not read.
_ALL = "SELECT passage_key, item_key, length FROM passages INDEXED BY passages_by_item"
_ADDED = "SELECT passage_key, item_key, length FROM passages WHERE passage_key > ? ORDER BY item_key, ordinal"
_ALL_VECTORS = "SELECT passage_key, vector FROM vectors ORDER BY passage_key"
_SOME_VECTORS = """
SELECT passage_key, vector FROM vectors WHERE passage_key IN (SELECT value FROM json_each(?)) ORDER BY passage_key
"""
_ITEMS = """
SELECT item_key, item_type, item_id, version, digest, content_sha256, metadata, key_id, signed_at
FROM items WHERE item_key IN (SELECT value FROM json_each(?))
"""


class Snapshot:
    """One generation of a catalog. A row number *r* is that of the passage with key ``keys[r]``; keys ascend.

    It is valid only inside a read transaction that sees the same generation, which `is_current` tells.
    """

    def __init__(self, connection: Connection) -> None:
        self.state = state(connection)
        self.fingerprint = str(meta(connection, "fingerprint"))
        self.dimension = int(meta(connection, "dimension"))
        self.keys = self.item_keys = self._items = self._item_order = self._by_item = np.empty(0, np.int64)
        self.lengths = self._norms = np.empty(0, np.float64)
        self._add(_execute(connection, _ALL))
        self._read_items: dict[int, Shared] = {}
        self._read_passages: dict[int, Passage] = {}
        self.embedded = self._rows_with_vectors(connection)
        self._matrix: _GrowingMatrix | None = None
        self._postings: dict[str, Posting] = {}

    def __len__(self) -> int:
        return len(self.keys)

    def is_current(self, connection: Connection) -> bool:
        """Whether `connection` still sees this generation."""
        return self.state == state(connection)

    def extend(self, connection: Connection) -> bool:
        """Add the passages that `connection` sees since this generation; False if something else was changed.

        What was read is kept, so that a search after a small write costs as much as one before it.
        """
        added = _execute(connection, _ADDED, int(self.keys[-1]) if len(self) else 0).fetchall()
        total = len(self) + len(added)
        # Keys are never used again: if the count is right, none of the old passages was removed.
        is_other = self.state.partition("/")[0] != state(connection).partition("/")[0]
        if is_other or not len(self) or not 0 < len(added) <= MAX_ADDED or int(meta(connection, "passages")) != total:
            return False
        if int(meta(connection, "vectors")) != total or not self.embedded.all():
            return False
        keys = self._add(added)
        self.embedded = np.ones(len(self), bool)
        if self._matrix is not None:
            stored = _execute(connection, _SOME_VECTORS, json.dumps(keys.tolist()))
            self._matrix.append(_stack(stored, self.dimension, keys))
        self._extend_postings(connection, keys)
        self.state = state(connection)
        return True

    def _add(self, passages: Iterable[tuple[int, int, int]]) -> Rows:
        """Add passages, given as key, item and length in the order of items and ordinals; return the keys, ascending.

        An item's passages are next to each other in this order. `order` sorts them by key; its inverse, in `_by_item`,
        leads from a place in the order to a row number.
        """
        table = np.array(list(passages), dtype=np.int64).reshape(-1, 3)
        count, order, items = len(self), np.argsort(table[:, 0]), distinct(table[:, 1])
        self._by_item = np.concatenate([self._by_item, count + np.argsort(order)])
        self._item_order = np.concatenate([self._item_order, table[:, 1]])
        self._items = np.concatenate([self._items, items])
        self._norms = np.concatenate([self._norms, np.full(len(items), np.nan)])
        self.keys = np.concatenate([self.keys, table[order, 0]])
        self.item_keys = np.concatenate([self.item_keys, table[order, 1]])
        self.lengths = np.concatenate([self.lengths, table[order, 2]])
        return self.keys[count:]

    def _extend_postings(self, connection: Connection, keys: Rows) -> None:
        found: dict[str, list[tuple[int, int]]] = {}
        for row, key in enumerate(keys.tolist(), start=len(self) - len(keys)):
            terms = _execute(connection, "SELECT terms FROM postings WHERE rowid = ?", key).fetchone()[0]
            for term, count in Counter(terms.split(" ")).items():
                found.setdefault(term, []).append((row, count))
        for term in found.keys() & self._postings.keys():
            rows, counts = zip(*found[term], strict=True)
            before = self._postings[term]
            self._postings[term] = np.concatenate([before[0], rows]), np.concatenate([before[1], counts])

    def _rows_with_vectors(self, connection: Connection) -> NDArray[np.bool_]:
        """Return which rows have a vector."""
        if meta(connection, "vectors") == len(self):
            return np.ones(len(self), bool)
        keys = np.array([row[0] for row in _execute(connection, "SELECT passage_key FROM vectors")], np.int64)
        return np.isin(self.keys, keys)

    def matrix(self, connection: Connection) -> Matrix:
        """Return all vectors, of shape ``(rows, dimension)``, zeros where there is none; they are read once."""
        if self._matrix is None:
            self._matrix = _GrowingMatrix(_stack(_execute(connection, _ALL_VECTORS), self.dimension, self.keys))
        return self._matrix.rows

    def vectors(self, connection: Connection, rows: Rows) -> Matrix:
        """Return the vectors of some distinct rows, in their order, zeros where there is none."""
        if self._matrix is not None:
            return self._matrix.rows[rows]
        keys = self.keys[rows]
        stored = _execute(connection, _SOME_VECTORS, json.dumps(keys.tolist()))
        # SQLite gives them by key, that is by row number. The rank of each row is its place there.
        return _stack(stored, self.dimension, np.sort(keys))[np.argsort(np.argsort(rows))]

    def passages_of(self, items: Rows) -> tuple[Rows, Rows]:
        """Return the rows of all passages of some ascending items, item by item, and where each item begins."""
        begin, end = (np.searchsorted(self._item_order, items, side) for side in ("left", "right"))
        counts = end - begin
        starts = np.cumsum(counts) - counts
        # The concatenated ranges begin[i]:end[i], without a loop: a running number, shifted for each item.
        return self._by_item[np.arange(counts.sum()) + np.repeat(begin - starts, counts)], starts

    def posting(self, connection: Connection, term: str) -> Posting:
        """Return the rows that have `term`, and how often each has it."""
        found = self._postings.get(term)
        if found is None:
            keys, counts = read_posting(connection, term)
            found = np.searchsorted(self.keys, keys), counts
            if len(self._postings) >= MAX_CACHED_TERMS:
                self._postings.clear()
            self._postings[term] = found
        return found

    def statistics(self, connection: Connection, terms: Sequence[str]) -> CollectionStatistics:
        """Return the number and total length of passages, and the document frequency of each term that occurs.

        Whole postings are read, because the search that follows needs them, and FTS5 counts no faster.
        """
        frequency = {term: len(self.posting(connection, term)[0]) for term in terms}
        occurring = {term: count for term, count in frequency.items() if count}
        unembedded = int(np.count_nonzero(~self.embedded))
        return CollectionStatistics(len(self), int(self.lengths.sum()), occurring, len(self._items), unembedded)

    def passages(self, connection: Connection, keys: Iterable[int]) -> Mapping[int, Passage]:
        """Return a mapping with at least these passages, by their keys."""
        return _complete(connection, self._read_passages, keys, PASSAGES, read_passage)

    def items(self, connection: Connection, keys: Iterable[int]) -> Mapping[int, Shared]:
        """Return a mapping with at least these items: what all candidates of one share, in the order of `Candidate`."""
        return _complete(connection, self._read_items, keys, _ITEMS, _shared)

    def matching(self, connection: Connection, filters: Filters) -> NDArray[np.bool_] | None:
        """Return which rows match the filters; None when there are none."""
        if filters == Filters():
            return None
        return np.isin(self.item_keys, np.array(matching_items(connection, filters), dtype=np.int64))

    def centroid_norms(self, connection: Connection, items: Rows) -> NDArray[np.float64]:
        """Return the length of the sum of each item's vectors, computed once for each; items ascend."""
        unknown = items[np.isnan(self._norms[np.searchsorted(self._items, items)])]
        if len(unknown):
            rows, starts = self.passages_of(unknown)
            sums = np.add.reduceat(self.vectors(connection, rows), starts).astype(np.float64)
            # The unknown vectors lengthen a sum by 1 each at most, so that no centroid's cosine is too high.
            missing = np.add.reduceat(~self.embedded[rows], starts, dtype=np.float64)
            self._norms[np.searchsorted(self._items, unknown)] = np.linalg.norm(sums, axis=1) + missing
        return self._norms[np.searchsorted(self._items, items)]


class _GrowingMatrix:
    """A matrix to which rows are added without copying those that it has, as long as there is room for them."""

    def __init__(self, rows: Matrix) -> None:
        self.rows = self._room = rows

    def append(self, added: Matrix) -> None:
        """Add rows at the end."""
        count = len(self.rows)
        if count + len(added) > len(self._room):
            self._room = np.empty((count + count // 8 + len(added) + 64, self.rows.shape[1]), np.float32)
            self._room[:count] = self.rows
        self._room[count : count + len(added)] = added
        self.rows = self._room[: count + len(added)]


def _complete(
    connection: Connection,
    cache: dict[int, _Cached],
    keys: Iterable[int],
    query: str,
    read: Callable[[sqlite3.Row], _Cached],
) -> Mapping[int, _Cached]:
    """Return `cache`, having read the keys that it lacked."""
    if len(cache) > MAX_CACHED:
        cache.clear()
    if missing := [key for key in keys if key not in cache]:
        cache.update((row[0], read(row)) for row in connection.execute(query, (json.dumps(missing),)))
    return cache


def _shared(row: sqlite3.Row) -> Shared:
    signed = json.loads(row["metadata"]), row["key_id"], datetime.fromisoformat(row["signed_at"])
    return (item_ref(row), row["digest"], row["content_sha256"]), signed


def read_posting(connection: Connection, term: str) -> Posting:
    """Return the passages that have `term`: keys, ascending, and how often each has it."""
    # One concatenated value instead of one row for each occurrence: a third of the time for a common term.
    joined = connection.execute("SELECT group_concat(doc) FROM posting_instances WHERE term = ?", (term,)).fetchone()[0]
    occurrences = np.fromstring(joined or "", dtype=np.int64, sep=",")
    keys, counts = np.unique(occurrences, return_counts=True)
    return keys, counts.astype(np.float64)


def similar_terms(connection: Connection, terms: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the indexed terms that each term may be a misspelling of, the most frequent first."""
    checked = [term for term in dict.fromkeys(terms) if max_edits(term)]
    return {term: _similar(connection, term) for term in checked[:MAX_TERMS]}


def _similar(connection: Connection, term: str) -> tuple[str, ...]:
    begin, end = split_halves(term)
    # FTS5 keeps its terms in order, so that only those with the same first letter are read.
    letters = {"first": term[0], "after": chr(ord(term[0]) + 1), "begin": begin, "end": end}
    limits = {"least": len(term) - 2, "most": len(term) + 2, "limit": MAX_CANDIDATES}
    parameters = {**letters, **limits, "swapped": swap_middle(term)}
    found = [row[0] for row in connection.execute(_SIMILAR, parameters)]
    similar = find_similar(term, found)
    return tuple(other for other in found if other in similar)


def distinct(ordered: Rows) -> Rows:
    """Return each number of an ascending array once, as `numpy.unique` does."""
    # `numpy.unique` imports masked arrays at its first call, which takes 20 ms.
    if not len(ordered):
        return ordered
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]


def _execute(connection: Connection, statement: str, *parameters: str | int) -> sqlite3.Cursor:
    # Tuples instead of `sqlite3.Row`, which NumPy takes several times as long to read.
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(statement, parameters)


def _stack(stored: sqlite3.Cursor, dimension: int, wanted: Rows) -> Matrix:
    """Return the vectors of the passages with some ascending keys, zeros where there is none."""
    # A part at a time: all blobs at once would take the memory of two more matrices.
    matrix = np.zeros((len(wanted), dimension), "<f4")
    while rows := stored.fetchmany(_READ_TOGETHER):
        found = np.frombuffer(b"".join(row[1] for row in rows), dtype="<f4").reshape(-1, dimension)
        matrix[np.searchsorted(wanted, [row[0] for row in rows])] = found
    return matrix
