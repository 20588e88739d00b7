"""Limits of every HTTP server that Kiwi runs: the size and time of heads and bodies, and the number of requests."""

from __future__ import annotations

from asyncio import Transport
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from selectors import EVENT_READ, DefaultSelector
from typing import Any

import h11
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from kiwi_rag.consent import is_loopback
from kiwi_rag.errors import UsageError

DRAIN_SECONDS = 10
BODY_SECONDS = 30.0
WAIT_SECONDS = {"head": 10.0, "body": BODY_SECONDS, "reading": 30.0, "next request": 75.0}
"""How long a client may take: to send a head from its first byte on, to send a body, to read so much of an answer that
more can be sent, and to begin its next request."""
PORT_CONNECTIONS, SOCKET_CONNECTIONS = 500, 200
"""Connections at the same time. Those of the Unix socket count apart, so that the ``kiwi`` command has its own."""
SPARE_CONNECTIONS = 100
"""Further ones that may send a request, to be told that there is no room."""
CLIENT_CONNECTIONS = PORT_CONNECTIONS // 2
"""Connections of the port of one client: `client_of`."""

Identify = Callable[[Scope], str]
"""Returns the name of the valid token or cookie of a request; empty where it has none."""


def client_of(scope: Scope, name: str) -> str:
    """Return who sends a request: `name`, or else the address; all addresses of this machine are one client.

    A header that was not checked tells nothing: a client could send another one each time.
    """
    address = str((scope.get("client") or ("",))[0]).removeprefix("::ffff:")  # an IPv4 address at an IPv6 socket
    return f"name {name}" if name else "this machine" if is_loopback(address) else address


def uvicorn_config(app: ASGIApp, identify: Identify = lambda _: "") -> uvicorn.Config:
    """Return the configuration of a server of `app`."""
    limits: Any = {"h11_max_incomplete_event_size": 64 * 1024, "timeout_graceful_shutdown": DRAIN_SECONDS}
    limits |= {
        "http": partial(LimitedConnection, identify=identify),
        "timeout_keep_alive": WAIT_SECONDS["next request"],
    }
    # Kiwi's own logging is set up already.
    left_out: Any = {"ws": "none", "log_config": None, "access_log": False, "server_header": False}
    # h11 limits the size of a head, and strips optional white space around a header's value.
    return uvicorn.Config(app, **limits, **left_out)


class StrictParser(h11.Connection):
    """h11's parser; it refuses a request whose body another program may see end elsewhere (RFC 9112, section 6.1)."""

    def next_event(self) -> Any:
        """Return the next event.

        Raises
        ------
        h11.RemoteProtocolError
            When the client sends something else than HTTP, or a Transfer-Encoding with a length or in HTTP/1.0.
        """
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if b"transfer-encoding" in names and (b"content-length" in names or event.http_version < b"1.1"):
                raise h11.RemoteProtocolError("the length of the body is ambiguous")
        return event


class LimitedConnection(H11Protocol):
    """Uvicorn's protocol, with a limit on the connections and one on each wait for the client.

    Uvicorn itself limits only the wait for the next request. A connection is either being answered or waits for its
    client. When there are too many, the one that has waited for the longest time is closed.
    """

    _client = ""
    _waits_for = ""
    _timer: Any = None
    waits_since = 0.0
    """When the service began to wait for the client, by the loop's clock; 0 while it does not."""

    def __init__(self, *given: Any, identify: Identify, **named: Any) -> None:
        super().__init__(*given, **named)
        self._identify = identify

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Start to wait for the first head, if there is room."""
        super().connection_made(transport)
        self.conn = StrictParser(h11.SERVER, self.config.h11_max_incomplete_event_size or 0)
        self.is_local = (self.server or ("", 0))[1] is None
        self.app = self._answer
        self._places = SOCKET_CONNECTIONS if self.is_local else PORT_CONNECTIONS
        if not _has_room(self._others(), self._places + SPARE_CONNECTIONS):
            transport.write(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n\r\n")
            transport.close()
        self._limit_wait("head")

    def data_received(self, data: bytes) -> None:
        """Parse what was received; what is no whole request is the begin of a head."""
        super().data_received(data)
        self._limit_wait("head")

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._limit_wait("next request")

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._limit_wait("reading")

    def resume_writing(self) -> None:
        """Go on with the answer."""
        super().resume_writing()
        self._limit_wait("next request")

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        super().connection_lost(exc)
        if self._timer:
            self._timer.cancel()

    @property
    def is_silent(self) -> bool:
        """Whether nothing has arrived but what has been read; while the client has to read, nothing else is."""
        with DefaultSelector() as selector:
            selector.register(self.transport.get_extra_info("socket"), EVENT_READ)
            return self.flow.write_paused or not selector.select(0)

    def _limit_wait(self, between_requests: str) -> None:
        """Let one timer run while the service waits for the client, and none while it works on an answer."""
        waits_for = self._awaited(between_requests)
        if waits_for == self._waits_for:
            return
        if self._timer:
            self._timer.cancel()
        self._waits_for, self.waits_since = waits_for, self.loop.time() if waits_for else 0.0
        # `close` would wait until the client has read everything.
        self._timer = waits_for and self.loop.call_later(WAIT_SECONDS[waits_for], self.transport.abort)

    def _awaited(self, between_requests: str) -> str:
        if self.flow.write_paused:
            return "reading"
        if self.cycle is None or self.cycle.response_complete:
            return between_requests
        # On the Unix socket a body is an agent's session.
        return "body" if self.cycle.more_body and not self.is_local else ""

    def _others(self) -> list[Any]:
        every: Any = self.connections
        others = (one for one in every if one is not self and one.is_local == self.is_local)
        return [one for one in others if not one.transport.is_closing()]

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, unless too many others are being answered, of all clients or of its own."""
        others, app = self._others(), self.config.loaded_app
        self._client = client_of(scope, self._identify(scope))
        if not _has_room(others, self._places):
            app = busy(503, "too many requests at the same time")
        elif not self.is_local and not _has_room([x for x in others if x._client == self._client], CLIENT_CONNECTIONS):
            app = busy(429, "too many requests of this client at the same time")
        await app(scope, receive, send)


def _has_room(others: Sequence[LimitedConnection], places: int) -> bool:
    """Whether one more connection fits, if need be after closing the one whose client is waited for the longest."""
    if len(others) < places:
        return True
    waiting = sorted((one for one in others if one.waits_since), key=lambda one: one.waits_since)
    longest = next((one for one in waiting if one.is_silent), None)
    if longest:
        longest.transport.abort()
    return bool(longest)


def busy(status: int, message: str) -> JSONResponse:
    """Return the answer to a request for which there is no room now."""
    error = {"code": "busy", "message": message, "hint": "send it again in a second"}
    return JSONResponse({"error": error}, status, {"Retry-After": "1", "Connection": "close"})


@dataclass(frozen=True)
class RawRoute:
    """An ASGI application that Starlette does not take for an endpoint with a request."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


async def read_body(request: Request, limit: int, what: str = "body") -> bytes:
    """Return the body of a request.

    Raises
    ------
    UsageError
        When it is longer than `limit` bytes or ends too early; ``what`` is what the message calls it.
    """
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > limit:
                raise UsageError(f"the {what} is over {limit >> 20} MB", hint="send less")
    except ClientDisconnect:
        raise UsageError(f"the {what} ended too early", hint="send it again") from None
    return bytes(body)
