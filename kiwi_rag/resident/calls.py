"""A call of the service, by a caller that has no time: connect, send, wait for signs of life and the answer."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kiwi_rag.resident import place, protocol
from kiwi_rag.resident.protocol import NotServed

CONNECT_SECONDS = 0.2
FIRST_SIGN_SECONDS = 2.0
"""A service that is alive says at once that it works; a stopped or hung one does not."""
SILENCE_SECONDS = 10.0


def is_there(folder: str) -> bool:
    """Whether a socket stands in `folder`: usually none does, and nobody wants to hear of it."""
    return hasattr(socket, "AF_UNIX") and os.path.lexists(place.socket_in(folder))


def call(folder: str, message: dict[str, Any]) -> dict[str, Any]:
    """Send a message to the service, and return its answer.

    Raises
    ------
    NotServed
        For whatever keeps the service from answering.
    """
    with connected(folder) as line:
        return exchange(line, message)


def state(folder: str) -> dict[str, Any]:
    """Return how the service stands: ``state``, and what it says of itself where it runs."""
    if not is_there(folder):
        return {"state": "not running"}
    try:
        return {"state": "running", **call(folder, {"ask": protocol.STATUS})}
    except NotServed as reason:
        return {"state": "not answering", "problem": str(reason)}


@contextmanager
def connected(folder: str) -> Iterator[socket.socket]:
    """Connect to the service, if both ends are this user's.

    Raises
    ------
    NotServed
        When it cannot be reached or trusted.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        with troubles():
            if why := place.distrust(folder):
                raise NotServed(why)
            line.settimeout(CONNECT_SECONDS)
            line.connect(place.socket_in(folder))
            if not place.is_own(line):
                raise NotServed("another user answers in its place")
        yield line


def exchange(line: socket.socket, message: dict[str, Any]) -> dict[str, Any]:
    """Send a message, and return its answer.

    Raises
    ------
    NotServed
        When none comes, or the service declines.
    """
    with troubles():
        request = json.dumps(message).encode("ascii")
        if len(request) > protocol.MAX_REQUEST:
            raise NotServed("the request is over 1 MB")
        line.settimeout(FIRST_SIGN_SECONDS)
        line.sendall(protocol.head(len(request)) + request)
        while "working" in (answer := _receive(line)):
            line.settimeout(SILENCE_SECONDS)
    if "declined" in answer:
        raise NotServed(str(answer["declined"]))
    return answer


@contextmanager
def troubles() -> Iterator[None]:
    """Raise `NotServed` for what can go wrong with a file, a socket or JSON."""
    try:
        yield
    except TimeoutError:
        raise NotServed("it does not answer") from None
    except OSError as error:
        raise NotServed(error.strerror or str(error)) from None
    except (ValueError, RecursionError):  # JSON's and UTF-8's errors are some
        raise NotServed("its answer is not readable") from None


def _receive(line: socket.socket) -> dict[str, Any]:
    length = protocol.length_in(_exactly(line, 4), protocol.MAX_ANSWER)
    message = json.loads(_exactly(line, length))
    if not isinstance(message, dict):
        raise NotServed("its answer is not readable")
    return message


def _exactly(line: socket.socket, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        chunk = line.recv(min(length - len(received), 1 << 20))
        if not chunk:
            raise NotServed("it broke off in mid-answer")
        received += chunk
    return bytes(received)
