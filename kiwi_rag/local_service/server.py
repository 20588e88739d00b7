"""The server of the local service: reads one request per connection, runs it, and reports progress meanwhile.

Requests are limited in size and time, and an error of one connection does not affect the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, cast

from kiwi_rag import __version__
from kiwi_rag.local_service import address, protocol
from kiwi_rag.local_service.listener import BACKLOG
from kiwi_rag.local_service.protocol import Declined
from kiwi_rag.local_service.request import Request

MAX_CALLERS = 256
MAX_LINE = 16 << 20
"""Bytes of one line of a session."""
READ_SECONDS = 5.0
SIGN_SECONDS = 1.0
DRAIN_SECONDS = 10.0

Message = Mapping[str, Any]
Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RequestHandler(Protocol):
    """Runs requests. Both methods raise `Declined` for a request that the client has to run itself."""

    async def command(self, request: Request) -> Message:
        """Run a command line; return its exit code and output."""
        ...

    async def session(self, request: Request, accept: Callable[[], Awaitable[Wire]]) -> None:
        """Serve an MCP session over the wire that `accept` returns, until it ends."""
        ...


class Service:
    """One user's service.

    Parameters
    ----------
    work
        Runs the requests.
    idle_seconds
        Seconds without a request after which it stops; infinity for never.
    """

    def __init__(self, work: RequestHandler, idle_seconds: float) -> None:
        self._work = work
        self._idle_seconds = idle_seconds
        self._code = protocol.code_fingerprint()
        self._started = self._last_left = time.monotonic()
        self._callers: set[asyncio.Task[None]] = set()
        self._sessions: set[asyncio.Task[None]] = set()
        self._requests = 0
        self._stopping = asyncio.Event()

    async def serve(self, listening: socket.socket) -> None:
        """Serve until a client or a signal stops it, or it was idle for too long; finish the running commands."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stopping.set)
        server = await asyncio.start_unix_server(self._connected, sock=listening, limit=MAX_LINE, backlog=BACKLOG)
        while not self._stopping.is_set() and (left := self._seconds_left()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), min(left, 1e6))
        server.close()
        await self._drain()

    def _seconds_left(self) -> float:
        if self._callers:
            return self._idle_seconds
        return self._last_left + self._idle_seconds - time.monotonic()

    async def _drain(self) -> None:
        """Wait for running commands; cancel sessions, which have no end."""
        for session in self._sessions:
            session.cancel()
        if self._callers:
            _, late = await asyncio.wait(self._callers, timeout=DRAIN_SECONDS)
            for caller in late:
                caller.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller = cast("asyncio.Task[None]", asyncio.current_task())
        self._callers.add(caller)
        try:
            # The client has gone, or does not read, or the service stops: nothing more can be sent.
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._attend(reader, writer)
        finally:
            self._callers.discard(caller)
            self._sessions.discard(caller)
            self._last_left = time.monotonic()
            writer.close()

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not address.is_own(writer.get_extra_info("socket")):
                raise Declined("it belongs to another user")
            if len(self._callers) > MAX_CALLERS:
                raise Declined("it has too many connections")
            answer = await self._answer(await _receive(reader), (reader, writer))
        except Declined as reason:
            answer = {"declined": str(reason)}
        if answer is not None:
            await _send(writer, answer)

    async def _answer(self, message: Message, wire: Wire) -> Message | None:
        """Return the answer to a message; None after a session, whose stream carries another protocol."""
        kind = message.get("ask")
        if kind == protocol.STOP:
            self._stopping.set()
        if kind in (protocol.STATUS, protocol.STOP):
            return self._state()
        if message.get("code") != self._code:
            raise Declined(f"it runs another version or state of Kiwi ({__version__}); stop it with: kiwi serve --stop")
        request = Request.read(message)
        self._requests += 1
        if kind == protocol.COMMAND:
            return await _while_working(self._work.command(request), wire[1])
        if kind == protocol.MCP:
            await self._session(request, wire)
            return None
        raise Declined(f"it does not know the request {kind!r}")

    async def _session(self, request: Request, wire: Wire) -> None:
        accepted = False

        async def accept() -> Wire:
            nonlocal accepted
            await _send(wire[1], {"accepted": True})
            accepted = True
            return wire

        self._sessions.add(cast("asyncio.Task[None]", asyncio.current_task()))
        await _send(wire[1], {"working": True})
        try:
            await self._work.session(request, accept)
        except Declined:
            if not accepted:  # after acceptance the stream carries the session, not this protocol
                raise

    def _state(self) -> Message:
        return {
            "pid": os.getpid(),
            "version": __version__,
            "uptime_seconds": int(time.monotonic() - self._started),
            "requests": self._requests,
            "sessions": len(self._sessions),
        }


async def _while_working(work: Awaitable[Message], writer: asyncio.StreamWriter) -> Message:
    """Send a progress message every second; cancel the work when the client has gone."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await _send(writer, {"working": True})
            await asyncio.wait([task], timeout=SIGN_SECONDS)
        return task.result()
    finally:
        task.cancel()


async def _receive(reader: asyncio.StreamReader) -> Message:
    try:
        async with asyncio.timeout(READ_SECONDS):
            length = protocol.length_in(await reader.readexactly(4), protocol.MAX_REQUEST)
            message = json.loads(await reader.readexactly(length))
    except (TimeoutError, EOFError, ValueError, RecursionError):
        raise Declined("the request is not readable") from None
    if not isinstance(message, dict):
        raise Declined("the request is not readable")
    return message


async def _send(writer: asyncio.StreamWriter, message: Message) -> None:
    text = json.dumps(message).encode("ascii")
    writer.write(protocol.head(len(text)) + text)
    async with asyncio.timeout(READ_SECONDS):  # TimeoutError is an OSError, which ends the connection
        await writer.drain()
