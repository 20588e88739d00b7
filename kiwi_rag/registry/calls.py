"""Calls of the registry's SQL functions: the protocols, the calls over psycopg, and the translation of errors.

Here alone SQLSTATEs become Kiwi's errors, whether psycopg or Supabase's API reports them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager
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
from kiwi_rag.retry import WRITING, attempts

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

# SQLSTATEs that the registry's own functions raise have class KW; those that are not listed here are refusals.
_KIWI_STATES: dict[str, type[KiwiError]] = {"KW009": UnknownFilter, "KW010": NotFound, "KW011": FingerprintMismatch}
_MIGRATE = "kiwi registry migrate"
# 08 connection, 57P01–03 shutting down or starting, 53300 too many connections, 25P03–04 a transaction that idled or
# ran too long; PGRST00x: PostgREST itself does not reach its database.
_UNREACHABLE = ("08", "57P", "53300", "25P03", "25P04", "PGRST00")
_ACCESS_DENIED = ("28", "3D000")  # authorisation, no such database
# 42883 function, 42P01 table, 3F000 schema, 42703 column, 42704 object (a type, a role); PGRST106 schema that is not
# exposed, PGRST202 function and PGRST205 table, as PostgREST knows them.
_OUTDATED = ("42883", "42P01", "3F000", "42703", "42704", "PGRST106", "PGRST202", "PGRST205")
# 40001 serialization failure, 40P01 deadlock: the server rolled back, and the transaction may be tried again.
_CONFLICT = ("another change to the registry conflicted with this one, which was rolled back", "run it again")
_CONFLICTS: dict[str, tuple[str, str]] = {
    "40001": _CONFLICT,
    "40P01": _CONFLICT,
    "55P03": ("another process holds a lock on the registry", "try again in a moment"),
}
_TIMEOUT_HINT = "restrict the request, with --namespace for example, or repeat it when the registry is less busy"
# libpq passes on no SQLSTATE for a connection that the server refused, so its message has to be searched. A server
# that translates its messages is not recognised, and the error then counts as one that may pass.
_ACCESS_DENIED_MESSAGES = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    '" does not exist',
    "is not permitted to log in",
)


@dataclass(frozen=True, slots=True)
class Hints:
    """What to do about the errors of one transport: a role without the right, no connection, no access."""

    refused: str
    unreachable: str
    access_denied: str


DIRECT = Hints(
    "roles: anon searches, kiwi_publisher publishes, kiwi_indexer indexes, kiwi_admin administers, the owner migrates; "
    "the operator grants the one you need: GRANT … TO …",
    "check with kiwi registry status that it runs and has a free connection, or check KIWI_REGISTRY_URL",
    "check user, password and database in KIWI_REGISTRY_URL",
)


@contextmanager
def translate_errors(wrapped: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Translate the errors that psycopg raises inside the block.

    Parameters
    ----------
    wrapped
        Classes of another library's errors that carry psycopg's error as ``orig``, as SQLAlchemy's do.

    Raises
    ------
    RegistryUnreachable, RegistryOutdated, RegistryRefused, RegistryError
        By SQLSTATE; also `UnknownFilter`, `NotFound` and `FingerprintMismatch`, which have states of their own.
    """
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise translate_error(error) from error
    except wrapped as error:
        driver_error = getattr(error, "orig", None)
        if not isinstance(driver_error, psycopg.Error):
            raise
        raise translate_error(driver_error) from driver_error


def checked_url(url: str) -> str:
    """Return `url` if psycopg can parse it.

    Raises
    ------
    RegistryUnreachable
        When it cannot. The URL is not quoted: psycopg's own message holds the password, or a part of it.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(url)
        host, port = str(parts.get("host") or ""), str(parts.get("port") or 0)
        # libpq splits a password with an unescaped @ or / at the wrong place without an error: its end is then in the
        # host or in the port. Only the path of a Unix socket may contain an @.
        is_invalid = ("@" in host and host[0] not in "/@") or not port.replace(",", "").isdigit()
    except psycopg.Error:
        is_invalid = True
    if is_invalid:
        hint = "postgresql://user:password@host/database, with %40 for @, %2F for / and %25 for % in the password"
        raise RegistryUnreachable("the registry's URL is not a valid one", hint=hint)
    return url


def raise_refusal(answer: Row) -> None:
    """Raise the refusal that a function returned as its answer; return when the answer is none."""
    if "code" in answer:
        raise _refusal(str(answer["code"]), str(answer.get("message") or ""), str(answer.get("hint") or ""))


def _refusal(state: str, message: str, hint: str) -> KiwiError:
    if state in _KIWI_STATES:
        return _KIWI_STATES[state](message, hint=hint)
    return RegistryRefused(message, hint=hint, state=state)


def translate_error(error: psycopg.Error) -> KiwiError:
    """Return Kiwi's error for one of psycopg's."""
    import psycopg

    message = error.diag.message_primary or " ".join(str(error).split())
    if not error.sqlstate and isinstance(error, psycopg.OperationalError):
        is_denied = any(text in message for text in _ACCESS_DENIED_MESSAGES)
        return _access_denied(message, DIRECT) if is_denied else unreachable(message, DIRECT)
    return from_state(error.sqlstate or "", message, error.diag.message_hint or "", DIRECT)


def from_state(state: str, message: str, hint: str, hints: Hints) -> KiwiError:
    """Return Kiwi's error for a SQLSTATE, or for one of PostgREST's codes.

    Parameters
    ----------
    state
        The code, empty where there is none.
    message, hint
        The registry's own.
    hints
        Those of the transport, where the registry gave none.
    """
    if state.startswith("KW"):
        return _refusal(state, message, hint)
    if state == "42501":
        return RegistryRefused(f"this connection's role may not do that ({message})", hint=hints.refused)
    if state.startswith(_OUTDATED):
        return RegistryOutdated(f"the registry lacks something this Kiwi needs: {message}", hint=_MIGRATE)
    if state.startswith(_ACCESS_DENIED):
        return _access_denied(message, hints)
    if state.startswith(_UNREACHABLE):
        return unreachable(message, hints)
    return _failed(state, message)


def unreachable(message: str, hints: Hints) -> RegistryUnreachable:
    """Return the error for a lost or missing connection, which another attempt may get."""
    return RegistryUnreachable(f"the registry cannot be reached: {message}", hint=hints.unreachable, transient=True)


def _access_denied(message: str, hints: Hints) -> RegistryUnreachable:
    return RegistryUnreachable(f"the registry cannot be reached: {message}", hint=hints.access_denied)


def _failed(state: str, message: str) -> RegistryError:
    if state == "57014":
        return RegistryUnreachable("the registry took too long to answer", hint=_TIMEOUT_HINT)
    if state in _CONFLICTS:
        conflict, hint = _CONFLICTS[state]
        return RegistryError(conflict, hint=hint, transient=True)
    return RegistryError(f"the registry failed: {message}")


_T = TypeVar("_T")
ANSWER_SECONDS = 90.0
"""How long one attempt may take: longer than the server's statement timeout, so that its error arrives first."""


@asynccontextmanager
async def time_limit(seconds: float) -> AsyncIterator[None]:
    """Cancel the block after so many seconds.

    Raises
    ------
    RegistryUnreachable
        When the time is over; ``transient``.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        hint = "check the network with kiwi registry status; running it again is safe"
        message = f"the registry gave no answer within {seconds:g} s"
        raise RegistryUnreachable(message, hint=hint, transient=True) from error


async def with_retries(
    work: Callable[[], Awaitable[_T]], pauses: Sequence[float] = WRITING, seconds: float = ANSWER_SECONDS
) -> _T:
    """Return what `work` returns. Attempts are repeated as `attempts` does; each may take up to `seconds`.

    Raises
    ------
    RegistryError
        Of the last attempt, or of the first that another attempt would not help.
    """
    for attempt in attempts(pauses):
        async with attempt, time_limit(seconds):
            return await work()
    raise RegistryUnreachable("no attempt was made")


Row = Mapping[str, Any]
MAX_ROWS = 100_000
MAX_CHARACTERS = 1 << 28


class Caller(Protocol):
    """Calls the registry's SQL functions within one session."""

    async def value(self, function: str, arguments: Mapping[str, Any]) -> Any:
        """Return the value of a function that returns one."""
        ...

    async def rows(self, function: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows of a function that returns a table."""
        ...

    async def set_role(self, role: str) -> None:
        """Act as `role` until the session ends.

        Raises
        ------
        RegistryRefused
            When this transport cannot change the role, or this connection may not.
        """
        ...


class Transport(Protocol):
    """A connection to a registry: Postgres itself, or Supabase's API."""

    def session(self, role: str = "") -> AbstractAsyncContextManager[Caller]:
        """Open a session, acting as `role` when one is named.

        Raises
        ------
        RegistryError
            For what fails inside the block too, translated.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


@runtime_checkable
class NotificationSource(Protocol):
    """A transport that also delivers the notifications that the registry sends on a channel."""

    def listen(self, channel: str) -> AbstractAsyncContextManager[Callable[[float], Awaitable[bool]]]:
        """Return a function that waits for up to so many seconds, and returns whether a notification came."""
        ...


async def call(
    transport: Transport, function: Callable[[Caller], Awaitable[_T]], pauses: Sequence[float], role: str = ""
) -> _T:
    """Call `function` in a session, and again in a new one where the connection was lost; it must be safe to repeat."""
    for attempt in attempts(pauses):
        async with attempt, time_limit(ANSWER_SECONDS), transport.session(role) as caller:
            return await function(caller)
    raise RegistryUnreachable("no attempt was made")


class SqlCaller:
    """Calls over one psycopg connection, inside its transaction."""

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
        # Streamed, so that a hostile server cannot fill this process's memory. It costs no more than `fetchall`.
        async with (
            self._connection.cursor(row_factory=dict_row) as cursor,
            aclosing(cast("AsyncGenerator[dict[str, Any]]", cursor.stream(call, _adapted(arguments)))) as stream,
        ):
            async for row in stream:
                found.append(row)
                size += characters(row)
                check_size(function, len(found), size)
        return found

    async def set_role(self, role: str) -> None:
        """Act as `role` until the transaction ends."""
        await self._connection.execute("select set_config('role', %s, true)", [role])


def check_size(function: str, rows: int, size: int) -> None:
    """Raise `RegistryError` when an answer has too many rows, or `size`, its number of characters, is too large."""
    if rows > MAX_ROWS or size > MAX_CHARACTERS:
        raise RegistryError(
            f"the registry's answer to {function} is over {MAX_ROWS} rows or {MAX_CHARACTERS >> 20} MiB of text",
            hint="restrict the request, with --namespace or --type for example",
        )


def characters(value: object) -> int:
    """Return how many characters of text a value holds, its lists and objects included."""
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
