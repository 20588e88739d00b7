"""One POST to an embedding server: retries within a bounded time, answers of a bounded size, typed errors.

Retried are 429, 5xx, time-outs and broken connections, with growing waits, or as long as ``Retry-After`` says
(RFC 9110, section 10.2.3), while ``patience`` lasts. One try, from the connection to the answer's last byte, takes
``timeout`` at most. Where nobody listens, the name is unknown or there is no network, it says so at once. Redirects are
refused: following one would hand the API key to another host. The key appears in no message and no log; of what a
server says, what a terminal would obey is taken out.
"""

from __future__ import annotations

import email.utils
import errno
import http.client
import json
import random
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kiwi_rag.embedding.deadline import Deadline
from kiwi_rag.errors import AnswerMalformed, EmbeddingError, ModelUnavailable, RateLimited, TextsRefused, UsageError

_SHOWN = 300
_PIECE = 1 << 16
_DAY = 86_400.0
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_ABOUT_THE_TEXTS = frozenset({400, 413, 422})
_NO_WAY_THERE = frozenset({errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL})
_NO_CREDIT = "insufficient_quota"  # OpenAI's 429 that no waiting mends


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


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow nothing: the 3xx answer becomes an ``HTTPError``."""


def _parts(url: str) -> urllib.parse.SplitResult | None:
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port  # raises where it is no number
    except ValueError:
        return None
    return parts


def _post_once(endpoint: Endpoint, url: str, body: Mapping[str, object], max_bytes: int) -> Any:
    headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "kiwi-rag"}
    if endpoint.api_key:
        headers["Authorization"] = f"Bearer {endpoint.api_key}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")  # noqa: S310 - checked
    answer = _answer(endpoint, request, max_bytes)
    try:
        return json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise AnswerMalformed(f"{url} answered something that is not JSON") from error


def _answer(endpoint: Endpoint, request: urllib.request.Request, max_bytes: int) -> bytes:
    url = request.full_url
    with Deadline(endpoint.timeout) as deadline:
        try:
            with deadline.opener(_NoRedirects).open(request, timeout=endpoint.timeout) as response:
                answer = _read(response, url, max_bytes)
            if not deadline.is_over:  # else it may have been cut there, even if nothing tells
                return answer
            raise TimeoutError("timed out")
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(endpoint, url, error) from error
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise _broken(url, TimeoutError("timed out") if deadline.is_over else error) from error


def _read(response: http.client.HTTPResponse, url: str, max_bytes: int) -> bytes:
    """Return the whole body; a server that sends without end is not listened to."""
    read = bytearray()
    while piece := response.read1(_PIECE):
        read += piece
        if len(read) > max_bytes:
            raise AnswerMalformed(f"{url} answered more than {max_bytes:,} bytes: no vectors take that much")
    if response.length:
        raise ConnectionError(f"the answer broke off with {response.length} bytes missing")
    return bytes(read)


def _refusal(endpoint: Endpoint, url: str, error: urllib.error.HTTPError) -> Exception:
    detail = _detail(error)
    if endpoint.api_key:
        detail = detail.replace(endpoint.api_key, "…")
    detail = detail[:_SHOWN]
    # The status in the standard's words: those in the answer are the server's, which might repeat the texts in them.
    message = f"{url} answered {error.code} {http.client.responses.get(error.code, '')}".rstrip() + f": {detail}"
    failure = _kind(error.code)(message.removesuffix(": "), hint=_hint(error.code, detail))
    failure.quoted, failure.status = detail, error.code
    passes = error.code in _RETRIED and _NO_CREDIT not in detail
    return _Transient(failure, _seconds(error.headers.get("Retry-After", ""))) if passes else failure


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


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        return _clean(error.read(4096).decode("utf-8", "replace"))
    except (OSError, http.client.HTTPException):
        return ""


def _clean(text: str) -> str:
    """Return what a server said as one line, with ``�`` for control, invisible and direction-changing characters."""
    return "".join(letter if letter.isprintable() else "�" for letter in " ".join(text.split()))


def _broken(url: str, error: Exception) -> Exception:
    reason = getattr(error, "reason", error)
    # An HTTPException quotes what the server sent in the place of HTTP; RemoteDisconnected, an OSError, too, does not.
    no_http = isinstance(reason, http.client.HTTPException) and not isinstance(reason, OSError)
    told = f"it does not answer in HTTP ({type(reason).__name__})" if no_http else _clean(str(reason))[:_SHOWN]
    failure = ModelUnavailable(f"{url} cannot be reached: {told}", hint="is the server running, and the URL right?")
    hopeless = isinstance(reason, ConnectionRefusedError | socket.gaierror | ssl.SSLCertVerificationError)
    return failure if hopeless or getattr(reason, "errno", None) in _NO_WAY_THERE else _Transient(failure)


def _given_up(error: _Transient, tries: int) -> EmbeddingError:
    """Return the failure, with how often it was tried, or how long the server wants to be left alone."""
    times = "once" if tries == 1 else f"{tries} times"
    asked = f"; it asks for {error.retry_after:.0f} s of rest" if error.retry_after else ""
    return error.failure.reworded(f"{error.failure.message} (tried {times}{asked})")


def _wait(endpoint: Endpoint, attempt: int, retry_after: float) -> float:
    """Return the seconds to wait before the next try; the jitter keeps several clients from knocking together."""
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
