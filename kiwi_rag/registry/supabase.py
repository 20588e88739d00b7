"""Supabase's API as a transport to the registry: the same SQL functions by RPC, through the `supabase` package.

Each call is a separate transaction. The key or the token of a user decides the role, which cannot be changed, so what
needs a direct connection (indexing, migrating) is refused.

PostgREST's codes: https://docs.postgrest.org/en/stable/references/errors.html
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from kiwi_rag.endpoint import is_key, is_private, parse_url, quoted, trusted_certificates
from kiwi_rag.errors import ConfigError, RegistryError, RegistryRefused, RegistryUnreachable, UsageError
from kiwi_rag.registry.calls import NO_CONNECTION, Caller, Hints, characters, check_size, from_state

if TYPE_CHECKING:
    import httpx
    from postgrest import APIResponse, AsyncRPCFilterRequestBuilder
    from supabase import AsyncClient

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 60.0
_API: Hints = {
    "refused": "a publishable key reads; to publish set KIWI_SUPABASE_TOKEN to a signed-in user's token, "
    "and for the rest KIWI_REGISTRY_URL",
    "unreachable": "check SUPABASE_URL, and whether the project is paused",
    "access_denied": "SUPABASE_KEY is the project's publishable key; "
    "a user's token (KIWI_SUPABASE_TOKEN) expires, often after an hour: sign in again",
}
# Too many requests, a gateway without a server, Cloudflare's 52x, and Supabase's status of a paused project.
_UNREACHABLE = (429, 502, 503, 504, *range(520, 531), 540)
# The states, as of the errors that PostgREST reports, of what a gateway answers in its place.
_STATES = {401: "PGRST30", 403: "PGRST30"} | dict.fromkeys(_UNREACHABLE, NO_CONNECTION)


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
    async def session(self, *, atomic: bool = True) -> AsyncIterator[Caller]:
        """Yield this transport, whose calls are each a transaction; nothing is contacted before the first."""
        yield self

    async def value(self, function: str, arguments: Mapping[str, Any]) -> Any:
        """Return the value; None of a function that returns nothing, for which PostgREST answers with an empty list."""
        client = await self._open()
        answer = (await self._answer(client.rpc(function, dict(arguments)))).data
        check_size(function, 1, characters(answer))
        return None if answer == [] else answer

    async def rows(self, function: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows, page by page.

        A project limits the rows of one answer ("Max rows" in its API settings, 1,000 by default).
        """
        from postgrest.types import CountMethod

        rows: list[dict[str, Any]] = []
        total, size = 1, 0
        client = await self._open()
        while len(rows) < total:
            request = client.rpc(function, dict(arguments), count=CountMethod.exact)
            answer = await self._answer(request.offset(len(rows)) if rows else request)
            page: Any = answer.data
            if not isinstance(page, list) or not all(isinstance(row, dict) for row in page):
                raise RegistryError("the registry's answer is not a table", hint=_API["unreachable"])
            total = answer.count or 0
            if not page and len(rows) < total:
                raise RegistryError(f"the registry gave {len(rows)} of {total} rows", hint="try again")
            rows += page
            size += characters(page)
            check_size(function, max(total, len(rows)), size)
        return rows

    async def set_role(self, role: str) -> None:
        """Raise `RegistryRefused`: the key decides the role."""
        raise direct_only(f"acting as {role}")

    def listen(self, channel: str) -> AbstractAsyncContextManager[Callable[[float], Awaitable[bool]]]:
        """Raise `UsageError`: the API delivers no notifications."""
        raise UsageError("only a direct connection can watch a registry", hint="set KIWI_REGISTRY_URL")

    async def _answer(self, request: AsyncRPCFilterRequestBuilder) -> APIResponse:
        import httpx
        from postgrest.exceptions import APIError

        try:
            return await request.execute()
        except APIError as error:  # as a cause it would quote the whole answer
            message, hint = self._quote(error.message or ""), self._quote(error.hint or "")
            raise from_state(error.code or "", message, hint, _API, error.details or "") from None
        except httpx.TimeoutException as error:
            message = "the registry took too long to answer"
            raise RegistryUnreachable(message, hint=_API["unreachable"], transient=True) from error
        except httpx.HTTPError as error:
            raise from_state(NO_CONNECTION, self._quote(str(error)) or type(error).__name__, "", _API) from error

    async def _inspect(self, response: httpx.Response) -> None:
        """Raise for what is not PostgREST's answer: a gateway's refusal, a proxy's page, anything that is not JSON."""
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
            said = f"HTTP {response.status_code}, {self._quote(message or response.reason_phrase)}"
            if state := _STATES.get(response.status_code):
                raise from_state(state, said, "", _API)
            reason = f"the server at SUPABASE_URL is not Supabase's API: {said}"
            raise RegistryError(reason, hint=_API["unreachable"])

    def _quote(self, text: str) -> str:
        """Return a message without the key and the token, which a server may repeat."""
        return quoted(text, self._token, self._key)

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()
        self._client = self._http = None

    async def _open(self) -> AsyncClient:
        async with self._opening:
            if self._client is None:
                try:
                    from supabase import AsyncClientOptions, acreate_client
                except ModuleNotFoundError as error:
                    hint = "pip install 'supabase>=2.34,<3', or set KIWI_REGISTRY_URL=postgresql://…"
                    raise RegistryUnreachable("the package supabase is not installed", hint=hint) from error
                url, key = _checked_url(self._url), _checked_key(self._key)
                token = _checked_key(self._token or self._key)
                self._http = _http_client(self._inspect)
                options = AsyncClientOptions(auto_refresh_token=False, persist_session=False, httpx_client=self._http)
                options.headers["Authorization"] = f"Bearer {token}"
                self._client = await acreate_client(url, key, options)
        return self._client


def direct_only(what: str) -> RegistryRefused:
    """Return the error for `what`, which needs a direct connection."""
    hint = "set KIWI_REGISTRY_URL=postgresql://… to the database's connection string"
    return RegistryRefused(f"{what} needs a direct connection to the database, not Supabase's API", hint=hint)


def _http_client(inspect: Callable[[httpx.Response], Awaitable[None]]) -> httpx.AsyncClient:
    """Return a client that follows no redirect, because that would send the key to another server."""
    import httpx

    timeout = httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
    hooks = {"response": [inspect]}
    return httpx.AsyncClient(timeout=timeout, follow_redirects=False, event_hooks=hooks, verify=trusted_certificates())


def _checked_url(url: str) -> str:
    parts = parse_url(url)
    if parts is None or not is_private(parts):
        hint = "it has the form https://<project>.supabase.co"
        raise ConfigError("SUPABASE_URL is not the address of a project", hint=hint)
    return url


def _checked_key(key: str) -> str:
    """Return `key` if it can be sent in a header; httpx's own error for one that cannot would quote it."""
    if not key:
        raise ConfigError("SUPABASE_URL is set, but SUPABASE_KEY is not", hint=_API["access_denied"])
    if not is_key(key):
        raise ConfigError("SUPABASE_KEY contains characters that no key has", hint=_API["access_denied"])
    return key
