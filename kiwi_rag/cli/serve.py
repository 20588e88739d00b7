"""``kiwi serve``: the resident service."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kiwi_rag.cli.session import DONE, ProcessContext, Session
from kiwi_rag.config import process_environment
from kiwi_rag.errors import KiwiError, UsageError
from kiwi_rag.local_service.apps import Apps
from kiwi_rag.local_service.protocol import OTHER_NETWORK, SERVED, Declined
from kiwi_rag.local_service.request import Request
from kiwi_rag.local_service.server import Message, Wire
from kiwi_rag.retry import wait_until
from kiwi_rag.services import Services

if TYPE_CHECKING:
    from socket import socket

    from kiwi_rag.services import Services

IDLE_MINUTES = 60
_STOP_SECONDS = 20.0


@click.command(epilog="Example: kiwi serve &, or kiwi serve --install to have systemd start it now and at each login")
@click.option("--stop", is_flag=True, help="End the service, once what it does is done.")
@click.option("--install", is_flag=True, help="Have systemd start it now and at each login, for this user.")
@click.option("--uninstall", is_flag=True, help="Undo --install.")
@click.option(
    "--idle-exit",
    type=click.IntRange(0, 100_000),
    metavar="MINUTES",
    help=f"End after so long without a caller; 0: never. Default: {IDLE_MINUTES}, by systemd 0.",
)
@click.pass_obj
def serve(session: Session, stop: bool, install: bool, uninstall: bool, idle_exit: int | None) -> int:
    """Keep model, tiers and connections open, so that searches of this user start warm.

    The command line and agents' sessions use the service where it runs, and work without it.
    """
    if stop + install + uninstall > 1:
        raise UsageError("--stop, --install and --uninstall exclude each other", hint="one of them")
    if stop:
        return _stop(session)
    if install or uninstall:
        return _install(session, idle_exit or 0) if install else _uninstall(session)
    return _serve(session, IDLE_MINUTES if idle_exit is None else idle_exit)


def _serve(session: Session, minutes: int) -> int:
    from kiwi_rag.local_service.listener import listening

    app = session.app()
    session.log(app)
    with listening(_folder(session)) as line:
        session.say(f"serving at {line.getsockname()}; Ctrl-C or kiwi serve --stop ends it")
        asyncio.run(_attend(line, minutes * 60.0 if minutes else math.inf, app))
    session.say("the service has ended")
    return DONE


async def _attend(line: socket, idle_seconds: float, app: Services) -> None:
    from kiwi_rag.local_service.apps import Apps
    from kiwi_rag.local_service.server import Service

    apps = Apps()
    served = Served(apps)
    warming = asyncio.create_task(served.warm(app))
    try:
        await Service(served, idle_seconds).serve(line)
    finally:
        warming.cancel()
        await asyncio.gather(warming, return_exceptions=True)
        served.close()
        await apps.close()


def _stop(session: Session) -> int:
    from kiwi_rag.local_service import client, protocol
    from kiwi_rag.local_service import listener as listening

    folder = _folder(session)
    if not listening.is_running(folder):
        session.say("no service runs")
        return DONE
    try:
        told = client.call(str(folder), {"ask": protocol.STOP})
    except protocol.Declined as reason:
        raise KiwiError(f"the service does not listen: {reason}", hint=_kill_hint(folder)) from None
    if not wait_until(lambda: not listening.is_running(folder), _STOP_SECONDS, pause=0.05):
        raise KiwiError("the service was told to end, and does not", hint=_kill_hint(folder))
    session.say(f"the service has ended (process {told.get('pid')})")
    return DONE


def _install(session: Session, minutes: int) -> int:
    from kiwi_rag.local_service import listener as listening
    from kiwi_rag.local_service import systemd

    environ = session.around.environment()
    if listening.is_running(_folder(session)) and not systemd.path_of(environ).exists():
        raise KiwiError("a service runs already, and not by systemd", hint="kiwi serve --stop, then install")
    path = systemd.install(["serve", "--idle-exit", str(minutes)], environ)
    session.say(f"installed {path}: the service starts now and at each login")
    return DONE


def _uninstall(session: Session) -> int:
    from kiwi_rag.local_service import systemd

    path = systemd.uninstall(session.around.environment())
    session.say(f"stopped, and removed {path}" if path else "it is not installed")
    return DONE


def _folder(session: Session) -> Path:
    from kiwi_rag.local_service import address

    return Path(address.run_folder(session.around.environment())).absolute()


def _kill_hint(folder: Path) -> str:
    from kiwi_rag.local_service import address

    try:
        return f"kill {(folder / address.LOCK_NAME).read_text(encoding='ascii').strip()}"
    except (OSError, ValueError):
        return "end its process"


AT_ONCE = 8
"""Command lines that run at once; more wait."""
WAIT_SECONDS = 1.0
"""After it the caller does the work itself: nobody waits for others' slow registries."""
LONGEST_SECONDS = 60.0
"""After it the caller does the work itself: something hangs here."""
_Result = TypeVar("_Result")


class Served:
    """Runs requests with the apps that the service holds."""

    def __init__(self, apps: Apps) -> None:
        self._apps = apps
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="kiwi-command")

    async def command(self, request: Request) -> Message:
        """Run a command line as the caller's own process would; an error is left to that process."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._slots.acquire()
        except TimeoutError:
            raise Declined(f"it is busy with {AT_ONCE} other commands") from None
        loop = asyncio.get_running_loop()
        running = self._pool.submit(_run, _Callers(request, self._apps, loop))
        # Its own end frees the slot, and not its caller's: a thread goes on when nobody waits for it any more.
        running.add_done_callback(lambda _: loop.call_soon_threadsafe(self._slots.release))
        return await asyncio.wrap_future(running)

    async def session(self, request: Request, accept: Callable[[], Awaitable[Wire]]) -> None:
        """Serve an MCP session with the apps that are held."""
        if not request.may_connect:
            raise Declined(OTHER_NETWORK)
        if request.environment.get("KIWI_HOME") != process_environment().get("KIWI_HOME"):
            raise Declined("it was started with another KIWI_HOME, where its calls are logged")
        try:
            await asyncio.to_thread(importlib.import_module, "kiwi_rag.mcp.server")
            app = await asyncio.to_thread(request.open, {})
            async with self._apps.lend(app) as lent:
                await _speak(lent, request.toolsets, accept)
        except (ImportError, KiwiError) as error:
            raise Declined(f"the session cannot begin: {error}") from error

    async def warm(self, app: Services) -> None:
        """Load what the first request would wait for. What fails is told to whoever needs it."""
        for module in ("kiwi_rag.cli.search", "kiwi_rag.cli.items", "kiwi_rag.search", "kiwi_rag.mcp.server"):
            with contextlib.suppress(ImportError):  # mcp's library may not be there
                await asyncio.to_thread(importlib.import_module, module)
        with contextlib.suppress(KiwiError):
            async with self._apps.lend(app) as lent:
                await lent.embed.query("ready")
                for name in lent.source_names("local"):
                    await lent.local(name).store.statistics(["ready"])

    def close(self) -> None:
        """Take nothing more on; what still runs ends with the event loop."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class _Callers(ProcessContext):
    """What a command line would have around it in its caller's process; what it writes is kept."""

    def __init__(self, request: Request, apps: Apps, loop: asyncio.AbstractEventLoop) -> None:
        self.request = request
        self.output: list[tuple[int, str]] = []
        self.stdout = _Kept(1, self.output, request.terminals[0])
        self.stderr = _Kept(2, self.output, request.terminals[1])
        self._apps = apps
        self._loop = loop

    def check(self, command: str | None) -> None:
        if command not in SERVED:  # `asking` sends no other, but anything of this user's can write to the socket
            raise Declined("it is not a command for the service")

    def environment(self) -> Mapping[str, str]:
        return self.request.environment

    def open(self, project: Any, flags: Mapping[str, Any]) -> Services:
        return self.request.open(flags)

    def run(self, app: Services, work: Callable[[Services], Awaitable[_Result]]) -> _Result:
        async def lent() -> _Result:
            async with self._apps.lend(app, may_connect=self.request.may_connect) as one:
                return await work(one)

        running = asyncio.run_coroutine_threadsafe(lent(), self._loop)
        try:
            return running.result(LONGEST_SECONDS)
        except TimeoutError:
            running.cancel()
            raise Declined(f"the command takes over {LONGEST_SECONDS:.0f} s") from None


class _Kept:
    """A stream whose text is kept; a terminal where the caller's is one."""

    def __init__(self, number: int, output: list[tuple[int, str]], terminal: bool) -> None:
        self._number = number
        self._output = output
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        self._output.append((self._number, text))
        return len(text)

    def flush(self) -> None:
        pass


def _run(around: _Callers) -> Message:
    from kiwi_rag.cli import kiwi

    try:
        # Not `main`, which ends the process on a broken pipe.
        with kiwi.make_context("kiwi", around.request.command_line, obj=around) as context:
            code = kiwi.invoke(context)
    except (KiwiError, click.ClickException, click.Abort, click.exceptions.Exit) as error:
        raise Declined(f"it ends in an error ({type(error).__name__}), which the command line tells itself") from None
    return {"exit": code if isinstance(code, int) else DONE, "output": around.output}


async def _speak(app: Services, toolsets: str, accept: Callable[[], Awaitable[Wire]]) -> None:
    from kiwi_rag.mcp.context import ServerContext
    from kiwi_rag.mcp.stdio import serve_lines
    from kiwi_rag.mcp.toolsets import DEFAULT, load

    offered = load(toolsets or DEFAULT)
    context = ServerContext(app)
    try:
        await serve_lines(context, offered, _Lines(await accept()))
    finally:
        await context.close()


class _Lines:
    """A wire as `stdio.Lines`."""

    def __init__(self, wire: Wire) -> None:
        self._reader, self._writer = wire

    async def __aiter__(self) -> AsyncIterator[str]:
        from kiwi_rag.mcp.stdio import error_response

        with contextlib.suppress(ConnectionError, ValueError):  # it broke, or a line is over the limit: no more lines
            while line := await self._reader.readline():
                if refused := error_response(line):
                    await self.write(refused)
                else:
                    yield line.decode()

    async def write(self, text: str) -> None:
        with contextlib.suppress(ConnectionError):  # reading tells that the client has gone
            self._writer.write(text.encode())
            await self._writer.drain()

    async def flush(self) -> None:
        pass
