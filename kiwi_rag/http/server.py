"""The server of the local service: checks each request, runs it, and ends when it is told to or was idle.

Requests are limited in size and time; an error of one connection does not affect the others. The socket is in a
private folder, with a lock file that allows one service only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import uvicorn
from pydantic import StringConstraints, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from kiwi_rag import __version__
from kiwi_rag import local_service as service
from kiwi_rag.errors import KiwiError
from kiwi_rag.http.limits import BODY_SECONDS, uvicorn_config
from kiwi_rag.local_service import OTHER_NETWORK, Declined
from kiwi_rag.retry import polls
from kiwi_rag.services import Services
from kiwi_rag.storage.atomic import try_lock
from kiwi_rag.system import call_on_signals

BACKLOG = 256
"""Connections that wait to be accepted."""
MAX_LINE = 16 << 20
"""Bytes of one line of a session."""
SIGN_SECONDS = 1.0
_REMOTE_PROVIDERS = ("openai", "ollama")

Write = Callable[[str], Awaitable[None]]
Answer = Mapping[str, Any]


_Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]


@dataclass(frozen=True, slots=True)
class CallerRequest:
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
    def read(cls, message: Answer) -> CallerRequest:
        """Return the request that a message holds.

        Raises
        ------
        Declined
            When it has none, or one that this process would answer differently than the client's own.
        """
        try:
            request: CallerRequest = TypeAdapter(cls).validate_python(message)
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
        return self.network == service.network_fingerprint(os.environ)

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

    async def command(self, request: CallerRequest) -> Answer:
        """Run a command line; return its exit code and output."""

    async def session(
        self, request: CallerRequest, lines: AsyncIterator[bytes], accept: Callable[[], Awaitable[Write]]
    ) -> None:
        """Serve an MCP session of these lines, until they end; `accept` returns what writes a line."""


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
        self._code = service.code_fingerprint()
        self._started = self._last_left = time.monotonic()
        self._active = self._requests = 0
        self._sessions: set[asyncio.Task[None]] = set()
        routes = [
            Route(service.SERVICE, self._state),
            Route(service.STOP, self._stop, methods=["POST"]),
            Route(service.COMMAND, self._command, methods=["POST"]),
            Route(service.SESSION, _Raw(self._session)),
        ]
        self._server = _Server(uvicorn_config(self._counted(Starlette(routes=routes))))
        self._server.stop, self._server.is_idle = self.stop, self._is_idle

    async def serve(self, *listening: socket.socket) -> None:
        """Serve until a client or a signal stops it, or it was idle for too long; finish the running commands."""
        await self._server.serve(list(listening))

    def stop(self) -> None:
        """Take no more requests, and end the sessions, which have no end of their own."""
        self._server.should_exit = True
        for session in self._sessions:
            session.cancel()

    def _is_idle(self) -> bool:
        return not self._active and time.monotonic() - self._last_left > self._idle_seconds

    def _counted(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> Any:
        """Return `app`, which notes how many requests are active, and when the last one ended."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return await app(scope, receive, send)
            self._active += 1
            try:
                await app(scope, receive, send)
            finally:
                self._active -= 1
                self._last_left = time.monotonic()

        return counted

    async def _state(self, _request: Request) -> JSONResponse:
        return JSONResponse(
            {
                "pid": os.getpid(),
                "version": __version__,
                "uptime_seconds": int(time.monotonic() - self._started),
                "requests": self._requests,
                "sessions": len(self._sessions),
            }
        )

    async def _stop(self, request: Request) -> JSONResponse:
        self.stop()
        return await self._state(request)

    async def _command(self, request: Request) -> JSONResponse | StreamingResponse:
        try:
            caller = self._read(await _body(request))
        except Declined as reason:
            return JSONResponse({"declined": str(reason)}, 409)
        return StreamingResponse(_while_working(self._work.command(caller)), media_type="application/json")

    async def _session(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a session over one request: the body is its input, the answer's body its output."""

        async def write(text: str) -> None:
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

        async def accept() -> Write:
            await write('{"accepted": true}')
            return write

        lines = _lines(Request(scope, receive).stream())
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        try:
            async with _body_deadline():
                caller = self._read(await anext(lines, b""))
            serving = asyncio.ensure_future(self._work.session(caller, lines, accept))
            self._sessions.add(serving)
            serving.add_done_callback(self._sessions.discard)
            with contextlib.suppress(asyncio.CancelledError):
                await serving
        except Declined as reason:
            await write(json.dumps({"declined": str(reason)}))
        await send({"type": "http.response.body", "body": b""})

    def _read(self, body: bytes) -> CallerRequest:
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise Declined("the request is not readable")
        if message.get("code") != self._code:
            raise Declined(f"it runs another version or state of Kiwi ({__version__}); stop it with: kiwi serve --stop")
        caller = CallerRequest.read(message)
        self._requests += 1
        return caller


class _Server(uvicorn.Server):
    """Uvicorn's server, which a signal ends in order, without killing the process afterwards, and which ends idle."""

    stop: Callable[[], None]
    is_idle: Callable[[], bool]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let signals call `stop` in the event loop."""
        call_on_signals(self.stop)
        yield

    async def on_tick(self, counter: int) -> bool:
        """Return, ten times a second, whether to end."""
        return await super().on_tick(counter) or self.is_idle()


@dataclass(frozen=True)
class _Raw:
    """An ASGI application that Starlette does not take for an endpoint with a request."""

    app: Callable[[Scope, Receive, Send], Awaitable[None]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


@contextlib.asynccontextmanager
async def _body_deadline() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            yield
    except (TimeoutError, ClientDisconnect):
        raise Declined("the request is not readable") from None


async def _body(request: Request) -> bytes:
    body = bytearray()
    async with _body_deadline():
        async for piece in request.stream():
            body += piece
            if len(body) > service.MAX_REQUEST:
                raise Declined("the request is over 1 MB")
    return bytes(body)


async def _while_working(work: Awaitable[Answer]) -> AsyncIterator[str]:
    """Yield a space every second, then the answer; the work is cancelled when the client has gone."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            yield " "
            await asyncio.wait([task], timeout=SIGN_SECONDS)
        try:
            yield json.dumps(task.result())
        except Declined as reason:
            yield json.dumps({"declined": str(reason)})
    finally:
        task.cancel()


async def _lines(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield lines with their ends; end with the client, or at a line over `MAX_LINE`."""
    rest = b""
    with contextlib.suppress(ClientDisconnect):
        async for piece in body:
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield line + b"\n"
            if len(rest) > MAX_LINE:
                return
        if rest:
            yield rest


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
        path = Path(service.socket_in(str(folder)))
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
        why = service.unsafe_reason(str(folder))
        descriptor = -1 if why else os.open(folder / service.LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
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
    with contextlib.suppress(OSError), (folder / service.LOCK_NAME).open("r+b") as file:
        return not try_lock(file.fileno())
    return False
