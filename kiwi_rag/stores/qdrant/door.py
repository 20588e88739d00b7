"""The one door where what qdrant-client raises becomes Kiwi's errors, in words that hold no key."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING

from kiwi_rag.errors import StoreError, StoreFull, StoreRefused, StoreUnreachable
from kiwi_rag.storage.sqlite import is_disk_full

if TYPE_CHECKING:
    from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

_LONGEST_QUOTE = 400
# A server that asks for patience, or a gateway that does not get through to one; Cloudflare's 52x.
_AWAY = frozenset({408, 425, 429, 502, 503, 504, *range(520, 531)})
_UNREACHABLE = "is the server running? check KIWI_QDRANT_URL"
_KEY = "check KIWI_QDRANT_API_KEY, and what it may do: writing needs a key that may write"
_NO_ANSWER = "what answered is not a Qdrant server"
_NOT_QDRANT = "check KIWI_QDRANT_URL: a Qdrant server's REST port is 6333 unless it was set otherwise"


@contextmanager
def translated(secret: str = "") -> Iterator[None]:
    """Translate what qdrant-client raises inside the block, which must hold calls of it alone.

    Parameters
    ----------
    secret
        The API key, which no message shall hold should a server echo it.

    Raises
    ------
    StoreUnreachable
        When no server answers, or none in time; ``passing`` tells that it may in a moment.
    StoreRefused
        When the server does not accept the key.
    StoreFull
        When the disk is full.
    StoreError
        When the server refuses the call, or what answers is no Qdrant server.
    """
    from qdrant_client.common.client_exceptions import QdrantException
    from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

    try:
        yield
    except UnexpectedResponse as error:
        raise _answered(error, secret) from None  # the cause quotes the whole answer
    except ResponseHandlingException as error:
        raise _unanswered(error, secret) from None
    except QdrantException as error:  # 429 with a time to wait
        raise StoreUnreachable(f"Qdrant has too much to do: {quoted(str(error), secret)}", passing=True) from None
    except (OSError, sqlite3.Error) as error:
        raise _on_disk(error) from error
    except json.JSONDecodeError:
        raise StoreError(_NO_ANSWER, hint=_NOT_QDRANT) from None
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
        # Local mode's word for what a server would refuse, and what parsing an answer of another server ends in.
        raise StoreError(f"Qdrant failed: {quoted(str(error), secret) or type(error).__name__}") from None


def quoted(text: str, secret: str = "") -> str:
    """Return `text` as one line of bounded length, without the key."""
    line = " ".join(text.split())
    return (line.replace(secret, "(hidden)") if secret else line)[:_LONGEST_QUOTE]


def _answered(error: UnexpectedResponse, secret: str) -> StoreError:
    status = error.status_code or 0
    said = f"HTTP {status}, {quoted(_words(error), secret)}"
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return StoreRefused(f"Qdrant did not accept the key: {said}", hint=_KEY)
    if status == HTTPStatus.INSUFFICIENT_STORAGE:
        return StoreFull(f"the disk of the Qdrant server is full: {said}", hint="its operator has to make room")
    if status in _AWAY:
        return StoreUnreachable(f"Qdrant cannot be reached: {said}", hint=_UNREACHABLE, passing=True)
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        told = "the server answered with a redirect, which is not followed: it would take the key along"
        return StoreError(told, hint="set KIWI_QDRANT_URL to where it leads, if that is your server")
    return StoreError(f"Qdrant refused the call: {said}", hint=_NOT_QDRANT if status == HTTPStatus.NOT_FOUND else "")


def _words(error: UnexpectedResponse) -> str:
    try:
        told = error.structured()["status"]["error"]
    except (ValueError, LookupError, TypeError):
        told = ""
    return told if told and isinstance(told, str) else error.reason_phrase


def _unanswered(error: ResponseHandlingException, secret: str) -> StoreError:
    import httpx

    source = error.source
    said = quoted(str(source), secret) or type(source).__name__
    if isinstance(source, httpx.TimeoutException):
        return StoreUnreachable(f"Qdrant took too long to answer ({said})", hint=_UNREACHABLE, passing=True)
    if isinstance(source, httpx.TransportError):
        return StoreUnreachable(f"Qdrant cannot be reached: {said}", hint=_UNREACHABLE, passing=True)
    return StoreError(_NO_ANSWER, hint=_NOT_QDRANT)


def _on_disk(error: OSError | sqlite3.Error) -> StoreError:
    if is_disk_full(error):
        return StoreFull(hint="free some space and run it again")
    return StoreError(f"Qdrant's folder cannot be used: {quoted(str(error))}")
