"""``kiwi mcp`` and ``kiwi serve``: the server for agents, and the local service and its handling of requests."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socket import socket
from typing import Any, TypeVar

import click

from kiwi_rag.cli.session import DONE, Session, command, option
from kiwi_rag.config import process_environment
from kiwi_rag.errors import KiwiError, UsageError
from kiwi_rag.http import server
from kiwi_rag.http.apps import Apps
from kiwi_rag.http.server import Answer, CallerRequest, Service, Write
from kiwi_rag.local_service import LOCK_NAME, OTHER_NETWORK, SERVED, STOP, Declined, client, run_folder, systemd
from kiwi_rag.mcp.stdio import Lines, StdioStreams, run_until_signal, serve_lines
from kiwi_rag.mcp.toolsets import DEFAULT, IN_PROJECT, load, parse_names
from kiwi_rag.retry import polls
from kiwi_rag.services import Services

_EXAMPLES = """\b
Example: kiwi mcp                            serve one client over stdio
         kiwi mcp --http --port 8765         serve several clients on 127.0.0.1
         KIWI_MCP_TOKEN=… kiwi mcp --http --host 10.0.0.5    serve other machines, with a token
"""


@command(epilog=_EXAMPLES)
@option("--toolsets", default="", help=f"Toolsets, separated by commas. Default: {DEFAULT}, in a project {IN_PROJECT}.")
@option("--allow-write", is_flag=True, help="Also offer tools that write.")
@option("--http", is_flag=True, help="Serve streamable HTTP, not stdio.")
@option("--host", default="127.0.0.1", help="Address to listen on, with --http.")
@option("--port", type=click.IntRange(0, 65_535), default=8765, help="Port to listen on, with --http. 0: any free one.")
@option("--token", envvar="KIWI_MCP_TOKEN", help="Token that clients must send, as Authorization: Bearer TOKEN.")
@option("--name", "names", multiple=True, help="Another host name of this server for clients, with --http. Repeatable.")
def mcp(session: Session, /, toolsets: str, allow_write: bool, http: bool, token: str | None, **endpoint: Any) -> None:
    """Run an MCP (Model Context Protocol) server: agents search, read and check items, and search this repository."""
    toolsets = toolsets or (IN_PROJECT if session.find_project() else DEFAULT)
    chosen = parse_names(toolsets)
    streams = None if http else StdioStreams(chosen)
    offered = load(toolsets, allow_write=allow_write)

    async def attend(app: Services) -> None:
        from kiwi_rag.mcp.context import ServerContext

        session.start_logging(app)
        async with contextlib.aclosing(ServerContext(app, allow_write=allow_write)) as context:
            if streams:
                await run_until_signal(serve_lines(context, offered, Lines(streams, streams.write)))
            else:
                from kiwi_rag.http.address import ListenAddress, serve_http

                session.exit_on_sigterm()
                await serve_http(context, offered, ListenAddress(token=token or "", **endpoint), session.notify)

    session.run(attend)


IDLE_MINUTES = 60
_STOP_SECONDS = 20.0


@command(epilog="Example: kiwi serve &, or kiwi serve --install to let systemd start it now and at each login")
@option("--stop", is_flag=True, help="Stop the service after its running commands.")
@option("--install", is_flag=True, help="Let systemd start it now and at each login of this user.")
@option("--uninstall", is_flag=True, help="Undo --install.")
@option("--idle-exit", type=click.IntRange(0, 100_000), metavar="MINUTES", help="Idle time before it stops. 0: never.")
def serve(session: Session, stop: bool, install: bool, uninstall: bool, idle_exit: int | None) -> None:
    """Run the local service, which keeps the model, the tiers and the connections open for faster searches.

    The command line and agents' sessions use the service while it runs, and also work without it. It stops after 60
    minutes without a request, under systemd never; --idle-exit changes that.
    """
    if stop + install + uninstall > 1:
        raise UsageError("--stop, --install and --uninstall exclude each other", hint="give one of them")
    if stop:
        _stop(session)
    elif install:
        _install(session, idle_exit or 0)
    elif uninstall:
        _uninstall(session)
    else:
        _serve(session, IDLE_MINUTES if idle_exit is None else idle_exit)


def _serve(session: Session, minutes: int) -> None:
    app = session.app()
    session.start_logging(app)
    with server.listening(_folder(session)) as line:
        session.notify(f"serving at {line.getsockname()}; stop with Ctrl-C or kiwi serve --stop")
        asyncio.run(_attend(line, minutes * 60.0 if minutes else math.inf, app))
    session.notify("the service has stopped")


async def _attend(line: socket, idle_seconds: float, app: Services) -> None:
    apps = Apps()
    handler = CommandHandler(apps)
    warming = asyncio.create_task(handler.warm(app))
    try:
        await Service(handler, idle_seconds).serve(line)
    finally:
        warming.cancel()
        await asyncio.gather(warming, return_exceptions=True)
        handler.close()
        await apps.close()


def _stop(session: Session) -> None:
    folder = _folder(session)
    if not server.is_running(folder):
        session.notify("the service is not running")
        return
    try:
        reply = client.call(str(folder), STOP, {})
    except Declined as reason:
        raise KiwiError(f"the service in {folder} does not answer: {reason}", hint=_kill_hint(folder)) from None
    if all(server.is_running(folder) for _ in polls(_STOP_SECONDS, pause=0.05)):
        message = f"the service in {folder} received the request to stop, but still runs"
        raise KiwiError(message, hint=_kill_hint(folder))
    session.notify(f"the service has stopped (process {reply.get('pid')})")


def _install(session: Session, minutes: int) -> None:
    environ = session.environment()
    if server.is_running(_folder(session)) and not systemd.path_of(environ).exists():
        hint = "kiwi serve --stop, then kiwi serve --install"
        raise KiwiError("a service that systemd did not start is running", hint=hint)
    path = systemd.install(["serve", "--idle-exit", str(minutes)], environ)
    session.notify(f"installed {path}: the service starts now and at each login")


def _uninstall(session: Session) -> None:
    path = systemd.uninstall(session.environment())
    session.notify(f"stopped the service and removed {path}" if path else "the service is not installed")


def _folder(session: Session) -> Path:
    return Path(run_folder(session.environment())).absolute()


def _kill_hint(folder: Path) -> str:
    try:
        return f"kill {(folder / LOCK_NAME).read_text(encoding='ascii').strip()}"
    except (OSError, ValueError):
        return "kill its process"


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

    async def session(
        self, request: CallerRequest, lines: AsyncIterator[bytes], accept: Callable[[], Awaitable[Write]]
    ) -> None:
        """Serve an MCP session with the services that stay open."""
        if not request.may_connect:
            raise Declined(OTHER_NETWORK)
        if request.environment.get("KIWI_HOME") != process_environment().get("KIWI_HOME"):
            raise Declined("it was started with another KIWI_HOME, where its calls are logged")
        try:
            await asyncio.to_thread(importlib.import_module, "kiwi_rag.mcp.server")
            app = await asyncio.to_thread(request.open, {})
            async with self._apps.lend(app) as lent:
                await _serve_session(lent, request.toolsets, lines, accept)
        except (ImportError, KiwiError) as error:
            raise Declined(f"the session cannot begin: {error}") from error

    async def warm(self, app: Services) -> None:
        """Load what the first request would wait for; a failure is reported by the request that needs it."""
        for module in ("kiwi_rag.cli.search", "kiwi_rag.cli.items", "kiwi_rag.search", "kiwi_rag.mcp.server"):
            with contextlib.suppress(ImportError):  # the library mcp may not be installed
                await asyncio.to_thread(importlib.import_module, module)
        from kiwi_rag.mcp.context import load_services

        with contextlib.suppress(KiwiError):
            async with self._apps.lend(app) as lent:
                await load_services(lent)

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
        if command not in SERVED:  # the client sends no other, but any process of this user can write to the socket
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


async def _serve_session(
    app: Services, toolsets: str, lines: AsyncIterator[bytes], accept: Callable[[], Awaitable[Write]]
) -> None:
    from kiwi_rag.mcp.context import ServerContext

    offered = load(toolsets or (IN_PROJECT if app.project_dir else DEFAULT))
    async with contextlib.aclosing(ServerContext(app)) as context:
        await serve_lines(context, offered, Lines(lines, await accept()))
