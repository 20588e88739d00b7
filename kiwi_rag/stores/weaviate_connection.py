"""Calls to a Weaviate server by its REST and gRPC interfaces; errors become Kiwi's here.

The client's own checks at the start are left out, because one of them contacts a package registry.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import SplitResult
from urllib.request import getproxies

import httpx
from grpc import StatusCode
from grpc.aio import AioRpcError
from weaviate import WeaviateAsyncClient, exceptions, use_async_with_custom
from weaviate.classes.aggregate import GroupByAggregate, Metrics
from weaviate.classes.init import AdditionalConfig, Auth, Timeout

from kiwi_rag.consent import is_loopback
from kiwi_rag.endpoint import quoted, trusted_certificates
from kiwi_rag.errors import StoreCorrupt, StoreError
from kiwi_rag.retry import READING, WRITING
from kiwi_rag.stores import server
from kiwi_rag.stores.payload import SCHEMA, Point
from kiwi_rag.stores.weaviate_schema import class_name, class_options, find_differences, objects_of, read_point

MIN_SERVER = (1, 29)
"""Counts and sums over gRPC came with Weaviate 1.29."""
STARTING = (*WRITING, 4.0, 8.0)
"""Pauses of a write while the server starts, which takes it some seconds."""
AT_ONCE = 10_000
"""What a server finds or deletes at once unless configured otherwise (``QUERY_MAXIMUM_RESULTS``)."""
_ANSWER_SECONDS = 30
_WEAVIATE = server.ServerProduct("Weaviate", "KIWI_WEAVIATE_URL", "KIWI_WEAVIATE_API_KEY", "https://<host>:8080")
_GRPC = "KIWI_WEAVIATE_GRPC_URL"


class WeaviateConnection(server.ServerConnection[WeaviateAsyncClient]):
    """The connection to Weaviate, opened at its first use; several stores may share one.

    Parameters
    ----------
    url
        ``https://host:8080``.
    api_key
        The server's key; only sent over TLS, or to this machine.
    grpc_url
        The address of the server's gRPC interface. The default is the same host, as the user has allowed it, with port
        50051; beside port 27501, with which Kiwi's compose file starts it, 27502.
    seconds
        How long one request may take.

    Raises
    ------
    ConfigError
        When an address is no URL that a key may be sent to.
    """

    def __init__(self, url: str, api_key: str = "", *, grpc_url: str = "", seconds: float = _ANSWER_SECONDS) -> None:
        self._rest = _WEAVIATE.check_url(url, api_key)
        self._grpc = _WEAVIATE.check_url(grpc_url or _grpc_address(self._rest), api_key, _GRPC)
        self._key = _WEAVIATE.check_key(api_key)
        self.seconds = seconds
        self._trust_env = not is_loopback(self._rest.hostname or "")  # proxies do not reach this machine
        super().__init__()

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Translate what the client raises inside the block, which must hold only calls of it.

        Raises
        ------
        StoreUnreachable
            When no server answers, none in time, or it is starting; ``transient`` says that it may in a moment.
        StoreRefused
            When the server does not accept the key.
        StoreError
            When the server rejects the call, or what answers is not a Weaviate server.
        """
        try:
            yield
        except exceptions.UnexpectedStatusCodeError as error:  # also of gRPC, for what a key may not do
            status = 403 if isinstance(error, exceptions.InsufficientPermissionsError) else error.status_code
            raise _WEAVIATE.of_status(status, quoted(str(error), self._key)) from None  # as the cause quotes all
        except (TimeoutError, exceptions.WeaviateTimeoutError, httpx.TimeoutException):
            raise _WEAVIATE.unreachable(f"took too long to answer; check {_GRPC}, too") from None
        except (exceptions.WeaviateConnectionError, httpx.TransportError, OSError) as error:
            raise _WEAVIATE.unreachable(f"cannot be reached: {quoted(str(error), self._key)}") from None
        except exceptions.WeaviateBaseError as error:
            raise _of_code(_grpc_code(error), quoted(error.message, self._key)) from None
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
            raise _WEAVIATE.unknown() from None

    async def _connect(self) -> WeaviateAsyncClient:
        await self._check_ready()
        logging.getLogger("weaviate-client").disabled = True  # its messages quote whole objects
        timeout = Timeout(query=self.seconds, insert=self.seconds)
        return use_async_with_custom(
            *_parts(self._rest),
            *_parts(self._grpc),
            auth_credentials=Auth.api_key(self._key) if self._key else None,
            additional_config=AdditionalConfig(timeout=timeout, trust_env=self._trust_env),
            skip_init_checks=True,
        )

    async def _check(self, client: WeaviateAsyncClient) -> None:
        await client.connect()
        self.version = quoted(str((await client.get_meta())["version"]), self._key)
        _WEAVIATE.check_version(self.version, MIN_SERVER, "for counts over gRPC")

    async def _check_ready(self) -> None:
        """Raise unless the server is ready, and something listens where its gRPC interface should."""
        options: dict[str, Any] = {"timeout": self.seconds, "trust_env": self._trust_env}
        async with httpx.AsyncClient(verify=trusted_certificates(), **options) as client:
            address = f"{self._rest.scheme}://{self._rest.netloc}/v1/.well-known/ready"
            status = (await client.get(address)).status_code
        if status != 200:
            raise _WEAVIATE.of_status(status, f"HTTP {status}, it is not ready")
        if self._trust_env and getproxies():
            return  # it may be reached through one of them alone
        host, port, _ = _parts(self._grpc)
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), self.seconds)
        except OSError as error:
            raise _WEAVIATE.unreachable(f"does not answer at {host}:{port}, for gRPC ({_GRPC}): {error}") from None
        writer.close()


def _grpc_address(rest: SplitResult) -> str:
    return f"{rest.scheme}://{rest.netloc.removesuffix(f':{rest.port}')}:{27502 if rest.port == 27501 else 50051}"


def _parts(address: SplitResult) -> tuple[str, int, bool]:
    secure = address.scheme == "https"
    return address.hostname or "", address.port or (443 if secure else 80), secure


class WeaviateCollection(server.ServerCollection[WeaviateConnection]):
    """The class of a collection of documents."""

    of = staticmethod(objects_of)

    def __init__(self, connection: WeaviateConnection, collection: str) -> None:
        self.connection, self.collection, self.starting = connection, collection, STARTING
        self.name = class_name(collection)
        self.label = f"class {self.name}"

    async def upsert(self, objects: Sequence[Any]) -> None:
        """Store objects, replacing those of the same ids; `StoreError` if the server does not take one of them."""
        done = await self._call(lambda c: c.data.insert_many(objects), WRITING)
        for error in done.errors.values():
            raise StoreError(f"Weaviate did not store {len(done.errors)} objects: {quoted(error.message)}")

    async def delete(self, condition: Any) -> None:
        """Delete all objects that match."""
        matches = AT_ONCE
        while matches >= AT_ONCE:
            done = await self._call(lambda c: c.data.delete_many(where=condition), WRITING)
            if done.failed:
                raise StoreError(f"Weaviate did not delete {done.failed} of {done.matches} objects")
            matches = done.matches

    async def count(self, condition: Any) -> int:
        """Return how many objects match."""
        return int((await self._aggregate(condition)).total_count or 0)

    async def sum(self, field: str, condition: Any) -> tuple[int, int]:
        """Return how many objects match, and the sum of a number that they have."""
        found = await self._aggregate(condition, return_metrics=Metrics(field).integer(sum_=True))
        total = int(getattr(found.properties.get(field), "sum_", None) or 0)
        if total < 0:
            raise StoreCorrupt("Weaviate returned a negative sum", hint="did another program write to this class?")
        return int(found.total_count or 0), total

    async def groups(self, field: str, condition: Any) -> Mapping[str, int]:
        """Return the values of a field among the objects that match, with how many have each."""
        found = await self._aggregate(condition, group_by=GroupByAggregate(prop=field, limit=AT_ONCE))
        return {str(group.grouped_by.value): int(group.total_count or 0) for group in found.groups}

    async def retrieve(self, ids: Sequence[str]) -> Sequence[Point]:
        """Return the objects of some ids that exist."""
        return await self.find("fetch_objects_by_ids", list(ids), limit=len(ids)) if ids else []

    async def find(self, method: str, *arguments: Any, **options: Any) -> Sequence[Point]:
        """Return the objects that a query of the client finds."""
        found = await self._call(lambda c: getattr(c.query, method)(*arguments, **options))
        return list(map(read_point, found.objects))

    async def _aggregate(self, condition: Any, **options: Any) -> Any:
        return await self._call(lambda c: c.aggregate.over_all(filters=condition, **options))

    async def _call(self, request: Callable[[Any], Awaitable[Any]], pauses: Sequence[float] = READING) -> Any:
        async def timed(client: WeaviateAsyncClient) -> Any:
            async with asyncio.timeout(self.connection.seconds):  # the client itself tries for a minute
                return await request(client.collections.use(self.name))

        return await self.connection.attempt(timed, pauses)

    async def _check_exists(self, pauses: Sequence[float]) -> bool:
        return await self.connection.attempt(lambda c: c.collections.exists(self.name), pauses)

    async def _create(self, fingerprint: str, dimension: int) -> None:
        ours = {"schema": SCHEMA, "collection": self.collection, "fingerprint": fingerprint, "dimension": dimension}
        options = class_options({"kiwi": ours})
        await self.connection.attempt(lambda c: c.collections.create(self.name, **options))

    async def _drop(self) -> None:
        await self.connection.attempt(lambda c: c.collections.delete(self.name))

    async def _read_model(self) -> server.CollectionModel:
        config = await self._call(lambda c: c.config.get())
        try:
            ours = json.loads(config.description)["kiwi"]
            about = ours["schema"], ours["collection"], str(ours["fingerprint"]), int(ours["dimension"])
        except (ValueError, LookupError, TypeError, RecursionError):
            about = None, "", "", 0
        if about[:2] != (SCHEMA, self.collection):
            raise StoreCorrupt(f"Kiwi did not make the {self.label}, or another version did", hint=server.OTHER_NAME)
        if wrong := find_differences(config):
            shown = "; ".join(wrong[:3]) + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else "")
            raise StoreCorrupt(f"the {self.label} was changed: {shown}", hint=server.OTHER_NAME)
        return server.CollectionModel(about[2], about[3], "hnsw")


def _of_code(code: Any, said: str) -> StoreError:
    if code in {StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED}:
        return _WEAVIATE.unreachable(f"cannot be reached: {said}")
    return _WEAVIATE.of_status(401 if code == StatusCode.UNAUTHENTICATED else 400, said)


def _grpc_code(error: BaseException | None) -> Any:
    """Return the status that gRPC gave, or lacked: the client raises its own error while it handles that one."""
    while error is not None and not isinstance(error, AioRpcError):
        if isinstance(error, httpx.TransportError):
            return StatusCode.UNAVAILABLE
        error = error.__cause__ or error.__context__
    return error.code() if error is not None else None
