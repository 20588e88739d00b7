"""Calls to a Qdrant server by URL, or a folder that qdrant-client keeps by itself; errors become Kiwi's here.

`qdrant_client.AsyncQdrantClient` and not the blocking one in worker threads: a search that has reached its tier's
deadline is cancelled with its requests, and local mode, which is not safe for threads, stays on one.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from qdrant_client import AsyncQdrantClient
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from kiwi_rag.consent import is_loopback
from kiwi_rag.embedding.endpoint import httpx_certificates
from kiwi_rag.errors import StoreBusy, StoreError, StoreFull
from kiwi_rag.retry import READING
from kiwi_rag.storage.sqlite import is_disk_full
from kiwi_rag.stores.server import ServerConnection

MEMORY = ":memory:"
MIN_SERVER = (1, 16)
"""Conditional updates and a collection's own metadata came with Qdrant 1.16; without the first, writers would race."""
_ANSWER_SECONDS = 30


class QdrantConnection(ServerConnection[AsyncQdrantClient]):
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

    product, example = "Qdrant", "https://<host>:6333"

    def __init__(self, location: str, api_key: str = "", *, seconds: int = _ANSWER_SECONDS) -> None:
        super().__init__(api_key)
        self.local = not location.startswith(("http:", "https:"))
        self._location = str(Path(location).expanduser()) if self.local else location
        if not self.local:
            self._check_url(location)
        self._seconds = seconds

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
        except (OSError, sqlite3.Error) as error:
            if is_disk_full(error):
                raise StoreFull(hint="free some space and run it again") from error
            raise StoreError(f"Qdrant's folder cannot be used: {self.quoted(str(error))}") from error
        except json.JSONDecodeError:
            raise self._unknown() from None
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
            # Local mode raises these where a server would reject the call; parsing another server's answer does too.
            raise StoreError(f"Qdrant failed: {self.quoted(str(error)) or type(error).__name__}") from None

    async def _connect(self) -> AsyncQdrantClient:
        if self._location == MEMORY:
            return AsyncQdrantClient(location=MEMORY)
        if self.local:
            try:
                return AsyncQdrantClient(path=self._location)
            except RuntimeError as error:  # the folder is locked
                hint = "only one process at a time may open the folder; a server lets several in: KIWI_QDRANT_URL"
                raise StoreBusy("another process has this folder of Qdrant's open", hint=hint) from error
        # The key goes as the header that it is: as `api_key` the client would warn of http on this machine.
        headers = {"api-key": self._key} if self._key else None
        options: dict[str, Any] = {"timeout": self._seconds, "verify": httpx_certificates()}
        # A proxy would get what needs no consent.
        options["trust_env"] = not is_loopback(httpx.URL(self._location).host)
        return AsyncQdrantClient(url=self._location, headers=headers, check_compatibility=False, **options)

    async def _check(self, client: AsyncQdrantClient) -> None:
        if not self.local:
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
