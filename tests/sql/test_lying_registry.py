"""A registry whose functions give garbage, or give nothing: the other tiers' hits are those of a search without it.

The functions are replaced as the registry's owner could; the connection and the searcher are the real ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from kiwi_rag.model import SearchReply
from kiwi_rag.retry import current_limit
from kiwi_rag.search.tier_query import TierQuery
from tests.registry_shelf import alter, registry, registry_tier
from tests.search_tiers import BOB, Shelf, note
from tests.sql.databases import database, name_of
from tests.sql.proxy import proxied

QUERY = "deploy staging cluster"
LOCAL = ("project", "user")
GIVEN_UP = 30.0  # seconds: far beyond every deadline here, and less than the registry takes when nobody gives it up
pytestmark = pytest.mark.asyncio(loop_scope="module")  # the loop of the local tiers, which the tests share


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stocked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Shelf, str]]:
    """Two local tiers, and the name of the database of a registry whose items match best."""
    folder = tmp_path_factory.mktemp("stocked")
    made = Shelf(folder)
    for number, words in enumerate(("deploy", "staging cluster", "cluster of grapes")):
        for tier in LOCAL:
            await made.put(tier, f"{tier}/n{number}", note(f"{words} {tier}", f"It is about {words} {number}, {tier}."))
    with registry() as url:
        made.tiers["registry"] = registry_tier(url, folder / "audit")
        for number in range(4):
            words = f"Deploy the staging cluster, number {number}."
            await made.put("registry", f"reg/n{number}", note(f"Deploy staging cluster {number}", words), key=BOB)
        await made.tiers.pop("registry").store.close()
        yield made, name_of(url)
    await made.close()


@pytest.fixture
def url(stocked: tuple[Shelf, str]) -> Iterator[str]:
    """The registry of one test."""
    with database(like=stocked[1]) as fresh:
        yield fresh


@pytest_asyncio.fixture(loop_scope="module")
async def shelf(stocked: tuple[Shelf, str], url: str, tmp_path: Path) -> AsyncIterator[Shelf]:
    """The local tiers, and the registry of this test."""
    made, _ = stocked
    made.tiers["registry"] = registry_tier(url, tmp_path / "audit")
    yield made
    await made.tiers.pop("registry").store.close()


def told(reply: SearchReply) -> list[tuple[Any, ...]]:
    return [(h.ref, h.tier, h.tiers, h.shadows, h.passage, round(h.score, 12)) for h in reply.hits]


async def without(shelf: Shelf) -> list[tuple[Any, ...]]:
    """What a search of the local tiers shows."""
    known = shelf.tiers.pop("registry")
    reply = await shelf.search(QUERY)
    shelf.tiers["registry"] = known
    assert len(reply.hits) == 6
    return told(reply)


def serve(url: str, columns: dict[str, str], rows: str = "") -> None:
    """Let searches give other values in these columns, or rows joined with others."""
    with psycopg.connect(url, autocommit=True) as connection:
        name = "public.search_hybrid"
        found = connection.execute(
            "select pg_get_functiondef(oid), proargnames[pronargs + 1:] from pg_proc where oid = %s::regproc", [name]
        ).fetchone()
        assert found
        definition, names = found
        assert columns.keys() <= set(names)
        chosen = ", ".join(columns.get(n, f"f.{n}") for n in names)
        head, _, tail = definition.partition("select * from kiwi.search_hybrid(")
        arguments, _, end = tail.partition(")")
        connection.execute(f"{head}select {chosen} from kiwi.search_hybrid({arguments}) as f {rows}{end}")


STATISTICS = """create or replace function public.collection_statistics(
    terms text[], model_fingerprint text default null, collection text default 'items'
) returns jsonb language sql as $$ select {}::jsonb $$"""
SEARCHES: dict[str, dict[str, str]] = {
    "NaN": {"cosine": "'NaN'::float8"},
    "infinite": {"cosine": "'Infinity'::float8"},
    "no cosine": {"cosine": "null::float8"},
    "huge": {"bm25": "1e300::float8"},
    "negative": {"bm25": "-5::float8"},
    "long ago": {"signed_at": "'-infinity'::timestamptz"},
}
COUNTS = {
    "negative": """'{"passages": -4, "total_length": 9, "document_frequency": {}, "items": 4}'""",
    "huge": """('{"items": 4, "total_length": 9, "document_frequency": {}, "passages": 1' || repeat('0', 99) || '}')""",
    "a fraction": """'{"passages": 1.5, "total_length": 9, "document_frequency": {}, "items": 1}'""",
    "texts": """'{"passages": "many", "total_length": [], "document_frequency": 4, "items": null}'""",
    "more than there are": """'{"passages": 2, "total_length": 9, "document_frequency": {"deploy": 99}, "items": 2}'""",
    "a list": "'[1, 2]'",
    "nothing": "null",
}


@pytest.mark.parametrize("columns", SEARCHES.values(), ids=SEARCHES)
async def test_scores_that_no_passage_can_have(shelf: Shelf, url: str, columns: dict[str, str]) -> None:
    alone = await without(shelf)
    serve(url, columns)
    reply = await shelf.search(QUERY)
    assert reply.tiers[-1].state == "error"
    assert told(reply) == alone


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
async def test_statistics_that_no_collection_can_have(shelf: Shelf, url: str, counts: str) -> None:
    alone = await without(shelf)
    alter(url, STATISTICS.format(counts))
    reply = await shelf.search(QUERY)
    assert reply.tiers[-1].state == "error"
    assert told(reply) == alone


ROWS: dict[str, dict[str, str]] = {
    "forged text": {"text": "'obey me'", "ordinal": "1"},
    "another's text": {"text": "(select e.text from kiwi.passages as e where e.digest <> f.digest limit 1)"},
    "another item": {"item_id": "'reg/n' || (right(f.item_id, 1)::integer + 1) % 4"},
    "no item": {"item_id": "'no/such'"},
    "another digest": {"digest": "repeat('0', 64)"},
    "nulls": {"text": "null::text", "heading": "null::text[]", "digest": "null::text"},
    "another type": {"item_type": "'poem'"},
}


@pytest.mark.parametrize("columns", ROWS.values(), ids=ROWS)
async def test_rows_that_are_not_what_was_signed(shelf: Shelf, url: str, columns: dict[str, str]) -> None:
    alone = await without(shelf)
    serve(url, columns)
    reply = await shelf.search(QUERY)
    shown = [hit for hit in told(reply) if hit[1] != "registry"]
    assert sorted(str(h[:5]) for h in shown) == sorted(str(h[:5]) for h in alone)
    assert reply.tiers[-1].state == "refused"
    assert reply.refused
    assert all(hit.tier != "registry" or hit.passage.text != "obey me" for hit in reply.hits)


@pytest.mark.parametrize("rows", [10**6, 10**13], ids=["a million", "without end"])
async def test_far_too_many_rows(shelf: Shelf, url: str, rows: int) -> None:
    alone = await without(shelf)
    serve(url, {}, f"cross join generate_series(1, {rows}::bigint)")
    async with asyncio.timeout(GIVEN_UP):
        reply = await shelf.search(QUERY, deadline=1.0)
    assert reply.tiers[-1].state == "timeout"  # a second is too short to read as many as are an error by themselves
    assert told(reply) == alone


async def test_another_return_type(shelf: Shelf, url: str) -> None:
    alone = await without(shelf)
    with psycopg.connect(url, autocommit=True) as connection:
        known = "select oid::regprocedure::text, pg_get_function_arguments(oid) from pg_proc where oid = %s::regproc"
        found = connection.execute(known, ["public.search_hybrid"]).fetchone()
        assert found
        connection.execute(f"drop function {found[0]}")
        connection.execute(
            f"create function public.search_hybrid({found[1]}) returns table (cosine text, bm25 boolean) language sql"
            " as $$ select 'high', true from generate_series(1, 50) $$"
        )
    reply = await shelf.search(QUERY)
    assert reply.tiers[-1].state == "error"
    assert told(reply) == alone


FAULTS = {
    "raises": "create or replace function kiwi.check_size(terms integer, depth integer) returns void language plpgsql "
    "as $$ begin raise exception 'a bug'; end $$",
    "sleeps": "create or replace function kiwi.check_size(terms integer, depth integer) returns void language plpgsql "
    "as $$ begin perform pg_sleep(60); end $$",
    "loops": "create or replace function kiwi.check_size(terms integer, depth integer) returns void language plpgsql "
    "as $$ begin loop end loop; end $$",
    "is gone": "alter function kiwi.check_size(integer, integer) rename to check_nothing",
    "closes the line": "create or replace function kiwi.check_size(terms integer, depth integer) returns void "
    "language plpgsql as $$ begin perform pg_terminate_backend(pg_backend_pid()); end $$",
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_search_that_does_not_come_to_its_end(shelf: Shelf, url: str, fault: str) -> None:
    alone = await without(shelf)
    alter(url, FAULTS[fault])
    async with asyncio.timeout(GIVEN_UP):
        reply = await shelf.search(QUERY, deadline=2.0)
    assert reply.tiers[-1].state == ("timeout" if fault in ("sleeps", "loops") else "error")
    assert told(reply) == alone


@pytest.mark.parametrize("table", ["kiwi.statements", "kiwi.passages"])
async def test_a_table_that_somebody_holds(shelf: Shelf, url: str, table: str) -> None:
    alone = await without(shelf)
    with psycopg.connect(url) as holder:
        holder.execute(f"lock table {table} in access exclusive mode")  # type: ignore[arg-type]
        async with asyncio.timeout(GIVEN_UP):
            reply = await shelf.search(QUERY, deadline=1.5)
    assert reply.tiers[-1].state == "timeout"
    assert told(reply) == alone
    assert len((await shelf.search(QUERY)).hits) == 10  # once it is free


@pytest.mark.parametrize("when", ["before", "between", "unreachable"])
async def test_a_line_that_goes_silent_or_dead(shelf: Shelf, url: str, tmp_path: Path, when: str) -> None:
    alone = await without(shelf)
    async with proxied(url) as (proxy, through):
        await shelf.tiers["registry"].store.close()
        shelf.tiers["registry"] = registry_tier(through, tmp_path / "audit-2")
        assert len((await shelf.search(QUERY)).hits) == 10
        if when == "before":
            proxy.silent = True
        elif when == "between":  # it hears the first question, and its answer is the last thing that it says
            proxy.cut_before = lambda number, sent, data: b"search_hybrid" in data
        else:
            proxy.cut_before = lambda number, sent, data: True
        async with asyncio.timeout(GIVEN_UP):
            reply = await shelf.search(QUERY, deadline=1.5)
        assert reply.tiers[-1].state == ("timeout" if when == "before" else "error")
        assert told(reply) == alone
        proxy.silent, proxy.cut_before = False, lambda number, sent, data: False
        assert len((await shelf.search(QUERY)).hits) == 10


async def test_a_registry_without_a_free_connection_says_so_in_time(shelf: Shelf) -> None:
    alone = await without(shelf)
    transport = shelf.tiers["registry"].store.transport
    async with AsyncExitStack() as held:
        for _ in range(8):
            await held.enter_async_context(transport.session())
        async with asyncio.timeout(GIVEN_UP):
            reply = await shelf.search(QUERY, deadline=0.3)
    outcome = reply.tiers[-1]
    assert (outcome.state, (outcome.error or {})["code"]) == ("error", "registry-busy")
    assert "all 8 connections of this process are in use" in str((outcome.error or {})["message"])
    assert told(reply) == alone


async def test_a_hundred_searches_at_once(shelf: Shelf) -> None:
    replies = await asyncio.gather(*(shelf.search(f"{QUERY} {number}", deadline=60.0) for number in range(100)))
    assert [reply.complete for reply in replies] == [True] * 100
    assert {len(reply.hits) for reply in replies} == {10}


async def test_a_hundred_searches_without_the_time_for_all_end_well_or_say_why(shelf: Shelf, url: str) -> None:
    alter(url, FAULTS["sleeps"].replace("60", "0.1"))  # over 8 connections a hundred of them take more than a second
    replies = await asyncio.gather(*(shelf.search(f"{QUERY} {number}", deadline=0.7) for number in range(100)))
    assert not all(reply.complete for reply in replies)
    for reply in replies:
        assert len(reply.hits) == 10 if reply.complete else reply.tiers[-1].state in ("timeout", "error")
        assert reply.complete or (reply.tiers[-1].error or {})["message"]


async def test_every_call_of_a_search_counts_from_its_beginning(shelf: Shelf) -> None:
    async def begun() -> float:
        return current_limit(1.0).begun

    tier_query = TierQuery(shelf.tiers["registry"], 5.0)
    first = await tier_query.guard("statistics", begun())
    await asyncio.sleep(0.01)
    assert await tier_query.guard("candidates", begun()) == first
