"""How the registry's SQL functions are called, whatever lies between: a connection, or Supabase's API.

A call names a function of schema ``public`` and its arguments. Values are JSON-ready: texts, numbers, booleans, None,
lists of texts or numbers (SQL arrays), and objects or lists of objects (``jsonb``). A vector is its text form.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

Row = Mapping[str, Any]


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


class SqlCaller:
    """Calls over one connection, inside its transaction."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def value(self, function: str, arguments: Mapping[str, Any]) -> Any:
        """Return the one value."""
        cursor = await self._connection.execute(_call(function, tuple(arguments)), _adapted(arguments))
        row = await cursor.fetchone()
        return row[0] if row else None

    async def rows(self, function: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows."""
        from psycopg.rows import dict_row

        async with self._connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(_call(function, tuple(arguments)), _adapted(arguments))
            return await cursor.fetchall()

    async def become(self, role: str) -> None:
        """Act as `role` to the end of the transaction."""
        await self._connection.execute("select set_config('role', %s, true)", [role])


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
