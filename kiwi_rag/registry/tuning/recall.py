"""How many of the true neighbours an index finds, and the least effort that finds enough of them.

What is asked for the measurement is made from stored vectors and is none of them: the index was fitted to those, and
finds their neighbours with less effort (12 lists in place of 22, at 100,000 passages). It is a smoothed bootstrap: the
middle of a neighbourhood, plus the difference of two passages of another neighbourhood.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kiwi_rag.registry import rows

if TYPE_CHECKING:
    import psycopg

    from kiwi_rag.registry.tuning.choice import Choice

TOP = 10
_WIDE = 100  # what a filter that lets a tenth through leaves of the first ten stands among about so many
_SAMPLES = 150
_FEWER_SAMPLES = 100
_MANY = 300_000
_ONE_SIDED = 1.645  # standard errors that 95% of a normal distribution stay above
_MOST_PROBES = 32_768
_EF_SEARCH = (40, 80, 120, 180, 270, 400, 600, 1000)
_DRAW = """
select e.embedding::text
from (
    select distinct (
        select n.passage_id from kiwi.item_embeddings as n
        where n.searchable and n.collection_id = %(collection)s and n.passage_id >= drawn.at
        order by n.passage_id limit 1
    ) as id
    from (
        select (range.low + random() * (range.high - range.low))::bigint as at
        from (select min(passage_id) as low, max(passage_id) as high from kiwi.item_embeddings) as range,
            generate_series(1, %(count)s)
    ) as drawn
) as chosen
join kiwi.item_embeddings as e on e.passage_id = chosen.id
"""
_EXACT = "select passage_id from kiwi.nearest_exactly(%s, %s::extensions.vector, %s, '{}')"
_VECTORS = "select passage_id, embedding::text from kiwi.item_embeddings where passage_id = any(%s)"
_BY_INDEX = "select passage_id from kiwi.nearest_by_index(%s, %s::extensions.vector, %s, '{}', %s, %s)"


@dataclass(frozen=True, slots=True)
class Probe:
    """A vector to ask with, as text, and the passages that are truly nearest to it, nearest first."""

    vector: str
    neighbours: Sequence[int]


@dataclass(frozen=True, slots=True)
class Effort:
    """How many lists to probe, or ef_search, to reach a recall; `wide` for searches under a filter."""

    effort: int
    wide: int
    recall: float


def probes(
    connection: psycopg.Connection[Any], collection: int, passages: int, effort: int, step: Callable[[str], None]
) -> list[Probe]:
    """Make vectors to ask with, and compare each with all that are stored; `effort` finds the neighbourhoods."""
    count = _SAMPLES if passages <= _MANY else _FEWER_SAMPLES
    drawn = [row[0] for row in connection.execute(_DRAW, {"collection": collection, "count": count})]
    found = []
    for number, vector in enumerate(fresh_vectors(connection, collection, drawn, effort), 1):
        step(f"comparing with exact answers: {number} of {len(drawn)}")
        exact = connection.execute(_EXACT, [collection, vector, _WIDE])
        found.append(Probe(vector, [row[0] for row in exact]))
    return found


def fresh_vectors(
    connection: psycopg.Connection[Any], collection: int, drawn: Sequence[str], effort: int
) -> Iterator[str]:
    """Yield a new vector for each stored one, of its neighbourhood, with the scatter of the one before it."""
    import numpy as np

    regions = []
    for vector in drawn:
        near = [row[0] for row in connection.execute(_BY_INDEX, [collection, vector, _WIDE, effort, 4 * effort])]
        chosen = {row[0]: row[1] for row in connection.execute(_VECTORS, [near])}
        held = [np.array(chosen[one].strip("[]").split(","), dtype=np.float32) for one in near]
        regions.append((np.mean(held[:TOP], axis=0), held[-1] - held[len(held) // 2]))
    for number, (middle, _) in enumerate(regions):
        raw = middle + regions[number - 1][1] / np.sqrt(2)  # the sum of two scatters is twice one, squared
        yield rows.vector_text(raw / np.linalg.norm(raw))


def recalls(
    connection: psycopg.Connection[Any], collection: int, asked: Sequence[Probe], effort: int
) -> tuple[list[float], list[float]]:
    """Return the recall@10 and the recall@100 of each vector at an effort."""
    near: list[float] = []
    wide: list[float] = []
    for one in asked:
        got = {row[0] for row in connection.execute(_BY_INDEX, [collection, one.vector, _WIDE, effort, effort])}
        for true, found in ((one.neighbours[:TOP], near), (one.neighbours, wide)):
            found.append(len(got.intersection(true)) / max(len(true), 1))
    return near, wide


def sure(values: Sequence[float]) -> float:
    """Return what the mean of all there could be is above, with 95% confidence: the drawn vectors are few."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return statistics.fmean(values) - _ONE_SIDED * error if values else 0.0


def least_effort(  # noqa: PLR0913, PLR0917
    connection: psycopg.Connection[Any],
    collection: int,
    asked: Sequence[Probe],
    choice: Choice,
    wanted: float,
    step: Callable[[str], None],
) -> Effort:
    """Return the first effort that surely reaches the recall@10, and the one that reaches recall@100; else the highest.

    `Effort.recall` is the mean recall@10 that was measured.
    """
    enough: tuple[int, float] | None = None
    tried, mean = 0, 0.0
    for tried in _ladder(choice):
        near, wide = recalls(connection, collection, asked, tried)
        mean = statistics.fmean(near)
        step(f"effort {tried}: recall@10 {mean:.3f}, recall@100 {statistics.fmean(wide):.3f}")
        if enough is None and sure(near) >= wanted:
            enough = tried, mean
        if enough and sure(wide) >= wanted:
            break
    effort, reached = enough or (tried, mean)
    return Effort(effort, tried, reached)


def _ladder(choice: Choice) -> Iterator[int]:
    """Yield efforts, each about a quarter more than the one before."""
    if choice.method == "hnsw":
        yield from _EF_SEARCH
        return
    effort, most = 1, min(choice.lists, _MOST_PROBES)
    while effort < most:
        yield effort
        effort += max(1, effort // 4)
    yield most
