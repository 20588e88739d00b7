"""The words leg alone, side by side: the registry's SQL, the local store, ``bm25s`` and FTS5's own ``bm25()``.

Run: ``python -m benchmarks.words [passages ...]`` (10,000 and 100,000 when none are named). Prints one JSON object;
times in milliseconds, for the best 100 passages of a query of two to eight words. Texts and queries follow Zipf's law,
so common words are asked for as often as they are written. Each side is given terms, not text, and each query differs.
The registry and the local store also count the terms' document frequencies, as a federation has them do: the others
did that when they indexed.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import psycopg

from benchmarks.data import vocabulary
from benchmarks.timing import percentiles, timed
from kiwi_rag.lexical import bm25_weights
from kiwi_rag.model import CollectionStatistics
from kiwi_rag.stores.local.search import add_bm25, best
from kiwi_rag.stores.local.session import CREATE_POSTINGS
from kiwi_rag.stores.local.snapshot import read_posting
from tests.sql.databases import database, template
from tests.sql.shelves_of_words import fill

VOCABULARY, DEPTH, QUERIES = 100_000, 100, 200
WORDS = np.array(vocabulary(VOCABULARY))
ODDS = 1 / (np.arange(1, VOCABULARY + 1) + 20.0) ** 1.05
_MATCHING = "select passage_id from kiwi.matching_passages(1, %s, %s, %s, %s, '{}')"
_STATISTICS = "select kiwi.collection_statistics(%s, null, 'items')"


def drawn(rng: np.random.Generator, sizes: Sequence[int]) -> list[list[str]]:
    """Draw lists of words of the given sizes."""
    numbers = np.searchsorted(np.cumsum(ODDS / ODDS.sum()), rng.random(sum(sizes))).clip(max=VOCABULARY - 1)
    return [part.tolist() for part in np.split(WORDS[numbers], np.cumsum(sizes)[:-1])]


def asked_in_turn(ask: Callable[[Sequence[str]], object], asked: Sequence[Sequence[str]]) -> dict[str, float]:
    """p50 and p95 over the queries, in ms, after one that opens everything."""
    ask(asked[0])
    return percentiles([1000 * timed(lambda t=terms: ask(t))[0] for terms in asked[1:]])


def registry(texts: Sequence[Sequence[str]], asked: Sequence[Sequence[str]]) -> dict[str, float]:
    """Statistics and the words leg, by two calls."""
    held = {number: Counter(words) for number, words in enumerate(texts, 1)}
    with database(like=template()) as url, psycopg.connect(url, autocommit=True) as connection:
        fill(connection, held, 10)

        def ask(terms: Sequence[str]) -> list[Any]:
            row = connection.execute(_STATISTICS, [list(terms)]).fetchone()
            told: Mapping[str, Any] = row[0] if row else {}
            own = CollectionStatistics(**told)
            weights = bm25_weights(own, terms)
            arguments = [list(weights), list(weights.values()), own.average_length, DEPTH]
            return connection.execute(_MATCHING, arguments).fetchall()

        return asked_in_turn(ask, asked)


def local(connection: sqlite3.Connection, texts: Sequence[Sequence[str]]) -> Callable[[Sequence[str]], object]:
    """The local store's sum, each term's postings read from FTS5 for every query: nothing is remembered."""
    lengths = np.array([len(words) for words in texts], dtype=np.float64)

    def ask(terms: Sequence[str]) -> object:
        found = {term: read_posting(connection, term) for term in terms}
        own = CollectionStatistics(len(texts), int(lengths.sum()), {t: len(p[0]) for t, p in found.items()})
        weights = bm25_weights(own, terms)
        scores = np.zeros(len(texts))
        add_bm25(
            scores, lengths, {t: (w, (found[t][0] - 1, found[t][1])) for t, w in weights.items()}, own.average_length
        )
        rows = np.flatnonzero(scores)
        return rows[best(scores[rows], DEPTH)]

    return ask


def fts5(connection: sqlite3.Connection) -> Callable[[Sequence[str]], object]:
    """FTS5's own ranking, over the same index."""
    statement = "SELECT rowid FROM postings WHERE postings MATCH ? ORDER BY rank LIMIT ?"
    return lambda terms: connection.execute(statement, (" OR ".join(f'"{t}"' for t in terms), DEPTH)).fetchall()


def bm25s(texts: Sequence[Sequence[str]]) -> Callable[[Sequence[str]], object]:
    """``bm25s`` with NumPy, in memory, Lucene's variant."""
    import bm25s as library

    index = library.BM25(k1=1.2, b=0.75, method="lucene")
    index.index([list(words) for words in texts], show_progress=False)
    return lambda terms: index.retrieve([list(terms)], k=min(DEPTH, len(texts)), show_progress=False)


def measure(passages: int) -> dict[str, Any]:
    """Time every side over the same texts and queries."""
    rng = np.random.default_rng(passages)
    texts = drawn(rng, rng.lognormal(3.9, 0.6, passages).astype(int).clip(4, 300).tolist())
    asked = [list(dict.fromkeys(words)) for words in drawn(rng, rng.integers(2, 9, QUERIES + 1).tolist())]
    connection = sqlite3.connect(":memory:")
    for statement in CREATE_POSTINGS:
        connection.execute(statement)
    rows = ((number, " ".join(words)) for number, words in enumerate(texts, 1))
    connection.executemany("INSERT INTO postings (rowid, terms) VALUES (?, ?)", rows)
    report = {
        "local": asked_in_turn(local(connection, texts), asked),
        "fts5_bm25": asked_in_turn(fts5(connection), asked),
        "bm25s": asked_in_turn(bm25s(texts), asked),
        "registry": registry(texts, asked),
    }
    others = [name for name in report if name != "registry"]
    ratio = {f"registry / {name} (p50)": round(report["registry"]["p50"] / report[name]["p50"], 2) for name in others}
    return {**report, "ratios": ratio}


def main() -> None:
    """Measure and print."""
    sizes = [int(argument) for argument in sys.argv[1:]] or [10_000, 100_000]
    json.dump({str(size): measure(size) for size in sizes}, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
