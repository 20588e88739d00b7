"""Servers that are reached by HTTP: addresses, keys, certificate authorities, quotations; and one POST to a model's.

A POST asks for consent first, retries within a bounded time, and has a reply of a bounded size and typed errors.

429, 5xx, time-outs and broken connections are retried, with exponential backoff or after ``Retry-After`` (RFC 9110,
section 10.2.3), for ``patience`` seconds. One attempt, from the connection to the last byte of the reply, takes at most
``timeout``. A refused connection, an unknown host and a missing network fail at once. Redirects are refused, because
following one would send the API key to another host. The key is in no message and no log. Control characters are
removed from a server's messages.

httpx's time-outs apply to each read, so a server that sends a byte now and then would never time out. Therefore every
wait of an attempt ends at the same moment, by ``asyncio.timeout_at``. A stream is requested again only as long as no
line of it has arrived. A library that retries inside a transport (httpx-retries 0.6) notices neither an incomplete body
nor the total time of all attempts; the loop here does both.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import os
import random
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from kiwi_rag.consent import is_loopback
from kiwi_rag.errors import AnswerMalformed, EmbeddingError, ModelUnavailable, RateLimited, TextsRefused, UsageError

if TYPE_CHECKING:
    import httpx

_SHOWN = 300
_QUOTED_BYTES = 4096
_DAY = 86_400.0
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_KEY_HINT = "set KIWI_{}_API_KEY to a key that this server accepts"
_ADDRESS_HINT = "check KIWI_{0}_BASE_URL, the address that the API is below, and KIWI_{0}_MODEL"
_REFUSALS: Mapping[int, tuple[type[EmbeddingError], str]] = {
    **dict.fromkeys((400, 413, 422), (TextsRefused, "")),
    **dict.fromkeys((401, 403), (EmbeddingError, _KEY_HINT)),
    404: (ModelUnavailable, _ADDRESS_HINT),
    429: (RateLimited, "wait, request a higher limit, or set KIWI_EMBEDDING_FALLBACKS"),
}
_NO_CREDIT = "insufficient_quota"  # OpenAI's 429 that no waiting ends


def parse_url(url: str) -> SplitResult | None:
    """Return the parts of a server's address; None for one that is not HTTP, or has a user, a query or a fragment."""
    with suppress(ValueError):
        parts = urlsplit(url)
        is_http = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        if is_http and "@" not in parts.netloc and not (parts.query or parts.fragment):
            return parts
    return None


def is_private(parts: SplitResult) -> bool:
    """Whether nobody else can read what is sent to an address: over TLS, or to this machine."""
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


def is_key(text: str) -> bool:
    """Whether a text can be a key in a header; an HTTP library's own error for one that cannot would quote it."""
    return text.isascii() and text.isprintable() and " " not in text


def quoted(text: str, *secrets: str) -> str:
    """Return a server's message as one line of bounded length, without secrets; ``�`` for what is not printable."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "(hidden)")
    return "".join(letter if letter.isprintable() else "�" for letter in " ".join(text.split()))[:_SHOWN]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model's server with its limits of time.

    ``base_url`` is ``http://`` or ``https://``; ``timeout`` (of one attempt), ``backoff`` (the first wait, doubled each
    time) and ``patience`` (after which nothing is retried) are seconds; ``retries`` is how often a failed call is
    repeated. ``purpose`` is what the model is for, ``embedding`` or ``chat``. ``allow`` is called with host, purpose
    and number of bytes before each call, and raises if the user does not let them leave this machine.
    """

    base_url: str
    api_key: str = field(default="", repr=False)
    timeout: float = 30.0
    retries: int = 4
    backoff: float = 0.5
    patience: float = 90.0
    purpose: str = "embedding"
    allow: Callable[[str, str, int], None] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts, setting = parse_url(self.base_url), f"KIWI_{self.purpose.upper()}"
        if parts is None:
            message = f"a URL for {self.purpose} is not http://… or https://… without user name, query and fragment"
            raise UsageError(message, hint=f"kiwi config --resolved shows it; set the key as {setting}_API_KEY")
        if self.purpose == "chat" and self.api_key and not is_private(parts):
            hint = f"{setting}_BASE_URL=https://…"
            raise UsageError("the key of a chat model is only sent over TLS, or to this machine", hint=hint)
        if not is_key(self.api_key):
            raise UsageError("the API key has a line break, or another character that no key has")

    @property
    def server(self) -> str:
        """Host and port, the part of the address that may be logged."""
        return urlsplit(self.base_url).netloc

    @property
    def origin(self) -> tuple[str, str]:
        """Scheme, and host with port. A key is sent to its origin only."""
        parts = urlsplit(self.base_url)
        return parts.scheme, parts.netloc.lower()


def post_json(endpoint: Endpoint, path: str, body: Mapping[str, object], max_bytes: int) -> Any:
    """POST `body` to the endpoint's `path` and return the parsed JSON reply, with as many attempts as it allows.

    Raises
    ------
    ModelUnavailable
        If the server cannot be reached, or answers 404.
    RateLimited
        If it returns 429 until patience ends, or the account has no credit.
    TextsRefused
        If it answers 400, 413 or 422.
    AnswerMalformed
        If the reply is not JSON, or has more than `max_bytes`.
    EmbeddingError
        If it answers any other error.
    """
    url, content = endpoint.base_url.rstrip("/") + path, _allowed(endpoint, body)
    until = time.monotonic() + endpoint.patience
    for attempt in range(endpoint.retries + 1):
        try:
            return _post_once(endpoint, url, content, max_bytes)
        except EmbeddingError as error:
            time.sleep(_pause(endpoint, error, attempt, until))
    raise AssertionError("the last attempt returns or raises")


async def stream_lines(
    endpoint: Endpoint, path: str, body: Mapping[str, object], max_bytes: int, seconds: float
) -> AsyncGenerator[bytes]:
    """POST `body` and yield the lines of the reply as they arrive; raises as `post_json`, also after some lines.

    The whole reply may take `seconds` and have `max_bytes`.
    """
    url, content = endpoint.base_url.rstrip("/") + path, _allowed(endpoint, body)
    until = time.monotonic() + min(endpoint.patience, seconds)
    for attempt in range(endpoint.retries + 1):
        begun = False
        try:
            async with aclosing(_lines(endpoint, url, content, max_bytes, seconds)) as lines:
                async for line in lines:
                    begun = True
                    yield line
            return
        except EmbeddingError as error:
            if begun:
                raise
            await asyncio.sleep(_pause(endpoint, error, attempt, until))


def _allowed(endpoint: Endpoint, body: Mapping[str, object]) -> bytes:
    """Return `body` as bytes, once the user has allowed that they are sent."""
    content = json.dumps(body).encode()
    if endpoint.allow:
        endpoint.allow(urlsplit(endpoint.base_url).hostname or "", endpoint.purpose, len(content))
    return content


def _pause(endpoint: Endpoint, error: EmbeddingError, attempt: int, until: float) -> float:
    """Return the seconds before the next attempt; raise `error` where there is none."""
    if error.retry_after is None:
        raise error
    # The jitter keeps clients from retrying at the same moment.
    backoff: float = endpoint.backoff * 2**attempt * random.uniform(0.75, 1.25)  # noqa: S311 - no cryptography
    wait = max(backoff, error.retry_after)
    if attempt == endpoint.retries or time.monotonic() + wait > until:
        tried = "once" if attempt == 0 else f"{attempt + 1} times"
        asked = f"; the server accepts requests in {error.retry_after:.0f} s" if error.retry_after else ""
        raise error.with_message(f"{error.message} (tried {tried}{asked})") from error
    return wait


def _post_once(endpoint: Endpoint, url: str, content: bytes, max_bytes: int) -> Any:
    async def received() -> bytes:
        return b"\n".join([line async for line in _lines(endpoint, url, content, max_bytes, endpoint.timeout)])

    with ThreadPoolExecutor(1) as thread:  # the caller's own thread may be running an event loop
        reply = thread.submit(asyncio.run, received()).result()
    try:
        return json.loads(reply)
    except (ValueError, RecursionError) as error:
        raise AnswerMalformed(f"{url} returned something that is not JSON") from error


async def _lines(endpoint: Endpoint, url: str, content: bytes, max_bytes: int, seconds: float) -> AsyncGenerator[bytes]:
    """Send one request and yield the lines of the response; of an error the part that was received in time is told."""
    import httpx  # a tenth of a second that only a remote provider should cost

    response, rest, size = None, b"", 0
    until = asyncio.get_running_loop().time() + seconds
    try:
        async with AsyncExitStack() as opened:
            # A proxy would get what needs no consent.
            options: Any = {"timeout": endpoint.timeout, "trust_env": not is_loopback(httpx.URL(url).host)}
            client = httpx.AsyncClient(verify=trusted_certificates(), **options)
            await opened.enter_async_context(client)
            request = client.stream("POST", url, content=content, headers=_headers(endpoint))
            # No time-out is around the yield: it would cancel the task of whoever reads the lines.
            async with asyncio.timeout_at(until):
                response = await opened.enter_async_context(request)
            limit, pieces = max_bytes if response.is_success else _QUOTED_BYTES, response.aiter_raw()
            while size <= limit:  # a server may send without end
                async with asyncio.timeout_at(until):
                    if not (piece := await anext(pieces, b"")):
                        break
                size += len(piece)
                *lines, rest = (rest + piece).split(b"\n") if response.is_success else (rest + piece,)
                for line in lines:
                    yield line
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, ImportError) as error:
        if response is None or response.is_success:
            raise _broken(url, error) from error
    if not response.is_success:
        raise _refusal(endpoint, url, response, rest)
    if size > max_bytes:
        raise AnswerMalformed(f"{url} returned more than {max_bytes:,} bytes, the limit for this reply")
    yield rest


def _headers(endpoint: Endpoint) -> dict[str, str]:
    # No compression: a few compressed bytes can become gigabytes.
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "kiwi-rag"}
    return headers | ({"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {})


def trusted_certificates() -> ssl.SSLContext:
    """Return the system's certificate authorities, or those that ``SSL_CERT_FILE`` or ``SSL_CERT_DIR`` name."""
    return _certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _certificates(*_named: str | None) -> ssl.SSLContext:
    return ssl.create_default_context()  # takes some 30 ms; httpx would load its own for each client


def _refusal(endpoint: Endpoint, url: str, response: httpx.Response, received: bytes) -> EmbeddingError:
    import httpx

    status = response.status_code
    detail = quoted(received[:_QUOTED_BYTES].decode("utf-8", "replace"), endpoint.api_key)
    # The standard's reason phrase, because the server's own could quote the texts.
    message = f"{url} answered {status} {httpx.codes.get_reason_phrase(status)}".rstrip() + f": {detail}"
    kind, hint = _REFUSALS.get(status, (EmbeddingError, ""))
    failure = kind(message.removesuffix(": "), hint=hint.format(endpoint.purpose.upper()))
    failure.quoted, failure.status = detail, status
    if status == 429 and _NO_CREDIT in detail:
        failure.hint = "the account has no credit left; retrying does not help"
    elif status in _RETRIED:
        failure.retry_after = _seconds(response.headers.get("Retry-After", ""))
    return failure


def _broken(url: str, error: Exception) -> EmbeddingError:
    import httpx

    cause = first_cause(error)
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        reason = "timed out"
    elif isinstance(error, httpx.ProtocolError):  # the exception's text quotes the reply
        reason = "the reply is incomplete, or is not HTTP"
    else:
        reason = quoted(str(cause)) or type(cause).__name__
    failure = ModelUnavailable(f"{url} cannot be reached: {reason}", hint="check that the server runs, and the URL")
    # A connection that was never made is not tried again: no server listens, the name or a proxy is wrong.
    broke = httpx.TimeoutException | httpx.ReadError | httpx.WriteError | httpx.ProtocolError
    failure.retry_after = 0.0 if isinstance(error, TimeoutError | broke) else None
    return failure


def first_cause(error: BaseException) -> BaseException:
    """Return the operating system's error below those of httpx, httpcore (which drops causes) and anyio."""
    below: BaseException | None = error
    while below:
        error = below
        below = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error.__context__
    return error


def _seconds(retry_after: str) -> float:
    """Parse ``Retry-After``: seconds, or an HTTP date; 0 if it is neither, at most a day."""
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time()
        except (TypeError, ValueError, OverflowError):
            return 0.0
    return min(max(0.0, seconds), _DAY)
