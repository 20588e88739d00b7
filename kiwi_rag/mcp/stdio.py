"""The server for one client that sends a message a line: on stdin and stdout, or on the local service's socket."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from kiwi_rag import __version__
from kiwi_rag.mcp.toolsets import NAME, TITLE, instructions
from kiwi_rag.system import call_on_signals

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from kiwi_rag.mcp.context import ServerContext
    from kiwi_rag.mcp.toolsets import Toolset

_CANCEL_SECONDS = 0.5


class Lines:
    """A client's lines, as the asynchronous text file that the SDK's transport reads and writes.

    Parameters
    ----------
    received
        The lines; one that is over the limit ends after `MAX_LINE` bytes.
    write
        Sends a line.
    """

    def __init__(self, received: AsyncIterable[bytes], write: Callable[[str], Awaitable[None]]) -> None:
        self._received = received
        self.write = write

    async def __aiter__(self) -> AsyncIterator[str]:
        with suppress(ConnectionError, ValueError):  # the connection broke, or a line is too long: the session ends
            async for line in self._received:
                if error := error_response(line):
                    await self.write(error)
                else:
                    yield line.decode()

    async def flush(self) -> None:
        """Do nothing: each line is flushed."""


async def serve_lines(context: ServerContext, offered: Toolset, lines: Lines) -> None:
    """Serve one client until its input ends."""
    from mcp.server.stdio import stdio_server

    from kiwi_rag.mcp.server import build

    server, stream = build(context, offered), cast(Any, lines)
    async with stdio_server(stream, stream) as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def run_until_signal(serving: Coroutine[Any, Any, None]) -> None:
    """Serve until it ends by itself, or until SIGINT or SIGTERM.

    It is cancelled repeatedly: during its start the SDK may mistake a cancellation for one of its own and go on.
    """
    loop, task = asyncio.get_running_loop(), asyncio.create_task(serving)

    def stop() -> None:
        if task.cancel():  # it has not ended
            loop.call_later(_CANCEL_SECONDS, stop)

    call_on_signals(stop)
    with suppress(asyncio.CancelledError):
        await task


MAX_LINE = 4 * 1024 * 1024
_LINES_AHEAD = 16
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600


class StdioStreams:
    """The process's stdin and stdout, taken over: for other code, stdin is empty and stdout goes to stderr.

    A daemon thread reads, as it may wait for stdin for ever: a thread of a pool would keep the process from ending. It
    answers the first line, if that is ``initialize``, while the caller loads the server of these `toolsets`.
    """

    def __init__(self, toolsets: Sequence[str]) -> None:
        self._reader: BinaryIO = os.fdopen(os.dup(0), "rb")
        self._writer: BinaryIO = os.fdopen(os.dup(1), "wb")
        # A library that prints would break the protocol, and one that reads would take the client's messages.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        self._answered_id: str | int | None = None
        self._deliver: Future[Callable[[bytes], object]] = Future()
        threading.Thread(target=self._read, args=(toolsets,), name="stdin", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[bytes] = asyncio.Queue(_LINES_AHEAD)
        self._deliver.set_result(lambda line: asyncio.run_coroutine_threadsafe(queue.put(line), loop).result())
        while line := await queue.get():
            yield line

    async def write(self, line: str) -> None:
        """Write a line, unless it is the SDK's answer to the ``initialize`` that was answered already."""
        if self._answered_id is not None and json.loads(line).get("id") == self._answered_id:
            self._answered_id = None
        else:  # in a thread: a client that does not read must not block the event loop
            await asyncio.to_thread(self._send, line)

    def _read(self, toolsets: Sequence[str]) -> None:
        line = self._read_line()
        answer = initialize_response(line, toolsets)
        if answer is not None:
            self._answered_id = answer["id"]
            self._send(json.dumps(answer) + "\n")
        deliver = self._deliver.result()
        with suppress(RuntimeError, CancelledError):  # the loop has ended: no reader is left
            while line:
                deliver(line)
                line = self._read_line()
            deliver(b"")

    def _read_line(self) -> bytes:
        """Return the next line; of one that is over the limit the rest is read and dropped."""
        line = rest = self._reader.readline(MAX_LINE + 1)
        while rest and not rest.endswith(b"\n"):
            rest = self._reader.readline(MAX_LINE)
        return line

    def _send(self, line: str) -> None:
        # Called in several threads; the writer locks itself, so that lines are not mixed.
        self._writer.write(line.encode())
        self._writer.flush()


def error_response(line: bytes) -> str | None:
    """Return the line that answers a line which is not a JSON-RPC message; None if it is one."""
    from mcp_types import jsonrpc_message_adapter
    from pydantic import ValidationError

    if len(line) > MAX_LINE:
        return _error(None, _INVALID_REQUEST, f"the message is over {MAX_LINE // 1024**2} MB", "send a smaller message")
    try:
        message = json.loads(line.decode())
    except (ValueError, RecursionError):
        return _error(None, _PARSE_ERROR, "the line is not JSON", "one JSON-RPC message a line, in UTF-8")
    given_id = message.get("id") if isinstance(message, dict) else None
    request_id = given_id if isinstance(given_id, str | int) and not isinstance(given_id, bool) else None
    with suppress(ValidationError):
        jsonrpc_message_adapter.validate_json(line, by_name=False)
        # The SDK takes a request whose id has another type for a notification, and would not answer it.
        if request_id is not None or "id" not in message or "method" not in message:
            return None
    return _error(request_id, _INVALID_REQUEST, "the line is not a JSON-RPC 2.0 message", "jsonrpc, id, method, params")


def _error(request_id: str | int | None, code: int, message: str, hint: str) -> str:
    error = {"code": code, "message": message, "data": {"hint": hint}}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}) + "\n"


VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Protocol versions that start with ``initialize``; a client that requests another is offered the last."""

_TOOLS = {"tools": {"listChanged": False}}
_PROMPTS = {"prompts": {"listChanged": False}}
_RESOURCES = {"resources": {"subscribe": False, "listChanged": False}}
"""Capabilities: of every server, of one with the toolset items, and of one with items or skills."""


def initialize_response(line: bytes, toolsets: Sequence[str]) -> dict[str, Any] | None:
    """Return the answer to an ``initialize`` line of a server with these toolsets; None for any other line."""
    with suppress(ValueError, RecursionError):
        match json.loads(line):
            case {
                "jsonrpc": "2.0",
                "id": str() | int() as request_id,
                "method": "initialize",
                "params": {
                    "protocolVersion": str() as version,
                    "capabilities": dict(),
                    "clientInfo": {"name": str(), "version": str()},
                },
            } if not isinstance(request_id, bool):
                return {"jsonrpc": "2.0", "id": request_id, "result": _result(version, toolsets)}
    return None


def _result(version: str, toolsets: Sequence[str]) -> dict[str, Any]:
    capabilities = {**(_PROMPTS if "items" in toolsets else {}), **_TOOLS}
    capabilities |= _RESOURCES if {"items", "skills"} & {*toolsets} else {}
    about = {"capabilities": capabilities, "instructions": instructions(toolsets)}
    about["protocolVersion"] = version if version in VERSIONS else VERSIONS[-1]
    return {**about, "serverInfo": {"name": NAME, "title": TITLE, "version": __version__}}
