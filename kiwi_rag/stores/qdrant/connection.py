"""The way to Qdrant: a server by URL, or local mode in a folder or in memory. One client, one event loop.

`qdrant_client.AsyncQdrantClient` and not the blocking one in worker threads: a search that has run into its tier's
deadline is cancelled with its requests, both legs are asked at once over one pool, and local mode, which is not safe
for threads, runs where everything else of it runs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from kiwi_rag.errors import ConfigError, MissingExtra, StoreBusy, StoreError
from kiwi_rag.retry import READING, retry
from kiwi_rag.stores.qdrant.door import quoted, translated
from kiwi_rag.stores.qdrant.layout import MIN_SERVER

if TYPE_CHECKING:
    from qdrant_client import AsyncQdrantClient

MEMORY = ":memory:"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ANSWER_SECONDS = 30
_VERSION = re.compile(r"v?(\d+)\.(\d+)")
_T = TypeVar("_T")
_Call = Callable[["AsyncQdrantClient"], Awaitable[_T]]


class Connection:
    """A Qdrant that is opened at its first use; several stores may share one.

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

    async def ask(self, call: _Call[_T], pauses: Sequence[float] = READING) -> _T:
        """Return what `call` makes of the client, after further attempts where one may succeed in a moment.

        `call` must be safe to run twice: an answer may be lost after the server did what it was asked.

        Raises
        ------
        MissingExtra
            When qdrant-client is not installed.
        StoreError
            As `kiwi_rag.stores.qdrant.door.translated` has it.
        """
        return await retry(lambda: self._once(call), pauses)

    async def close(self) -> None:
        """Close the client; the next use opens another."""
        client, self._client = self._client, None
        if client is not None:
            with translated(self._key):
                await client.close()

    async def _once(self, call: _Call[_T]) -> _T:
        client = await self._opened()
        with translated(self._key):
            return await call(client)

    async def _opened(self) -> AsyncQdrantClient:
        async with self._opening:
            if self._client is None:
                client = self._new_client()
                try:
                    await self._check_version(client)
                except BaseException:
                    with suppress(StoreError), translated(self._key):
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
        with translated(self._key):
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
        with translated(self._key):
            self.version = quoted(str((await client.info()).version), self._key)
        found = _VERSION.match(self.version)
        if found is None:
            raise StoreError("what answered is not a Qdrant server", hint="check KIWI_QDRANT_URL")
        if (int(found[1]), int(found[2])) < MIN_SERVER:
            needed = ".".join(map(str, MIN_SERVER))
            told = (
                f"the Qdrant server is {self.version}, and Kiwi needs {needed} or newer: older ones have no conditional"
            )
            raise StoreError(f"{told} updates", hint="upgrade the server, one minor version at a time")


def _in_folder(path: str) -> AsyncQdrantClient:
    from qdrant_client import AsyncQdrantClient

    try:
        return AsyncQdrantClient(path=path)
    except RuntimeError as error:  # how it says that the folder is locked
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
    """Return `key` if it can be a header; a library's own error for one that cannot would quote it."""
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError("KIWI_QDRANT_API_KEY holds characters that no key has", hint="set it again, without quotes")
    return key
