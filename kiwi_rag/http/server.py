"""The process of the local service: its routes, its state, and its end.

The command lines and agents' sessions of the ``kiwi`` command come over HTTP on the Unix socket. ``local_service``
describes the requests. They are limited in size and time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import uvicorn
from pydantic import StringConstraints, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from kiwi_rag import __version__
from kiwi_rag import local_service as service
from kiwi_rag.config import LOCAL_PROVIDERS
from kiwi_rag.errors import UsageError
from kiwi_rag.http.access import FORWARD_PAGE, LOGIN, AccessControl, Logins, TokenFile
from kiwi_rag.http.address import url_of
from kiwi_rag.http.api import Api
from kiwi_rag.http.limits import BODY_SECONDS, RawRoute, read_body, uvicorn_config
from kiwi_rag.local_service import OTHER_NETWORK, Declined
from kiwi_rag.services import Services
from kiwi_rag.system import call_on_signals

MAX_LINE = 16 << 20
"""Bytes of one line of a session."""
SIGN_SECONDS = 1.0
ACCEPTED = '{"accepted": true}'
_OTHER_CODE = f"it runs another version or state of Kiwi ({__version__}); stop it with: kiwi serve --stop"

Write = Callable[[str], Awaitable[None]]
Answer = Mapping[str, Any]
_Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]


@dataclass(frozen=True, slots=True)
class CallerRequest:
    """A command line or a session, with the working directory and environment of the client's process.

    ``arguments``, ``terminals`` (whether stdout and stderr are) and ``columns`` (of stdout, 0 if it is none) belong to
    a command, ``toolsets`` to a session. ``code`` is the fingerprint of the client's code.
    ``project`` is empty where the command line names none.
    """

    code: str
    cwd: _Text
    project: _Text
    environment: dict[_Text, _Text]
    network: int
    arguments: tuple[_Text, ...] = ()
    terminals: tuple[bool, bool] = (False, False)
    columns: int = 0
    toolsets: _Text = ""

    @classmethod
    def read(cls, message: bytes) -> CallerRequest:
        """Return the request that a message holds.

        Raises
        ------
        Declined
            When it has none, or one that this process would answer differently than the client's own.
        """
        try:
            request: CallerRequest = TypeAdapter(cls).validate_json(message)
        except ValidationError:
            raise Declined(f"the request is not readable, or {_OTHER_CODE}") from None
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
        if s.embedding_provider not in LOCAL_PROVIDERS and not self.may_connect:
            raise Declined(OTHER_NETWORK)
        return app


def _require_absolute(what: str, *folders: str) -> None:
    if not all(Path(folder).expanduser().is_absolute() for folder in folders):
        raise Declined(f"a folder in the {what} is relative")


class RequestHandler(Protocol):
    """Runs requests. Both methods raise `Declined` for a request that the client has to run itself."""

    async def command(self, request: CallerRequest) -> Answer:
        """Run a command line; return its exit code and output."""

    async def session(self, request: CallerRequest, lines: AsyncIterator[bytes], write: Write) -> None:
        """Write `ACCEPTED`, and serve an MCP session of these lines, until they end."""


@contextlib.asynccontextmanager
async def _body_deadline() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            yield
    except (TimeoutError, ClientDisconnect):
        raise Declined("the request is not readable") from None
    except UsageError as error:
        raise Declined(error.message) from None


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


class Service(uvicorn.Server):
    """One user's service. A signal ends it in order, without killing the process afterwards.

    Parameters
    ----------
    work
        Runs the requests of the ``kiwi`` command.
    idle_seconds
        Seconds without a request after which it stops; infinity for never.
    api
        The routes of programs and agents.
    tokens
        The tokens that these send.
    names
        Further host names of the service.
    """

    def __init__(
        self, work: RequestHandler, idle_seconds: float, api: Api, tokens: TokenFile, names: Collection[str] = ()
    ) -> None:
        self._work, self._api, self._logins = work, api, Logins()
        self._code, self._requests = service.code_fingerprint(), 0
        self._sessions: set[asyncio.Future[None]] = set()
        self._idle_seconds = idle_seconds
        self._began = self._last_used = time.monotonic()
        self._finished, self.url = 0, ""
        routes = [
            Route("/health", self._health),
            Route(service.SERVICE, self._state),
            Route(service.STOP, self._stop, methods=["POST"]),
            Route(service.SIGN_IN, self._sign_in, methods=["POST"]),
            Route(service.COMMAND, self._command, methods=["POST"]),
            Route(service.SESSION, RawRoute(self._session), methods=["POST"]),
            *api.routes(),
        ]
        self._app = Starlette(routes=routes, lifespan=lambda _: api.running())
        protected = AccessControl(self._app, tokens, self._logins, names, reader_posts=api.reader_posts)
        super().__init__(uvicorn_config(protected, protected.identify))

    def add(self, pages: Sequence[BaseRoute], refuse: Callable[[Request, Exception], Response]) -> None:
        """Add the routes of the web interface, and the answer for addresses and methods that no route has."""
        self._app.router.routes.extend(pages)
        self._app.add_exception_handler(HTTPException, refuse)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a client or a signal stops it, or it was idle for too long; finish the running commands."""
        self.url = next((url_of(one) for one in sockets or () if one.family != socket.AF_UNIX), "")
        await super().serve(sockets)

    def stop(self) -> None:
        """Take no more requests, and end the sessions, which have no end of their own."""
        self.should_exit = True
        for session in self._sessions:
            session.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let signals call `stop` in the event loop."""
        call_on_signals(self.stop)
        yield

    async def on_tick(self, counter: int) -> bool:
        """Return, ten times a second, whether to end."""
        state, now = self.server_state, time.monotonic()
        if state.tasks or state.total_requests != self._finished or self._api.is_working:
            self._finished, self._last_used = state.total_requests, now
        return await super().on_tick(counter) or now - self._last_used > self._idle_seconds

    async def _health(self, _request: Request) -> JSONResponse:
        """Say whether the service is ready, or why not."""
        why = self._api.why_not_ready()
        state = {"status": "not ready", "why": why} if why else {"status": "ready"}
        return JSONResponse({**state, "version": __version__}, 503 if why else 200)

    async def _state(self, _request: Request) -> JSONResponse:
        about = {"pid": os.getpid(), "version": __version__, "url": self.url}
        counts = {"requests": self._requests, "sessions": len(self._sessions)}
        return JSONResponse({**about, "uptime_seconds": int(time.monotonic() - self._began), **counts})

    async def _stop(self, request: Request) -> JSONResponse:
        self.stop()
        return await self._state(request)

    async def _sign_in(self, _request: Request) -> JSONResponse:
        url = f"{self.url}{LOGIN}?token={self._logins.begin()}"
        return JSONResponse({"url": url, "page": FORWARD_PAGE.format(url)})

    async def _command(self, request: Request) -> JSONResponse | StreamingResponse:
        try:
            async with _body_deadline():
                caller = self._read_caller(await read_body(request, service.MAX_REQUEST, "request"))
        except Declined as reason:
            return JSONResponse({"declined": str(reason)}, 409)
        return StreamingResponse(_while_working(self._work.command(caller)), media_type="application/json")

    async def _session(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a session over one request: the body is its input, the answer's body its output."""

        async def write(text: str) -> None:
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

        lines = _lines(Request(scope, receive).stream())
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        try:
            async with _body_deadline():
                caller = self._read_caller(await anext(lines, b""))
            serving = asyncio.ensure_future(self._work.session(caller, lines, write))
            self._sessions.add(serving)
            serving.add_done_callback(self._sessions.discard)
            with contextlib.suppress(asyncio.CancelledError):
                await serving
        except Declined as reason:
            await write(json.dumps({"declined": str(reason)}))
        await send({"type": "http.response.body", "body": b""})

    def _read_caller(self, body: bytes) -> CallerRequest:
        caller = CallerRequest.read(body)
        if caller.code != self._code:
            raise Declined(_OTHER_CODE)
        self._requests += 1
        return caller
