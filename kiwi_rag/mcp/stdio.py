"""The server for one client that sends a message a line: on stdin and stdout, or on the local service's socket."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from kiwi_rag import __version__
from kiwi_rag.mcp.toolsets import NAME, TITLE, instructions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from kiwi_rag.mcp.context import ServerContext
    from kiwi_rag.mcp.toolsets import Toolset

_CANCEL_SECONDS = 0.5


class Lines(Protocol):
    """What the SDK's transport reads and writes: an asynchronous text file with a message a line."""

    def __aiter__(self) -> AsyncIterator[str]:
        """Yield the client's messages."""
        ...

    async def write(self, line: str) -> None:
        """Write a message."""
        ...

    async def flush(self) -> None:
        """Send what was written."""
        ...


async def serve_lines(context: ServerContext, offered: Toolset, lines: Lines) -> None:
    """Serve one client until its input ends."""
    from mcp.server.stdio import stdio_server

    from kiwi_rag.mcp.server import build

    server = build(context, offered)
    stream: Any = lines
    async with stdio_server(stream, stream) as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def run_until_signal(serving: Coroutine[Any, Any, None]) -> None:
    """Serve until it ends by itself, or until SIGINT or SIGTERM.

    It is cancelled repeatedly: during its start the SDK may mistake a cancellation for one of its own and go on.
    """
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    task, waiting = asyncio.create_task(serving), asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=_CANCEL_SECONDS)
        if not task.cancelled():
            task.result()
    finally:
        waiting.cancel()


MAX_LINE = 4 * 1024 * 1024
_LINES_AHEAD = 16
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600


class StdioStreams:
    """The process's stdin and stdout, taken over: for other code, stdin is empty and stdout goes to stderr."""

    def __init__(self) -> None:
        self._reader: BinaryIO = os.fdopen(os.dup(0), "rb")
        self._writer: BinaryIO = os.fdopen(os.dup(1), "wb")
        # A library that prints would break the protocol, and one that reads would take the client's messages.
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        os.dup2(2, 1)
        self._writing = threading.Lock()
        self._first_line = b""
        self._answered_id: str | int | None = None
        self._toolsets: Sequence[str] = ()
        self._first_exchange = threading.Thread(target=self._answer_initialize, name="initialize", daemon=True)

    def start_initialize(self, toolsets: Sequence[str]) -> None:
        """Answer the first line, as a server of `toolsets`, in a thread, while the caller loads the server."""
        self._toolsets = toolsets
        self._first_exchange.start()

    def lines(self) -> Iterator[str]:
        """Yield the lines that are messages, including the first; answer the others with an error. Blocks."""
        self._first_exchange.join()
        line = self._first_line
        while line:
            error = error_response(line)
            if error:
                self._skip(line)
                self._send(error)
            else:
                yield line.decode()
            line = self._reader.readline(MAX_LINE + 1)

    def write(self, line: str) -> None:
        """Write a line, unless it is the SDK's answer to the ``initialize`` that was answered already."""
        if self._answered_id is not None and json.loads(line).get("id") == self._answered_id:
            self._answered_id = None
            return
        self._send(line)

    def _answer_initialize(self) -> None:
        self._first_line = self._reader.readline(MAX_LINE + 1)
        answer = initialize_response(self._first_line, self._toolsets)
        if answer is not None:
            self._send(json.dumps(answer) + "\n")
            self._answered_id = answer["id"]

    def _send(self, line: str) -> None:
        with self._writing:
            self._writer.write(line.encode())
            self._writer.flush()

    def _skip(self, line: bytes) -> None:
        """Read on to the end of a line that is over the limit."""
        while line and not line.endswith(b"\n"):
            line = self._reader.readline(MAX_LINE)


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
    try:
        jsonrpc_message_adapter.validate_json(line, by_name=False)
        # The SDK takes a request whose id has another type for a notification, and would not answer it.
        is_message = request_id is not None or "id" not in message or "method" not in message
    except ValidationError:
        is_message = False
    if not is_message:
        return _error(
            request_id, _INVALID_REQUEST, "the line is not a JSON-RPC 2.0 message", "jsonrpc, id, method, params"
        )
    return None


class AsyncLines:
    """`StdioStreams` as `Lines`."""

    def __init__(self, streams: StdioStreams) -> None:
        self._streams = streams

    async def __aiter__(self) -> AsyncIterator[str]:
        # A daemon thread, as it may wait for stdin for ever: a thread of a pool would keep the process from ending.
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[str] = asyncio.Queue(_LINES_AHEAD)
        threading.Thread(target=self._read, args=(loop, queue), name="stdin", daemon=True).start()
        while line := await queue.get():
            yield line

    def _read(self, loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[str]) -> None:
        with suppress(RuntimeError, CancelledError):  # the loop has ended: no reader is left
            for line in chain(self._streams.lines(), [""]):
                asyncio.run_coroutine_threadsafe(queue.put(line), loop).result()

    async def write(self, line: str) -> None:
        """Write a line, in a thread: a client that does not read must not block the event loop."""
        await asyncio.to_thread(self._streams.write, line)

    async def flush(self) -> None:
        """Do nothing: each line is flushed."""


def _error(request_id: str | int | None, code: int, message: str, hint: str) -> str:
    error = {"code": code, "message": message, "data": {"hint": hint}}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}) + "\n"


VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Protocol versions that start with ``initialize``; a client that requests another is offered the last."""

_CAPABILITIES = {
    "prompts": {"listChanged": False},
    "resources": {"subscribe": False, "listChanged": False},
    "tools": {"listChanged": False},
}


def initialize_response(line: bytes, toolsets: Iterable[str]) -> dict[str, Any] | None:
    """Return the answer to an ``initialize`` line of a server with these toolsets; None for any other line."""
    try:
        message = json.loads(line)
        params = message["params"]
        info, version = params["clientInfo"], params["protocolVersion"]
        plain = (
            message["jsonrpc"] == "2.0"
            and message["method"] == "initialize"
            and isinstance(message["id"], str | int)
            and not isinstance(message["id"], bool)
            and all(isinstance(text, str) for text in (version, info["name"], info["version"]))
            and isinstance(params["capabilities"], dict)
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return {"jsonrpc": "2.0", "id": message["id"], "result": _result(version, toolsets)} if plain else None


def _result(version: str, toolsets: Iterable[str]) -> dict[str, Any]:
    return {
        "capabilities": _CAPABILITIES,
        "instructions": instructions(toolsets),
        "protocolVersion": version if version in VERSIONS else VERSIONS[-1],
        "serverInfo": {"name": NAME, "title": TITLE, "version": __version__},
    }
