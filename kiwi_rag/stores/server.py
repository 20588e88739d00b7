"""What the stores on servers have in common: addresses, keys, errors, retries, and the life of a collection."""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, TypeVar
from urllib.parse import SplitResult

from kiwi_rag.endpoint import is_key, is_private, parse_url
from kiwi_rag.errors import ConfigError, StoreError, StoreFull, StoreRefused, StoreUnreachable
from kiwi_rag.model import Filters
from kiwi_rag.retry import READING, attempts
from kiwi_rag.stores.base import require_model
from kiwi_rag.stores.payload import Point

OTHER_NAME = "index it under another workspace's name, which is another collection: KIWI_WORKSPACE_NAME"
OTHER_MODEL = "use that model, or empty the index: kiwi workspace index --rebuild"
# A server that asks for patience, or a gateway that does not reach one. 52x are Cloudflare's.
_PASSING = frozenset({408, 425, 429, 502, 503, 504, *range(520, 531)})
_T = TypeVar("_T")
ClientT = TypeVar("ClientT")
ConnectionT = TypeVar("ConnectionT", bound="ServerConnection[Any]")


@dataclass(frozen=True, slots=True)
class ServerProduct:
    """A kind of server: its name, and what the settings of its address and key are called."""

    name: str
    url: str
    key: str
    example: str

    def check_url(self, url: str, api_key: str, variable: str = "") -> SplitResult:
        """Return the parts of a server's URL.

        Raises
        ------
        ConfigError
            When it is none, or an API key would be sent in the clear to another machine.
        """
        variable, parts = variable or self.url, parse_url(url)
        if parts is None:
            raise ConfigError(f"{variable} is not the address of a server", hint=self.example)
        if api_key and not is_private(parts):
            raise ConfigError("an API key is only sent over TLS, or to this machine", hint=f"{variable}=https://…")
        return parts

    def check_key(self, key: str) -> str:
        """Return `key` if it can be one."""
        if not is_key(key):
            raise ConfigError(f"{self.key} holds characters that no key has", hint="set it again, without quotes")
        return key

    def check_version(self, version: str, minimum: tuple[int, int], purpose: str) -> None:
        """Return if a server's version is not below the minimum, which Kiwi needs for a purpose; else `StoreError`."""
        found = re.match(r"v?(\d+)\.(\d+)", version)
        if found is None:
            raise self.unknown()
        if (int(found[1]), int(found[2])) < minimum:
            needed = f"Kiwi needs {'.'.join(map(str, minimum))} or newer, {purpose}"
            raise StoreError(f"the {self.name} server is {version}, and {needed}", hint="upgrade the server")

    def unreachable(self, what: str) -> StoreUnreachable:
        """Return the error of a server that does not answer, now at least."""
        hint = f"is the server running? check {self.url}"
        return StoreUnreachable(f"{self.name} {what}", hint=hint, transient=True)

    def unknown(self) -> StoreError:
        """Return the error of what is no server of this kind."""
        return StoreError(f"what answered is not a {self.name} server", hint=f"check {self.url}: {self.example}")

    def of_status(self, status: int, said: str) -> StoreError:
        """Return the error that an HTTP status stands for."""
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            hint = f"check {self.key}, and what it may do: writing needs a key that may write"
            return StoreRefused(f"{self.name} did not accept the key: {said}", hint=hint)
        if status == HTTPStatus.INSUFFICIENT_STORAGE:
            said = f"the disk of the {self.name} server is full: {said}"
            return StoreFull(said, hint="its operator has to make room")
        if status in _PASSING:
            return self.unreachable(f"cannot be reached: {said}")
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            message = "the server answered with a redirect, which is not followed because it would get the key"
            return StoreError(message, hint=f"set {self.url} to its target, if that is your server")
        hint = f"check {self.url}" if status == HTTPStatus.NOT_FOUND else ""
        return StoreError(f"{self.name} rejected the call: {said}", hint=hint)


class ServerConnection(ABC, Generic[ClientT]):
    """A client of a server, opened at its first use; several stores may share one."""

    version = ""

    def __init__(self) -> None:
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
        """Translate what the client raises inside the block into Kiwi's errors, without the key."""

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


@dataclass(frozen=True, slots=True)
class CollectionModel:
    """What a collection's configuration says: its embedding model, how vectors are searched, and what is wrong."""

    fingerprint: str
    dimension: int
    plan: str
    missing_indexes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def require(self, fingerprint: str, dimension: int) -> None:
        """Return if vectors of this model belong here, otherwise raise `FingerprintMismatch`."""
        require_model((self.fingerprint, self.dimension), (fingerprint, dimension), OTHER_MODEL)


class ServerCollection(ABC, Generic[ConnectionT]):
    """A collection on a server by its name, which need not exist yet. Its conditions are those of its server."""

    label: str
    partition = ""
    connection: ConnectionT
    starting: Sequence[float] = READING
    """Pauses of a write as long as the server starts."""
    _exists = False

    async def model(self, pauses: Sequence[float] = READING) -> CollectionModel | None:
        """Return what the collection's configuration says; None when there is no collection of this name.

        Raises
        ------
        StoreCorrupt
            When Kiwi did not make it like this; the message says what differs.
        """
        self._exists = self._exists or await self._check_exists(pauses)
        if not self._exists:
            return None
        try:
            return await self._read_model()
        except StoreError:
            self._exists = False  # it may have been dropped: the next use checks again
            raise

    async def ensure_created(self, fingerprint: str, dimension: int) -> CollectionModel:
        """Create the collection where it is missing; `FingerprintMismatch` if its model differs."""
        model = await self.model(self.starting)
        if model is None:
            try:
                await self._create(fingerprint, dimension)
            except StoreError:  # another writer may have created it between the check and the call
                if not await self._check_exists(READING):
                    raise
            model = await self.model()
        if model is None:
            raise StoreError(f"there is no {self.label}, though it was created just now")
        model.require(fingerprint, dimension)
        return model

    async def clear(self) -> None:
        """Remove everything of this collection."""
        if await self.model() is not None:
            await self._drop()
            self._exists = False

    @abstractmethod
    def of(self, kind: str, filters: Filters | None = None, *others: Any, **values: str) -> Any:
        """Return the condition for points of a kind that pass filters and other conditions, and have some values."""

    @abstractmethod
    async def count(self, condition: Any) -> int:
        """Return how many points match."""

    @abstractmethod
    async def sum(self, field: str, condition: Any) -> tuple[int, int]:
        """Return how many of the points that match have a number, and the sum of the numbers."""

    @abstractmethod
    async def retrieve(self, ids: Sequence[str]) -> Sequence[Point]:
        """Return the points of some ids that exist."""

    @abstractmethod
    async def _check_exists(self, pauses: Sequence[float]) -> bool: ...

    @abstractmethod
    async def _read_model(self) -> CollectionModel: ...

    @abstractmethod
    async def _create(self, fingerprint: str, dimension: int) -> None: ...

    @abstractmethod
    async def _drop(self) -> None: ...
