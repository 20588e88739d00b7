"""Scores of whole items: what the passages of an item that was found say together."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kiwi_rag.errors import FingerprintMismatch
from kiwi_rag.lexical import K1, B, bm25_weights
from kiwi_rag.model import Candidate, Candidates, ItemScores, StoreQuery
from kiwi_rag.stores.local.postings import add_scores
from kiwi_rag.stores.local.vectors import Cosines, Snapshot, best, distinct

if TYPE_CHECKING:
    import sqlite3

    from numpy.typing import NDArray

    from kiwi_rag.stores.local.postings import Posting
    from kiwi_rag.stores.local.vectors import Cosines, Rows, Snapshot

    Numbers = NDArray[np.float64]
    from kiwi_rag.model import Vector


def score_items(  # noqa: PLR0913, PLR0917  # both legs' inputs
    connection: sqlite3.Connection,
    snapshot: Snapshot,
    query: StoreQuery,
    rows: Rows,
    cosines: Cosines,
    passage_words: Numbers,
    weighted: Mapping[str, tuple[float, Posting]],
) -> dict[int, ItemScores]:
    """Return item key → scores, for the items of the given rows.

    Parameters
    ----------
    cosines
        Those of the query's vector with the passages.
    passage_words
        BM25 of every passage of the snapshot, in its rows.
    weighted
        Each query term's inverse document frequency, and its postings in rows.
    """
    items = distinct(np.sort(snapshot.item_keys[rows]))
    siblings, starts = snapshot.passages_of(items)
    near = cosines.of(connection, siblings).astype(np.float64)
    columns = (
        np.maximum.reduceat(near, starts),
        near[starts],
        _centroid_cosines(np.add.reduceat(near, starts), snapshot.centroid_norms(connection, items)),
        np.maximum.reduceat(passage_words[siblings], starts),
        _document_words(snapshot, query, siblings, starts, weighted),
    )
    scored = zip(*(column.tolist() for column in columns), strict=True)
    return {key: ItemScores(*scores) for key, scores in zip(items.tolist(), scored, strict=True)}


def _centroid_cosines(sums: Numbers, norms: Numbers) -> Numbers:
    """Return the cosine of the mean of an item's unit vectors: ``Σ cosines / |Σ vectors|``."""
    return np.clip(np.divide(sums, norms, out=np.zeros_like(sums), where=norms > 0), -1.0, 1.0)


def _document_words(
    snapshot: Snapshot, query: StoreQuery, siblings: Rows, starts: Rows, weighted: Mapping[str, tuple[float, Posting]]
) -> Numbers:
    """Return BM25 of each item as one document: frequencies and lengths of its passages added up."""
    count = len(starts)
    if not weighted:
        return np.zeros(count)
    place: NDArray[Any] = np.full(len(snapshot), count)  # one place more, for passages of other items
    place[siblings] = np.repeat(np.arange(count), np.diff(starts, append=len(siblings)))
    norm = K1 * (1 - B + B * np.add.reduceat(snapshot.lengths[siblings], starts) / query.statistics.average_item_length)
    scores = np.zeros(count)
    for weight, (rows, frequencies) in weighted.values():
        tf = np.bincount(place[rows], weights=frequencies, minlength=count + 1)[:count]
        scores += weight * tf * (K1 + 1) / (tf + norm)
    return scores


EXACT_LIMIT = 50_000
"""Up to this many passages the matrix product is as fast as the index, and its recall is 1."""

Nearest = Callable[["Vector", int], "list[int] | None"]
"""Asks Chroma for the nearest passage keys; None when Chroma cannot be relied on now."""


def answer(
    connection: sqlite3.Connection, snapshot: Snapshot, query: StoreQuery, nearest: Nearest, exact_limit: int
) -> Candidates:
    """Return the union of both legs' best passages. Runs inside one read transaction.

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
    lexical, word_rows = _words_leg(snapshot, query, weighted, allowed)
    cosines = Cosines(snapshot, query.vector)
    near_rows, plan = _vector_leg(connection, snapshot, query, allowed, cosines, nearest, exact_limit)
    rows = distinct(np.sort(np.concatenate([near_rows, word_rows])))
    if not len(rows):
        return Candidates((), plan)
    items = score_items(connection, snapshot, query, rows, cosines, lexical, weighted)
    return Candidates(tuple(_candidates(connection, snapshot, rows, cosines, lexical, items)), plan)


def _check_fingerprint(snapshot: Snapshot, query: StoreQuery) -> None:
    if (snapshot.fingerprint, snapshot.dimension) != (query.fingerprint, len(query.vector)):
        raise FingerprintMismatch(
            f"this tier holds vectors of {snapshot.fingerprint}, the query's is of {query.fingerprint}",
            hint="index again with one model: kiwi index --rebuild",
        )


def _weighted(
    connection: sqlite3.Connection, snapshot: Snapshot, query: StoreQuery
) -> dict[str, tuple[float, Posting]]:
    weights = bm25_weights(query.statistics, query.terms)
    return {term: (weight, snapshot.posting(connection, term)) for term, weight in weights.items()}


def _words_leg(
    snapshot: Snapshot,
    query: StoreQuery,
    weighted: Mapping[str, tuple[float, Posting]],
    allowed: NDArray[np.bool_] | None,
) -> tuple[NDArray[np.float64], Rows]:
    scores = np.zeros(len(snapshot))
    add_scores(scores, snapshot.lengths, weighted, query.statistics.average_length)
    hit = scores > 0 if allowed is None else (scores > 0) & allowed
    rows = np.flatnonzero(hit)
    return scores, rows[best(scores[rows], query.depth)]


def _vector_leg(  # noqa: PLR0913, PLR0917  # what a plan depends on
    connection: sqlite3.Connection,
    snapshot: Snapshot,
    query: StoreQuery,
    allowed: NDArray[np.bool_] | None,
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
    lexical: NDArray[np.float64],
    scores: Mapping[int, ItemScores],
) -> Iterator[Candidate]:
    keys, item_keys = snapshot.keys[rows].tolist(), snapshot.item_keys[rows].tolist()
    passages, items = snapshot.details.passages(connection, keys), snapshot.details.items(connection, scores)
    legs = cosines.of(connection, rows).tolist(), lexical[rows].tolist()
    for key, item_key, cosine, bm25 in zip(keys, item_keys, *legs, strict=True):
        ref, digest, content, metadata, key_id, signed_at = items[item_key]
        yield Candidate(
            ref, digest, content, passages[key], cosine, bm25, metadata, key_id, signed_at, scores[item_key]
        )
