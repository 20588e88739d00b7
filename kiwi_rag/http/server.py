"""The process of the local service: its routes, its state, and its end."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator, Sequence

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from kiwi_rag import __version__
from kiwi_rag import local_service as service
from kiwi_rag.http.access import LOGIN, AccessControl, Logins, TokenFile
from kiwi_rag.http.address import url_of
from kiwi_rag.http.api import Api
from kiwi_rag.http.commands import Commands
from kiwi_rag.http.limits import uvicorn_config
from kiwi_rag.system import call_on_signals


class Service(uvicorn.Server):
    """One user's service. A signal ends it in order, without killing the process afterwards.

    Parameters
    ----------
    commands
        The routes of the ``kiwi`` command.
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
        self, commands: Commands, idle_seconds: float, api: Api, tokens: TokenFile, names: Collection[str] = ()
    ) -> None:
        self._commands, self._api, self._logins = commands, api, Logins()
        self._idle_seconds = idle_seconds
        self._began = self._last_used = time.monotonic()
        self._finished, self.url = 0, ""
        self._app = Starlette(routes=self._routes(), lifespan=lambda _: api.running())
        protected = AccessControl(self._app, tokens, self._logins, names, reader_posts=api.reader_posts)
        super().__init__(uvicorn_config(protected))

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
        for session in self._commands.sessions:
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

    def _routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/health", self._health),
            Route(service.SERVICE, self._state),
            Route(service.STOP, self._stop, methods=["POST"]),
            Route(service.SIGN_IN, self._sign_in, methods=["POST"]),
            *self._commands.routes(),
            *self._api.routes(),
        ]

    async def _health(self, _request: Request) -> JSONResponse:
        """Say whether the service is ready, or why not."""
        why = self._api.why_not_ready()
        state = {"status": "not ready", "why": why} if why else {"status": "ready"}
        return JSONResponse({**state, "version": __version__}, 503 if why else 200)

    async def _state(self, _request: Request) -> JSONResponse:
        return JSONResponse(
            {
                "pid": os.getpid(),
                "version": __version__,
                "url": self.url,
                "uptime_seconds": int(time.monotonic() - self._began),
                "requests": self._commands.requests,
                "sessions": len(self._commands.sessions),
            }
        )

    async def _stop(self, request: Request) -> JSONResponse:
        self.stop()
        return await self._state(request)

    async def _sign_in(self, _request: Request) -> JSONResponse:
        return JSONResponse({"url": f"{self.url}{LOGIN}?token={self._logins.begin()}"})
