"""Scores of whole items: what the passages of an item that was found say together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kiwi_rag.lexical import K1, B
from kiwi_rag.model import ItemScores, StoreQuery
from kiwi_rag.stores.local.vectors import distinct

if TYPE_CHECKING:
    import sqlite3

    from numpy.typing import NDArray

    from kiwi_rag.stores.local.postings import Posting
    from kiwi_rag.stores.local.vectors import Cosines, Rows, Snapshot

    Numbers = NDArray[np.float64]


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
    mates, starts = snapshot.passages_of(items)
    near = cosines.of(connection, mates).astype(np.float64)
    columns = (
        np.maximum.reduceat(near, starts),
        near[starts],
        _centroid_cosines(np.add.reduceat(near, starts), snapshot.centroid_norms(connection, items)),
        np.maximum.reduceat(passage_words[mates], starts),
        _document_words(snapshot, query, mates, starts, weighted),
    )
    scored = zip(*(column.tolist() for column in columns), strict=True)
    return {key: ItemScores(*scores) for key, scores in zip(items.tolist(), scored, strict=True)}


def _centroid_cosines(sums: Numbers, norms: Numbers) -> Numbers:
    """Return the cosine of the mean of an item's unit vectors: ``Σ cosines / |Σ vectors|``."""
    return np.clip(np.divide(sums, norms, out=np.zeros_like(sums), where=norms > 0), -1.0, 1.0)


def _document_words(
    snapshot: Snapshot, query: StoreQuery, mates: Rows, starts: Rows, weighted: Mapping[str, tuple[float, Posting]]
) -> Numbers:
    """Return BM25 of each item as one document: frequencies and lengths of its passages added up."""
    count = len(starts)
    if not weighted:
        return np.zeros(count)
    place: NDArray[Any] = np.full(len(snapshot), count)  # one place more, for passages of other items
    place[mates] = np.repeat(np.arange(count), np.diff(starts, append=len(mates)))
    norm = K1 * (1 - B + B * np.add.reduceat(snapshot.lengths[mates], starts) / query.statistics.average_item_length)
    scores = np.zeros(count)
    for weight, (rows, frequencies) in weighted.values():
        tf = np.bincount(place[rows], weights=frequencies, minlength=count + 1)[:count]
        scores += weight * tf * (K1 + 1) / (tf + norm)
    return scores
