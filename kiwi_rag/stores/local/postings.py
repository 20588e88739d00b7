"""The words leg over FTS5's inverted index, with BM25 as `kiwi_rag.lexical` defines it.

FTS5's own ``bm25()`` knows this collection only. Here the caller's statistics count, so that several tiers rank as
one; FTS5 gives the postings and the document frequencies, NumPy does the sum.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kiwi_rag.lexical import K1, MAX_CANDIDATES, MAX_TERMS, B, find_similar, max_edits, split_halves, swap_middle

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Posting = tuple[NDArray[np.int64], NDArray[np.float64]]

_SIMILAR = """
SELECT term FROM posting_terms
WHERE term >= :first AND term < :after AND length(term) BETWEEN :least AND :most
    AND (substr(term, 1, length(:begin)) = :begin OR substr(term, -length(:end)) = :end OR term = :swapped)
ORDER BY doc DESC, term LIMIT :limit
"""


def posting(connection: sqlite3.Connection, term: str) -> Posting:
    """Return the passages that have `term`: keys, ascending, and how often each has it.

    One concatenated row instead of one row an occurrence: a third of the time for a common term.
    """
    joined = connection.execute("SELECT group_concat(doc) FROM posting_instances WHERE term = ?", (term,)).fetchone()[0]
    occurrences = np.fromstring(joined or "", dtype=np.int64, sep=",")
    keys, counts = np.unique(occurrences, return_counts=True)
    return keys, counts.astype(np.float64)


def similar_terms(connection: sqlite3.Connection, terms: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return what those terms that can be slips may be slips for, the most frequent first.

    FTS5 keeps its terms in order, so only those with the same first letter are read.
    """
    slips = [term for term in dict.fromkeys(terms) if max_edits(term)]
    return {term: _similar(connection, term) for term in slips[:MAX_TERMS]}


def _similar(connection: sqlite3.Connection, term: str) -> tuple[str, ...]:
    begin, end = split_halves(term)
    parameters: dict[str, str | int] = {
        "first": term[0],
        "after": chr(ord(term[0]) + 1),
        "begin": begin,
        "end": end,
        "swapped": swap_middle(term),
    }
    parameters |= {"least": len(term) - 2, "most": len(term) + 2, "limit": MAX_CANDIDATES}
    found = [row[0] for row in connection.execute(_SIMILAR, parameters)]
    known = find_similar(term, found)
    return tuple(other for other in found if other in known)


def add_scores(
    scores: NDArray[np.float64],
    lengths: NDArray[np.float64],
    weighted: Mapping[str, tuple[float, Posting]],
    average_length: float,
) -> None:
    """Add every term's BM25 part to `scores`, in place: its weight, and its postings in rows, not keys.

    The same formula in the same order of terms as `kiwi_rag.lexical.bm25`.
    """
    for weight, (rows, tf) in weighted.values():
        norm = K1 * (1 - B + B * lengths[rows] / average_length)
        scores[rows] += weight * tf * (K1 + 1) / (tf + norm)
