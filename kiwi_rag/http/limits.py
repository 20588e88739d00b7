"""Limits of every HTTP server that Kiwi runs: the size and time of heads and bodies, and the number of requests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from kiwi_rag.errors import UsageError

HEAD_SECONDS = 10.0
BODY_SECONDS = 30.0
"""How long a client may take to send a body."""
DRAIN_SECONDS = 10
MAX_REQUESTS = 500
"""Requests at the same time; more are answered with 503."""


def uvicorn_config(app: ASGIApp) -> uvicorn.Config:
    """Return the configuration of a server of `app`."""
    limits: Any = {"limit_concurrency": MAX_REQUESTS, "h11_max_incomplete_event_size": 64 * 1024}
    limits |= {"timeout_keep_alive": 75, "timeout_graceful_shutdown": DRAIN_SECONDS}
    # Kiwi's own logging is set up already.
    left_out: Any = {"ws": "none", "log_config": None, "access_log": False, "server_header": False}
    # h11 limits the size of a head, and strips optional white space around a header's value.
    return uvicorn.Config(app, http=HeadTimeout, **limits, **left_out)


class HeadTimeout(H11Protocol):
    """Uvicorn's protocol with a time limit on the first head of a connection, which it does not have itself."""

    def connection_made(self, transport: Any) -> None:
        """Start the time limit."""
        super().connection_made(transport)
        self.loop.call_later(HEAD_SECONDS, self._close_unless_requested)

    def _close_unless_requested(self) -> None:
        if getattr(self, "cycle", None) is None and not self.transport.is_closing():
            self.transport.close()


def with_deadline(receive: Receive) -> Receive:
    """Return `receive` with a time limit on the body; a client that exceeds it counts as disconnected."""
    deadline: float | None = asyncio.get_running_loop().time() + BODY_SECONDS

    async def received() -> Message:
        nonlocal deadline
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            return {"type": "http.disconnect"}
        if not message.get("more_body", False):
            deadline = None  # after the body, only the disconnect is received
        return message

    return received


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
        When it is longer than `limit` bytes; ``what`` is what the message calls it.
    """
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            raise UsageError(f"the {what} is over {limit >> 20} MB", hint="send less")
    return bytes(body)
