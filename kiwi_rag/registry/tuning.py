"""The index over a registry's vectors: chosen by size, built, measured against exact answers.

Building needs the role that owns the tables, and a connection whose session is its own (no pooler in transaction mode).

The queries of the measurement are made from stored vectors and are none of them: the index was fitted to those, and
finds their neighbours with less effort (12 lists instead of 22, at 100,000 passages). They are a smoothed bootstrap:
the mean of a neighbourhood, plus the difference of two passages of another neighbourhood.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, LiteralString, get_args

from kiwi_rag.errors import NotFound, RegistryRefused, UsageError
from kiwi_rag.registry import rows
from kiwi_rag.registry.calls import checked_url, translate_errors
from kiwi_rag.registry.pool import OPTIONS

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.AsyncConnection[Any]

IndexMethod = Literal["auto", "exact", "ivfflat", "hnsw"]
METHODS: tuple[str, ...] = get_args(IndexMethod)
EXACT_BELOW = 10_000
"""Passages up to which all are compared: about 20 ms on one core, and no index to keep."""
MAX_DIMENSION = 4000
"""Dimensions up to which pgvector has an index over half floats; beyond, all are compared."""
_TOP = 10
_WIDE = 100  # a filter that passes a tenth of all passages has its first ten among about so many
_SAMPLES = 150

_PLAN = """
select p.collection_id, p.fingerprint, p.passages, p.asked, p.wanted_recall, p.dimension from kiwi.vector_plans() as p
where p.fingerprint = coalesce(nullif(%s, ''), (kiwi.active_collection()).fingerprint)
"""
_RECORD = """
insert into kiwi_private.vector_indexes as t (
    collection_id, asked, method, index_name, lists, effort, wide_effort, passages, wanted_recall, recall
)
values (
    %(collection)s, %(requested)s, %(method)s, %(index_name)s, nullif(%(lists)s, 0), %(effort)s, %(wide_effort)s,
    %(passages)s, %(wanted_recall)s, %(recall)s
)
on conflict (collection_id) do update set
    asked = excluded.asked, method = excluded.method, index_name = excluded.index_name, lists = excluded.lists,
    effort = excluded.effort, wide_effort = excluded.wide_effort, passages = excluded.passages,
    wanted_recall = excluded.wanted_recall, recall = excluded.recall, tuned_at = now()
"""
# Half floats take two thirds of the time and half of the memory at the same recall. What is found is ordered by the
# full vectors.
_CREATE = """
create index concurrently {name} on kiwi.passages
using {method} ((embedding::extensions.halfvec({dimension})) extensions.halfvec_cosine_ops) with ({options})
where searchable and collection_id = {collection}
"""
_UNUSED = """
select c.relname from pg_catalog.pg_class as c join pg_catalog.pg_index as i on i.indexrelid = c.oid
where c.relnamespace = 'kiwi'::regnamespace and c.relname ~ '^passages_nearest_[0-9]+_[0-9]+$'
    and not (i.indisvalid and exists (select from kiwi_private.vector_indexes as t where t.index_name = c.relname))
"""
_SAMPLE = """
select embedding::text from kiwi.passages where passage_id = any(array(
    select passage_id from kiwi.passages where searchable and collection_id = %s order by random() limit %s
))
"""
_EXACT = "select passage_id from kiwi.nearest_exactly(%s, %s::extensions.vector, %s, '{}')"
_BY_INDEX = "select passage_id from kiwi.nearest_by_index(%s, %s::extensions.vector, %s, '{}', %s, %s)"
_NEIGHBOURS = """
select p.embedding::text from kiwi.nearest_by_index(%s, %s::extensions.vector, %s, '{}', %s, %s) with ordinality as n
join kiwi.passages as p on p.passage_id = n.passage_id order by n.ordinality
"""

Report = Callable[[str], None]
_Queries = list[tuple[str, list[int]]]


@dataclass(frozen=True, slots=True)
class IndexChoice:
    """An index to build: its method, its lists (ivfflat alone, else 0), and the memory that takes, in MiB."""

    method: IndexMethod
    lists: int = 0
    memory: int = 0

    def __str__(self) -> str:
        if self.method == "exact":
            return "no index: every passage is compared"
        lists = f" with {self.lists} lists" if self.lists else ""
        return f"{self.method}{lists}, up to {self.memory} MiB of memory while it is built"


@dataclass(frozen=True, slots=True)
class Tuning:
    """What was done for a model's vectors, or would be; without an index, effort and recall are None.

    ``effort`` is how many lists are probed, or ef_search, ``wide_effort`` the same under a filter, ``recall`` the
    recall@10 that was measured.
    """

    collection: int
    model: str
    passages: int
    requested: IndexMethod
    wanted_recall: float
    choice: IndexChoice
    dimension: int
    effort: int | None = None
    wide_effort: int | None = None
    recall: float | None = None
    removed: tuple[str, ...] = ()

    @property
    def reached(self) -> bool:
        """Whether the recall is what was wanted; that of an exact search is 1."""
        return self.recall is None or self.recall >= self.wanted_recall

    def as_dict(self) -> dict[str, object]:
        """Return the tuning as JSON-ready data."""
        names = "model", "passages", "effort", "wide_effort", "wanted_recall", "recall", "removed"
        values = {name: getattr(self, name) for name in names}
        return {**values, "method": self.choice.method, "lists": self.choice.lists or None}


def choose(passages: int, method: IndexMethod = "auto", memory: int = 1024, dimension: int = 384) -> IndexChoice:
    """Return the index for so many passages.

    ``auto`` is exact below `EXACT_BELOW` and ivfflat from there on; nothing is built over no passages, nor beyond
    `MAX_DIMENSION`. `memory` is what building may take, in MiB: it limits ivfflat's lists, and how far hnsw's graph
    grows before it is slow to build. Why there are ``4 √passages`` lists: docs/decisions/0016-vector-index.md.
    """
    least = EXACT_BELOW if method == "auto" else 1
    if method == "exact" or passages < least or dimension > MAX_DIMENSION:
        return IndexChoice("exact")
    if method == "hnsw":
        return IndexChoice("hnsw", 0, memory)
    lists = 4 * math.isqrt(passages)
    while lists > 1 and _kmeans_memory(lists, passages, dimension) > memory:
        lists -= max(1, lists // 20)
    return IndexChoice("ivfflat", lists, max(64, _kmeans_memory(lists, passages, dimension) + 16))


def _kmeans_memory(lists: int, passages: int, dimension: int) -> int:
    """Return the MiB that pgvector's k-means takes, by the sums of its ``ivfkmeans.c`` (Elkan's algorithm)."""
    samples = max(min(lists * 50, passages), 10_000)  # 50 a list: ivfbuild.c
    vectors = (samples + 2 * lists) * (dimension * 2 + 16) + lists * dimension * 4  # a half float has 2 bytes
    bounds = 4 * (samples * lists + 2 * samples + lists * lists + 3 * lists)
    return ((vectors + bounds) >> 20) + 1


async def tune(  # noqa: PLR0913
    url: str,
    fingerprint: str = "",
    *,
    method: IndexMethod | None = None,
    wanted: float | None = None,
    memory: int = 1024,
    dry_run: bool = False,
    report: Report = lambda _: None,
) -> Tuning:
    """Build the index for a model's vectors, measure it, and record the effort that reaches the wanted recall.

    Reading, publishing and indexing continue meanwhile. If it is interrupted, searches use the index of before or none,
    and the next run removes what is left of the new one. When its task is cancelled, so is the statement that runs.

    Parameters
    ----------
    fingerprint
        The model; empty for the active one.
    method, wanted
        The index, and the recall@10 it is to reach; None for those of the last time (at first auto, 0.98).
    memory
        MiB of the server's memory that building may take.
    report
        Called with each step in words.

    Raises
    ------
    UsageError, NotFound, RegistryRefused, RegistryError
        When `wanted` is out of range; the model has no vectors; the connection's role may not act as the tables' owner;
        somebody else is tuning, the connection is lost, or the server lacks the memory.
    """
    if wanted is not None and not 0.5 <= wanted <= 1:  # the least effort reaches a half
        raise UsageError(f"recall {wanted:g} is not between 0.5 and 1", hint="0.98 is the default")
    async with _exclusive(url) as connection:
        row = await (await connection.execute(_PLAN, [fingerprint])).fetchone()
        if row is None:
            raise NotFound(f"the registry has no vectors of {fingerprint or 'any model'}", hint="kiwi registry index")
        collection, model, passages, last_method, last_wanted, dimension = row
        requested, recall = method or last_method, wanted or last_wanted or 0.98
        choice = choose(passages, requested, memory, dimension)
        tuning = Tuning(collection, model, passages, requested, recall, choice, dimension)
        return tuning if dry_run else await _rebuild(connection, tuning, report)


async def _rebuild(connection: Connection, tuning: Tuning, report: Report) -> Tuning:
    removed = await _drop_unused(connection)  # what an interrupted run left
    name = ""
    if tuning.choice.method != "exact":
        report(f"building the index: {tuning.choice}")
        name = await _create(connection, tuning)  # the index of before serves until the record names this one
        guess = max(40, tuning.choice.lists // 10)  # until it is measured: more effort than needed
        tuning = replace(tuning, effort=guess, wide_effort=2 * guess)
    await _record(connection, tuning, name)
    tuning = replace(tuning, removed=(*removed, *await _drop_unused(connection)))
    if name:
        tuning = await _measure(connection, tuning, report)
        await _record(connection, tuning, name)
    return tuning


async def _record(connection: Connection, tuning: Tuning, index_name: str) -> None:
    """Make searches use an index, or none; one that is not recorded any more may be dropped."""
    values = {field: getattr(tuning, field) for field in tuning.__slots__}
    values |= {"method": tuning.choice.method, "lists": tuning.choice.lists, "index_name": index_name}
    await connection.execute(_RECORD, values)


async def _create(connection: Connection, tuning: Tuning) -> str:
    """Build an index while others read and write; return its name."""
    from psycopg import sql

    name, lists = f"passages_nearest_{tuning.collection}_{time.time_ns()}", tuning.choice.lists
    statement = sql.SQL(_CREATE).format(
        name=sql.Identifier(name),
        method=sql.Identifier(tuning.choice.method),
        options=sql.SQL("lists = {}").format(sql.Literal(lists)) if lists else sql.SQL("m = 16"),
        collection=sql.Literal(tuning.collection),
        dimension=sql.Literal(tuning.dimension),
    )
    await connection.execute("select set_config('maintenance_work_mem', %s, false)", [f"{tuning.choice.memory}MB"])
    await connection.execute(statement)
    return name


async def _drop_unused(connection: Connection) -> list[str]:
    """Remove the indexes that no tuning recorded: interrupted builds, replaced ones, those of removed models."""
    from psycopg import sql

    unused = await _column(connection, _UNUSED)
    for name in unused:
        await connection.execute(sql.SQL("drop index concurrently if exists {}").format(sql.Identifier("kiwi", name)))
    return unused


async def _measure(connection: Connection, tuning: Tuning, report: Report) -> Tuning:
    """Return the first effort whose recall@10 is surely enough, and the one whose recall@100 is; else the highest."""
    queries = await _queries(connection, tuning, report)
    enough: Tuning | None = None
    tried = tuning
    for effort in _efforts(tuning.choice):
        near, wide = await _recalls(connection, tuning.collection, queries, effort)
        tried = replace(tuning, effort=effort, wide_effort=effort, recall=statistics.fmean(near))
        report(f"effort {effort}: recall@10 {tried.recall:.3f}, recall@100 {statistics.fmean(wide):.3f}")
        if enough is None and _lower_bound(near) >= tuning.wanted_recall:
            enough = tried
        if enough and _lower_bound(wide) >= tuning.wanted_recall:
            break
    return replace(enough, wide_effort=tried.effort) if enough else tried


def _efforts(choice: IndexChoice) -> Sequence[int]:
    """Return efforts, each about a quarter more than the one before."""
    if choice.method == "hnsw":
        return (40, 80, 120, 180, 270, 400, 600, 1000)
    efforts, most = [1], min(choice.lists, 32_768)  # pgvector probes no more
    while efforts[-1] < most:
        efforts.append(min(efforts[-1] + max(1, efforts[-1] // 4), most))
    return efforts


async def _queries(connection: Connection, tuning: Tuning, report: Report) -> _Queries:
    """Return vectors to search for, as text, each with the passages that are truly nearest to it, nearest first."""
    count = _SAMPLES if tuning.passages <= 300_000 else 100  # each exact answer over more takes long
    vectors = await _new_vectors(connection, tuning, await _column(connection, _SAMPLE, tuning.collection, count))
    queries = []
    for number, vector in enumerate(vectors, 1):
        report(f"comparing with exact answers: {number} of {len(vectors)}")
        queries.append((vector, await _column(connection, _EXACT, tuning.collection, vector, _WIDE)))
    return queries


async def _new_vectors(connection: Connection, tuning: Tuning, stored: Sequence[str]) -> list[str]:
    """Return a vector near each stored one: the mean of its neighbourhood, scattered as the neighbourhood before it."""
    import numpy as np

    effort, means, scatter = tuning.effort or 1, [], []
    for vector in stored:
        texts = await _column(connection, _NEIGHBOURS, tuning.collection, vector, _WIDE, effort, 4 * effort)
        vectors = [np.fromstring(text.strip("[]"), dtype=np.float32, sep=",") for text in texts]
        means.append(np.mean(vectors[:_TOP], axis=0))
        scatter.append(vectors[-1] - vectors[len(vectors) // 2])
    # A difference of two has twice the variance of one.
    raw = [mean + scatter[number - 1] / np.sqrt(2) for number, mean in enumerate(means)]
    return [rows.vector_text(vector / np.linalg.norm(vector)) for vector in raw]


async def _recalls(connection: Connection, collection: int, queries: _Queries, effort: int) -> list[list[float]]:
    """Return the recall@10 and the recall@100 of each query at an effort."""
    found = [await _column(connection, _BY_INDEX, collection, vector, _WIDE, effort, effort) for vector, _ in queries]
    pairs = [(set(ids), exact) for ids, (_, exact) in zip(found, queries, strict=True)]
    return [[len(ids & {*exact[:n]}) / max(len(exact[:n]), 1) for ids, exact in pairs] for n in (_TOP, _WIDE)]


async def _column(connection: Connection, query: LiteralString, *values: Any) -> list[Any]:
    return [row[0] async for row in await connection.execute(query, values or None)]


def _lower_bound(values: Sequence[float]) -> float:
    """Return what the mean over all possible queries exceeds with 95% confidence, given these few."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return statistics.fmean(values) - 1.645 * error  # 95% of a normal distribution are above 1.645 errors below it


@asynccontextmanager
async def _owner(url: str) -> AsyncIterator[Connection]:
    """Open a connection that acts as the tables' owner, each statement a transaction of its own."""
    import psycopg

    with translate_errors():
        async with await psycopg.AsyncConnection.connect(checked_url(url), **OPTIONS) as connection:
            try:
                await connection.execute("set role kiwi_owner")
            except psycopg.errors.InsufficientPrivilege as error:
                message = (
                    "tuning needs the role that owns the registry's tables, and this connection's may not act as it"
                )
                hint = "use the connection that migrates, or GRANT kiwi_owner TO it"
                raise RegistryRefused(message, hint=hint) from error
            await connection.execute("set statement_timeout = 0")
            yield connection


@asynccontextmanager
async def _exclusive(url: str) -> AsyncIterator[Connection]:
    """Open a connection of the owner, while a second one holds the lock: an index is built outside of transactions."""
    async with _owner(url) as connection, _owner(url) as second, second.transaction():
        await second.execute("set local idle_in_transaction_session_timeout = 0")
        await second.execute("select from kiwi_private.locks where name = 'tuning' for update nowait")
        yield connection
