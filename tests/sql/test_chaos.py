"""Connections that die, stall or lose the answer: what a publisher was told is true, and nothing is there twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from kiwi_rag import retry
from kiwi_rag.errors import RegistryBusy, RegistryUnreachable
from kiwi_rag.model import Admission, Filters
from kiwi_rag.registry import pool
from kiwi_rag.registry.calls import time_limit
from kiwi_rag.registry.client import Receipt
from kiwi_rag.registry.pool import Connections
from kiwi_rag.stores.postgres import RegistryVectorStore
from tests.conformance.items import admission
from tests.examples import KILLS
from tests.sql.proxy import Proxy, proxied
from tests.sql.shelves import candidate, index, publish, refs, tier

KILL_ALL = """
    select count(pg_terminate_backend(pid)) from pg_stat_activity
    where application_name = 'kiwi' and datname = current_database() and random() < 0.5
"""


async def kill(connection: psycopg.Connection, done: Callable[[], int]) -> None:
    """Terminate about half of the backends `KILLS` times, each time after more was done, whatever time that takes."""
    async with asyncio.timeout(60 * KILLS):
        for _ in range(KILLS):
            before = done()
            while done() < before + 3:
                await asyncio.sleep(0.01)
            while not connection.execute(KILL_ALL).fetchone()[0]:
                await asyncio.sleep(0.001)


def assert_kept(connection: psycopg.Connection, given: list[Receipt], wanted: list[Admission]) -> None:
    """Every receipt is of a row that is there, with that number; every item is there once; the audit holds."""
    rows = connection.execute("select sequence, digest from kiwi.statements order by sequence").fetchall()
    assert {(r.sequence, r.digest) for r in given} <= set(rows)
    assert sorted(digest for _, digest in rows) == sorted(one.digest for one in wanted)
    published = connection.execute("select digest from kiwi.audit where event = 'publish'").fetchall()
    assert sorted(published) == sorted((one.digest,) for one in wanted)
    assert connection.execute("select public.verify_audit()").fetchone() == (None,)


async def test_backends_that_are_terminated_while_items_are_published(
    store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    many = [admission(f"acme/n{n}") for n in range(20 * KILLS)]
    receipts: list[Receipt] = []

    async def publish_one(one: Admission) -> None:
        receipts.append(await store.publish(one))

    killing = asyncio.create_task(kill(connection, lambda: len(receipts)))
    await asyncio.gather(*map(publish_one, many))
    await killing
    assert_kept(connection, receipts, many)


async def test_the_answer_to_a_publication_is_lost(url: str, connection: psycopg.Connection) -> None:
    one = admission("acme/x")
    async with proxied(url) as (proxy, through):
        proxy.cut_after = lambda number, sent, data: number == 1 and b"publish_item" in data
        proxy.answer_seconds = 60
        store = RegistryVectorStore(Connections(through))
        receipt = await store.publish(one)
        await store.close()
        assert proxy.connections == 2
    assert receipt.already_published  # it was there already: the first attempt had succeeded
    assert_kept(connection, [receipt], [one])


async def test_connections_that_are_cut_anywhere(url: str, connection: psycopg.Connection) -> None:
    chance = random.Random(7)
    many = [admission(f"acme/n{n}") for n in range(30)]
    receipts = []
    async with proxied(url) as (proxy, through):
        for one in many:
            first, limit = proxy.connections + 1, chance.randrange(50, 4000)
            cut = lambda number, sent, data, first=first, limit=limit: number == first and sent > limit  # noqa: E731
            proxy.cut_before, proxy.cut_after = (
                (cut, Proxy.cut_after) if chance.random() < 0.5 else (Proxy.cut_before, cut)
            )
            store = RegistryVectorStore(Connections(through))
            receipts.append(await store.publish(one))
            await store.close()
        assert proxy.connections > len(many)
    assert_kept(connection, receipts, many)


async def test_a_slow_network_is_only_slow(url: str, connection: psycopg.Connection) -> None:
    many = [admission(f"acme/n{n}") for n in range(4)]
    async with proxied(url) as (proxy, through):
        proxy.delay = 0.05
        store = RegistryVectorStore(Connections(through))
        receipts = await asyncio.gather(*map(store.publish, many))
        assert len(await store.list(Filters())) == 4
        await store.close()
    assert_kept(connection, receipts, many)


async def test_a_reader_whose_idle_connection_was_cut_does_not_notice(
    store: RegistryVectorStore, connection: psycopg.Connection
) -> None:
    await store.publish(admission("acme/x"))
    for _ in range(3):
        connection.execute(KILL_ALL.replace("random() < 0.5", "true"))
        assert len(await store.list(Filters())) == 1


async def test_a_registry_that_never_answers_is_given_up_with_a_clear_error(url: str) -> None:
    async with proxied(url) as (proxy, through):
        store = RegistryVectorStore(Connections(through))
        await store.status()
        proxy.silent = True
        async with asyncio.timeout(60):
            with pytest.raises(RegistryUnreachable, match=r"no answer within 0\.5 s") as told:
                for attempt in retry.attempts((0.1,)):
                    async with attempt, time_limit(0.5):
                        await store.status()
        assert "again is safe" in told.value.hint


async def test_a_server_that_is_gone_is_told_after_some_seconds_of_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(retry, "asyncio", SimpleNamespace(sleep=pause))
    store = RegistryVectorStore(Connections("postgresql://x@127.0.0.1:9/none"))
    with pytest.raises(RegistryUnreachable):
        await store.publish(admission("acme/x"))
    assert 3 < sum(pauses) < 10
    pauses.clear()
    with pytest.raises(RegistryUnreachable):
        await store.status()
    assert sum(pauses) == 0  # a search goes on with the other tiers


async def test_an_indexer_whose_backends_are_terminated_loses_nothing(
    url: str, tmp_path: Path, connection: psycopg.Connection
) -> None:
    async with tier(url, tmp_path) as registry:
        await publish(registry, *(candidate(f"acme/n{n}") for n in range(20 * KILLS)))
        indexed = "select count(distinct digest) from kiwi.passages where searchable"
        killing = asyncio.create_task(kill(connection, lambda: connection.execute(indexed).fetchone()[0]))
        await index(registry)
        await killing
        assert refs(await index(registry)) == []
        passages = "select count(*), count(distinct (digest, ordinal)) from kiwi.passages where searchable"
        assert connection.execute(passages).fetchone() == (40 * KILLS, 40 * KILLS)


@pytest.mark.parametrize("wrong", [{"dbname": "no_such_database"}, {"user": "nobody_of_this_name"}])
async def test_what_will_not_pass_is_tried_once(url: str, wrong: dict[str, str]) -> None:
    async with proxied(url) as (proxy, through):
        store = RegistryVectorStore(Connections(make_conninfo(through, **wrong)))
        with pytest.raises(RegistryUnreachable) as told:
            await store.publish(admission("acme/x"))
        assert proxy.connections == 1
        assert not told.value.transient
        assert "user, password and database" in told.value.hint


async def test_a_full_server_is_tried_again_and_named(
    url: str, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "BUSY_SECONDS", 0.5)
    name = connection.info.dbname
    connection.execute(f'alter database "{name}" connection limit 0')
    connection.execute("create role plain_client login in role anon")
    try:
        async with proxied(url) as (proxy, through):
            store = RegistryVectorStore(Connections(make_conninfo(through, user="plain_client")))
            with pytest.raises(RegistryBusy, match=r"the registry is busy: .*too many connections") as told:
                await store.status()
            assert proxy.connections > 1
            assert "try again in a moment" in told.value.hint
            connection.execute(f'alter database "{name}" connection limit -1')
            assert (await store.status()).items == 0
            await store.close()
    finally:
        connection.execute("drop role plain_client")
