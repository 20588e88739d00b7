"""Agents' sessions over streamable HTTP: an idle one ends, and their number is limited, in all and for one caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import INVALID_REQUEST
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from kiwi_rag.http.limits import busy, client_of

IDLE_SECONDS = 30 * 60.0
"""A session without a request for so long ends."""
MAX_SESSIONS = 200
MAX_OF_CALLER = MAX_SESSIONS // 2
RESERVED = 20
"""Places of `MAX_SESSIONS` for callers that have no session yet."""


@dataclass(eq=False, slots=True)
class _Session:
    """A session, and how many of its requests are not answered yet."""

    id: str
    caller: str
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
        found = next((one for one in self._sessions if one.id == given), None)
        caller = _caller(scope)
        crowd, surplus = self._crowd(caller)
        if found and found.caller != caller:
            await _unknown()(scope, receive, send)
        elif found:
            await self._continue(found, scope, receive, send)
        elif given or scope["type"] != "http" or version not in (None, *HANDSHAKE_PROTOCOL_VERSIONS):
            await self.app(scope, receive, send)
        elif surplus > 0 and all(one.requests for one in crowd):
            await busy(503, "all sessions are in use")(scope, receive, send)
        else:
            await self._begin(scope, receive, send)

    async def _begin(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            begun = Headers(raw=message.get("headers", [])).get(MCP_SESSION_ID_HEADER)
            if begun and message["status"] < 400:
                await self._add(_Session(begun, _caller(scope)), scope)
            await send(message)

        await self.app(scope, receive, sent)

    async def _continue(self, session: _Session, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if scope["method"] == "DELETE" or message.get("status") == 404:
                self._sessions = [one for one in self._sessions if one is not session]
            await send(message)

        self._sessions.remove(session)
        self._sessions.append(session)
        session.requests += 1
        try:
            await self.app(scope, receive, sent)
        finally:
            session.requests -= 1

    def _crowd(self, caller: str) -> tuple[list[_Session], int]:
        """Return the sessions among which one more has to find room, and how many of them must end for it."""
        own = [one for one in self._sessions if one.caller == caller]
        if len(own) >= MAX_OF_CALLER:
            return own, len(own) - MAX_OF_CALLER + 1
        return self._sessions, len(self._sessions) - MAX_SESSIONS + 1 + (RESERVED if own else 0)

    async def _add(self, session: _Session, scope: Scope) -> None:
        """Keep a new session, and end as many idle ones as are too many, as their clients would."""
        crowd, surplus = self._crowd(session.caller)
        ended = [one for one in crowd if not one.requests][: max(surplus, 0)]
        self._sessions = [one for one in self._sessions if one not in ended] + [session]
        kept = [(name, value) for name, value in scope["headers"] if name in (b"host", b"origin")]
        for one in ended:
            headers = [*kept, (MCP_SESSION_ID_HEADER.encode(), one.id.encode())]
            await self.app({**scope, "method": "DELETE", "headers": headers}, _no_body, _drop)


def _caller(scope: Scope) -> str:
    return client_of(scope, scope.get("state", {}).get("caller", ""))


def _unknown() -> JSONResponse:
    """Return the answer that the SDK gives for a session that does not exist."""
    error = {"code": INVALID_REQUEST, "message": "Session not found"}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 404)


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _drop(_message: Message) -> None:
    """Drop the answer to a request that no client sent."""
