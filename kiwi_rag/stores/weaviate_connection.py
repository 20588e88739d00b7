"""Calls to a Weaviate server by its REST and gRPC interfaces; errors become Kiwi's here.

The client's own checks at the start are left out, because one of them contacts a package registry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import SplitResult
from urllib.request import getproxies

import httpx
from grpc import StatusCode
from grpc.aio import AioRpcError
from weaviate import WeaviateAsyncClient, exceptions, use_async_with_custom
from weaviate.classes.init import AdditionalConfig, Auth, Timeout

from kiwi_rag.consent import is_loopback
from kiwi_rag.endpoint import trusted_certificates
from kiwi_rag.errors import StoreError
from kiwi_rag.stores.server import ServerConnection

MIN_SERVER = (1, 29)
"""Counts and sums over gRPC came with Weaviate 1.29."""
_GRPC = "KIWI_WEAVIATE_GRPC_URL"


class WeaviateConnection(ServerConnection[WeaviateAsyncClient]):
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

    Raises
    ------
    ConfigError
        When an address is no URL that a key may be sent to.
    """

    product, example = "Weaviate", "https://<host>:8080"

    def __init__(self, url: str, api_key: str = "", *, grpc_url: str = "") -> None:
        super().__init__(api_key)
        self._rest = self._check_url(url)
        self._grpc = self._check_url(grpc_url or _grpc_address(self._rest), "GRPC_URL")
        self._trust_env = not is_loopback(self._rest.hostname or "")  # proxies do not reach this machine

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Translate what the client raises; see `ServerConnection.translate_errors`."""
        try:
            yield
        except exceptions.UnexpectedStatusCodeError as error:  # also of gRPC, for what a key may not do
            status = 403 if isinstance(error, exceptions.InsufficientPermissionsError) else error.status_code
            raise self._of_status(status, str(error)) from None  # as the cause quotes all
        except (TimeoutError, exceptions.WeaviateTimeoutError, httpx.TimeoutException):
            raise self._unreachable(f"took too long to answer; check {_GRPC}, too") from None
        except (exceptions.WeaviateConnectionError, httpx.TransportError, OSError) as error:
            raise self._unreachable(f"cannot be reached: {self.quoted(str(error))}") from None
        except exceptions.WeaviateBaseError as error:
            raise self._of_code(_grpc_code(error), error.message) from None
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
            raise self._unknown() from None

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
        self._check_version((await client.get_meta())["version"], MIN_SERVER, "for counts over gRPC")

    async def _check_ready(self) -> None:
        """Raise unless the server is ready, and something listens where its gRPC interface should."""
        options: dict[str, Any] = {"timeout": self.seconds, "trust_env": self._trust_env}
        async with httpx.AsyncClient(verify=trusted_certificates(), **options) as client:
            address = f"{self._rest.scheme}://{self._rest.netloc}/v1/.well-known/ready"
            status = (await client.get(address)).status_code
        if status != 200:
            raise self._of_status(status, f"HTTP {status}, it is not ready")
        if self._trust_env and getproxies():
            return  # it may be reached through one of them alone
        host, port, _ = _parts(self._grpc)
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), self.seconds)
        except OSError as error:
            raise self._unreachable(f"does not answer at {host}:{port}, for gRPC ({_GRPC}): {error}") from None
        writer.close()

    def _of_code(self, code: Any, said: str) -> StoreError:
        if code in {StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED}:
            return self._unreachable(f"cannot be reached: {self.quoted(said)}")
        return self._of_status(401 if code == StatusCode.UNAUTHENTICATED else 400, said)


def _grpc_address(rest: SplitResult) -> str:
    return f"{rest.scheme}://{rest.netloc.removesuffix(f':{rest.port}')}:{27502 if rest.port == 27501 else 50051}"


def _parts(address: SplitResult) -> tuple[str, int, bool]:
    secure = address.scheme == "https"
    return address.hostname or "", address.port or (443 if secure else 80), secure


def _grpc_code(error: BaseException | None) -> Any:
    """Return the status that gRPC gave, or lacked: the client raises its own error while it handles that one."""
    while error is not None and not isinstance(error, AioRpcError):
        if isinstance(error, httpx.TransportError):
            return StatusCode.UNAVAILABLE
        error = error.__cause__ or error.__context__
    return error.code() if error is not None else None
