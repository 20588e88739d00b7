"""One POST to an embedding server: retries within a bounded time, answers of a bounded size, typed errors.

Retried are 429, 5xx, time-outs and broken connections, with growing waits, or as long as ``Retry-After`` says
(RFC 9110, section 10.2.3), while ``patience`` lasts. One try, from the connection to the answer's last byte, takes
``timeout`` at most. Where nobody listens, the name is unknown or there is no network, it says so at once. Redirects are
refused: following one would hand the API key to another host. The key appears in no message and no log; of what a
server says, what a terminal would obey is taken out.

httpx's own time-outs are of each read, so that a server which sends a byte now and then is waited for without end.
Therefore a try is a coroutine under ``asyncio.timeout``. A library that retries inside a transport (httpx-retries 0.6)
sees neither a body that breaks off nor the time that all tries took together; the loop here does.
"""

from __future__ import annotations

import asyncio
import email.utils
import errno
import json
import os
import random
import socket
import ssl
import time
import urllib.parse
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from kiwi_rag.errors import AnswerMalformed, EmbeddingError, ModelUnavailable, RateLimited, TextsRefused, UsageError

if TYPE_CHECKING:
    import httpx

_SHOWN = 300
_QUOTED_BYTES = 4096
_DAY = 86_400.0
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_ABOUT_THE_TEXTS = frozenset({400, 413, 422})
_NO_WAY_THERE = frozenset({errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL})
_NO_CREDIT = "insufficient_quota"  # OpenAI's 429 that no waiting ends


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server that embeds, and how patient to be with it.

    ``base_url`` is ``http://`` or ``https://``; ``timeout`` (of one try), ``backoff`` (the first wait, doubled each
    time) and ``patience`` (after which nothing is tried again) are seconds; ``retries`` is how often a failed call is
    repeated.
    """

    base_url: str
    api_key: str = field(default="", repr=False)
    timeout: float = 30.0
    retries: int = 4
    backoff: float = 0.5
    patience: float = 90.0

    def __post_init__(self) -> None:
        parts = _parts(self.base_url)
        if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UsageError("the base URL of an embedding server is neither http://… nor https://…")
        if parts.username is not None or parts.query or parts.fragment:
            raise UsageError(
                f"the base URL of {parts.hostname} carries a user name, a query or a fragment",
                hint="put the key into KIWI_EMBEDDING_API_KEY",
            )
        if not (self.api_key.isascii() and self.api_key.isprintable()):
            raise UsageError("the API key holds a line break, or another character that no HTTP header takes")

    @property
    def server(self) -> str:
        """Host and port: what a log may hold of the address."""
        return urllib.parse.urlsplit(self.base_url).netloc

    @property
    def origin(self) -> tuple[str, str]:
        """Scheme, and host with port: a key for one origin is not for another."""
        parts = urllib.parse.urlsplit(self.base_url)
        return parts.scheme, parts.netloc.lower()


def post_json(endpoint: Endpoint, path: str, body: Mapping[str, object], max_bytes: int) -> Any:
    """POST `body` to the endpoint's `path` and return the parsed JSON answer, after as many tries as it allows.

    Raises
    ------
    ModelUnavailable
        If the server cannot be reached, or answers 404.
    RateLimited
        If it answers 429 until patience ends, or says that waiting will not help.
    TextsRefused
        If it answers 400, 413 or 422.
    AnswerMalformed
        If it answers something that is not JSON, or more than `max_bytes` of it.
    EmbeddingError
        If it answers any other error.
    """
    url = endpoint.base_url.rstrip("/") + path
    until = time.monotonic() + endpoint.patience
    for attempt in range(endpoint.retries + 1):
        try:
            return _post_once(endpoint, url, body, max_bytes)
        except _Transient as error:
            wait = _wait(endpoint, attempt, error.retry_after)
            if attempt == endpoint.retries or time.monotonic() + wait > until:
                raise _given_up(error, attempt + 1) from error
            time.sleep(wait)
    raise AssertionError("the last attempt returns or raises")


class _Transient(Exception):
    """A failure that another try may mend; ``retry_after`` is the seconds that the server asked for, 0 for none."""

    def __init__(self, failure: EmbeddingError, retry_after: float = 0.0) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.retry_after = retry_after


def _parts(url: str) -> urllib.parse.SplitResult | None:
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port  # raises where it is no number
    except ValueError:
        return None
    return parts


@dataclass(slots=True)
class _Answer:
    """What came of an answer: status 0 where nothing did; ``body`` may be a part of it."""

    status: int = 0
    retry_after: str = ""
    body: bytearray = field(default_factory=bytearray)

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


def _post_once(endpoint: Endpoint, url: str, body: Mapping[str, object], max_bytes: int) -> Any:
    with ThreadPoolExecutor(1) as thread:  # the caller's own thread may be running an event loop
        answer = thread.submit(asyncio.run, _exchange(endpoint, url, body, max_bytes)).result()
    if not answer.is_success:
        raise _refusal(endpoint, url, answer)
    if len(answer.body) > max_bytes:
        raise AnswerMalformed(f"{url} answered more than {max_bytes:,} bytes: no vectors take that much")
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError) as error:
        raise AnswerMalformed(f"{url} answered something that is not JSON") from error


async def _exchange(endpoint: Endpoint, url: str, body: Mapping[str, object], max_bytes: int) -> _Answer:
    """Send one request; return its answer, of a refusal what came of it in time."""
    import httpx  # a tenth of a second that only a remote provider should cost

    answer = _Answer()
    try:
        async with (
            asyncio.timeout(endpoint.timeout),
            httpx.AsyncClient(verify=trusted_certificates(), timeout=endpoint.timeout) as client,
            client.stream("POST", url, content=json.dumps(body).encode(), headers=_headers(endpoint)) as response,
        ):
            await _read(response, answer, max_bytes)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, ImportError) as error:
        if answer.is_success or not answer.status:
            raise _broken(url, error) from error
    return answer


async def _read(response: httpx.Response, answer: _Answer, max_bytes: int) -> None:
    """Read into `answer`, until it holds more than is wanted: a server that sends without end is not listened to."""
    answer.status, answer.retry_after = response.status_code, response.headers.get("Retry-After", "")
    async for piece in response.aiter_raw():
        answer.body += piece
        if len(answer.body) > (max_bytes if answer.is_success else _QUOTED_BYTES):
            return


def _headers(endpoint: Endpoint) -> dict[str, str]:
    # Uncompressed: a few bytes on the way would be gigabytes here.
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "kiwi-rag"}
    return headers | ({"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {})


def trusted_certificates() -> ssl.SSLContext:
    """Return the system's certificate authorities, or those that ``SSL_CERT_FILE`` or ``SSL_CERT_DIR`` name."""
    return _certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _certificates(*_named: str | None) -> ssl.SSLContext:
    return ssl.create_default_context()  # reads files for some 30 ms, and a client's own default knows other ones


def _refusal(endpoint: Endpoint, url: str, answer: _Answer) -> Exception:
    import httpx

    detail = _clean(answer.body[:_QUOTED_BYTES].decode("utf-8", "replace"))
    if endpoint.api_key:
        detail = detail.replace(endpoint.api_key, "…")
    detail = detail[:_SHOWN]
    # The status in the standard's words: those in the answer are the server's, which might repeat the texts in them.
    message = f"{url} answered {answer.status} {httpx.codes.get_reason_phrase(answer.status)}".rstrip() + f": {detail}"
    failure = _kind(answer.status)(message.removesuffix(": "), hint=_hint(answer.status, detail))
    failure.quoted, failure.status = detail, answer.status
    passes = answer.status in _RETRIED and _NO_CREDIT not in detail
    return _Transient(failure, _seconds(answer.retry_after)) if passes else failure


def _kind(status: int) -> type[EmbeddingError]:
    if status in _ABOUT_THE_TEXTS:
        return TextsRefused
    return {404: ModelUnavailable, 429: RateLimited}.get(status, EmbeddingError)


def _hint(status: int, detail: str) -> str:
    if status in {401, 403}:
        return "set KIWI_EMBEDDING_API_KEY to a key that this server accepts"
    if status == 404:
        return "look at KIWI_EMBEDDING_BASE_URL, below which the API stands, and at KIWI_EMBEDDING_MODEL"
    if status == 429:
        broke = "the account has no credit left; no waiting helps"
        return broke if _NO_CREDIT in detail else "wait, ask for a higher limit, or name KIWI_EMBEDDING_FALLBACKS"
    return ""


def _clean(text: str) -> str:
    """Return what a server said as one line, with ``�`` for control, invisible and direction-changing characters."""
    return "".join(letter if letter.isprintable() else "�" for letter in " ".join(text.split()))


def _broken(url: str, error: Exception) -> Exception:
    import httpx

    cause = first_cause(error)
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        reason = "timed out"
    elif isinstance(error, httpx.ProtocolError):  # its own words quote what the server sent
        reason = "the answer broke off, or is not HTTP"
    else:
        reason = _clean(str(cause))[:_SHOWN] or type(cause).__name__
    failure = ModelUnavailable(f"{url} cannot be reached: {reason}", hint="is the server running, and the URL right?")
    # A ValueError is a certificate that was refused, or a proxy's address that is none; ImportError, a SOCKS proxy.
    hopeless = isinstance(cause, ConnectionRefusedError | socket.gaierror | httpx.InvalidURL | ValueError | ImportError)
    return failure if hopeless or getattr(cause, "errno", None) in _NO_WAY_THERE else _Transient(failure)


def first_cause(error: BaseException) -> BaseException:
    """Return what the operating system said, below httpx's, httpcore's (which drops causes) and anyio's errors."""
    below: BaseException | None = error
    while below:
        error = below
        below = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error.__context__
    return error


def _given_up(error: _Transient, tries: int) -> EmbeddingError:
    """Return the failure, with how often it was tried, or how long the server wants to be left alone."""
    times = "once" if tries == 1 else f"{tries} times"
    asked = f"; it asks for {error.retry_after:.0f} s of rest" if error.retry_after else ""
    return error.failure.with_message(f"{error.failure.message} (tried {times}{asked})")


def _wait(endpoint: Endpoint, attempt: int, retry_after: float) -> float:
    """Return the seconds to wait before the next try; the jitter keeps clients from asking all at the same moment."""
    grown: float = endpoint.backoff * 2**attempt * random.uniform(0.75, 1.25)  # noqa: S311 - no secret hangs on it
    return max(grown, retry_after)


def _seconds(retry_after: str) -> float:
    """Parse ``Retry-After``: seconds, or an HTTP date; 0 where it is neither, a day where it is more."""
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time()
        except (TypeError, ValueError, OverflowError):
            return 0.0
    return min(max(0.0, seconds), _DAY)
