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
from tests.examples import RACES
from tests.sql import publication
from tests.sql.test_index import assert_statistics_are_true

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

    for number in range(RACES):
        one = admission(f"acme/r{number}")
        await publish(lines[0], one, visibility)
        await asyncio.gather(*(later(do, line, one) for do, line in zip((store, call, store), lines, strict=True)))
    assert_statistics_are_true(connection)
    shown = connection.execute("select count(distinct statement_id) from kiwi.passages where searchable").fetchone()
    assert shown == (0 if name == "yank" else RACES,)
    assert connection.execute("select public.verify_audit()").fetchone() == (None,)


REFUSE = "select public.publish_item('[]', '{}')"
UNREAD = "insert into kiwi_private.refusals values (kiwi.caller_name(), now() - interval '1 hour', 60, 7)"
RECORDED = "select (details ->> 'count')::integer from kiwi.audit where details ->> 'code' = 'KW019'"


async def publish_beside_its_draft(line: psycopg.AsyncConnection, one: Admission) -> None:
    """Publish what an owner keeps private a second time, in public, as somebody who does not see the first."""
    await publish(line, one, "private")
    await line.execute("set role kiwi_publisher")
    await publish(line, one)
    await line.execute("reset role")


async def test_a_refused_and_an_accepted_call_of_one_login_do_not_wait_for_each_other(
    lines: list[psycopg.AsyncConnection], connection: psycopg.Connection
) -> None:
    first, second, holder = lines
    async with holder.transaction():
        await holder.execute("select kiwi.lock_audit()")
        earlier = asyncio.create_task(first.execute(REFUSE))
        await waiting(holder, 1)
        connection.execute(UNREAD)
        later = asyncio.create_task(publish(second, admission("acme/x")))
        await waiting(holder, 2)
    await asyncio.gather(earlier, later)  # before: deadlock detected
    connection.execute("update kiwi_private.refusals set minute = now() - interval '1 hour'")
    await publish(first, admission("acme/y"))
    assert connection.execute(RECORDED).fetchall() == [(7,)]
    assert connection.execute("select public.verify_audit()").fetchone() == (None,)


async def test_two_indexers_of_a_public_item_and_a_draft_of_one_digest(lines: list[psycopg.AsyncConnection]) -> None:
    (first, second, holder), one = lines, admission("acme/x")
    await publish_beside_its_draft(first, one)
    await holder.execute("update kiwi_private.index_queue set attempts = 1")  # what storing sets back
    claim = "select public.claim_item(%s, %s) ->> 'state'"
    async with first.transaction():
        await first.execute(claim, [one.digest, FINGERPRINT])
        async with second.transaction():
            answer = await (await second.execute(claim, [one.digest, FINGERPRINT])).fetchone()
            assert answer == ("busy",)  # before: the other row, and then a deadlock of the two that store
            await store(first, one)  # what is busy holds nothing
    assert await (await second.execute(claim, [one.digest, FINGERPRINT])).fetchone() == ("done",)
    assert await (await holder.execute("select attempts from kiwi_private.index_queue")).fetchall() == [(0,), (0,)]


async def test_storing_takes_the_rows_of_the_queue_in_order(lines: list[psycopg.AsyncConnection]) -> None:
    (first, second, holder), one = lines, admission("acme/x")
    await publish_beside_its_draft(first, one)
    await holder.execute("update kiwi_private.index_queue set attempts = 1")
    # The table is read from its beginning, where the draft's row lies before the public one's.
    await first.execute("set enable_nestloop = off; set enable_indexscan = off; set enable_bitmapscan = off")
    lock = "select from kiwi_private.index_queue where statement_id {} 1000000000000 for update {}"
    async with holder.transaction():
        await holder.execute(lock.format("<", ""))
        storing = asyncio.create_task(store(first, one))
        await waiting(holder, 1)
        await second.execute(lock.format(">=", "nowait"))  # not taken before the first
    await storing


async def test_a_publication_takes_the_public_and_the_owners_lock_in_order(
    lines: list[psycopg.AsyncConnection],
) -> None:
    """Of two items the one's public row is the other's owner's, and the other way about."""
    first, second, holder = lines
    named = "'item' || (hashtextextended(k || ':directive:' || id, 0) & 255)"
    found = await holder.execute(
        f"""
        with locks as (
            select id, min(name) filter (where k = '') as public, min(name) filter (where k <> '') as own
            from (
                select id, k, {named} as name
                from generate_series(1, 3000) as n, lateral (select 'acme/r' || n) as i (id),
                    unnest(array['', 'principal:ada@acme']) as k
            ) as l group by id
        )
        select a.id, b.id, a.own from locks as a join locks as b on a.public = b.own and a.own = b.public
        where a.own < a.public order by 1 limit 1
        """
    )
    one, other, own = await found.fetchone()
    async with holder.transaction():
        await holder.execute("select from kiwi_private.locks where name = %s for update", [own])
        earlier = asyncio.create_task(publish(second, admission(other)))
        await waiting(holder, 1)
        later = asyncio.create_task(publish(first, admission(one)))
        await waiting(holder, 2)
        # Both wait for the first of the two rows, and neither holds the second: before, a deadlock.
        taken = "select from kiwi_private.locks where name like 'item%%' and name <> %s for update nowait"
        await holder.execute(taken, [own])
    await asyncio.gather(earlier, later)
