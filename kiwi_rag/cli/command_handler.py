"""Commands and agents' sessions of other processes, run by the local service with the services that stay open."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import click

from kiwi_rag.cli.session import DONE, Session
from kiwi_rag.config import process_environment
from kiwi_rag.errors import KiwiError
from kiwi_rag.http.apps import Apps
from kiwi_rag.http.server import ACCEPTED, Answer, CallerRequest, Write
from kiwi_rag.local_service import OTHER_NETWORK, Declined, is_served
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.mcp.stdio import Lines, serve_lines
from kiwi_rag.mcp.toolsets import DEFAULT, IN_PROJECT, load
from kiwi_rag.services import Services

MAX_COMMANDS = 8
"""Number of commands that run at the same time; more wait."""
WAIT_SECONDS = 1.0
"""Longest wait for a free slot; then the caller runs the command itself."""
MAX_SECONDS = 60.0
"""Longest run of a command; then the caller runs it itself, because something hangs here."""
_Result = TypeVar("_Result")


class CommandHandler:
    """Runs commands and MCP sessions with the services that stay open."""

    def __init__(self, apps: Apps) -> None:
        self._apps = apps
        self._slots = asyncio.Semaphore(MAX_COMMANDS)
        self._pool = ThreadPoolExecutor(MAX_COMMANDS, thread_name_prefix="kiwi-command")

    async def command(self, request: CallerRequest) -> Answer:
        """Run a command line as the caller's process would; an error raises `Declined`, and that process reports it."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._slots.acquire()
        except TimeoutError:
            raise Declined(f"it is busy with {MAX_COMMANDS} other commands") from None
        loop = asyncio.get_running_loop()
        running = self._pool.submit(_run, _CallerSession(request, self._apps, loop))
        # The end of the thread frees the slot, not that of the caller: the thread runs on when its caller has gone.
        running.add_done_callback(lambda _: loop.call_soon_threadsafe(self._slots.release))
        return await asyncio.wrap_future(running)

    async def session(self, request: CallerRequest, lines: AsyncIterator[bytes], write: Write) -> None:
        """Serve an MCP session with the services that stay open."""
        if not request.may_connect:
            raise Declined(OTHER_NETWORK)
        if request.environment.get("KIWI_HOME") != process_environment().get("KIWI_HOME"):
            raise Declined("it was started with another KIWI_HOME, where its calls are logged")
        try:
            app = await asyncio.to_thread(request.open, {})
            offered = load(request.toolsets or (IN_PROJECT if app.project_dir else DEFAULT))
            async with self._apps.lend(app) as lent, contextlib.aclosing(ServerContext(lent)) as context:
                await write(ACCEPTED)
                await serve_lines(context, offered, Lines(lines, write))
        except KiwiError as error:
            raise Declined(f"the session cannot begin: {error}") from error

    async def import_modules(self) -> None:
        """Import what the first requests would wait for."""
        for module in ("kiwi_rag.cli.search", "kiwi_rag.cli.items", "kiwi_rag.search"):
            await asyncio.to_thread(importlib.import_module, module)

    def close(self) -> None:
        """Start no more commands; those that run end with the event loop."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class _CallerSession(Session):
    """The session of a command of another process: with its environment, folder and services, and collected output."""

    def __init__(self, request: CallerRequest, apps: Apps, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.output: list[tuple[int, str]] = []
        self.request, self._apps, self._loop = request, apps, loop

    def check(self, command: str | None) -> None:
        arguments = self.request.arguments
        words = arguments[arguments.index(command) :] if command in arguments else ()
        # The client sends no other, but any process of this user can write to the socket.
        if not is_served([*words]):
            raise Declined("it is not a command for the service")

    def environment(self) -> Mapping[str, str]:
        return self.request.environment

    def print(self, text: str, *, err: bool = False) -> None:
        has_colours = self.request.terminals[err] and not self.environment().get("NO_COLOR")
        self.output.append((1 + err, f"{text if has_colours else click.unstyle(text)}\n"))

    @property
    def width(self) -> int:
        return self.request.columns

    def app(self, **flags: Any) -> Services:
        return self.request.open(flags)

    def run(self, work: Callable[[Services], Awaitable[_Result]], **flags: Any) -> _Result:
        self.begin_run()
        app = self.app(**flags)

        async def lent() -> _Result:
            async with self._apps.lend(app, may_connect=self.request.may_connect) as one:
                return await work(one)

        running = asyncio.run_coroutine_threadsafe(lent(), self._loop)
        try:
            return running.result(MAX_SECONDS)
        except TimeoutError:
            running.cancel()
            raise Declined(f"the command takes over {MAX_SECONDS:.0f} s") from None


def _run(caller: _CallerSession) -> Answer:
    from kiwi_rag.cli import kiwi

    try:
        # Not `main`, which turns errors into exit codes and redirects stdout after a broken pipe.
        with kiwi.make_context("kiwi", caller.request.command_line, obj=caller) as context:
            code = kiwi.invoke(context)
    except (KiwiError, click.ClickException, click.Abort, click.exceptions.Exit) as error:
        raise Declined(f"it ends in an error ({type(error).__name__}), which the command line reports itself") from None
    return {"exit": code if isinstance(code, int) else DONE, "output": caller.output}
