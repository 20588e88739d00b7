"""The server over streamable HTTP: without a token on a loopback address, on any other address only with one.

Host and Origin are checked against the server's names, so that no web page can reach it by DNS rebinding. The size of
heads and bodies, and the time to send them, are limited.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from kiwi_rag.consent import is_loopback
from kiwi_rag.errors import UsageError
from kiwi_rag.http.access import bearer_token
from kiwi_rag.http.limits import uvicorn_config, with_deadline
from kiwi_rag.mcp.server import build

if TYPE_CHECKING:
    from kiwi_rag.mcp.context import ServerContext
    from kiwi_rag.mcp.toolsets import Toolset

MIN_TOKEN = 16
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen, the token that clients must send, and further host names of the server.

    Without a token none is required. A server on all addresses of the machine without `names` does not know its own
    names: it accepts every Host then, and requires the token.
    """

    host: str
    port: int
    token: str = field(default="", repr=False)
    names: Sequence[str] = ()

    def listen(self) -> socket.socket:
        """Return a socket that listens there.

        Raises
        ------
        UsageError
            When other machines can reach the address without a token, the token is too short, or listening fails.
        """
        self._check()
        return listen(self.host, self.port)

    def security(self) -> TransportSecuritySettings:
        """Return the hosts and origins that requests may name."""
        host = [f"[{self.host}]" if ":" in self.host else self.host]
        names = [*_LOOPBACK_NAMES, *([] if is_loopback(self.host) else host), *self.names]
        return TransportSecuritySettings(
            enable_dns_rebinding_protection=bool(self.names) or not _is_any(self.host),
            allowed_hosts=[*names, *(f"{name}:*" for name in names)],
            allowed_origins=[
                f"{scheme}://{name}{port}" for scheme in ("http", "https") for name in names for port in ("", ":*")
            ],
        )

    def _check(self) -> None:
        token = self.token
        if token and (len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable()):
            message = f"the token needs at least {MIN_TOKEN} printable ASCII characters"
            raise UsageError(message, hint="openssl rand -hex 32")
        if not token and not is_loopback(self.host):
            hint = "KIWI_MCP_TOKEN=$(openssl rand -hex 32), or --host 127.0.0.1"
            raise UsageError(f"{self.host} can be reached from other machines, and there is no token", hint=hint)


async def serve_http(
    context: ServerContext, offered: Toolset, endpoint: ListenAddress, notify: Callable[[str], None]
) -> None:
    """Serve until stopped; `notify` is called with a message that has the URL."""
    app = build(context, offered).streamable_http_app(transport_security=endpoint.security())
    with endpoint.listen() as listening:
        notify(f"serving {url_of(listening)}/mcp; Ctrl-C stops it")
        await uvicorn.Server(uvicorn_config(_RequireToken(app, endpoint.token))).serve(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; `UsageError` when that fails."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        listening = socket.create_server(address, family=family, backlog=512, dualstack_ipv6=both)
        # Connections inherit it. asyncio sets it itself only on a socket that was made with the protocol's number;
        # without it the body of an answer waits 40 ms for the client to acknowledge the head.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        message = f"cannot listen on {host}:{port}: {error.strerror}"
        raise UsageError(message, hint="choose another --port, or 0 for any free one") from error


def url_of(listening: socket.socket) -> str:
    """Return the URL of a socket that listens."""
    address = listening.getsockname()
    host = f"[{address[0]}]" if listening.family == socket.AF_INET6 else address[0]
    return f"http://{host}:{address[1]}"


class _RequireToken:
    """ASGI middleware: it requires the token, if there is one, and limits the time to send a body."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif self._is_allowed(scope):
            await self._app(scope, with_deadline(receive), send)
        else:
            headers = {"www-authenticate": 'Bearer realm="kiwi"'}
            await PlainTextResponse("send Authorization: Bearer TOKEN\n", 401, headers)(scope, receive, send)

    def _is_allowed(self, scope: Scope) -> bool:
        token = bearer_token(Headers(scope=scope)) or ""
        return not self._token or hmac.compare_digest(token.encode(), self._token)


def _is_any(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_unspecified
    return False
