"""The server over streamable HTTP: on this machine for whoever is on it, beyond it only with a token.

Host and Origin are checked against the names that it may be called by, so that no web page can speak to it by a name
that it made point here. Bodies are bounded before they are read whole, and nobody may take for ever to send one.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kiwi_rag.errors import UsageError
from kiwi_rag.mcp.server import build

if TYPE_CHECKING:
    from mcp.server.transport_security import TransportSecuritySettings
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn.protocols.http.h11_impl import H11Protocol

    from kiwi_rag.mcp.context import ServerContext
    from kiwi_rag.mcp.toolsets import Toolset

MAX_BODY = 4 * 1024 * 1024
MIN_TOKEN = 16
MAX_HEAD = 64 * 1024
MAX_CONNECTIONS = 500
SECONDS_FOR_A_HEAD = 10.0
SECONDS_TO_SEND = 30.0
"""What a client may take to send a body."""
KEEP_ALIVE_SECONDS = 75
GRACE_SECONDS = 5
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen, what clients must send, and other names that they may call it by.

    Without a token nothing has to be sent. Bound to every address of the machine, and without `names`, it cannot know
    what it is called: any name will do then, as the token is asked for.
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
            When the address is beyond this machine and there is no token, or one that could be guessed; or when
            nothing can listen there.
        """
        self._check()
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
            listening = socket.socket(family, kind, protocol)
            try:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listening.bind(address)
                listening.listen(512)
            except OSError:
                listening.close()
                raise
        except OSError as error:
            told = f"cannot listen on {self.host}:{self.port}: {error.strerror}"
            raise UsageError(told, hint="another --port; 0 for any") from error
        return listening

    def security(self) -> TransportSecuritySettings:
        """Return which names and origins requests may give."""
        from mcp.server.transport_security import TransportSecuritySettings

        own = [f"[{self.host}]" if ":" in self.host else self.host]
        names = [*_LOOPBACK_NAMES, *([] if _is_loopback(self.host) else own), *self.names]
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
            raise UsageError(f"the token has under {MIN_TOKEN} plain characters", hint="openssl rand -hex 32")
        if not token and not _is_loopback(self.host):
            hint = "KIWI_MCP_TOKEN=$(openssl rand -hex 32), or --host 127.0.0.1"
            raise UsageError(f"{self.host} can be reached from other machines, and there is no token", hint=hint)


async def serve_http(
    context: ServerContext, offered: Toolset, endpoint: ListenAddress, say: Callable[[str], None]
) -> None:
    """Serve until stopped; `say` is told where."""
    import uvicorn

    with endpoint.listen() as listening:
        at = listening.getsockname()
        shown = f"[{at[0]}]" if listening.family == socket.AF_INET6 else at[0]
        config = uvicorn.Config(
            application(context, offered, endpoint),
            http=_punctual(),  # h11: bounds heads, and strips what the standard lets stand around a header's value
            ws="none",
            limit_concurrency=MAX_CONNECTIONS,
            log_config=None,  # as all of Kiwi logs
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
            h11_max_incomplete_event_size=MAX_HEAD,
        )
        say(f"serving http://{shown}:{at[1]}/mcp; Ctrl-C stops it")
        await uvicorn.Server(config).serve(sockets=[listening])


def application(context: ServerContext, offered: Toolset, endpoint: ListenAddress) -> ASGIApp:
    """Return the ASGI application: the SDK's own, behind the token where there is one."""
    server = build(context, offered)
    app: Any = server.streamable_http_app(transport_security=endpoint.security(), max_request_body_size=MAX_BODY)
    return _Guarded(app, endpoint.token)


def _punctual() -> type[H11Protocol]:
    """Return uvicorn's protocol, which waits for ever for the head of a request, with an end to that."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Punctual(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.loop.call_later(SECONDS_FOR_A_HEAD, self._hang_up_unless_asked)

        def _hang_up_unless_asked(self) -> None:
            if getattr(self, "cycle", None) is None and not self.transport.is_closing():
                self.transport.close()

    return Punctual


class _Guarded:
    """Lets nothing through but what carries the token, if there is one, and what is sent in time."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_allowed(scope):
            headers = [(b"www-authenticate", b'Bearer realm="kiwi"'), (b"content-type", b"text/plain; charset=utf-8")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b"send Authorization: Bearer TOKEN\n"})
            return
        await self._app(scope, _in_time(receive) if scope["type"] == "http" else receive, send)

    def _is_allowed(self, scope: Scope) -> bool:
        given = next((bytes(value) for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, token = given.partition(b" ")
        return not self._token or (scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token))


def _in_time(receive: Receive) -> Receive:
    """Return `receive` for a body that has to be there soon; who is late is gone."""
    deadline = time.monotonic() + SECONDS_TO_SEND
    whole = False

    async def received() -> Message:
        nonlocal whole
        if whole:  # from here on it tells when the client hangs up
            return await receive()
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                message = await receive()
        except TimeoutError:
            return {"type": "http.disconnect"}
        whole = not message.get("more_body", False)
        return message

    return received


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
