"""Calls to Qdrant: a server by URL, or a folder that qdrant-client keeps by itself; errors become Kiwi's here.

`qdrant_client.AsyncQdrantClient` and not the blocking one in worker threads: a search that has reached its tier's
deadline is cancelled with its requests, and local mode, which is not safe for threads, stays on one.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from kiwi_rag.errors import ConfigError, MissingExtra, StoreBusy, StoreError, StoreFull, StoreRefused, StoreUnreachable
from kiwi_rag.retry import READING, WRITING, attempts
from kiwi_rag.storage.sqlite import is_disk_full


class _LazyModels:
    """`qdrant_client.models`, imported at the first use of one, because that takes half a second."""

    def __getattr__(self, name: str) -> Any:
        from qdrant_client import models

        return getattr(models, name)


if TYPE_CHECKING:
    from qdrant_client import AsyncQdrantClient, models
    from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse
else:
    models = _LazyModels()

__all__ = ["QdrantCollection", "QdrantConnection", "models"]
MEMORY = ":memory:"
MIN_SERVER = (1, 16)
"""Conditional updates and a collection's own metadata came with Qdrant 1.16; without the first, writers would race."""
_MAX_FACETS = 100_000
_PAGE = 500
_MAX_NAME = 200
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ANSWER_SECONDS = 30
_VERSION = re.compile(r"v?(\d+)\.(\d+)")
_LONGEST_QUOTE = 400
# A server that asks for patience, or a gateway that does not reach one. 52x are Cloudflare's.
_PASSING = frozenset({408, 425, 429, 502, 503, 504, *range(520, 531)})
_UNREACHABLE = "is the server running? check KIWI_QDRANT_URL"
_KEY = "check KIWI_QDRANT_API_KEY, and what it may do: writing needs a key that may write"
_NO_ANSWER = "what answered is not a Qdrant server"
_NOT_QDRANT = "check KIWI_QDRANT_URL: a Qdrant server's REST port is 6333 unless it was set otherwise"
_T = TypeVar("_T")
_Call = Callable[["AsyncQdrantClient"], Awaitable[_T]]


class QdrantConnection:
    """The connection to Qdrant, opened at its first use; several stores may share one.

    Parameters
    ----------
    location
        ``https://host:6333``, a folder for local mode, or ``:memory:``.
    api_key
        The server's key; only sent over TLS, or to this machine.
    seconds
        How long one request may take.

    Raises
    ------
    ConfigError
        When the location is no URL that a key may be sent to.
    """

    def __init__(self, location: str, api_key: str = "", *, seconds: int = _ANSWER_SECONDS) -> None:
        self.local = not location.startswith(("http:", "https:"))
        self._location = str(Path(location).expanduser()) if self.local else _checked_url(location, api_key)
        self._key = _checked_key(api_key)
        self._seconds = seconds
        self._client: AsyncQdrantClient | None = None
        self._opening = asyncio.Lock()
        self.version = ""

    async def call(self, call: _Call[_T], pauses: Sequence[float] = READING) -> _T:
        """Return what `call` returns of the client, retried where another attempt may succeed in a moment.

        `call` must be safe to run twice: an answer may be lost after the server did the work.

        Raises
        ------
        MissingExtra
            When qdrant-client is not installed.
        StoreError
            As `translate_errors` raises it.
        """
        for attempt in attempts(pauses):
            async with attempt:
                client = await self._opened()
                with translate_errors(self._key):
                    return await call(client)
        raise StoreError("no attempt was made")

    async def close(self) -> None:
        """Close the client; the next use opens another."""
        client, self._client = self._client, None
        if client is not None:
            with translate_errors(self._key):
                await client.close()

    async def _opened(self) -> AsyncQdrantClient:
        async with self._opening:
            if self._client is None:
                client = self._new_client()
                try:
                    await self._check_version(client)
                except BaseException:
                    with suppress(StoreError), translate_errors(self._key):
                        await client.close()
                    raise
                self._client = client
            return self._client

    def _new_client(self) -> AsyncQdrantClient:
        try:
            from qdrant_client import AsyncQdrantClient
        except ImportError as error:
            hint = "pip install 'kiwi-rag[qdrant]'"
            raise MissingExtra("an index in Qdrant needs the extra 'qdrant'", hint=hint) from error
        with translate_errors(self._key):
            if self._location == MEMORY:
                return AsyncQdrantClient(MEMORY)
            if self.local:
                return _in_folder(self._location)
            # The key goes as the header that it is: as `api_key` the client would warn of http on this machine.
            headers = {"api-key": self._key} if self._key else None
            return AsyncQdrantClient(
                url=self._location, headers=headers, timeout=self._seconds, check_compatibility=False
            )

    async def _check_version(self, client: AsyncQdrantClient) -> None:
        if self.local:
            return
        with translate_errors(self._key):
            self.version = quoted(str((await client.info()).version), self._key)
        found = _VERSION.match(self.version)
        if found is None:
            raise StoreError(_NO_ANSWER, hint="check KIWI_QDRANT_URL")
        if (int(found[1]), int(found[2])) < MIN_SERVER:
            needed = ".".join(map(str, MIN_SERVER))
            message = f"the Qdrant server is {self.version}, and Kiwi needs {needed} or newer, for conditional updates"
            raise StoreError(message, hint="upgrade the server, one minor version at a time")


def _in_folder(path: str) -> AsyncQdrantClient:
    from qdrant_client import AsyncQdrantClient

    try:
        return AsyncQdrantClient(path=path)
    except RuntimeError as error:  # the folder is locked
        hint = "only one process at a time may open the folder; a server lets several in: KIWI_QDRANT_URL"
        raise StoreBusy("another process has this folder of Qdrant's open", hint=hint) from error


def _checked_url(url: str, api_key: str) -> str:
    try:
        parts = urlsplit(url)
        plain = parts.scheme == "http" and parts.hostname not in _LOOPBACK
        usable = bool(parts.hostname) and "@" not in parts.netloc and not (parts.query or parts.fragment)
        usable = usable and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = plain = False
    if not usable:
        raise ConfigError("KIWI_QDRANT_URL is not the address of a server", hint="https://<host>:6333")
    if plain and api_key:
        raise ConfigError("an API key is only sent over TLS, or to this machine", hint="KIWI_QDRANT_URL=https://…")
    return url


def _checked_key(key: str) -> str:
    """Return `key` if it can be a header; an HTTP library's own error for one that cannot would quote it."""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError("KIWI_QDRANT_API_KEY holds characters that no key has", hint="set it again, without quotes")
    return key


class QdrantCollection:
    """A collection by its name, which need not exist yet, and the calls that the store makes to it."""

    def __init__(self, connection: QdrantConnection, name: str) -> None:
        self.connection = connection
        self.name = _checked_name(name)
        self._exists = False

    async def info(self) -> models.CollectionInfo | None:
        """Return the collection's configuration and state; None when there is none of this name."""
        if not self._exists:
            self._exists = await self.connection.call(lambda client: client.collection_exists(self.name))
        if not self._exists:
            return None
        try:
            return await self.connection.call(lambda client: client.get_collection(self.name))
        except StoreError:
            self._exists = False  # it may have been dropped: the next use checks again
            raise

    async def create(self, **config: Any) -> None:
        """Create the collection unless it is there."""

        async def call(client: AsyncQdrantClient) -> None:
            if not await client.collection_exists(self.name):
                await client.create_collection(self.name, **config)

        try:
            await self.connection.call(call)
        except StoreError:
            # Another writer may have created it between the check and the call.
            if not await self.connection.call(lambda client: client.collection_exists(self.name)):
                raise

    async def create_index(self, key: str, kind: str) -> None:
        """Create the payload index of a key."""
        schema = models.PayloadSchemaType(kind)
        await self.connection.call(lambda client: client.create_payload_index(self.name, key, schema, wait=True))

    async def retrieve(self, ids: Sequence[str]) -> list[models.Record]:
        """Return the points with these ids that exist."""
        if not ids:
            return []
        return await self.connection.call(lambda client: client.retrieve(self.name, list(ids), with_payload=True))

    async def scroll(self, condition: models.Filter, fields: Sequence[str] = ()) -> list[models.Record]:
        """Return all points that match, page by page, with some fields of their payloads or all of them."""
        found: list[models.Record] = []
        offset: Any = None
        while True:
            page, following = await self._page(condition, list(fields) or True, offset)
            found += page
            if following is None or following == offset or not page:
                return found
            offset = following

    async def count(self, condition: models.Filter) -> int:
        """Return how many points match, exactly."""
        reply = await self.connection.call(lambda client: client.count(self.name, condition, exact=True))
        return reply.count

    async def facet(
        self, key: str, condition: models.Filter, limit: int = _MAX_FACETS
    ) -> Sequence[models.FacetValueHit]:
        """Return a key's values with the number of matching points that have each, the most frequent first."""
        reply = await self.connection.call(lambda client: client.facet(self.name, key, condition, limit, exact=True))
        return reply.hits

    async def query(self, requests: Sequence[models.QueryRequest]) -> list[list[models.ScoredPoint]]:
        """Return what each of some queries finds, best first."""
        replies = await self.connection.call(lambda client: client.query_batch_points(self.name, list(requests)))
        if len(replies) != len(requests):
            raise StoreError(f"Qdrant answered {len(replies)} of {len(requests)} queries")
        return [reply.points for reply in replies]

    async def update(self, operations: Sequence[models.UpdateOperation]) -> None:
        """Apply operations in their order; every one of them may be applied twice, should an answer be lost."""
        strong = models.WriteOrdering.STRONG
        await self.connection.call(
            lambda client: client.batch_update_points(self.name, list(operations), wait=True, ordering=strong), WRITING
        )

    async def _page(
        self, condition: models.Filter, fields: list[str] | bool, offset: Any
    ) -> tuple[list[models.Record], Any]:
        return await self.connection.call(
            lambda client: client.scroll(self.name, condition, _PAGE, offset=offset, with_payload=fields)
        )


def _checked_name(name: str) -> str:
    is_legal = len(name) <= _MAX_NAME and all(c.isascii() and (c.isalnum() or c in "-_.") for c in name)
    if not is_legal or not name.strip("."):
        hint = f"ASCII letters, digits, '-', '_' and '.', not dots alone, {_MAX_NAME} at most"
        raise ConfigError(f"{name[:_MAX_NAME]!r} cannot name a Qdrant collection", hint=hint)
    return name


@contextmanager
def translate_errors(secret: str = "") -> Iterator[None]:
    """Translate what qdrant-client raises inside the block, which must hold only calls of it.

    Parameters
    ----------
    secret
        The API key, removed from messages in case a server echoes it.

    Raises
    ------
    StoreUnreachable
        When no server answers, or none in time; ``passing`` says that it may in a moment.
    StoreRefused
        When the server does not accept the key.
    StoreFull
        When the disk is full.
    StoreError
        When the server rejects the call, or what answers is not a Qdrant server.
    """
    from qdrant_client.common.client_exceptions import QdrantException
    from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

    try:
        yield
    except UnexpectedResponse as error:
        raise _of_response(error, secret) from None  # the cause quotes the whole answer
    except ResponseHandlingException as error:
        raise _of_transport(error, secret) from None
    except QdrantException as error:  # 429 with a time to wait
        raise StoreUnreachable(f"Qdrant has too much to do: {quoted(str(error), secret)}", transient=True) from None
    except (OSError, sqlite3.Error) as error:
        raise _of_disk(error) from error
    except json.JSONDecodeError:
        raise StoreError(_NO_ANSWER, hint=_NOT_QDRANT) from None
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
        # Local mode raises these where a server would reject the call; parsing another server's answer does too.
        raise StoreError(f"Qdrant failed: {quoted(str(error), secret) or type(error).__name__}") from None


def quoted(text: str, secret: str = "") -> str:
    """Return `text` as one line of bounded length, without the key."""
    line = " ".join(text.split())
    return (line.replace(secret, "(hidden)") if secret else line)[:_LONGEST_QUOTE]


def _of_response(error: UnexpectedResponse, secret: str) -> StoreError:
    status = error.status_code or 0
    reason = f"HTTP {status}, {quoted(_reason(error), secret)}"
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return StoreRefused(f"Qdrant did not accept the key: {reason}", hint=_KEY)
    if status == HTTPStatus.INSUFFICIENT_STORAGE:
        return StoreFull(f"the disk of the Qdrant server is full: {reason}", hint="its operator has to make room")
    if status in _PASSING:
        return StoreUnreachable(f"Qdrant cannot be reached: {reason}", hint=_UNREACHABLE, transient=True)
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        message = "the server answered with a redirect, which is not followed because it would get the key"
        return StoreError(message, hint="set KIWI_QDRANT_URL to its target, if that is your server")
    return StoreError(f"Qdrant rejected the call: {reason}", hint=_NOT_QDRANT if status == HTTPStatus.NOT_FOUND else "")


def _reason(error: UnexpectedResponse) -> str:
    try:
        reason = error.structured()["status"]["error"]
    except (ValueError, LookupError, TypeError):
        reason = ""
    return reason if reason and isinstance(reason, str) else error.reason_phrase


def _of_transport(error: ResponseHandlingException, secret: str) -> StoreError:
    import httpx

    source = error.source
    reason = quoted(str(source), secret) or type(source).__name__
    if isinstance(source, httpx.TimeoutException):
        return StoreUnreachable(f"Qdrant took too long to answer ({reason})", hint=_UNREACHABLE, transient=True)
    if isinstance(source, httpx.TransportError):
        return StoreUnreachable(f"Qdrant cannot be reached: {reason}", hint=_UNREACHABLE, transient=True)
    return StoreError(_NO_ANSWER, hint=_NOT_QDRANT)


def _of_disk(error: OSError | sqlite3.Error) -> StoreError:
    if is_disk_full(error):
        return StoreFull(hint="free some space and run it again")
    return StoreError(f"Qdrant's folder cannot be used: {quoted(str(error))}")
