"""How the registry's SQL functions are called, whatever lies between: a connection, or Supabase's API.

A call names a function of schema ``public`` and its arguments. Values are JSON-ready: texts, numbers, booleans, None,
lists of texts or numbers (SQL arrays), and objects or lists of objects (``jsonb``). A vector is its text form.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from kiwi_rag.errors import RegistryError

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

Row = Mapping[str, Any]
MAX_ROWS = 100_000
MAX_CHARACTERS = 1 << 28


class Caller(Protocol):
    """Calls functions within one session."""

    async def value(self, function: str, arguments: Mapping[str, Any]) -> Any:
        """Return what a function that gives one value gives."""
        ...

    async def rows(self, function: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows of a function that gives a table."""
        ...

    async def become(self, role: str) -> None:
        """Act as `role` to the end of the session.

        Raises
        ------
        RegistryRefused
            When this way to the registry cannot, or may not.
        """
        ...


class Transport(Protocol):
    """A way to a registry."""

    def session(self, role: str = "") -> AbstractAsyncContextManager[Caller]:
        """Open a session, acting as `role` when one is named.

        Raises
        ------
        RegistryError
            Whatever goes wrong inside, in Kiwi's words.
        """
        ...

    async def close(self) -> None:
        """Close what is open."""
        ...


@runtime_checkable
class Listening(Protocol):
    """A way to a registry that also brings word of what happens there."""

    def listening(self, channel: str) -> AbstractAsyncContextManager[Callable[[float], Awaitable[bool]]]:
        """Give what to call with a number of seconds: it waits for word that long, and tells whether any came."""
        ...


class SqlCaller:
    """Calls over one connection, inside its transaction."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def value(self, function: str, arguments: Mapping[str, Any]) -> Any:
        """Return the one value."""
        cursor = await self._connection.execute(_call(function, tuple(arguments)), _adapted(arguments))
        row = await cursor.fetchone()
        value = row[0] if row else None
        check_size(function, 1, characters(value))
        return value

    async def rows(self, function: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows."""
        from psycopg.rows import dict_row

        found: list[dict[str, Any]] = []
        size = 0
        call = _call(function, tuple(arguments))
        # Streamed, so that a hostile server cannot fill this process's memory; it costs no more than fetching at once.
        async with (
            self._connection.cursor(row_factory=dict_row) as cursor,
            aclosing(cast("AsyncGenerator[dict[str, Any]]", cursor.stream(call, _adapted(arguments)))) as stream,
        ):
            async for row in stream:
                found.append(row)
                size += characters(row)
                check_size(function, len(found), size)
        return found

    async def become(self, role: str) -> None:
        """Act as `role` to the end of the transaction."""
        await self._connection.execute("select set_config('role', %s, true)", [role])


def check_size(function: str, rows: int, size: int) -> None:
    """Return if an answer of so many rows, and `size` characters, is not larger than a registry has reason to give.

    Raises
    ------
    RegistryError
        When it is.
    """
    if rows > MAX_ROWS or size > MAX_CHARACTERS:
        raise RegistryError(
            f"the registry's answer to {function} is over {MAX_ROWS} rows or {MAX_CHARACTERS >> 20} MiB of text",
            hint="narrow what is asked for, with --namespace or --type for example",
        )


def characters(value: object) -> int:
    """Return how much text a value holds, its lists and objects included."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(characters, (*value, *value.values())))
    return sum(map(characters, value)) if isinstance(value, list) else 0


@lru_cache(maxsize=256)
def _call(function: str, names: tuple[str, ...]) -> sql.Composed:
    from psycopg import sql

    arguments = sql.SQL(", ").join(
        sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in names
    )
    return sql.SQL("select * from {}({})").format(sql.Identifier("public", function), arguments)


def _adapted(arguments: Mapping[str, Any]) -> dict[str, Any]:
    from psycopg.types.json import Jsonb

    return {name: Jsonb(value) if _is_json(value) else value for name, value in arguments.items()}


def _is_json(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))
