"""The server for one client that sends lines: over stdin and stdout, or over the resident service's socket."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from kiwi_rag.mcp.house import House
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


async def serve_lines(house: House, offered: Toolset, lines: Lines) -> None:
    """Serve one client until it sends no more."""
    from mcp.server.stdio import stdio_server

    from kiwi_rag.mcp.server import build

    server = build(house, offered)
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
