"""Calls over psycopg, through a small pool of connections: opened when first needed, reused, closed together.

psycopg's own pool retries an unreachable server in the background and reports it only after its whole timeout. A search
must know at once, to go on with the other tiers, so this pool connects in the caller's task.
"""

from __future__ import annotations

import asyncio
import bisect
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from operator import itemgetter
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from kiwi_rag.errors import RegistryBusy, RegistryUnreachable
from kiwi_rag.registry.calls import DIRECT, Caller, characters, check_size, checked_url, translate_errors
from kiwi_rag.retry import CallLimit, current_limit

if TYPE_CHECKING:
    import psycopg

_STATEMENT_MILLISECONDS = 60_000
_COLLECT_SECONDS = 0.1
BUSY_SECONDS = 10.0
"""How long a call waits for a connection, unless its caller gives it up after another time."""
_IDLE_SECONDS = 30.0
"""After how long without a call the connections are closed."""
_REFUSED_SECONDS, _LONGEST_PAUSE = 0.2, 2.0
"""After how long a connection is tried again for which the server had no room: the first one, and at most."""
_TRUSTED_SECONDS = 0.1
"""A connection that was used so recently is taken to work still: a search makes a dozen calls in a row."""
# A peer that vanished is noticed after a minute, also by a connection that only listens. Keepalives detect it on an
# idle connection; the user timeout (in ms) where sent data is not acknowledged, during which no keepalives are sent.
OPTIONS: dict[str, Any] = {
    "autocommit": True,
    "connect_timeout": 10,
    "application_name": "kiwi",
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
    # No prepared statements: a pooler in transaction mode may run the next transaction on another connection.
    "prepare_threshold": None,
}


# psycopg warns where it cannot cancel a statement, as when the server is gone. The error that is raised says so,
# and without a handler Python would print the warning.
logging.getLogger("psycopg").addHandler(logging.NullHandler())


class SqlCaller:
    """Calls over one psycopg connection, inside its transaction."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def value(self, function: str, arguments: Mapping[str, Any]) -> Any:
        """Return the one value."""
        rows = await self.rows(function, arguments)
        return next(iter(rows[0].values())) if rows else None

    async def rows(self, function: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows."""
        from psycopg.rows import dict_row

        found, size = list[dict[str, Any]](), 0
        call = _call(function, arguments), _adapted(arguments)
        # Streamed, so that a hostile server cannot fill this process's memory. It costs no more than `fetchall`.
        async with (
            self._connection.cursor(row_factory=dict_row) as cursor,
            aclosing(cast("AsyncGenerator[dict[str, Any]]", cursor.stream(*call))) as stream,
        ):
            async for row in stream:
                found.append(row)
                size += characters(row)
                check_size(function, len(found), size)
        return found

    async def set_role(self, role: str) -> None:
        """Act as `role` until the transaction ends, which the role that connected must be allowed to."""
        await self._connection.execute("select set_config('role', %s, true)", [role])


def _call(function: str, names: Iterable[str]) -> bytes:
    """Return the statement of a call; the names of functions and of their arguments are those in Kiwi's own code."""
    arguments = ", ".join(f"{name} => %({name})s" for name in names)
    return f"select * from public.{function}({arguments})".encode()  # noqa: S608  # no value is part of it


def _adapted(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with JSON objects, and lists of them, as psycopg takes them."""
    from psycopg.types.json import Jsonb

    return {
        name: Jsonb(value) if isinstance(value[0] if value and isinstance(value, list) else value, dict) else value
        for name, value in arguments.items()
    }


class _Places:
    """So many places; of the calls that wait for one the next is that whose caller began first.

    So of many searches at once the first come to their end, and not all of them run out of time.
    """

    def __init__(self, free: int) -> None:
        self._free = free
        self.all_taken = self.reason = f"the registry is busy: all {free} connections of this process are in use"
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []  # by the time when their callers began

    async def take(self, limit: CallLimit) -> None:
        """Wait for a place; raise `RegistryBusy` when the call's time is over before."""
        if self._free:
            self._free -= 1
            return
        place = asyncio.get_running_loop().create_future()
        bisect.insort(self._waiting, (limit.begun, place), key=itemgetter(0))
        limit.reasons.append(self.error)
        try:
            async with asyncio.timeout(limit.until - monotonic()):
                await place
            limit.reasons.remove(self.error)
        except (TimeoutError, asyncio.CancelledError) as error:
            if place.done() and not place.cancelled():  # it was given back at the moment of the cancellation
                self.give_back()
            if isinstance(error, TimeoutError):
                raise self.error() from error
            raise

    def error(self) -> RegistryBusy:
        """Return why there is no place, or none for which the server has a connection."""
        return RegistryBusy(self.reason, hint=DIRECT["busy"])

    def give_back(self) -> None:
        """Give a place to the next call that still waits, or keep it."""
        while self._waiting:
            place = self._waiting.pop(0)[1]
            if not place.done():
                place.set_result(None)
                return
        self._free += 1


class Connections:
    """A few connections to one database, for one event loop.

    Parameters
    ----------
    url
        ``postgresql://…``, or a blocking function that returns it (it may have to start a server); called once,
        in a worker thread, when the first connection is needed.
    limit
        How many connections may be open at once; further calls wait.
    """

    def __init__(self, url: str | Callable[[], str], *, limit: int = 8) -> None:
        self._source = url
        self._url = ""
        self._idle: list[tuple[psycopg.AsyncConnection[Any], float]] = []  # with the time when it was released
        self._places = _Places(limit)
        self._refused = 0  # connections in a row for which the server has no room
        self._closed = False
        self._idle_timer: asyncio.TimerHandle | None = None
        self._resolving = asyncio.Lock()  # `url` may start a server: only one task may do that

    @asynccontextmanager
    async def session(self, *, atomic: bool = True) -> AsyncIterator[Caller]:
        """Yield a caller inside a transaction, which is committed at the end and rolled back on an exception.

        Without `atomic` each call is a transaction of its own, without the round trips of a begin and a commit.

        Raises
        ------
        RegistryBusy
            When no connection gets free within `BUSY_SECONDS`.
        RegistryError
            For psycopg's errors, also for those inside the block.
        """
        with translate_errors():
            connection = await self._wait_for_connection()
            try:
                async with connection.transaction() if atomic else nullcontext():
                    yield SqlCaller(connection)
            finally:
                await self._release(connection)

    async def url(self) -> str:
        """Return the database's URL; the first call may have to start its server."""
        async with self._resolving:
            if not self._url:
                source = self._source
                self._url = checked_url(source if isinstance(source, str) else await asyncio.to_thread(source))
        return self._url

    def _close_idle(self) -> None:
        """Close the idle connections, so that they take no place from other processes."""
        while self._idle:
            self._idle.pop()[0].pgconn.finish()

    async def close(self) -> None:
        """Close the idle connections; those in use, and later ones, are closed when they are released."""
        self._closed = True
        self._close_idle()

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[Callable[[float], Awaitable[bool]]]:
        """Yield a function that waits for up to so many seconds, and returns whether a notification came.

        Holds one connection more than the limit. A pooler in transaction mode delivers no notifications.

        Raises
        ------
        RegistryError
            For psycopg's errors, also for those inside the block.
        """
        from psycopg import sql

        with translate_errors():
            connection = await self._connect()
            async with connection:
                await connection.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))

                async def wait(seconds: float) -> bool:
                    received = [one async for one in connection.notifies(timeout=seconds, stop_after=1)]
                    if received:  # publishing many items sends many at once: one run of the indexer answers them all
                        received += [one async for one in connection.notifies(timeout=_COLLECT_SECONDS)]
                    return bool(received)

                yield wait

    async def _wait_for_connection(self) -> psycopg.AsyncConnection[Any]:
        """Return a connection, once there is a place for it here and on the server.

        The place of a connection that the server refused stays empty for a while. Until then calls take turns with the
        connections that there are.
        """
        limit = current_limit(BUSY_SECONDS)
        while True:
            await self._places.take(limit)
            try:
                with translate_errors():
                    return await self._acquire()
            except RegistryBusy as error:
                limit.reasons.append(self._places.error)
                self._places.reason, self._refused = error.message, self._refused + 1
                pause = min(_REFUSED_SECONDS * self._refused, _LONGEST_PAUSE)
                asyncio.get_running_loop().call_later(pause, self._places.give_back)
            except BaseException:
                self._places.give_back()
                raise

    async def _acquire(self) -> psycopg.AsyncConnection[Any]:
        import psycopg

        while self._idle:
            connection, released = self._idle.pop()
            if monotonic() - released < _TRUSTED_SECONDS:
                return connection
            with suppress(psycopg.OperationalError):
                async with _closed_on_failure(connection):
                    await connection.execute("")  # whether it still works: one round trip
                    return connection
        return await self._connect()

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        import psycopg

        try:
            with translate_errors():
                connection = await psycopg.AsyncConnection.connect(await self.url(), **OPTIONS)
        except RegistryUnreachable as error:
            if not isinstance(error, RegistryBusy):
                self._url = ""  # at the next attempt `url()` starts an embedded server again, maybe at another socket
            raise
        self._places.reason, self._refused = self._places.all_taken, 0
        async with _closed_on_failure(connection):
            # Not as a start-up option: the connection poolers of hosted servers refuse those.
            await connection.execute(f"set statement_timeout = {_STATEMENT_MILLISECONDS:d}")
        return connection

    async def _release(self, connection: psycopg.AsyncConnection[Any]) -> None:
        from psycopg.pq import TransactionStatus

        self._places.give_back()
        # Anything but IDLE: the task was cancelled in the middle of a statement, or the connection is broken.
        if connection.info.transaction_status is TransactionStatus.IDLE and not self._closed:
            self._idle.append((connection, monotonic()))
            if self._idle_timer:
                self._idle_timer.cancel()
            self._idle_timer = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._close_idle)
            return
        if connection.broken:  # the others may be, and an embedded server may have to be started again
            self._idle, self._url = [(idle, -math.inf) for idle, _ in self._idle], ""
        await connection.close()


@asynccontextmanager
async def _closed_on_failure(connection: psycopg.AsyncConnection[Any]) -> AsyncIterator[None]:
    """Close the connection when the block raises, also when its task is cancelled."""
    try:
        yield
    except BaseException:
        await connection.close()
        raise
