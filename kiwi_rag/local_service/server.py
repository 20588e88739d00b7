"""The server of the local service: reads one request per connection, runs it, and reports progress meanwhile.

Requests are checked, and limited in size and time; an error of one connection does not affect the others. The socket
is in a private folder, with a lock file that allows one service only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Protocol, cast

from pydantic import StringConstraints, TypeAdapter, ValidationError

from kiwi_rag import __version__
from kiwi_rag import local_service as protocol
from kiwi_rag.errors import KiwiError
from kiwi_rag.local_service import OTHER_NETWORK, Declined
from kiwi_rag.retry import polls
from kiwi_rag.services import Services
from kiwi_rag.storage.atomic import try_lock
from kiwi_rag.system import call_on_signals

BACKLOG = 256
"""Connections that wait to be accepted."""
MAX_CALLERS = 256
MAX_LINE = 16 << 20
"""Bytes of one line."""
READ_SECONDS = 5.0
SIGN_SECONDS = 1.0
DRAIN_SECONDS = 10.0
_REMOTE_PROVIDERS = ("openai", "ollama")

Message = Mapping[str, Any]
Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


_Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]


@dataclass(frozen=True, slots=True)
class Request:
    """A command line or a session, with the working directory and environment of the client's process.

    ``arguments``, ``terminals`` (whether stdout and stderr are) and ``columns`` (of stdout, 0 if it is none) belong to
    a command, ``toolsets`` to a session.
    ``project`` is empty where the command line names none.
    """

    cwd: _Text
    project: _Text
    environment: dict[_Text, _Text]
    network: int
    arguments: tuple[_Text, ...] = ()
    terminals: tuple[bool, bool] = (False, False)
    columns: int = 0
    toolsets: _Text = ""

    @classmethod
    def read(cls, message: Message) -> Request:
        """Return the request that a message holds.

        Raises
        ------
        Declined
            When it has none, or one that this process would answer differently than the client's own.
        """
        try:
            request: Request = TypeAdapter(cls).validate_python(message)
        except ValidationError:
            raise Declined("the request is not readable") from None
        _require_absolute("request", request.cwd, request.project or "/", request.environment.get("KIWI_HOME") or "/")
        if request.environment.get("HOME") != os.environ.get("HOME"):
            raise Declined("it was started with another HOME")
        return request

    @property
    def command_line(self) -> list[str]:
        """The arguments, with the project's folder."""
        return [*([f"--project={self.project}"] if self.project else []), *self.arguments]

    @property
    def may_connect(self) -> bool:
        """Whether the variables that libraries read for connections are the same here as in the client's process."""
        return self.network == protocol.network_fingerprint(os.environ)

    def open(self, flags: Mapping[str, Any]) -> Services:
        """Open the services for this request.

        Raises
        ------
        Declined, KiwiError
            When it would give another result here than in the client's process; as `Services.open` does.
        """
        app = Services.open(self.environment, Path(self.cwd), Path(self.project) if self.project else None, flags)
        s = app.settings
        _require_absolute("settings", s.home, s.cache_dir, s.embedding_model_dir or "/")
        if s.embedding_provider in _REMOTE_PROVIDERS and not self.may_connect:
            raise Declined(OTHER_NETWORK)
        return app


def _require_absolute(what: str, *folders: str) -> None:
    if not all(Path(folder).expanduser().is_absolute() for folder in folders):
        raise Declined(f"a folder in the {what} is relative")


class RequestHandler(Protocol):
    """Runs requests. Both methods raise `Declined` for a request that the client has to run itself."""

    async def command(self, request: Request) -> Message:
        """Run a command line; return its exit code and output."""

    async def session(self, request: Request, accept: Callable[[], Awaitable[Wire]]) -> None:
        """Serve an MCP session over the wire that `accept` returns, until it ends."""


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
        call_on_signals(self._stopping.set)
        server = await asyncio.start_unix_server(self._connected, sock=listening, limit=MAX_LINE, backlog=BACKLOG)
        while not self._stopping.is_set() and (left := self._seconds_left()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), min(left, 1e6))
        server.close()
        await self._drain()

    def _seconds_left(self) -> float:
        return self._idle_seconds + (0 if self._callers else self._last_left - time.monotonic())

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
        caller = _current_task()
        self._callers.add(caller)
        try:
            # The client has gone, or does not read, or the service stops: nothing more can be sent.
            with contextlib.suppress(OSError, asyncio.CancelledError):
                if (answer := await self._answer((reader, writer))) is not None:
                    await _send(writer, answer)
        finally:
            self._callers.discard(caller)
            self._sessions.discard(caller)
            self._last_left = time.monotonic()
            writer.close()

    async def _answer(self, wire: Wire) -> Message | None:
        """Return the answer to a client's message; None after a session, whose stream carries another protocol."""
        reader, writer = wire
        try:
            if not protocol.is_own(writer.get_extra_info("socket")):
                raise Declined("it belongs to another user")
            if len(self._callers) > MAX_CALLERS:
                raise Declined("it has too many connections")
            return await self._handle(await _receive(reader), wire)
        except Declined as reason:  # once a session was accepted, the stream carries it, not this protocol
            return None if _current_task() in self._sessions else {"declined": str(reason)}

    async def _handle(self, message: Message, wire: Wire) -> Message | None:
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
            await _send(wire[1], {"working": True})
            await self._work.session(request, partial(self._accept, wire))
            return None
        raise Declined(f"it does not know the request {kind!r}")

    async def _accept(self, wire: Wire) -> Wire:
        await _send(wire[1], {"accepted": True})
        self._sessions.add(_current_task())
        return wire

    def _state(self) -> Message:
        return {
            "pid": os.getpid(),
            "version": __version__,
            "uptime_seconds": int(time.monotonic() - self._started),
            "requests": self._requests,
            "sessions": len(self._sessions),
        }


def _current_task() -> asyncio.Task[None]:
    return cast("asyncio.Task[None]", asyncio.current_task())


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
    with contextlib.suppress(TimeoutError, ValueError, RecursionError):  # ValueError: also of a line over `MAX_LINE`
        async with asyncio.timeout(READ_SECONDS):
            text = await reader.readline()
        message = json.loads(text)
        if isinstance(message, dict) and len(text) <= protocol.MAX_REQUEST:
            return message
    raise Declined("the request is not readable")


async def _send(writer: asyncio.StreamWriter, message: Message) -> None:
    writer.write(json.dumps(message).encode("ascii") + b"\n")
    async with asyncio.timeout(READ_SECONDS):  # TimeoutError is an OSError, which ends the connection
        await writer.drain()


@contextlib.contextmanager
def listening(folder: Path) -> Iterator[socket.socket]:
    """Lock the folder for this service, and listen on its socket.

    Raises
    ------
    KiwiError
        When a service runs already, or the folder is not safe or not writable.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise KiwiError("the local service does not run on Windows", hint="every command works without it")
    with _locked(folder), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        path = Path(protocol.socket_in(str(folder)))
        try:
            path.unlink(missing_ok=True)  # left by a killed service: a running one would hold the lock
            line.bind(str(path))
            path.chmod(0o600)
            line.listen(BACKLOG)
        except OSError as error:
            hint = "set XDG_RUNTIME_DIR to a folder with a short path on a local disk"
            raise KiwiError(f"cannot listen at {path}: {error.strerror or error}", hint=hint) from error
        try:
            yield line
        finally:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a running service. The kernel releases it when this process ends, also when it is killed."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        why = protocol.unsafe_reason(str(folder))
        descriptor = -1 if why else os.open(folder / protocol.LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        why = f"{folder}: {error.strerror}"
    if why:
        raise KiwiError(f"the socket's folder is not safe: {why}", hint=f"chmod 700 {folder}, as its owner")
    with os.fdopen(descriptor, "r+") as file:
        # `is_running` in another process may hold the lock for a moment.
        if not any(try_lock(descriptor) for _ in polls(0.1, pause=0.02)):
            pid = file.read(20).strip()
            raise KiwiError(f"a service is running already (process {pid})", hint="stop it with: kiwi serve --stop")
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def is_running(folder: Path) -> bool:
    """Whether a service holds the lock."""
    with contextlib.suppress(OSError), (folder / protocol.LOCK_NAME).open("r+b") as file:
        return not try_lock(file.fileno())
    return False
