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
from typing import TYPE_CHECKING

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from kiwi_rag.consent import is_loopback
from kiwi_rag.errors import UsageError
from kiwi_rag.http.access import bearer_token
from kiwi_rag.http.limits import uvicorn_config
from kiwi_rag.http.sessions import AgentSessions
from kiwi_rag.mcp.server import build

if TYPE_CHECKING:
    from kiwi_rag.mcp.context import ServerContext
    from kiwi_rag.mcp.toolsets import Toolset

MIN_TOKEN = 16
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


def security(host: str, names: Sequence[str] = ()) -> TransportSecuritySettings:
    """Return the hosts and origins that requests may name.

    A server on all addresses of the machine without `names` does not know its own names: it accepts every Host then.
    """
    own = [] if is_loopback(host) else [f"[{host}]" if ":" in host else host]
    known = [*_LOOPBACK_NAMES, *own, *names]
    origins = [f"{scheme}://{name}{port}" for scheme in ("http", "https") for name in known for port in ("", ":*")]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=bool(names) or not _is_any(host),
        allowed_hosts=[*known, *(f"{name}:*" for name in known)],
        allowed_origins=origins,
    )


def _check_token(token: str, host: str) -> None:
    if token and (len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable()):
        message = f"the token needs at least {MIN_TOKEN} printable ASCII characters"
        raise UsageError(message, hint="openssl rand -hex 32")
    if not token and not is_loopback(host):
        hint = "KIWI_MCP_TOKEN=$(openssl rand -hex 32), or --host 127.0.0.1"
        raise UsageError(f"{host} can be reached from other machines, and there is no token", hint=hint)


async def serve_http(  # noqa: PLR0913  # the options of the command
    context: ServerContext, offered: Toolset, notify: Callable[[str], None], *, host: str, port: int, token: str,
    names: Sequence[str],
) -> None:  # fmt: skip
    """Serve until stopped, to clients that send the token, if there is one; `notify` gets a message with the URL.

    Raises
    ------
    UsageError
        When other machines can reach the address without a token, the token is too short, or listening fails.
    """
    _check_token(token, host)
    app = AgentSessions(build(context, offered), security(host, names))
    with listen(host, port) as listening:
        notify(f"serving {url_of(listening)}/mcp; Ctrl-C stops it")
        await uvicorn.Server(uvicorn_config(require_token(app, token))).serve(sockets=[listening])


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


def require_token(app: ASGIApp, token: str) -> ASGIApp:
    """Return ASGI middleware that requires the token, if there is one."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
        elif token and not hmac.compare_digest((bearer_token(Headers(scope=scope)) or "").encode(), token.encode()):
            headers = {"www-authenticate": 'Bearer realm="kiwi"'}
            await PlainTextResponse("send Authorization: Bearer TOKEN\n", 401, headers)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return guarded


def _is_any(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_unspecified
    return False
