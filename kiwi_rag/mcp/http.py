"""The server over streamable HTTP: on this machine for whoever is on it, beyond it only with a token.

Host and Origin are checked against the address that was bound, so that no web page can speak to it by a name that it
made point here. Bodies are bounded before they are read whole.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kiwi_rag.errors import UsageError
from kiwi_rag.mcp.server import build

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from kiwi_rag.mcp.house import House
    from kiwi_rag.mcp.toolsets import Toolset

MAX_BODY = 4 * 1024 * 1024
MIN_TOKEN = 16
MAX_HEAD = 64 * 1024
KEEP_ALIVE_SECONDS = 75
GRACE_SECONDS = 5
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to listen, and what clients must send; no token: nothing."""

    host: str
    port: int
    token: str = field(default="", repr=False)

    def listen(self) -> socket.socket:
        """Return a socket that listens there.

        Raises
        ------
        UsageError
            When the address is beyond this machine and there is no token, or one that could be guessed; or when
            nothing can listen there.
        """
        self._check()
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
            listening = socket.socket(family, kind, protocol)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(512)
        except OSError as error:
            told = f"cannot listen on {self.host}:{self.port}: {error.strerror}"
            raise UsageError(told, hint="another --port; 0 for any") from error
        return listening

    def _check(self) -> None:
        token = self.token
        if token and (len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable()):
            raise UsageError(f"the token has under {MIN_TOKEN} plain characters", hint="openssl rand -hex 32")
        if not token and not _is_loopback(self.host):
            hint = "KIWI_MCP_TOKEN=$(openssl rand -hex 32), or --host 127.0.0.1"
            raise UsageError(f"{self.host} can be reached from other machines, and there is no token", hint=hint)


async def serve_http(house: House, offered: Toolset, endpoint: Endpoint, say: Callable[[str], None]) -> None:
    """Serve until stopped; `say` is told where."""
    import uvicorn

    with endpoint.listen() as listening:
        at = listening.getsockname()
        shown = f"[{at[0]}]" if listening.family == socket.AF_INET6 else at[0]
        config = uvicorn.Config(
            application(house, offered, endpoint),
            http="h11",  # bounds heads, and strips what the standard lets stand around a header's value
            log_config=None,  # as all of Kiwi logs
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
            h11_max_incomplete_event_size=MAX_HEAD,
        )
        say(f"serving http://{shown}:{at[1]}/mcp; Ctrl-C stops it")
        await uvicorn.Server(config).serve(sockets=[listening])


def application(house: House, offered: Toolset, endpoint: Endpoint) -> ASGIApp:
    """Return the ASGI application: the SDK's own, behind the token where there is one."""
    from mcp.server.transport_security import TransportSecuritySettings

    host = endpoint.host
    names = [*_LOOPBACK_NAMES, *([] if _is_loopback(host) else [f"[{host}]" if ":" in host else host])]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[*names, *(f"{name}:*" for name in names)],
        allowed_origins=[f"http://{name}{port}" for name in names for port in ("", ":*")],
    )
    server = build(house, offered)
    app: Any = server.streamable_http_app(transport_security=security, max_request_body_size=MAX_BODY)
    return _Guarded(app, endpoint.token) if endpoint.token else app


class _Guarded:
    """Lets nothing through but what carries the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not hmac.compare_digest(_authorization(scope), self._wanted):
            headers = [(b"www-authenticate", b'Bearer realm="kiwi"'), (b"content-type", b"text/plain; charset=utf-8")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b"send Authorization: Bearer TOKEN\n"})
            return
        await self._app(scope, receive, send)


def _authorization(scope: Scope) -> bytes:
    return next((bytes(value) for name, value in scope["headers"] if name == b"authorization"), b"")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
