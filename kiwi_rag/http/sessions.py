"""Agents' sessions over streamable HTTP: an idle one ends, and their number is limited, in all and for one caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from kiwi_rag.http.limits import busy

IDLE_SECONDS = 30 * 60.0
"""A session without a request for so long ends."""
MAX_SESSIONS = 200
MAX_OF_CALLER = MAX_SESSIONS // 2


@dataclass(eq=False, slots=True)
class _Session:
    """A session and its requests that are not answered yet; it has an id from its first answer to its end."""

    caller: str
    id: str = ""
    requests: int = 0


class AgentSessions:
    """The ASGI application of a server for agents, with limits on its sessions.

    Where there is no room for one more, that session ends whose last request is the oldest: one of the same caller, if
    that has as many as it may. Its client gets 404, by which the protocol says that it has to initialize again. While
    all of them wait for answers, the new one is refused. Requests of the protocol's versions without sessions pass.
    """

    def __init__(self, server: Server[Any], security: TransportSecuritySettings) -> None:
        self.app = server.streamable_http_app(transport_security=security, session_idle_timeout=IDLE_SECONDS)
        self._sessions: list[_Session] = []
        """In the order of their last requests."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(raw=scope.get("headers", []))
        given, version = headers.get(MCP_SESSION_ID_HEADER), headers.get(MCP_PROTOCOL_VERSION_HEADER)
        found = next((one for one in self._sessions if one.id == given), None) if given else _Session(_caller(scope))
        if found is None or scope["type"] != "http" or version not in (None, *HANDSHAKE_PROTOCOL_VERSIONS):
            await self.app(scope, receive, send)
        elif given or await self._make_room(found.caller, scope):
            await self._serve(found, scope, receive, send)
        else:
            await busy(503, "all sessions are in use")(scope, receive, send)

    async def _serve(self, session: _Session, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] == 404 or scope["method"] == "DELETE":
                    session.id = ""
                elif message["status"] < 400:
                    session.id = Headers(raw=message["headers"]).get(MCP_SESSION_ID_HEADER, session.id)
            await send(message)

        self._sessions = [*self._without(session), session]
        session.requests += 1
        try:
            await self.app(scope, receive, sent)
        finally:
            session.requests -= 1
            if not session.id:
                self._sessions = self._without(session)

    async def _make_room(self, caller: str, scope: Scope) -> bool:
        """End a session if there are too many; return whether there is room."""
        among: Sequence[_Session] = [one for one in self._sessions if one.caller == caller]
        if len(among) < MAX_OF_CALLER:
            among = self._sessions if len(self._sessions) >= MAX_SESSIONS else ()
        oldest = next((one for one in among if not one.requests), None)
        if oldest:
            self._sessions = self._without(oldest)
            kept = [(name, value) for name, value in scope["headers"] if name in (b"host", b"origin")]
            headers = [*kept, (MCP_SESSION_ID_HEADER.encode(), oldest.id.encode())]
            await self.app({**scope, "method": "DELETE", "headers": headers}, _no_body, _drop)
        return bool(oldest) or not among

    def _without(self, session: _Session) -> list[_Session]:
        return [one for one in self._sessions if one is not session]


def _caller(scope: Scope) -> str:
    """Return the name of the token, or the address of the client where there is none."""
    client = scope.get("client") or ("",)
    return str(scope.get("state", {}).get("caller") or client[0])


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _drop(_message: Message) -> None:
    """Drop the answer to a request that no client sent."""
