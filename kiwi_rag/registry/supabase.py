"""Supabase's API as a transport to the registry: the same SQL functions by RPC, through the `supabase` package.

Each call is a separate transaction. The key or the token of a user decides the role, which cannot be changed, so what
needs a direct connection (indexing, migrating) is refused.

PostgREST's codes: https://docs.postgrest.org/en/stable/references/errors.html
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kiwi_rag.errors import ConfigError, KiwiError, RegistryError, RegistryRefused, RegistryUnreachable
from kiwi_rag.registry.calls import Caller, Hints, characters, check_size, from_state, unreachable

if TYPE_CHECKING:
    import httpx
    from postgrest import APIError, APIResponse, AsyncRPCFilterRequestBuilder
    from supabase import AsyncClient

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 60.0
_MAX_QUOTE = 400
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_API = Hints(
    "a publishable key reads; to publish set KIWI_SUPABASE_TOKEN to a signed-in user's token, "
    "and for the rest KIWI_REGISTRY_URL",
    "check SUPABASE_URL, and whether the project is paused",
    "check SUPABASE_URL and SUPABASE_KEY",
)
_DIRECT_ONLY = "set KIWI_REGISTRY_URL=postgresql://… to the database's connection string"
_KEY_HINT = (
    "SUPABASE_KEY is the project's publishable key; "
    "a user's token (KIWI_SUPABASE_TOKEN) expires, often after an hour: sign in again"
)
# Too many requests, a gateway without a server, Cloudflare's 52x, and Supabase's status of a paused project.
_UNREACHABLE_STATUS = frozenset({429, 502, 503, 504, *range(520, 531), 540})


class SupabaseApi:
    """A registry behind Supabase's API, for one event loop.

    Parameters
    ----------
    url
        The project's address: ``https://<ref>.supabase.co``.
    key
        The project's publishable key; a user's token where no gateway requires more.
    token
        A user's token (a JWT), sent beside the key.
    """

    def __init__(self, url: str, key: str, token: str = "") -> None:
        self._url, self._key, self._token = url, key, token
        self._client: AsyncClient | None = None
        self._http: httpx.AsyncClient | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def session(self, role: str = "") -> AsyncIterator[Caller]:
        """Yield a caller; nothing is contacted before its first call.

        Raises
        ------
        RegistryRefused
            When a role is named: the key decides it.
        RegistryError
            For what fails inside the block too, translated.
        """
        caller = ApiCaller(self)
        if role:
            await caller.set_role(role)
        yield caller

    async def call(self, function: str, arguments: Mapping[str, Any]) -> Any:
        """Call a function that returns one value; return that as JSON data."""
        client = await self._open()
        return (await self._answer(client.rpc(function, dict(arguments)))).data

    async def page(self, function: str, arguments: Mapping[str, Any], offset: int) -> tuple[Any, int]:
        """Call a function that returns a table; return its rows from `offset` on, and how many it has in all.

        A project limits the rows of one answer ("Max rows" in its API settings, 1,000 by default).
        """
        from postgrest.types import CountMethod

        client = await self._open()
        request = client.rpc(function, dict(arguments), count=CountMethod.exact)
        if offset:
            request = request.offset(offset)
        answer = await self._answer(request)
        return answer.data, answer.count or 0

    async def _answer(self, request: AsyncRPCFilterRequestBuilder) -> APIResponse:
        try:
            with _translate_errors():
                return await request.execute()
        except KiwiError as error:
            raise self._without_secrets(error) from error.__cause__

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()
        self._client = self._http = None

    def _without_secrets(self, error: KiwiError) -> KiwiError:
        """Return `error` without the key and the token: a server may have repeated them in its message."""
        for secret in filter(None, (self._token, self._key)):
            error.message = error.message.replace(secret, "(hidden)")
            error.hint = error.hint.replace(secret, "(hidden)")
        error.args = (error.message,)
        return error

    async def _open(self) -> AsyncClient:
        async with self._opening:
            if self._client is None:
                self._http = _http_client()
                self._client = await _client(
                    _checked_url(self._url), _checked_key(self._key), _checked_key(self._token or self._key), self._http
                )
        return self._client


class ApiCaller:
    """Calls the registry's SQL functions by RPC."""

    def __init__(self, api: SupabaseApi) -> None:
        self._api = api

    async def value(self, function: str, arguments: Mapping[str, Any]) -> Any:
        """Return the value; None of a function that returns nothing, for which PostgREST answers with an empty list."""
        answer = await self._api.call(function, arguments)
        check_size(function, 1, characters(answer))
        return None if answer == [] else answer

    async def rows(self, function: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows, fetched page by page where the project limits the rows of one answer."""
        rows, total = _table(await self._api.page(function, arguments, 0))
        check_size(function, max(total, len(rows)), size := characters(rows))
        while len(rows) < total:
            more, _ = _table(await self._api.page(function, arguments, len(rows)))
            if not more:
                raise RegistryError(f"the registry gave {len(rows)} of {total} rows", hint="try again")
            rows += more
            size += characters(more)
            check_size(function, len(rows), size)
        return rows

    async def set_role(self, role: str) -> None:
        """Raise `RegistryRefused`: the key decides the role."""
        raise RegistryRefused(f"acting as {role} needs a direct connection, not Supabase's API", hint=_DIRECT_ONLY)


def direct_only() -> RegistryRefused:
    """Return the error for what needs a direct connection."""
    return RegistryRefused("this needs a direct connection to the database, not Supabase's API", hint=_DIRECT_ONLY)


def _table(page: tuple[Any, int]) -> tuple[list[dict[str, Any]], int]:
    rows, total = page
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise RegistryError("the registry's answer is not a table", hint=_API.unreachable)
    return rows, total


async def _client(url: str, key: str, token: str, http: httpx.AsyncClient) -> AsyncClient:
    from supabase import AsyncClientOptions, acreate_client

    options = AsyncClientOptions(auto_refresh_token=False, persist_session=False, httpx_client=http)
    options.headers["Authorization"] = f"Bearer {token}"
    return await acreate_client(url, key, options)


def _http_client() -> httpx.AsyncClient:
    """Return a client that follows no redirect, because that would send the key to another server."""
    import httpx

    timeout = httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
    return httpx.AsyncClient(timeout=timeout, follow_redirects=False, event_hooks={"response": [_inspect]})


async def _inspect(response: httpx.Response) -> None:
    """Raise for a response that is not PostgREST's: a gateway's refusal, a proxy's page, anything that is not JSON."""
    if response.status_code == HTTPStatus.NO_CONTENT:
        return
    await response.aread()
    try:
        body = response.json()
    except ValueError:
        body = None
    # The errors of PostgREST itself are objects with a code; the `supabase` package turns those into an `APIError`.
    is_postgrest_error = isinstance(body, dict) and isinstance(body.get("code"), str) and bool(body["code"])
    if body is None if response.is_success else not is_postgrest_error:
        message = str(body.get("message") or "") if isinstance(body, dict) else ""
        raise _by_status(response.status_code, message or response.reason_phrase)


def _by_status(status: int, message: str) -> RegistryError:
    quoted = f"HTTP {status}, {_quoted(message)}"
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return RegistryRefused(f"the registry did not accept the key or the token: {quoted}", hint=_KEY_HINT)
    if status in _UNREACHABLE_STATUS:
        return unreachable(quoted, _API)
    return RegistryError(f"the server at SUPABASE_URL is not Supabase's API: {quoted}", hint=_API.unreachable)


@contextmanager
def _translate_errors() -> Iterator[None]:
    import httpx
    from postgrest.exceptions import APIError

    try:
        yield
    except APIError as error:
        raise _translate_error(error) from None  # the cause would quote the whole answer
    except httpx.TimeoutException as error:
        raise RegistryUnreachable(
            "the registry took too long to answer", hint=_API.unreachable, transient=True
        ) from error
    except httpx.HTTPError as error:
        raise unreachable(_quoted(str(error)) or type(error).__name__, _API) from error


def _translate_error(error: APIError) -> KiwiError:
    code, message = error.code or "", _quoted(error.message or "")
    if code.startswith("PGRST30"):
        return RegistryRefused(f"the registry did not accept the key or the token: {message}", hint=_KEY_HINT)
    return from_state(code, message, _quoted(error.hint or ""), _API)


def _quoted(text: str) -> str:
    """Return `text` as one line of bounded length."""
    return " ".join(text.split())[:_MAX_QUOTE]


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_private = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
        is_valid = bool(parts.hostname) and is_private and "@" not in parts.netloc
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ConfigError(
            "SUPABASE_URL is not the address of a project", hint="it has the form https://<project>.supabase.co"
        )
    return url


def _checked_key(key: str) -> str:
    """Return `key` if it can be sent in a header; httpx's own error for one that cannot would quote it."""
    if not key:
        raise ConfigError("SUPABASE_URL is set, but SUPABASE_KEY is not", hint=_KEY_HINT)
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError("SUPABASE_KEY contains characters that no key has", hint=_KEY_HINT)
    return key
