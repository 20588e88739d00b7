"""Connections to the registry: opened when first needed, kept while useful, closed together.

psycopg's own pool answers an unreachable server only after its whole timeout, having tried again and again in the
background; a search must hear of it at once, to go on with the other tiers. So this one connects in the caller's task.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from kiwi_rag.registry.calls import Caller, SqlCaller, checked_url, translated

if TYPE_CHECKING:
    import psycopg

_CONNECT_SECONDS = 10
_STATEMENT_MILLISECONDS = 60_000
_SETTLING_SECONDS = 0.1
# A peer that vanished is noticed after a minute, also by a connection that only listens.
# Keepalives tell of one that sends nothing, the user timeout (ms) of one that acknowledges nothing that was sent to it.
_KEEPALIVE: dict[str, Any] = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}


class Connections:
    """A few connections to one database, for one event loop.

    Parameters
    ----------
    url
        ``postgresql://…``, or a blocking function that returns it (it may have to start a server); called once,
        in a worker thread, when the first connection is needed.
    limit
        How many connections may be open at once; further users wait.
    """

    def __init__(self, url: str | Callable[[], str], *, limit: int = 8) -> None:
        self._source = url
        self._url = ""
        self._idle: list[psycopg.AsyncConnection[Any]] = []
        self._places = asyncio.Semaphore(limit)
        self._closed = False
        self._resolving = asyncio.Lock()

    @asynccontextmanager
    async def session(self, role: str = "") -> AsyncIterator[Caller]:
        """Yield a caller inside a transaction: committed at the end, rolled back on an exception.

        `role` is one that the connection's own may act as; it counts for this transaction only.

        Raises
        ------
        RegistryError
            Whatever the driver raises, inside the block too, translated.
        """
        async with self._places:
            with translated():
                connection = await self._take()
                try:
                    async with connection.transaction():
                        caller = SqlCaller(connection)
                        if role:
                            await caller.become(role)
                        yield caller
                finally:
                    await self._give_back(connection)

    async def url(self) -> str:
        """Return the database's URL, finding it out first if need be."""
        async with self._resolving:
            if not self._url:
                source = self._source
                self._url = checked_url(source if isinstance(source, str) else await asyncio.to_thread(source))
        return self._url

    async def close(self) -> None:
        """Close what is idle. What is in use, or is opened after this, closes when it comes back."""
        self._closed = True
        while self._idle:
            await self._idle.pop().close()

    async def _take(self) -> psycopg.AsyncConnection[Any]:
        while self._idle:
            connection = self._idle.pop()
            if await _is_alive(connection):
                return connection
        return await self._connect()

    @asynccontextmanager
    async def listening(self, channel: str) -> AsyncIterator[Callable[[float], Awaitable[bool]]]:
        """Yield what to call with a number of seconds: it waits for a notification that long, and tells if one came.

        Holds a connection of its own, beyond the limit. Behind a pooler in transaction mode nothing ever comes.

        Raises
        ------
        RegistryError
            Whatever the driver raises, inside the block too, translated.
        """
        from psycopg import sql

        with translated():
            connection = await self._connect()
            async with connection:
                await connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))

                async def wait(seconds: float) -> bool:
                    heard = [note async for note in connection.notifies(timeout=seconds, stop_after=1)]
                    if heard:  # many come at once; what they call for is done once
                        heard += [note async for note in connection.notifies(timeout=_SETTLING_SECONDS)]
                    return bool(heard)

                yield wait

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        """Open a connection; where the server is Kiwi's own and has died, start it again."""
        import psycopg

        try:
            return await self._open()
        except psycopg.OperationalError:
            if isinstance(self._source, str):
                raise
        self._url = ""
        return await self._open()

    async def _open(self) -> psycopg.AsyncConnection[Any]:
        import psycopg

        connection = await psycopg.AsyncConnection.connect(
            await self.url(),
            autocommit=True,
            connect_timeout=_CONNECT_SECONDS,
            application_name="kiwi",
            **_KEEPALIVE,
        )
        async with _closed_on_failure(connection):
            # Not as a start-up option: connection poolers in front of hosted servers refuse those.
            await connection.execute(f"set statement_timeout = {_STATEMENT_MILLISECONDS:d}")
        # Poolers in transaction mode lose prepared statements.
        connection.prepare_threshold = None
        return connection

    async def _give_back(self, connection: psycopg.AsyncConnection[Any]) -> None:
        from psycopg.pq import TransactionStatus

        if connection.info.transaction_status is TransactionStatus.IDLE and not self._closed:
            self._idle.append(connection)
        else:
            await connection.close()


async def _is_alive(connection: psycopg.AsyncConnection[Any]) -> bool:
    """Ask the server, for a connection may have died while it was idle; about 0.1 ms."""
    import psycopg

    try:
        async with _closed_on_failure(connection):
            await connection.execute("")
    except psycopg.OperationalError:
        return False
    return True


@asynccontextmanager
async def _closed_on_failure(connection: psycopg.AsyncConnection[Any]) -> AsyncIterator[None]:
    """Close the connection when the block does not come to its end: also one that was cancelled leaves nothing open."""
    try:
        yield
    except BaseException:
        await connection.close()
        raise
