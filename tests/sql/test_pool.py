"""`Connections`: what is opened is closed, whatever comes between; a peer that vanished is noticed."""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from kiwi_rag.errors import RegistryBusy
from kiwi_rag.registry import pool
from kiwi_rag.registry.client import RegistryClient
from kiwi_rag.registry.pool import Connections
from kiwi_rag.retry import CallLimit
from tests.sql.proxy import proxied

OPEN = "select count(*) from pg_stat_activity where application_name = 'kiwi' and datname = current_database()"


async def open_soon(connection: psycopg.Connection, wanted: int) -> int:
    """How many connections of Kiwi's are open, once that is `wanted` or half a minute has passed."""
    for _ in range(600):
        if (found := connection.execute(OPEN).fetchone()[0]) == wanted:
            break
        await asyncio.sleep(0.05)
    return found


async def test_what_is_in_use_closes_when_it_comes_back(url: str, connection: psycopg.Connection) -> None:
    connections = Connections(url)
    async with connections.session():
        await connections.close()
        assert await open_soon(connection, 1) == 1
    assert await open_soon(connection, 0) == 0


@pytest.mark.parametrize("idle", [False, True], ids=["opening", "asking whether it is alive"])
async def test_a_caller_that_is_cancelled_leaves_no_connection(
    url: str, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, idle: bool
) -> None:
    opened, connect = [], psycopg.AsyncConnection.connect

    async def remembered(*args: object, **options: object) -> psycopg.AsyncConnection:
        opened.append(await connect(*args, **options))  # held here, so that no garbage collection closes it
        return opened[-1]

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", remembered)
    monkeypatch.setattr("kiwi_rag.registry.pool._TRUSTED_SECONDS", 0.0)
    async with proxied(url) as (proxy, through):
        connections = Connections(through)
        if idle:
            async with connections.session():
                pass
        proxy.delay = 0.6

        async def use() -> None:
            async with connections.session():
                pass

        using = asyncio.create_task(use())
        while not opened:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # it waits for its first answer
        assert not using.done()
        using.cancel()
        with pytest.raises(asyncio.CancelledError):
            await using
        assert await open_soon(connection, 0) == 0
        assert [one.closed for one in opened] == [True]


async def test_a_peer_that_vanished_is_given_up_after_a_minute(url: str) -> None:
    async with proxied(url) as (_, through):
        connections = Connections(through)
        async with connections.session():
            pass
        ((idle, _),) = connections._idle
        with socket.socket(fileno=os.dup(idle.fileno())) as peer:
            assert peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
        await connections.close()


@pytest.fixture
def reader(url: str, connection: psycopg.Connection) -> Iterator[str]:
    """The URL of a login that may have one connection."""
    connection.execute("create role reader login in role anon connection limit 1")
    yield make_conninfo(url, user="reader")
    connection.execute("drop role reader")


async def test_calls_take_turns_with_the_connections_that_the_server_allows(reader: str) -> None:
    connections = Connections(reader)
    client = RegistryClient(connections)
    states = await asyncio.gather(*(client.registry_status() for _ in range(30)))  # before: too many connections
    assert [state["items"] for state in states] == [0] * 30
    await connections.close()


async def test_a_call_waits_until_another_process_leaves_a_place(reader: str) -> None:
    connections = Connections(reader)
    with psycopg.connect(reader):
        waiting = asyncio.create_task(RegistryClient(connections).registry_status())
        while not connections._refused:
            await asyncio.sleep(0.01)
    assert (await waiting)["items"] == 0  # before: too many connections
    await connections.close()


async def test_a_full_pool_says_so(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "BUSY_SECONDS", 0.1)
    connections = Connections(url, limit=2)
    async with connections.session(), connections.session():
        with pytest.raises(RegistryBusy, match="all 2 connections of this process are in use") as told:
            await RegistryClient(connections).registry_status()
        assert (told.value.code, told.value.transient) == ("registry-busy", False)
        limit = CallLimit(0.0, 0.0)
        with pytest.raises(RegistryBusy):
            await limit.start(RegistryClient(connections).registry_status())
        assert isinstance(limit.error(), RegistryBusy)
    assert (await RegistryClient(connections).registry_status())["items"] == 0
    await connections.close()


async def test_of_the_calls_that_wait_those_of_the_earliest_caller_are_next(url: str) -> None:
    connections, order, tasks = Connections(url, limit=1), list[int](), list[asyncio.Task[None]]()

    async def call(begun: int) -> None:
        async with connections.session():
            order.append(begun)

    async with connections.session():
        for begun in (3, 1, 2, 1):
            tasks.append(CallLimit(float(begun), math.inf).start(call(begun)))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order == [1, 1, 2, 3]
    await connections.close()


async def test_a_place_that_a_cancelled_call_was_just_given_is_not_lost(url: str) -> None:
    connections = Connections(url, limit=1)
    async with connections.session():
        waiting = asyncio.create_task(RegistryClient(connections).registry_status())
        while not connections._places._waiting:
            await asyncio.sleep(0)
    waiting.cancel()  # its place is given, and it has not run since
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await RegistryClient(connections).registry_status())["items"] == 0
    await connections.close()


async def test_a_connection_that_nobody_uses_is_closed(
    url: str, connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_IDLE_SECONDS", 0.05)
    connections = Connections(url)
    async with connections.session() as used:
        await asyncio.gather(*(RegistryClient(connections).registry_status() for _ in range(3)))
        assert await open_soon(connection, 1) == 1  # before: kept until the process ended
        assert (await used.value("registry_status", {}))["items"] == 0
    assert await open_soon(connection, 0) == 0
    assert (await RegistryClient(connections).registry_status())["items"] == 0
    await connections.close()
