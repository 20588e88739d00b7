"""What connections to the stores' servers have in common: addresses, keys, errors and retries."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from http import HTTPStatus
from typing import Generic, TypeVar
from urllib.parse import SplitResult

from kiwi_rag.endpoint import is_key, is_private, parse_url, quoted
from kiwi_rag.errors import ConfigError, StoreError, StoreFull, StoreRefused, StoreUnreachable
from kiwi_rag.retry import READING, attempts

# A server that asks for patience, or a gateway that does not reach one. 52x are Cloudflare's.
_PASSING = frozenset({408, 425, 429, 502, 503, 504, *range(520, 531)})
_T = TypeVar("_T")
ClientT = TypeVar("ClientT")


class ServerConnection(ABC, Generic[ClientT]):
    """A client of a server, opened at its first use; several stores may share one.

    Parameters
    ----------
    api_key
        The server's key; only sent over TLS, or to this machine.
    """

    product: str
    """The name of this kind of server; its settings begin with ``KIWI_<NAME>``."""
    example: str
    version = ""
    seconds: float = 30
    """How long one request may take."""

    def __init__(self, api_key: str) -> None:
        if not is_key(api_key):
            what = f"{self._setting('API_KEY')} holds characters that no key has"
            raise ConfigError(what, hint="set it again, without quotes")
        self._key = api_key
        self._client: ClientT | None = None
        self._opening = asyncio.Lock()

    async def attempt(self, request: Callable[[ClientT], Awaitable[_T]], pauses: Sequence[float] = READING) -> _T:
        """Return what `request` returns for the client, retried where another attempt may succeed in a moment.

        It must be safe to run twice: an answer may be lost after the server did the work.

        Raises
        ------
        StoreError
            As `translate_errors` raises it.
        """
        for attempt in attempts(pauses):
            async with attempt:
                with self.translate_errors():
                    return await request(await self._opened())
        raise StoreError("no attempt was made")

    async def close(self) -> None:
        """Close the client; the next use opens another."""
        client, self._client = self._client, None
        if client is not None:
            with self.translate_errors():
                await client.close()  # type: ignore[attr-defined]

    @abstractmethod
    def translate_errors(self) -> AbstractContextManager[None]:
        """Translate what the client raises inside the block, which must hold only calls of it, without the key.

        Raises
        ------
        StoreUnreachable
            When no server answers, none in time, or it is starting; ``transient`` says that it may in a moment.
        StoreRefused
            When the server does not accept the key.
        StoreFull
            When the disk is full.
        StoreError
            When the server rejects the call, or what answers is no server of this kind.
        """

    @abstractmethod
    async def _connect(self) -> ClientT:
        """Return a new client."""

    @abstractmethod
    async def _check(self, client: ClientT) -> None:
        """Raise an error if the client's server is not one that Kiwi can use."""

    async def _opened(self) -> ClientT:
        async with self._opening:
            if self._client is None:
                client = await self._connect()
                try:
                    await self._check(client)
                except BaseException:
                    await client.close()  # type: ignore[attr-defined]
                    raise
                self._client = client
            return self._client

    def _setting(self, name: str) -> str:
        return f"KIWI_{self.product.upper()}_{name}"

    def _check_url(self, url: str, setting: str = "URL") -> SplitResult:
        """Return the parts of a server's URL; `ConfigError` for none, or if the key would be sent in the clear."""
        variable, parts = self._setting(setting), parse_url(url)
        if parts is None:
            raise ConfigError(f"{variable} is not the address of a server", hint=self.example)
        if self._key and not is_private(parts):
            raise ConfigError("an API key is only sent over TLS, or to this machine", hint=f"{variable}=https://…")
        return parts

    def _check_version(self, version: object, minimum: tuple[int, int], purpose: str) -> None:
        """Keep the server's version; `StoreError` when it is below the minimum, which Kiwi needs for a purpose."""
        self.version = self.quoted(str(version))
        found = re.match(r"v?(\d+)\.(\d+)", self.version)
        if found is None:
            raise self._unknown()
        if (int(found[1]), int(found[2])) < minimum:
            needed = f"Kiwi needs {'.'.join(map(str, minimum))} or newer, {purpose}"
            raise StoreError(f"the {self.product} server is {self.version}, and {needed}", hint="upgrade the server")

    def quoted(self, text: str) -> str:
        """Return `text` as one line of bounded length, without the key."""
        return quoted(text, self._key)

    def _unreachable(self, what: str) -> StoreUnreachable:
        """Return the error of a server that does not answer, now at least."""
        hint = f"is the server running? check {self._setting('URL')}"
        return StoreUnreachable(f"{self.product} {what}", hint=hint, transient=True)

    def _unknown(self) -> StoreError:
        """Return the error of what is no server of this kind."""
        hint = f"check {self._setting('URL')}: {self.example}"
        return StoreError(f"what answered is not a {self.product} server", hint=hint)

    def _of_status(self, status: int, said: str) -> StoreError:
        """Return the error that an HTTP status stands for."""
        said = self.quoted(said)
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            hint = f"check {self._setting('API_KEY')}, and what it may do: writing needs a key that may write"
            return StoreRefused(f"{self.product} did not accept the key: {said}", hint=hint)
        if status == HTTPStatus.INSUFFICIENT_STORAGE:
            return StoreFull(
                f"the disk of the {self.product} server is full: {said}", hint="its operator has to make room"
            )
        if status in _PASSING:
            return self._unreachable(f"cannot be reached: {said}")
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            message = "the server answered with a redirect, which is not followed because it would get the key"
            return StoreError(message, hint=f"set {self._setting('URL')} to its target, if that is your server")
        hint = f"check {self._setting('URL')}" if status == HTTPStatus.NOT_FOUND else ""
        return StoreError(f"{self.product} rejected the call: {said}", hint=hint)
