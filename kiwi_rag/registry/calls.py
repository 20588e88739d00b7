"""Calls of the registry's SQL functions: the protocols, their limits and repetition, and the translation of errors.

Here alone SQLSTATEs become Kiwi's errors, whether psycopg or Supabase's API reports them.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from kiwi_rag.errors import (
    FingerprintMismatch,
    KiwiError,
    NotFound,
    RefusedTooOften,
    RegistryBusy,
    RegistryError,
    RegistryOutdated,
    RegistryRefused,
    RegistryUnreachable,
    UnknownFilter,
)

if TYPE_CHECKING:
    import psycopg

# SQLSTATEs that the registry's own functions raise have class KW; those that are not listed here are refusals.
_KIWI_STATES: dict[str, type[KiwiError]] = {"KW009": UnknownFilter, "KW010": NotFound, "KW011": FingerprintMismatch}
# libpq passes on no SQLSTATE for a connection that the server refused, so its message has to be searched. A server
# that translates its messages is not recognised, and the error then counts as one that may pass.
_ACCESS_DENIED_MESSAGES = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    '" does not exist',
    "is not permitted to log in",
)
# Of Postgres (a server, a role, a database), PgBouncer and Supabase's pooler.
_FULL_MESSAGES = ("too many c", "connection slots are reserved", "no more connections", "max clients")


Hints = Mapping[str, str]
"""What to do about the errors of one transport: a role without the right, no connection, no access."""
DIRECT: Hints = {
    "refused": "roles: anon searches, kiwi_publisher publishes, kiwi_indexer indexes, kiwi_admin administers, the "
    "owner migrates; the operator grants the one you need: GRANT … TO …",
    "unreachable": "kiwi registry status shows whether it runs; check KIWI_REGISTRY_URL and for a free connection",
    "busy": "try again in a moment; the operator can raise max_connections, or limit the connections of a role",
    "access_denied": "check user, password and database in KIWI_REGISTRY_URL",
}
NO_CONNECTION, ACCESS_DENIED, TOO_MANY_CONNECTIONS = "08", "28", "53300"
"""The SQLSTATEs, or their classes, for a connection that is lost or missing, not authorised, or one too many."""
# 57P01–03 shutting down or starting, 25P03–04 a transaction that idled or ran too long;
# PGRST00x: PostgREST itself does not reach its database.
_UNREACHABLE = (NO_CONNECTION, "57P", "25P03", "25P04", "PGRST00")
_NO_ACCESS = (ACCESS_DENIED, "3D000")  # no such database
# Function, table, schema, column, object (a type, a role); as PostgREST knows them: schema, function, table.
_OUTDATED = ("42883", "42P01", "3F000", "42703", "42704", "PGRST106", "PGRST202", "PGRST205")
_CONFLICT = ("40001", "40P01")  # serialization failure, deadlock: the server rolled back
_TIMEOUT_HINT = "restrict the request, with --namespace for example, or repeat it when the registry is less busy"
# What the states that begin so mean: the error, whether another attempt may succeed, its message, and its hint or its
# name in `Hints`.
_MEANINGS: tuple[tuple[tuple[str, ...], type[RegistryError], bool, str, str], ...] = (
    (("42501",), RegistryRefused, False, "this connection's role may not do that ({})", "refused"),
    (_OUTDATED, RegistryOutdated, False, "the registry lacks something this Kiwi needs: {}", "kiwi registry migrate"),
    (("PGRST30",), RegistryRefused, False, "the registry did not accept the key or the token: {}", "access_denied"),
    (_NO_ACCESS, RegistryUnreachable, False, "the registry cannot be reached: {}", "access_denied"),
    ((TOO_MANY_CONNECTIONS,), RegistryBusy, True, "the registry is busy: its server refused a connection ({})", "busy"),
    (_UNREACHABLE, RegistryUnreachable, True, "the registry cannot be reached: {}", "unreachable"),
    (("57014",), RegistryUnreachable, False, "the registry took too long to answer", _TIMEOUT_HINT),
    (_CONFLICT, RegistryError, True, "another change conflicted with this one, which was rolled back", "run it again"),
    (("55P03",), RegistryError, True, "another process holds a lock on the registry", "try again in a moment"),
    (("",), RegistryError, False, "the registry failed: {}", ""),
)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate the errors that psycopg raises inside the block.

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


def checked_url(url: str) -> str:
    """Return `url` if psycopg can parse it.

    Raises
    ------
    RegistryUnreachable
        When it cannot. The URL is not quoted: psycopg's own message holds the password, or a part of it.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    with suppress(psycopg.Error):
        parts = conninfo_to_dict(url)
        host, port = str(parts.get("host") or ""), str(parts.get("port") or 0)
        # libpq splits a password with an unescaped @ or / at the wrong place without an error: its end is then in the
        # host or in the port. Only the path of a Unix socket may contain an @.
        if ("@" not in host or host[0] in "/@") and port.replace(",", "").isdigit():
            return url
    hint = "postgresql://user:password@host/database, with %40 for @, %2F for / and %25 for % in the password"
    raise RegistryUnreachable("the registry's URL is not a valid one", hint=hint)


def raise_refusal(answer: Mapping[str, Any]) -> None:
    """Raise the refusal that a function returned as its answer; return when the answer is none."""
    if "code" in answer:
        message, hint, details = (str(answer.get(name) or "") for name in ("message", "hint", "details"))
        raise from_state(str(answer["code"]), message, hint, DIRECT, details)


def translate_error(error: psycopg.Error) -> KiwiError:
    """Return Kiwi's error for one of psycopg's."""
    import psycopg

    message = error.diag.message_primary or " ".join(str(error).split())
    state = error.sqlstate or ""
    if not state and isinstance(error, psycopg.OperationalError):
        known = {TOO_MANY_CONNECTIONS: _FULL_MESSAGES, ACCESS_DENIED: _ACCESS_DENIED_MESSAGES}
        is_one = (state for state, texts in known.items() if any(text in message for text in texts))
        state = next(is_one, NO_CONNECTION)
    return from_state(state, message, error.diag.message_hint or "", DIRECT)


def from_state(state: str, message: str, hint: str, hints: Hints, details: str = "") -> KiwiError:
    """Return Kiwi's error for a SQLSTATE or one of PostgREST's codes; `state` is empty where there is none.

    `message`, `hint` and `details` are the registry's own, `hints` those of the transport for errors without one.
    """
    if state in _KIWI_STATES:
        return _KIWI_STATES[state](message, hint=hint)
    if state == "KW019":
        seconds = min(max(int(details), 1), 60) if re.fullmatch("[0-9]{1,9}", details) else 60
        return RefusedTooOften(message, hint=hint, state=state, retry_after=seconds)
    if state.startswith("KW"):
        return RegistryRefused(message, hint=hint, state=state)
    _, kind, transient, text, advice = next(meaning for meaning in _MEANINGS if state.startswith(meaning[0]))
    error = kind(text.format(message), hint=hints.get(advice, advice))
    error.transient = transient
    return error


ANSWER_SECONDS = 90.0
"""How long one attempt may take: longer than the server's statement timeout, so that its error arrives first."""


@asynccontextmanager
async def time_limit(seconds: float, what: str = "the registry") -> AsyncIterator[None]:
    """Cancel the block after so many seconds; `what` has to answer within them.

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
        message = f"{what} gave no answer within {seconds:g} s"
        raise RegistryUnreachable(message, hint=hint, transient=True) from error


MAX_ROWS = 100_000
MAX_CHARACTERS = 1 << 28


class Caller(Protocol):
    """Calls the registry's SQL functions within one session."""

    async def value(self, function: str, arguments: Mapping[str, Any]) -> Any:
        """Return the value of a function that returns one."""

    async def rows(self, function: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows of a function that returns a table."""

    async def set_role(self, role: str) -> None:
        """Act as `role` until the session ends.

        Raises
        ------
        RegistryRefused
            When this transport cannot change the role, or this connection may not.
        """


class Transport(Protocol):
    """A connection to a registry: Postgres itself, or Supabase's API."""

    def session(self, *, atomic: bool = True) -> AbstractAsyncContextManager[Caller]:
        """Open a session: one transaction, or without `atomic`, where the transport has both, one a call.

        Raises
        ------
        RegistryError
            For what fails inside the block too, translated.
        """

    def listen(self, channel: str) -> AbstractAsyncContextManager[Callable[[float], Awaitable[bool]]]:
        """Return a function that waits for up to so many seconds, and returns whether a notification came.

        Raises
        ------
        UsageError
            When this transport delivers no notifications.
        """

    async def close(self) -> None:
        """Close all connections."""


def check_size(function: str, rows: int, size: int) -> None:
    """Raise `RegistryError` when an answer has too many rows, or `size`, its number of characters, is too large."""
    if rows > MAX_ROWS or size > MAX_CHARACTERS:
        limits = f"{MAX_ROWS} rows or {MAX_CHARACTERS >> 20} MiB of text"
        hint = "restrict the request, with --namespace or --type for example"
        raise RegistryError(f"the registry's answer to {function} is over {limits}", hint=hint)


def characters(value: object) -> int:
    """Return how many characters a value has as JSON, which is roughly that of its texts."""
    # By the JSON module, written in C: a search reads hundreds of rows with metadata within tens of milliseconds.
    return len(json.dumps(value, ensure_ascii=False, default=str))
