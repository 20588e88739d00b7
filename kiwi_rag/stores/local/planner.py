"""How a search is answered: both legs over what passes the filters, exactly or through Chroma."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from kiwi_rag.errors import FingerprintMismatch
from kiwi_rag.lexical import bm25_weights
from kiwi_rag.model import Candidate, Candidates, ItemScores, StoreQuery
from kiwi_rag.stores.local.item_scores import score_items
from kiwi_rag.stores.local.postings import add_scores
from kiwi_rag.stores.local.vectors import Cosines, Snapshot, best, distinct

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kiwi_rag.model import Vector
    from kiwi_rag.stores.local.postings import Posting
    from kiwi_rag.stores.local.vectors import Rows

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
