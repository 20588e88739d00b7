"""Every function takes its locks in the order that `kiwi.lock_index` tells: nobody is refused for a deadlock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import psycopg
import pytest
from psycopg.types.json import Jsonb

from kiwi_rag.model import Admission
from kiwi_rag.registry import rows
from tests.conformance.items import FINGERPRINT, admission, records
from tests.sql import publication
from tests.sql.test_index import assert_statistics_are_true

ROUNDS = 50
Call = Callable[[psycopg.AsyncConnection, Admission], Awaitable[object]]


async def publish(line: psycopg.AsyncConnection, one: Admission, visibility: str = "public") -> object:
    answer = await (await line.execute(publication.CALL, publication.arguments(one, visibility))).fetchone()
    assert "code" not in answer[0], answer
    return answer


async def store(line: psycopg.AsyncConnection, one: Admission) -> object:
    passages = Jsonb([rows.passage_object(record) for record in records(one, ["zebra stripes", "zebra hooves"])])
    return await line.execute("select public.store_passages(%s, %s, %s)", [one.digest, FINGERPRINT, passages])


async def yank(line: psycopg.AsyncConnection, one: Admission) -> object:
    return await line.execute("select public.yank_item('directive', %s)", [str(one.ref.item_id)])


async def claim_and_store(line: psycopg.AsyncConnection, one: Admission) -> object:
    async with line.transaction():
        await line.execute("select public.claim_item(%s, %s)", [one.digest, FINGERPRINT])
        return await store(line, one)


OTHERS: dict[str, tuple[str, Call]] = {
    "yank": ("public", yank),
    "open": ("private", publish),
    "claim": ("public", claim_and_store),
}


@pytest.fixture
async def lines(url: str) -> AsyncIterator[list[psycopg.AsyncConnection]]:
    """Three connections, each statement a transaction of its own."""
    opened = [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(3)]
    yield opened
    for line in opened:
        await line.close()


async def waiting(line: psycopg.AsyncConnection, others: int) -> None:
    """Return once that many connections of this database wait for a lock."""
    query = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    async with asyncio.timeout(60):
        while (await (await line.execute(query)).fetchone())[0] < others:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("stored_first", [True, False])
@pytest.mark.parametrize("name", OTHERS)
async def test_one_that_stores_and_one_that_changes_the_row_do_not_wait_for_each_other(
    lines: list[psycopg.AsyncConnection], connection: psycopg.Connection, name: str, stored_first: bool
) -> None:
    visibility, call = OTHERS[name]
    calls = (store, call) if stored_first else (call, store)
    (first, second, holder), one = lines, admission("acme/x")
    await publish(first, one, visibility)
    await first.execute("update kiwi_private.index_queue set attempts = 1")  # what storing sets back
    async with holder.transaction():
        await holder.execute("select kiwi.lock_index()")
        earlier = asyncio.create_task(calls[0](first, one))
        await waiting(holder, 1)
        later = asyncio.create_task(calls[1](second, one))
        await waiting(holder, 2)
    await asyncio.gather(earlier, later)  # before: deadlock detected
    assert_statistics_are_true(connection)


@pytest.mark.parametrize("name", OTHERS)
async def test_races(lines: list[psycopg.AsyncConnection], connection: psycopg.Connection, name: str) -> None:
    visibility, call = OTHERS[name]
    chance = random.Random(3)

    async def later(doing: Call, line: psycopg.AsyncConnection, one: Admission) -> None:
        await asyncio.sleep(chance.random() * 0.004)
        await doing(line, one)

    for number in range(ROUNDS):
        one = admission(f"acme/r{number}")
        await publish(lines[0], one, visibility)
        await asyncio.gather(*(later(do, line, one) for do, line in zip((store, call, store), lines, strict=True)))
    assert_statistics_are_true(connection)
    shown = connection.execute("select count(distinct statement_id) from kiwi.passages where searchable").fetchone()
    assert shown == (0 if name == "yank" else ROUNDS,)
    assert connection.execute("select public.verify_audit()").fetchone() == (None,)
