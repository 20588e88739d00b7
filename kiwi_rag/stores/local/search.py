"""The search of a local store: both legs over a snapshot of the catalog, and the scores of whole items.

FTS5's own ``bm25()`` uses the statistics of this collection only. A search gives its statistics, so that several tiers
rank as one. So FTS5 is used for postings and document frequencies alone, and NumPy computes the sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import starmap
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any

import numpy as np

from kiwi_rag.lexical import K1, B, bm25_weights
from kiwi_rag.model import Candidate, Candidates, ItemScores, StoreQuery, Vector
from kiwi_rag.stores.base import require_model
from kiwi_rag.stores.local.catalog import REBUILD
from kiwi_rag.stores.local.snapshot import Snapshot, distinct

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kiwi_rag.stores.local.chroma import ChromaIndex
    from kiwi_rag.stores.local.snapshot import Matrix, Posting, Rows

    Numbers = NDArray[np.float64]
    WeightedPostings = Mapping[str, tuple[float, Posting]]

EXACT_LIMIT = 50_000
"""Up to so many passages the matrix product is as fast as Chroma, and its recall is 1."""
BLOCK = 200_000  # floats in one block of the matrix product


def search(connection: Connection, snapshot: Snapshot, query: StoreQuery, chroma: ChromaIndex | None) -> Candidates:
    """Return the union of both legs' best passages, inside one read transaction; without Chroma it is exact.

    Raises
    ------
    FingerprintMismatch
        When the query's vector is of another model than the stored ones.
    """
    if not len(snapshot):
        return Candidates((), "exact")
    if len(query.vector) and snapshot.embedded.any():
        require_model((snapshot.fingerprint, snapshot.dimension), (query.fingerprint, len(query.vector)), REBUILD)
    legs = _Legs(connection, snapshot, query)
    vector_rows, plan = legs.nearest(chroma)
    rows = distinct(np.sort(np.concatenate([vector_rows, legs.best_words()])))
    return Candidates(tuple(legs.candidates(rows)), plan)


class _Legs:
    """Both legs of one search in one read transaction: what they find, and the scores of passages and items.

    ``bm25`` is that of every passage of the snapshot, by row; ``weighted`` each query term's inverse document
    frequency and its postings by row; ``allowed`` which rows pass the filters, None for all. A passage without a
    vector is found by words alone, and its cosine is estimated: that of passages with a vector and such a BM25.
    """

    def __init__(self, connection: Connection, snapshot: Snapshot, query: StoreQuery) -> None:
        self._connection, self._snapshot, self._query = connection, snapshot, query
        self._allowed = snapshot.matching(connection, query.filters)
        weights = bm25_weights(query.statistics, query.terms)
        self._weighted = {term: (weight, snapshot.posting(connection, term)) for term, weight in weights.items()}
        self._bm25 = np.zeros(len(snapshot))
        add_bm25(self._bm25, snapshot.lengths, self._weighted, query.statistics.average_length)
        self._computed = np.full(len(snapshot), np.nan, dtype=np.float32)
        self._embedded = snapshot.embedded if len(query.vector) else np.zeros(len(snapshot), bool)

    def best_words(self) -> Rows:
        """Return the rows of the best passages of the lexical leg."""
        matches = self._bm25 > 0 if self._allowed is None else (self._bm25 > 0) & self._allowed
        rows = np.flatnonzero(matches)
        return rows[best(self._bm25[rows], self._query.depth)]

    def nearest(self, chroma: ChromaIndex | None) -> tuple[Rows, str]:
        """Return the rows of the best passages of the vector leg, and how they were found."""
        snapshot, query = self._snapshot, self._query
        if not self._embedded.any():
            return np.empty(0, np.int64), "words"
        if chroma and self._allowed is None:
            keys = chroma.nearest(self._connection, query.vector, min(query.depth, len(snapshot)))
            if keys is not None:
                return _rows_of(snapshot, keys), "chroma"
        if not chroma:
            snapshot.matrix(self._connection)  # read once for this search and later ones
        if self._allowed is None and self._embedded.all():
            self._computed = self._products(snapshot.matrix(self._connection))
            return best(self._computed, query.depth), "exact"
        rows = np.flatnonzero(self._embedded if self._allowed is None else self._embedded & self._allowed)
        return rows[best(self._cosines(rows), query.depth)], "exact"

    def candidates(self, rows: Rows) -> Iterator[Candidate]:
        """Yield the passages of some ascending rows with all scores."""
        if not len(rows):
            return
        snapshot, scores = self._snapshot, self._item_scores(rows)
        keys, item_keys = snapshot.keys[rows].tolist(), snapshot.item_keys[rows].tolist()
        passages, items = snapshot.passages(self._connection, keys), snapshot.items(self._connection, scores)
        legs = self._cosines(rows).tolist(), self._bm25[rows].tolist(), self._embedded[rows].tolist()
        for key, item_key, cosine, words, embedded in zip(keys, item_keys, *legs, strict=True):
            (ref, digest, content), signed = items[item_key]
            yield Candidate(ref, digest, content, passages[key], cosine, words, *signed, scores[item_key], embedded)

    def _fill_in(self, rows: Rows) -> None:
        """Estimate the cosines of rows without a vector by linear regression on BM25, over what words found.

        A constant would favour passages without a vector over those with a low cosine, or the other way round.
        """
        rows = rows[np.isnan(self._computed[rows])]
        if not len(rows):
            return
        known = self.best_words()
        known = known[self._embedded[known]]
        words, cosines = self._bm25[known], self._cosines(known).astype(np.float64)
        spread = words.var() if len(known) else 0.0
        slope = max(0.0, float(((words - words.mean()) * cosines).mean() / spread)) if spread > 0 else 0.0
        mean, level = (words.mean(), cosines.mean()) if len(known) else (0.0, 0.0)
        highest = cosines.max(initial=level)
        self._computed[rows] = np.clip(level + slope * (self._bm25[rows] - mean), -1.0, highest)

    def _cosines(self, rows: Rows) -> Matrix:
        """Return the cosines of some distinct rows with the query's vector, each computed or estimated once."""
        unknown = rows[np.isnan(self._computed[rows]) & self._embedded[rows]]
        if len(unknown):
            self._computed[unknown] = self._products(self._snapshot.vectors(self._connection, unknown))
        if not self._embedded.all():
            self._fill_in(rows[~self._embedded[rows]])
        return self._computed[rows]

    def _products(self, matrix: Matrix) -> Matrix:
        return np.clip(products(matrix, self._query.vector), -1.0, 1.0)

    def _item_scores(self, rows: Rows) -> dict[int, ItemScores]:
        """Return item key → scores, for the items that the rows belong to."""
        items = distinct(np.sort(self._snapshot.item_keys[rows]))
        siblings, starts = self._snapshot.passages_of(items)
        similarity = self._cosines(siblings).astype(np.float64)
        # `reduceat` reduces each item's passages: `siblings` has them item by item, `starts` the first of each.
        sums, norms = np.add.reduceat(similarity, starts), self._snapshot.centroid_norms(self._connection, items)
        columns = [
            np.maximum.reduceat(similarity, starts),
            similarity[starts],
            # The cosine of the mean of an item's unit vectors: Σ cosines / |Σ vectors|.
            np.clip(np.divide(sums, norms, out=np.zeros_like(sums), where=norms > 0), -1.0, 1.0),
            np.maximum.reduceat(self._bm25[siblings], starts),
            self._item_bm25(siblings, starts),
        ]
        return dict(zip(items.tolist(), starmap(ItemScores, np.column_stack(columns).tolist()), strict=True))

    def _item_bm25(self, siblings: Rows, starts: Rows) -> Numbers:
        """Return the BM25 of each item as one document, with the added frequencies and lengths of its passages."""
        scores = np.zeros(len(starts))
        if not self._weighted:
            return scores
        lengths = np.add.reduceat(self._snapshot.lengths[siblings], starts)
        norm = K1 * (1 - B + B * lengths / self._query.statistics.average_item_length)
        for weight, (rows, frequencies) in self._weighted.values():
            tf = np.add.reduceat(_frequencies_at(siblings, rows, frequencies), starts)
            scores += weight * tf * (K1 + 1) / (tf + norm)
        return scores


def _frequencies_at(wanted: Rows, rows: Rows, frequencies: Numbers) -> Numbers:
    """Return how often a term is in some rows, given its posting: ascending rows, and how often each has it."""
    if not len(rows):
        return np.zeros(len(wanted))
    places = np.searchsorted(rows, wanted).clip(max=len(rows) - 1)
    return np.where(rows[places] == wanted, frequencies[places], 0.0)


def _rows_of(snapshot: Snapshot, keys: list[int]) -> Rows:
    wanted = np.array(sorted(keys), dtype=np.int64)
    rows: Rows = np.searchsorted(snapshot.keys, wanted).clip(max=len(snapshot) - 1)
    found: Rows = rows[snapshot.keys[rows] == wanted]
    return found


def add_bm25(scores: Numbers, lengths: Numbers, weighted: WeightedPostings, average_length: float) -> None:
    """Add the BM25 of every term to `scores`, in place; `weighted` has their weights, and their postings in rows."""
    # The formula and the order of terms of `kiwi_rag.lexical.bm25`: in another order the sums would differ by rounding.
    for weight, (rows, tf) in weighted.values():
        norm = K1 * (1 - B + B * lengths[rows] / average_length)
        scores[rows] += weight * tf * (K1 + 1) / (tf + norm)


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
