"""What remote providers share: a POST with retries, batches, normalising and the usage log.

Retried are 429, 5xx, time-outs and broken connections, with growing waits, or as long as ``Retry-After`` says
(RFC 9110, section 10.2.3). Redirects are refused: following one would hand the API key to another host. The key
appears in no message and no log.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import random
import socket
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kiwi_rag.embedding.base import EmbeddingProvider, Fingerprint, batches, unit_vectors, well_formed
from kiwi_rag.embedding.usage import RemoteCall, UsageLog
from kiwi_rag.errors import EmbeddingError, ModelUnavailable, UsageError
from kiwi_rag.model import sha256_hex

if TYPE_CHECKING:
    from kiwi_rag.model import Vector

_MAX_WAIT = 60.0
_SHOWN = 300
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that embeds, and how patient to be with it.

    ``base_url`` is ``http://`` or ``https://``; ``timeout`` and ``backoff`` (the first wait, doubled each time)
    are seconds; ``retries`` is how often a failed call is repeated.
    """

    base_url: str
    api_key: str = field(default="", repr=False)
    timeout: float = 30.0
    retries: int = 4
    backoff: float = 0.5

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise UsageError(f"the base URL {self.base_url!r} is neither http:// nor https://")
        if urllib.parse.urlsplit(self.base_url).username is not None:
            raise UsageError("the base URL carries a user name", hint="put the key into KIWI_EMBEDDING_API_KEY")


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's answer to one batch: raw vectors in order, and the tokens it counted, if it said."""

    rows: Sequence[Sequence[float]]
    tokens: int | None


class RemoteEmbeddingProvider(EmbeddingProvider):
    """A provider behind HTTP; a subclass says how one batch is asked for.

    Parameters
    ----------
    endpoint
        The server.
    model
        The model's name there.
    dimension
        Length of its vectors; 0 to learn it from the first answer, which makes ``fingerprint`` ask once.
    usage
        Where calls are logged; None for nowhere.
    """

    batch_size = 64
    provider = ""
    default_model = ""
    max_tokens = 0
    """Tokens that the server reads of a text; 0 where only the server knows."""

    def __init__(self, endpoint: Endpoint, model: str, dimension: int = 0, usage: UsageLog | None = None) -> None:
        self.endpoint = endpoint
        self.model = model
        self._dimension = dimension
        self._usage = usage
        self._lock = threading.Lock()

    @abstractmethod
    def ask(self, texts: Sequence[str]) -> Reply:
        """Send one batch and return the answer."""

    @property
    def fingerprint(self) -> Fingerprint:
        """Model, dimension and, in place of a weights digest, the digest of provider, base URL and model."""
        place = f"{self.provider} {self.endpoint.base_url.rstrip('/')} {self.model}"
        return Fingerprint(
            self.model, sha256_hex(place.encode()), self._known_dimension(), self.provider, self.max_tokens
        )

    @property
    def place(self) -> str:
        """The server's address."""
        return self.endpoint.base_url

    def encode(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector a text, in order; see the base class.

        Raises
        ------
        ModelUnavailable
            If the server does not know the model, or cannot be reached.
        FingerprintMismatch
            If its vectors do not have the expected dimension.
        EmbeddingError
            If it refuses, or fails after all retries.
        """
        return [vector for batch in batches(texts, self.batch_size) for vector in self._encode_batch(batch)]

    def _encode_batch(self, texts: Sequence[str]) -> Sequence[Vector]:
        reply = self._logged_ask([well_formed(text) for text in texts])
        if len(reply.rows) != len(texts):
            raise EmbeddingError(f"asked for {len(texts)} vectors, {self.endpoint.base_url} sent {len(reply.rows)}")
        return unit_vectors(reply.rows, self._learned(reply))

    def _logged_ask(self, texts: Sequence[str]) -> Reply:
        started = time.perf_counter()
        try:
            reply = self.ask(texts)
        except EmbeddingError as error:
            self._record(len(texts), None, started, error.own_words)
            raise
        self._record(len(texts), reply.tokens, started, "ok")
        return reply

    def _record(self, texts: int, tokens: int | None, started: float, outcome: str) -> None:
        if self._usage:
            seconds = round(time.perf_counter() - started, 4)
            self._usage.record(RemoteCall(self.provider, self.model, texts, tokens, seconds, outcome))

    def _learned(self, reply: Reply) -> int:
        first = reply.rows[0]
        if not isinstance(first, list):
            raise EmbeddingError(f"{self.endpoint.base_url} sent something that is not a vector")
        with self._lock:
            self._dimension = self._dimension or len(first)
            return self._dimension

    def _known_dimension(self) -> int:
        if not self._dimension:
            self.encode(["dimension"])
        return self._dimension


def post_json(endpoint: Endpoint, path: str, body: Mapping[str, object]) -> Any:
    """POST `body` to the endpoint's `path` and return the parsed JSON answer, after as many tries as it allows.

    Raises
    ------
    ModelUnavailable
        If the server cannot be reached, or answers 404.
    EmbeddingError
        If it answers any other error, or something that is not JSON.
    """
    url = endpoint.base_url.rstrip("/") + path
    for attempt in range(endpoint.retries + 1):
        try:
            return _post_once(endpoint, url, body)
        except _Transient as error:
            if attempt == endpoint.retries:
                raise error.failure from error
            time.sleep(_wait(endpoint, attempt, error.retry_after))
    raise AssertionError("the last attempt returns or raises")


class _Transient(Exception):
    """A failure that another try may mend; ``retry_after`` is what the server asked for, if it did."""

    def __init__(self, failure: EmbeddingError, retry_after: str = "") -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.retry_after = retry_after


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow nothing: the 3xx answer becomes an ``HTTPError``."""


def _post_once(endpoint: Endpoint, url: str, body: Mapping[str, object]) -> Any:
    headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "kiwi-rag"}
    if endpoint.api_key:
        headers["Authorization"] = f"Bearer {endpoint.api_key}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")  # noqa: S310 - checked
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=endpoint.timeout) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise _refusal(endpoint, url, error) from error
    except (OSError, http.client.HTTPException) as error:
        raise _broken(url, error) from error
    except ValueError as error:
        raise EmbeddingError(f"{url} answered something that is not JSON") from error


def _refusal(endpoint: Endpoint, url: str, error: urllib.error.HTTPError) -> Exception:
    detail = _detail(error)
    if endpoint.api_key:
        detail = detail.replace(endpoint.api_key, "…")
    message = f"{url} answered {error.code} {error.reason}: {detail}".rstrip(": ")
    hint = "set KIWI_EMBEDDING_API_KEY to a key that this server accepts" if error.code in {401, 403} else ""
    failure = (ModelUnavailable if error.code == 404 else EmbeddingError)(message, hint=hint)
    failure.quoted = detail
    return _Transient(failure, error.headers.get("Retry-After", "")) if error.code in _RETRIED else failure


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        return error.read(4096).decode("utf-8", "replace").strip()[:_SHOWN]
    except (OSError, http.client.HTTPException):
        return ""


def _broken(url: str, error: Exception) -> Exception:
    reason = getattr(error, "reason", error)
    failure = ModelUnavailable(f"{url} cannot be reached: {reason}", hint="is the server running, and the URL right?")
    hopeless = isinstance(reason, ConnectionRefusedError | socket.gaierror | ssl.SSLCertVerificationError)
    return failure if hopeless else _Transient(failure)


def _wait(endpoint: Endpoint, attempt: int, retry_after: str) -> float:
    """Return the seconds to wait before the next try; the jitter keeps several clients from knocking together."""
    grown: float = endpoint.backoff * 2**attempt * random.uniform(0.75, 1.25)  # noqa: S311 - no secret hangs on it
    return min(_MAX_WAIT, max(grown, _seconds(retry_after)))


def _seconds(retry_after: str) -> float:
    """Parse ``Retry-After``: seconds, or an HTTP date; 0 where it is neither."""
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0
