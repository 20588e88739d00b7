"""Calls to a Qdrant server; errors become Kiwi's here.

`qdrant_client.AsyncQdrantClient` and not the blocking one in worker threads: a search that has reached its tier's
deadline is cancelled with its requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import httpx
from qdrant_client import AsyncQdrantClient
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from kiwi_rag.consent import is_loopback
from kiwi_rag.endpoint import trusted_certificates
from kiwi_rag.errors import StoreError
from kiwi_rag.retry import READING
from kiwi_rag.stores.server import ServerConnection

MIN_SERVER = (1, 16)
"""Conditional updates and a collection's own metadata came with Qdrant 1.16; without the first, writers would race."""


class QdrantConnection(ServerConnection[AsyncQdrantClient]):
    """The connection to Qdrant, opened at its first use; several stores may share one.

    Parameters
    ----------
    url
        ``https://host:6333``.
    api_key
        The server's key; only sent over TLS, or to this machine.

    Raises
    ------
    ConfigError
        When the address is no URL that a key may be sent to.
    """

    product, example = "Qdrant", "https://<host>:6333"

    def __init__(self, url: str, api_key: str = "") -> None:
        super().__init__(api_key)
        self._host = self._check_url(url).hostname or ""
        self._url = url

    async def call(self, method: str, *arguments: Any, pauses: Sequence[float] = READING, **options: Any) -> Any:
        """Return what a method of the client returns; see `attempt`."""
        return await self.attempt(lambda client: getattr(client, method)(*arguments, **options), pauses)

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Translate what qdrant-client raises; see `ServerConnection.translate_errors`."""
        try:
            yield
        except UnexpectedResponse as error:
            raise self._of_response(error) from None  # the cause quotes the whole answer
        except ResponseHandlingException as error:
            raise self._of_transport(error.source) from None
        except QdrantException as error:  # 429 with a time to wait
            raise self._unreachable(f"has too much to do: {self.quoted(str(error))}") from None
        except json.JSONDecodeError:
            raise self._unknown() from None
        except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
            # Parsing another server's answer raises these.
            raise StoreError(f"Qdrant failed: {self.quoted(str(error)) or type(error).__name__}") from None

    async def _connect(self) -> AsyncQdrantClient:
        # The key goes as the header that it is: as `api_key` the client would warn of http on this machine.
        headers = {"api-key": self._key} if self._key else None
        options: dict[str, Any] = {"timeout": int(self.seconds), "verify": trusted_certificates()}
        options["trust_env"] = not is_loopback(self._host)  # a proxy would get what needs no consent
        return AsyncQdrantClient(url=self._url, headers=headers, check_compatibility=False, **options)

    async def _check(self, client: AsyncQdrantClient) -> None:
        self._check_version((await client.info()).version, MIN_SERVER, "for conditional updates")

    def _of_response(self, error: UnexpectedResponse) -> StoreError:
        reason = error.reason_phrase
        with suppress(ValueError, LookupError, TypeError):
            reason = str(error.structured()["status"]["error"])
        return self._of_status(error.status_code or 0, f"HTTP {error.status_code}, {reason}")

    def _of_transport(self, error: Exception) -> StoreError:
        if not isinstance(error, httpx.TransportError):
            return self._unknown()
        late = isinstance(error, httpx.TimeoutException)
        reason = self.quoted(str(error)) or type(error).__name__
        return self._unreachable(f"{'took too long to answer' if late else 'cannot be reached'}: {reason}")
