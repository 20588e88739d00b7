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

    Mask = NDArray[np.bool_]
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
    _check_fingerprint(snapshot, query)
    allowed = snapshot.matching(connection, query.filters)
    weighted = _weighted(connection, snapshot, query)
    bm25, lexical_rows = _lexical_leg(snapshot, query, weighted, allowed)
    cosines = Cosines(snapshot, query.vector)
    vector_rows, plan = _vector_leg(connection, snapshot, query, allowed, cosines, nearest, exact_limit)
    rows = distinct(np.sort(np.concatenate([vector_rows, lexical_rows])))
    if not len(rows):
        return Candidates((), plan)
    items = _score_items(connection, snapshot, query, rows, cosines, bm25, weighted)
    return Candidates(tuple(_candidates(connection, snapshot, rows, cosines, bm25, items)), plan)


def _check_fingerprint(snapshot: Snapshot, query: StoreQuery) -> None:
    if (snapshot.fingerprint, snapshot.dimension) != (query.fingerprint, len(query.vector)):
        raise FingerprintMismatch(
            f"the stored vectors are of {snapshot.fingerprint}, the query's is of {query.fingerprint}",
            hint="index again with one model: kiwi index --rebuild",
        )


def _weighted(connection: sqlite3.Connection, snapshot: Snapshot, query: StoreQuery) -> WeightedPostings:
    weights = bm25_weights(query.statistics, query.terms)
    return {term: (weight, snapshot.posting(connection, term)) for term, weight in weights.items()}


def _lexical_leg(
    snapshot: Snapshot,
    query: StoreQuery,
    weighted: WeightedPostings,
    allowed: Mask | None,
) -> tuple[Numbers, Rows]:
    scores = np.zeros(len(snapshot))
    add_bm25(scores, snapshot.lengths, weighted, query.statistics.average_length)
    matches = scores > 0 if allowed is None else (scores > 0) & allowed
    rows = np.flatnonzero(matches)
    return scores, rows[best(scores[rows], query.depth)]


def _vector_leg(  # noqa: PLR0913, PLR0917  # what a plan depends on
    connection: sqlite3.Connection,
    snapshot: Snapshot,
    query: StoreQuery,
    allowed: Mask | None,
    cosines: Cosines,
    nearest: Nearest,
    exact_limit: int,
) -> tuple[Rows, str]:
    if allowed is None and len(snapshot) > exact_limit:
        keys = nearest(query.vector, min(query.depth, len(snapshot)))
        if keys is not None:
            return _rows_of(snapshot, keys), "chroma"
    if allowed is None or len(snapshot) <= exact_limit:
        snapshot.matrix(connection)
    if allowed is None:
        return best(cosines.all(connection), query.depth), "exact"
    rows = np.flatnonzero(allowed)
    return rows[best(cosines.of(connection, rows), query.depth)], "exact"


def _rows_of(snapshot: Snapshot, keys: list[int]) -> Rows:
    wanted = np.array(sorted(keys), dtype=np.int64)
    rows: Rows = np.searchsorted(snapshot.keys, wanted).clip(max=len(snapshot) - 1)
    found: Rows = rows[snapshot.keys[rows] == wanted]
    return found


def _candidates(  # noqa: PLR0913, PLR0917  # what a candidate is made of
    connection: sqlite3.Connection,
    snapshot: Snapshot,
    rows: Rows,
    cosines: Cosines,
    bm25: Numbers,
    scores: Mapping[int, ItemScores],
) -> Iterator[Candidate]:
    keys, item_keys = snapshot.keys[rows].tolist(), snapshot.item_keys[rows].tolist()
    passages, items = snapshot.details.passages(connection, keys), snapshot.details.items(connection, scores)
    legs = cosines.of(connection, rows).tolist(), bm25[rows].tolist()
    for key, item_key, cosine, words in zip(keys, item_keys, *legs, strict=True):
        ref, digest, content, metadata, key_id, signed_at = items[item_key]
        yield Candidate(
            ref, digest, content, passages[key], cosine, words, metadata, key_id, signed_at, scores[item_key]
        )


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


def _score_items(  # noqa: PLR0913, PLR0917  # both legs' inputs
    connection: sqlite3.Connection,
    snapshot: Snapshot,
    query: StoreQuery,
    rows: Rows,
    cosines: Cosines,
    bm25: Numbers,
    weighted: WeightedPostings,
) -> dict[int, ItemScores]:
    """Return item key → scores, for the items that the rows belong to.

    Parameters
    ----------
    cosines
        Those of the query's vector with the passages.
    bm25
        Of every passage of the snapshot, by row.
    weighted
        Each query term's inverse document frequency, and its postings by row.
    """
    items = distinct(np.sort(snapshot.item_keys[rows]))
    siblings, starts = snapshot.passages_of(items)
    similarity = cosines.of(connection, siblings).astype(np.float64)
    # `reduceat` reduces each item's passages: `siblings` has them item by item, `starts` the first of each.
    columns = (
        np.maximum.reduceat(similarity, starts),
        similarity[starts],
        _centroid_cosines(np.add.reduceat(similarity, starts), snapshot.centroid_norms(connection, items)),
        np.maximum.reduceat(bm25[siblings], starts),
        _item_bm25(snapshot, query, siblings, starts, weighted),
    )
    scored = zip(*(column.tolist() for column in columns), strict=True)
    return {key: ItemScores(*scores) for key, scores in zip(items.tolist(), scored, strict=True)}


def _centroid_cosines(sums: Numbers, norms: Numbers) -> Numbers:
    """Return the cosine of the mean of an item's unit vectors: ``Σ cosines / |Σ vectors|``."""
    return np.clip(np.divide(sums, norms, out=np.zeros_like(sums), where=norms > 0), -1.0, 1.0)


def _item_bm25(
    snapshot: Snapshot, query: StoreQuery, siblings: Rows, starts: Rows, weighted: WeightedPostings
) -> Numbers:
    """Return the BM25 of each item as one document, with the added frequencies and lengths of its passages."""
    count = len(starts)
    if not weighted:
        return np.zeros(count)
    # The number of each passage's item; `count` for the passages of other items, whose frequencies are dropped below.
    number: NDArray[Any] = np.full(len(snapshot), count)
    number[siblings] = np.repeat(np.arange(count), np.diff(starts, append=len(siblings)))
    norm = K1 * (1 - B + B * np.add.reduceat(snapshot.lengths[siblings], starts) / query.statistics.average_item_length)
    scores = np.zeros(count)
    for weight, (rows, frequencies) in weighted.values():
        tf = np.bincount(number[rows], weights=frequencies, minlength=count + 1)[:count]
        scores += weight * tf * (K1 + 1) / (tf + norm)
    return scores
