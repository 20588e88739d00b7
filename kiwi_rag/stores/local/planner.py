"""The search of a local store: how it is executed, the scores of both legs, and those of whole items."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kiwi_rag.errors import FingerprintMismatch
from kiwi_rag.lexical import K1, B, bm25_weights
from kiwi_rag.model import Candidate, Candidates, ItemScores, StoreQuery
from kiwi_rag.stores.local.snapshot import Cosines, Snapshot, best, distinct

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kiwi_rag.model import Vector
    from kiwi_rag.stores.local.snapshot import Posting, Rows

    Numbers = NDArray[np.float64]
    WeightedPostings = Mapping[str, tuple[float, Posting]]


EXACT_LIMIT = 50_000
"""Up to so many passages the matrix product is as fast as Chroma, and its recall is 1."""

Nearest = Callable[["Vector", int], "list[int] | None"]
"""Returns the keys of the nearest passages from Chroma; None when it cannot be used now."""


def search(
    connection: sqlite3.Connection, snapshot: Snapshot, query: StoreQuery, nearest: Nearest, exact_limit: int
) -> Candidates:
    """Return the union of both legs' best passages, inside one read transaction.

    Raises
    ------
    FingerprintMismatch
        When the query's vector is of another model than the stored ones.
    """
    if not len(snapshot):
        return Candidates((), "exact")
    if (snapshot.fingerprint, snapshot.dimension) != (query.fingerprint, len(query.vector)):
        raise FingerprintMismatch(
            f"the stored vectors are of {snapshot.fingerprint}, the query's is of {query.fingerprint}",
            hint="index again with one model: kiwi index --rebuild",
        )
    legs = _Legs(connection, snapshot, query)
    vector_rows, plan = legs.nearest(nearest, exact_limit)
    rows = distinct(np.sort(np.concatenate([vector_rows, legs.best_words()])))
    return Candidates(tuple(legs.candidates(rows)) if len(rows) else (), plan)


class _Legs:
    """Both legs of one search in one read transaction: what they find, and the scores of passages and items.

    ``bm25`` is that of every passage of the snapshot, by row; ``weighted`` each query term's inverse document
    frequency and its postings by row; ``allowed`` which rows pass the filters, None for all.
    """

    def __init__(self, connection: sqlite3.Connection, snapshot: Snapshot, query: StoreQuery) -> None:
        self._connection, self._snapshot, self._query = connection, snapshot, query
        self._allowed = snapshot.matching(connection, query.filters)
        weights = bm25_weights(query.statistics, query.terms)
        self._weighted = {term: (weight, snapshot.posting(connection, term)) for term, weight in weights.items()}
        self._bm25 = np.zeros(len(snapshot))
        add_bm25(self._bm25, snapshot.lengths, self._weighted, query.statistics.average_length)
        self._cosines = Cosines(snapshot, query.vector)

    def best_words(self) -> Rows:
        """Return the rows of the best passages of the lexical leg."""
        matches = self._bm25 > 0 if self._allowed is None else (self._bm25 > 0) & self._allowed
        rows = np.flatnonzero(matches)
        return rows[best(self._bm25[rows], self._query.depth)]

    def nearest(self, nearest: Nearest, exact_limit: int) -> tuple[Rows, str]:
        """Return the rows of the best passages of the vector leg, and how they were found."""
        snapshot, query = self._snapshot, self._query
        if self._allowed is None and len(snapshot) > exact_limit:
            keys = nearest(query.vector, min(query.depth, len(snapshot)))
            if keys is not None:
                return _rows_of(snapshot, keys), "chroma"
        if self._allowed is None or len(snapshot) <= exact_limit:
            snapshot.matrix(self._connection)
        if self._allowed is None:
            return best(self._cosines.all(self._connection), query.depth), "exact"
        rows = np.flatnonzero(self._allowed)
        return rows[best(self._cosines.of(self._connection, rows), query.depth)], "exact"

    def candidates(self, rows: Rows) -> Iterator[Candidate]:
        """Yield the passages of some ascending rows with all scores."""
        snapshot, scores = self._snapshot, self._item_scores(rows)
        keys, item_keys = snapshot.keys[rows].tolist(), snapshot.item_keys[rows].tolist()
        passages = snapshot.details.passages(self._connection, keys)
        items = snapshot.details.items(self._connection, scores)
        legs = self._cosines.of(self._connection, rows).tolist(), self._bm25[rows].tolist()
        for key, item_key, cosine, words in zip(keys, item_keys, *legs, strict=True):
            ref, digest, content, metadata, key_id, signed_at = items[item_key]
            passage, item = passages[key], scores[item_key]
            yield Candidate(ref, digest, content, passage, cosine, words, metadata, key_id, signed_at, item)

    def _item_scores(self, rows: Rows) -> dict[int, ItemScores]:
        """Return item key → scores, for the items that the rows belong to."""
        snapshot = self._snapshot
        items = distinct(np.sort(snapshot.item_keys[rows]))
        siblings, starts = snapshot.passages_of(items)
        similarity = self._cosines.of(self._connection, siblings).astype(np.float64)
        # `reduceat` reduces each item's passages: `siblings` has them item by item, `starts` the first of each.
        sums, norms = np.add.reduceat(similarity, starts), snapshot.centroid_norms(self._connection, items)
        columns = (
            np.maximum.reduceat(similarity, starts),
            similarity[starts],
            # The cosine of the mean of an item's unit vectors: Σ cosines / |Σ vectors|.
            np.clip(np.divide(sums, norms, out=np.zeros_like(sums), where=norms > 0), -1.0, 1.0),
            np.maximum.reduceat(self._bm25[siblings], starts),
            self._item_bm25(siblings, starts),
        )
        scored = zip(*(column.tolist() for column in columns), strict=True)
        return {key: ItemScores(*scores) for key, scores in zip(items.tolist(), scored, strict=True)}

    def _item_bm25(self, siblings: Rows, starts: Rows) -> Numbers:
        """Return the BM25 of each item as one document, with the added frequencies and lengths of its passages."""
        scores, count = np.zeros(len(starts)), len(starts)
        if not self._weighted:
            return scores
        # The number of each passage's item; `count` for the passages of other items, whose frequencies are dropped.
        number: NDArray[Any] = np.full(len(self._snapshot), count)
        number[siblings] = np.repeat(np.arange(count), np.diff(starts, append=len(siblings)))
        lengths = np.add.reduceat(self._snapshot.lengths[siblings], starts)
        norm = K1 * (1 - B + B * lengths / self._query.statistics.average_item_length)
        for weight, (rows, frequencies) in self._weighted.values():
            tf = np.bincount(number[rows], weights=frequencies, minlength=count + 1)[:count]
            scores += weight * tf * (K1 + 1) / (tf + norm)
        return scores


def _rows_of(snapshot: Snapshot, keys: list[int]) -> Rows:
    wanted = np.array(sorted(keys), dtype=np.int64)
    rows: Rows = np.searchsorted(snapshot.keys, wanted).clip(max=len(snapshot) - 1)
    found: Rows = rows[snapshot.keys[rows] == wanted]
    return found


def add_bm25(
    scores: Numbers,
    lengths: Numbers,
    weighted: WeightedPostings,
    average_length: float,
) -> None:
    """Add the BM25 of every term to `scores`, in place; `weighted` has their weights, and their postings in rows."""
    # The formula and the order of terms of `kiwi_rag.lexical.bm25`: in another order the sums would differ by rounding.
    for weight, (rows, tf) in weighted.values():
        norm = K1 * (1 - B + B * lengths[rows] / average_length)
        scores[rows] += weight * tf * (K1 + 1) / (tf + norm)
