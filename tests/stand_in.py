"""An HTTP server on loopback that stands in for one that cannot be had on every machine, or fails as it is told to."""

from __future__ import annotations

import json
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.loopback import Handler, LoopbackServer

API_KEY = "a-key-of-the-tests"


@dataclass
class Failure:
    """An answer given in place of the right one; without a status the connection is cut."""

    status: int = 0
    body: bytes = b'{"status": {"error": "told to fail"}}'
    headers: dict[str, str] = field(default_factory=dict)
    after: bool = False
    """Whether the request is carried out all the same."""


@dataclass
class Seen:
    """A request that arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Refusal(Exception):
    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


class StandIn(LoopbackServer):
    """Context manager. `failures` are answered first, one a request; `before` is called with every request."""

    def __init__(self) -> None:
        self.failures: deque[Failure] = deque()
        self.before: Callable[[Seen], None] = lambda seen: None
        self.seen: list[Seen] = []

    def handler(self) -> Handler:
        return _handler(self)

    def respond(self, seen: Seen) -> tuple[int, bytes]:
        """Return the status and body that answer a request."""
        raise NotImplementedError


def _handler(server: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections are kept
        wbufsize = -1  # headers and body in one packet

        def log_message(self, *_: object) -> None:
            pass

        def _serve(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen = Seen(self.command, unquote(urlsplit(self.path).path), headers, body)
            server.seen.append(seen)
            server.before(seen)
            failure = server.failures.popleft() if server.failures else None
            if failure is None or failure.after:
                answered = server.respond(seen)
            if failure is not None and not failure.status:
                self.connection.shutdown(socket.SHUT_RDWR)
            elif failure is not None:
                self._send(failure.status, failure.body, failure.headers)
            else:
                self._send(*answered)

        do_GET = do_PUT = do_POST = do_DELETE = _serve

        def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"content-type": "application/json", **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
