"""The words leg, and both legs together, as a client asks for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg

from benchmarks import million_data
from benchmarks.million_measure import milliseconds
from benchmarks.timing import timed
from kiwi_rag.lexical import bm25_weights, query_terms
from kiwi_rag.registry import rows

LENGTH = 5


def words(connection: psycopg.Connection[Any], vectors: np.ndarray) -> dict[str, Any]:
    """Time both functions: with questions whose words follow Zipf's law, as the texts' do, and with the commonest."""
    natural = [million_data.text_of(row) for row in million_data.words(len(vectors), LENGTH, 7)]
    common = [million_data.text_of(np.arange(n, n + LENGTH)) for n in range(1, 11)]
    postings = connection.execute("select count(*) from kiwi.postings").fetchone()
    return {
        "postings": postings[0] if postings else 0,
        "search_lexical": _timed(connection, lambda n: _lexical(connection, natural[n]), len(natural)),
        "search_lexical, commonest words": _timed(connection, lambda n: _lexical(connection, common[n]), len(common)),
        "search_hybrid, depth 100": _timed(
            connection, lambda n: _hybrid(connection, natural[n], vectors[n]), min(50, len(natural))
        ),
    }


def _timed(connection: psycopg.Connection[Any], ask: Any, count: int) -> dict[str, Any]:
    times = []
    try:
        ask(0)
        for number in range(count):
            times.append(timed(lambda n=number: ask(n))[0])
    except psycopg.Error as error:
        return {"failed": str(error).splitlines()[0], "after": len(times)}
    return milliseconds(times)


def _lexical(connection: psycopg.Connection[Any], text: str) -> None:
    connection.execute("select * from public.search_lexical(%s, 10)", [text]).fetchall()


def _hybrid(connection: psycopg.Connection[Any], text: str, vector: np.ndarray) -> None:
    """As a federation asks: first the statistics, then the candidates."""
    asked = query_terms(text)
    (told,) = connection.execute("select public.collection_statistics(%s::text[])", [list(asked)]).fetchone() or ({},)
    statistics = rows.parse_statistics(told)
    weighted = bm25_weights(statistics, asked)
    terms, weights = list(weighted), list(weighted.values())
    connection.execute(
        "select * from public.search_hybrid(%s::extensions.vector, %s::text[], %s::float8[], %s, 100, '{}', null, %s)",
        [rows.vector_text(vector), terms, weights, statistics.average_length, statistics.average_item_length],
    ).fetchall()
