"""The one door where SQLSTATEs become Kiwi's errors, whether the driver brought them or Supabase's API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, runtime_checkable

from kiwi_rag.errors import (
    FingerprintMismatch,
    KiwiError,
    NotFound,
    RegistryError,
    RegistryOutdated,
    RegistryRefused,
    RegistryUnreachable,
    UnknownFilter,
)
from kiwi_rag.retry import WRITING, retry

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

# SQLSTATEs of the registry's own functions: class KW. All that are not named here are refusals.
_OWN: dict[str, type[KiwiError]] = {"KW009": UnknownFilter, "KW010": NotFound, "KW011": FingerprintMismatch}
_MIGRATE = "kiwi registry migrate"
# 08 connection, 57P01–03 shutting down or starting, 53300 too many connections, 25P03–04 a transaction that idled or
# ran too long; PGRST00x: PostgREST itself does not reach its database.
_AWAY = ("08", "57P", "53300", "25P03", "25P04", "PGRST00")
_LOCKED_OUT = ("28", "3D000")  # authorisation, no such database
# 42883 function, 42P01 table, 3F000 schema, 42703 column, 42704 object (a type, a role); PGRST106 schema that is not
# exposed, PGRST202 function and PGRST205 table, as PostgREST knows them.
_OUTDATED = ("42883", "42P01", "3F000", "42703", "42704", "PGRST106", "PGRST202", "PGRST205")
# 40001 serialization failure, 40P01 deadlock: the server rolled back, and says to try again.
_CONFLICT = ("two changes to the registry met, and this one was undone", "run it again")
_CONFLICTS: dict[str, tuple[str, str]] = {
    "40001": _CONFLICT,
    "40P01": _CONFLICT,
    "55P03": ("somebody else holds a lock on the registry", "try again in a moment"),
}
_CUT_OFF = "it ends what runs too long: narrow what is asked for, or run it again when the registry is less busy"
# The server's words where libpq passes on no SQLSTATE: a connection that was refused. Where they are translated, the
# error counts as one that may pass.
_LOCKED_OUT_WORDS = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    '" does not exist',
    "is not permitted to log in",
)


@dataclass(frozen=True, slots=True)
class Way:
    """What mends a refusal of the role, and what a silence, on one way to the registry."""

    refused: str
    unreachable: str
    locked_out: str


DIRECT = Way(
    "roles: anon searches, kiwi_publisher publishes, kiwi_indexer indexes, kiwi_admin administers, the owner migrates; "
    "the operator gives the one you need: GRANT … TO …",
    "is it running, and has it a free connection? kiwi registry status, or check KIWI_REGISTRY_URL",
    "check user, password and database in KIWI_REGISTRY_URL",
)


@contextmanager
def translated(wrapped: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Translate what the driver raises inside the block.

    Parameters
    ----------
    wrapped
        Another library's classes that carry the driver's error as its ``orig``.

    Raises
    ------
    RegistryUnreachable, RegistryOutdated, RegistryRefused, RegistryError
        By what happened; `UnknownFilter`, `NotFound` and `FingerprintMismatch` where the registry says so.
    """
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise translate(error) from error
    except wrapped as error:
        driver_error = getattr(error, "orig", None)
        if not isinstance(driver_error, psycopg.Error):
            raise
        raise translate(driver_error) from driver_error


def checked_url(url: str) -> str:
    """Return `url` if the driver can read it.

    Raises
    ------
    RegistryUnreachable
        When it cannot, without quoting it: the driver's own message holds the password, or a part of it.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(url)
        host, port = str(parts.get("host") or ""), str(parts.get("port") or 0)
        misread = ("@" in host and host[0] not in "/@") or not port.replace(",", "").isdigit()  # but socket folders may
    except psycopg.Error:
        misread = True
    if misread:
        hint = "postgresql://user:password@host/database, with %40 for @, %2F for / and %25 for % in the password"
        raise RegistryUnreachable("the registry's URL is not one", hint=hint)
    return url


def refusal(state: str, said: str, hint: str) -> KiwiError:
    """Return Kiwi's error for a refusal of the registry's own (SQLSTATE class KW), raised or answered."""
    if state in _OWN:
        return _OWN[state](said, hint=hint)
    return RegistryRefused(said, hint=hint, state=state)


def translate(error: psycopg.Error) -> KiwiError:
    """Return Kiwi's error for the driver's."""
    import psycopg

    said = error.diag.message_primary or " ".join(str(error).split())
    if not error.sqlstate and isinstance(error, psycopg.OperationalError):
        refused = any(words in said for words in _LOCKED_OUT_WORDS)
        return locked_out(said, DIRECT) if refused else unreachable(said, DIRECT)
    return from_state(error.sqlstate or "", said, error.diag.message_hint or "", DIRECT)


def from_state(state: str, said: str, hint: str, way: Way) -> KiwiError:
    """Return Kiwi's error for a SQLSTATE, or for a code of PostgREST's own.

    Parameters
    ----------
    state
        The code, empty where there is none.
    said, hint
        What the registry said, and what it advised.
    way
        How the registry was reached: decides what is advised where it advised nothing.
    """
    if state.startswith("KW"):
        return refusal(state, said, hint)
    if state == "42501":
        return RegistryRefused(f"this connection's role may not do that ({said})", hint=way.refused)
    if state.startswith(_OUTDATED):
        return RegistryOutdated(f"the registry lacks something this Kiwi needs: {said}", hint=_MIGRATE)
    if state.startswith(_LOCKED_OUT):
        return locked_out(said, way)
    if state.startswith(_AWAY):
        return unreachable(said, way)
    return _failed(state, said)


def unreachable(said: str, way: Way) -> RegistryUnreachable:
    """Return the error for no connection: there may be one in a moment."""
    return RegistryUnreachable(f"the registry cannot be reached: {said}", hint=way.unreachable, transient=True)


def _failed(state: str, said: str) -> RegistryError:
    if state == "57014":
        return RegistryUnreachable("the registry took too long to answer", hint=_CUT_OFF)
    if state in _CONFLICTS:
        told, advice = _CONFLICTS[state]
        return RegistryError(told, hint=advice, transient=True)
    return RegistryError(f"the registry failed: {said}")


def locked_out(said: str, way: Way) -> RegistryUnreachable:
    """Return the error for a connection that was refused, and will be again."""
    return RegistryUnreachable(f"the registry cannot be reached: {said}", hint=way.locked_out)


_T = TypeVar("_T")
ANSWER_SECONDS = 90.0
"""How long one attempt may take: longer than the server lets a statement run, so that it answers first."""


async def with_retries(
    work: Callable[[], Awaitable[_T]], pauses: Sequence[float] = WRITING, seconds: float = ANSWER_SECONDS
) -> _T:
    """Return what `work` returns, tried as `retry` does, each time for up to `seconds`.

    Raises
    ------
    RegistryError
        Of the last attempt, or at once when another attempt would not help.
    """

    async def attempt() -> _T:
        try:
            async with asyncio.timeout(seconds):
                return await work()
        except TimeoutError as error:
            hint = "is the network slow? kiwi registry status; running it again is safe"
            said = f"the registry gave no answer within {seconds:g} s"
            raise RegistryUnreachable(said, hint=hint, transient=True) from error

    return await retry(attempt, pauses)


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
