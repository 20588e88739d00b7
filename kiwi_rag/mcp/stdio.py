"""The server for one client that sends lines: over stdin and stdout, or over the local service's socket."""

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
    """What the SDK's transport reads and writes: an asynchronous text file, a message a line."""

    def __aiter__(self) -> AsyncIterator[str]:
        """Yield the client's messages until it ends."""
        ...

    async def write(self, line: str) -> None:
        """Write a message."""
        ...

    async def flush(self) -> None:
        """See that it is sent."""
        ...


async def serve_lines(context: ServerContext, offered: Toolset, lines: Lines) -> None:
    """Serve one client until it sends no more."""
    from mcp.server.stdio import stdio_server

    from kiwi_rag.mcp.server import build

    server = build(context, offered)
    both: Any = lines
    async with stdio_server(both, both) as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def until_told(serving: Coroutine[Any, Any, None]) -> None:
    """Serve until it ends by itself, or SIGINT or SIGTERM ends it.

    It is cancelled until it has ended: while it begins, the SDK may take a cancellation for one of its own.
    """
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    task, waiting = asyncio.create_task(serving), asyncio.create_task(told.wait())
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


class Wire:
    """The process's own stdin and stdout, of which nobody else reads or writes any more.

    What stray code prints goes to stderr, and what it reads is empty.
    """

    def __init__(self) -> None:
        self._reader: BinaryIO = os.fdopen(os.dup(0), "rb")
        self._writer: BinaryIO = os.fdopen(os.dup(1), "wb")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        self._writing = threading.Lock()
        self._first = b""
        self._answered: str | int | None = None
        self._toolsets: Sequence[str] = ()
        self._greeting = threading.Thread(target=self._greet, name="greeting", daemon=True)

    def greet(self, toolsets: Sequence[str]) -> None:
        """Begin to wait for the first line; it is answered, as a server of `toolsets`, while the caller goes on."""
        self._toolsets = toolsets
        self._greeting.start()

    def lines(self) -> Iterator[str]:
        """Yield the lines that are messages, the first among them; answer the others. Blocks."""
        self._greeting.join()
        line = self._first
        while line:
            refused = refusal(line)
            if refused:
                self._skip(line)
                self._send(refused)
            else:
                yield line.decode()
            line = self._reader.readline(MAX_LINE + 1)

    def write(self, line: str) -> None:
        """Write a line of the SDK's, unless it answers what was answered already."""
        if self._answered is not None and json.loads(line).get("id") == self._answered:
            self._answered = None
            return
        self._send(line)

    def _greet(self) -> None:
        self._first = self._reader.readline(MAX_LINE + 1)
        answer = greeting(self._first, self._toolsets)
        if answer is not None:
            self._send(json.dumps(answer) + "\n")
            self._answered = answer["id"]

    def _send(self, line: str) -> None:
        with self._writing:
            self._writer.write(line.encode())
            self._writer.flush()

    def _skip(self, line: bytes) -> None:
        while line and not line.endswith(b"\n"):
            line = self._reader.readline(MAX_LINE)


def refusal(line: bytes) -> str | None:
    """Return the line that answers one which is no message; None for one that is."""
    from mcp_types import jsonrpc_message_adapter
    from pydantic import ValidationError

    if len(line) > MAX_LINE:
        return _error(None, _INVALID_REQUEST, f"the message is over {MAX_LINE // 1024**2} MB", "send less at once")
    try:
        message = json.loads(line.decode())
    except (ValueError, RecursionError):
        return _error(None, _PARSE_ERROR, "the line is not JSON", "one JSON-RPC message a line, in UTF-8")
    number = message.get("id") if isinstance(message, dict) else None
    known = number if isinstance(number, str | int) and not isinstance(number, bool) else None
    try:
        jsonrpc_message_adapter.validate_json(line, by_name=False)
        # An id of another kind would make a request look like a notification, which nobody answers.
        is_message = known is not None or "id" not in message or "method" not in message
    except ValidationError:
        is_message = False
    if not is_message:
        return _error(known, _INVALID_REQUEST, "the line is no JSON-RPC 2.0 message", "jsonrpc, id, method, params")
    return None


class AsyncLines:
    """A wire as `stdio.Lines`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def __aiter__(self) -> AsyncIterator[str]:
        # A thread of its own, which may wait for stdin for ever: a pool's thread would keep the process from ending.
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[str] = asyncio.Queue(_LINES_AHEAD)
        threading.Thread(target=self._read, args=(loop, queue), name="stdin", daemon=True).start()
        while line := await queue.get():
            yield line

    def _read(self, loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[str]) -> None:
        with suppress(RuntimeError, CancelledError):  # the loop has ended, and nobody reads any more
            for line in chain(self._wire.lines(), [""]):
                asyncio.run_coroutine_threadsafe(queue.put(line), loop).result()

    async def write(self, line: str) -> None:
        """Write a line; a client that does not read holds up itself alone."""
        await asyncio.to_thread(self._wire.write, line)

    async def flush(self) -> None:
        """Do nothing: each line is flushed."""


def _error(number: str | int | None, code: int, message: str, hint: str) -> str:
    error = {"code": code, "message": message, "data": {"hint": hint}}
    return json.dumps({"jsonrpc": "2.0", "id": number, "error": error}) + "\n"


VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Those that begin with ``initialize``; who asks for another is offered the last."""

_CAPABILITIES = {
    "prompts": {"listChanged": False},
    "resources": {"subscribe": False, "listChanged": False},
    "tools": {"listChanged": False},
}


def greeting(line: bytes, toolsets: Iterable[str]) -> dict[str, Any] | None:
    """Return the answer to a line of a server that offers these toolsets, None when it is no plain ``initialize``."""
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
