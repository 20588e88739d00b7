"""What is asked of a registry of any size, and how answers are judged: against numpy's exact scan of all vectors."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import psycopg
from psycopg.types.json import Jsonb

from benchmarks import million_data
from benchmarks.timing import p95, timed
from kiwi_rag.registry import rows

TOP = 10
FILTERS: dict[str, dict[str, Any]] = {
    "all": {}, "10%": {"category": "c0"}, "1%": {"author": "a0"}, "0.01%": {"namespace": "n0"},
}  # fmt: skip
# As somebody would write it who knows the index: the same columns, in the same order.
BY_HAND = """
select v.item_type, v.item_id, v.version, v.digest, s.principal, n.text, n.start_line, n.end_line,
    1 - (n.embedding operator(extensions.<=>) %(vector)s::extensions.vector) as similarity
from (
    select e.statement_id, e.text, e.start_line, e.end_line, e.embedding
    from kiwi.passages as e
    where e.searchable and e.collection_id = 1
    order by e.embedding::extensions.halfvec(384) operator(extensions.<=>) %(vector)s::extensions.halfvec(384)
    limit 10
) as n
join kiwi.statements as v on v.sequence = n.statement_id
join kiwi.signers as s on s.key_id = v.signer
order by similarity desc
"""
FUNCTION = "select * from public.search_embeddings(%(vector)s::extensions.vector, 10, filter => %(filter)s)"
LEG = "select passage_id, plan from kiwi.nearest_passages(1, %(vector)s::extensions.vector, 100, %(filter)s)"
EXACT = "select passage_id from kiwi.nearest_exactly(1, %(vector)s::extensions.vector, 10, %(filter)s)"
Ask = Callable[[np.ndarray], Sequence[int]]


def milliseconds(times: Sequence[float]) -> dict[str, float]:
    """p50, p95, min and max of seconds, in ms."""
    figures = {"p50": statistics.median(times), "p95": p95(times), "min": min(times), "max": max(times)}
    return {name: round(1000 * value, 2) for name, value in figures.items()} | {"n": len(times)}


def truth(vectors: np.ndarray, query: np.ndarray, allowed: np.ndarray | None) -> list[int]:
    """The passage ids of the ten nearest, by numpy: the scan that everything is compared with."""
    scores = vectors @ query
    if allowed is not None:
        scores[~allowed] = -2
    best = np.argpartition(-scores, TOP)[:TOP]
    return [int(row) + 1 for row in best[np.argsort(-scores[best])] if scores[row] > -2]


class Registry:
    """A loaded registry, and the vectors that it holds."""

    def __init__(self, connection: psycopg.Connection[Any], vectors: np.ndarray) -> None:
        self.connection = connection
        self.vectors = vectors

    def numpy_scan(self, queries: np.ndarray) -> dict[str, float]:
        """Time one query at a time over the whole matrix, float32."""
        truth(self.vectors, queries[0], None)
        return milliseconds([timed(lambda q=query: truth(self.vectors, q, None))[0] for query in queries])

    def measure(self, statement: str, queries: np.ndarray, chosen: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask, and return times, recall@10, the fewest rows that came, and the plans where they are told."""
        allowed = million_data.allowed(chosen or {}, len(self.vectors))
        plans: Counter[str] = Counter()
        times, recalls, fewest, matching = [], [], 10**9, 10**9 if allowed is None else int(allowed.sum())
        # First all true answers: numpy's scan would push what the server reads out of the processor's caches.
        true = [truth(self.vectors, query, allowed) for query in queries]
        self.ask(statement, queries[0], chosen)
        for query, wanted in zip(queries, true, strict=True):
            taken, found = timed(lambda q=query: self.ask(statement, q, chosen))
            times.append(taken)
            fewest = min(fewest, len(found))
            got = [_passage(row) for row in found[:TOP]]
            recalls.append(len(set(got).intersection(wanted)) / max(len(wanted), 1))
            plans.update(row["plan"] for row in found[:1] if "plan" in row)
        told = {"recall": round(statistics.mean(recalls), 4), "fewest_rows": fewest, "plans": dict(plans)}
        return milliseconds(times) | told | ({"matching": matching} if allowed is not None else {})

    def side_by_side(self, queries: np.ndarray, effort: int) -> dict[str, Any]:
        """Time the function and the statement by hand in turn, so that the machine's noise meets both.

        Each goes first every other time: who asks first reads the pages that the other finds in memory.
        """
        times: dict[str, list[float]] = {"function": [], "by_hand": []}
        self.connection.execute("select set_config('ivfflat.probes', %s, false)", [str(effort)])
        self.connection.execute("select set_config('hnsw.ef_search', %s, false)", [str(min(effort, 1000))])
        ways = [("function", FUNCTION), ("by_hand", BY_HAND)]
        for query in (queries[0], *queries):
            ways.reverse()
            for name, statement in ways:
                times[name].append(timed(lambda s=statement, q=query: self.ask(s, q))[0])
        told: dict[str, Any] = {name: milliseconds(taken[1:]) for name, taken in times.items()}
        return told | {f"ratio_{p}": round(told["function"][p] / told["by_hand"][p], 3) for p in ("p50", "p95")}

    def ask(self, statement: str, query: np.ndarray, chosen: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return the rows; planned anew each time, as Kiwi's own connections ask (poolers lose prepared statements)."""
        from psycopg.rows import dict_row

        values = {"vector": rows.vector_text(query), "filter": Jsonb(chosen or {})}
        return self.connection.cursor(row_factory=dict_row).execute(statement, values, prepare=False).fetchall()

    def sizes(self) -> dict[str, str]:
        """What the tables and indexes take on disk."""
        query = """
            select c.relname, pg_relation_size(c.oid) / 1048576 from pg_class as c
            where c.relnamespace = 'kiwi'::regnamespace and c.relkind in ('r', 'i')
                and pg_relation_size(c.oid) > 4 * 1048576
            union all
            select c.relname || ' (toast)', pg_relation_size(c.reltoastrelid) / 1048576 from pg_class as c
            where c.relnamespace = 'kiwi'::regnamespace and c.reltoastrelid > 0
                and pg_relation_size(c.reltoastrelid) > 4 * 1048576
            order by 2 desc
        """
        return {name: f"{size} MiB" for name, size in self.connection.execute(query)}


def _passage(row: dict[str, Any]) -> int:
    if "passage_id" in row:
        return int(row["passage_id"])
    return int(row["item_id"].rpartition("-")[2]) * million_data.PER_ITEM + int(row["start_line"])
