"""`Connections`: what is opened is closed, whatever comes between; a peer that vanished is noticed."""

from __future__ import annotations

import asyncio
import os
import socket

import psycopg
import pytest

from kiwi_rag.registry.pool import Connections
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
