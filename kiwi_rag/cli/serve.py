"""``kiwi mcp`` and ``kiwi serve``: the server for agents, and the local service and its handling of requests."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import signal
import subprocess
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any

import click

from kiwi_rag import render
from kiwi_rag.cli.session import DONE, Group, Session, command, option
from kiwi_rag.errors import KiwiError, UsageError
from kiwi_rag.http import lock
from kiwi_rag.local_service import LOCK_NAME, SERVICE, SIGN_IN, STOP, Declined, autostart, client, run_folder
from kiwi_rag.mcp.stdio import Lines, StdioStreams, run_until_signal, serve_lines
from kiwi_rag.mcp.toolsets import DEFAULT, IN_PROJECT, TOOLSETS, load, parse_names
from kiwi_rag.retry import polls
from kiwi_rag.services import Services
from kiwi_rag.storage.atomic import atomic_write

if TYPE_CHECKING:
    from kiwi_rag.http.access import TokenFile

# `kiwi mcp` answers its first line before the modules of an HTTP server are imported, so functions import them.
_EXAMPLES = """\b
Example: kiwi mcp                            serve one client over stdio
         kiwi mcp --http --port 8765         serve several clients on 127.0.0.1
         KIWI_MCP_TOKEN=… kiwi mcp --http --host 10.0.0.5    serve other machines, with a token
"""
_TOOLSETS_HELP = f"Of {', '.join(TOOLSETS)}; separated by commas. Default: {DEFAULT}, in a project {IN_PROJECT}."


def _refuse_token(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise UsageError("other users can read a token on the command line", hint="set KIWI_MCP_TOKEN to it instead")


@command(epilog=_EXAMPLES)
@option("--toolsets", default="", help=_TOOLSETS_HELP)
@option("--allow-write", is_flag=True, help="Also offer tools that write.")
@option("--http", is_flag=True, help="Serve streamable HTTP, not stdio.")
@option("--host", default="127.0.0.1", help="Address to listen on, with --http.")
@option("--port", type=click.IntRange(0, 65_535), default=8765, help="Port to listen on, with --http. 0: any free one.")
@option("--token", is_eager=True, hidden=True, expose_value=False, callback=_refuse_token)
@option("--name", "names", multiple=True, help="Another host name of this server for clients, with --http. Repeatable.")
def mcp(session: Session, /, toolsets: str, allow_write: bool, http: bool, **endpoint: Any) -> None:
    """Run an MCP (Model Context Protocol) server: agents search, read and check items, and search this repository.

    With --http, clients must send the token in KIWI_MCP_TOKEN, if there is one, as Authorization: Bearer TOKEN.
    """
    toolsets = toolsets or (IN_PROJECT if session.find_project() else DEFAULT)
    streams = None if http else StdioStreams(parse_names(toolsets))
    offered = load(toolsets, allow_write=allow_write)

    async def attend(app: Services) -> None:
        from kiwi_rag.mcp.context import ServerContext

        session.start_logging(app)
        async with contextlib.aclosing(ServerContext(app, allow_write=allow_write)) as context:
            if streams:
                await run_until_signal(serve_lines(context, offered, Lines(streams, streams.write)))
            else:
                from kiwi_rag.http.address import serve_http

                signal.signal(signal.SIGTERM, lambda *_: sys.exit(DONE))  # as Ctrl-C: what is open is closed
                gc.freeze()  # the modules stay: the collector need not visit them at each of its runs
                token = session.environment().get("KIWI_MCP_TOKEN", "")
                await serve_http(context, offered, session.notify, token=token, **endpoint)

    session.run(attend)


IDLE_MINUTES = 60
PORT = 27_500
_STOP_SECONDS = 20.0
_START_SECONDS = 60.0
_SERVE_EXAMPLES = """\b
Examples: kiwi serve &
          kiwi serve --install                      start it now and at each login
          kiwi serve token new ci --role reader     print a token for a program
          kiwi ui                                   open the web interface
"""


@click.group(cls=Group, invoke_without_command=True, epilog=_SERVE_EXAMPLES)
@option("--stop", is_flag=True, help="Stop the service after its running commands.")
@option("--install", is_flag=True, help="Start it now and at each login of this user, by systemd or launchd (macOS).")
@option("--uninstall", is_flag=True, help="Undo --install.")
@option("--idle-exit", type=click.IntRange(0, 100_000), metavar="MINUTES", help="Idle time before it stops. 0: never.")
@option("--host", default="127.0.0.1", help="Address for browsers and programs. Any but this machine's needs a token.")
@option("--port", type=click.IntRange(0, 65_535), envvar="KIWI_PORT", help=f"Its port. Default: {PORT}. 0: any.")
@option("--name", "names", multiple=True, help="Another host name of this service. Repeatable.")
@click.pass_context
def serve(ctx: click.Context, /, stop: bool, install: bool, uninstall: bool, **options: Any) -> None:
    """Run the local service, which keeps the model, the tiers and the connections open for faster searches.

    The command line and agents' sessions use the service while it runs, and also work without it. Browsers, programs
    and agents reach it on a port of this machine. It stops after 60 minutes without a request, if installed never;
    --idle-exit changes that.
    """
    session = ctx.ensure_object(Session)
    if ctx.invoked_subcommand:
        return
    if stop + install + uninstall > 1:
        raise UsageError("--stop, --install and --uninstall exclude each other", hint="give one of them")
    if stop:
        _stop(session)
    elif install:
        _install(session, options["idle_exit"] or 0)
    elif uninstall:
        path = autostart.uninstall(session.environment())
        session.notify(f"stopped the service and removed {path}" if path else "the service is not installed")
    else:
        _serve(session, **options)


def _serve(session: Session, idle_exit: int | None, host: str, port: int | None, names: Sequence[str]) -> None:
    from kiwi_rag.consent import is_loopback
    from kiwi_rag.http.address import url_of

    app, tokens = session.app(), _tokens(session)
    if not is_loopback(host) and not tokens.all():
        hint = "kiwi serve token new NAME --role reader, then start it again"
        raise UsageError(f"{host} can be reached from other machines, and there is no token", hint=hint)
    session.start_logging(app)
    minutes = IDLE_MINUTES if idle_exit is None else idle_exit
    with lock.listening(_folder(session)) as line, _listen(host, port) as web:
        session.notify(f"serving at {line.getsockname()} and {url_of(web)}; stop with Ctrl-C or kiwi serve --stop")
        asyncio.run(_attend([line, web], minutes * 60.0 if minutes else math.inf, app, tokens, names))
    session.notify("the service has stopped")


def _listen(host: str, port: int | None) -> socket:
    """Listen on a port; where none was named and the usual one is taken, on any free one."""
    from kiwi_rag.http.address import listen

    if port is None:
        with contextlib.suppress(UsageError):
            return listen(host, PORT)
    return listen(host, port or 0)


async def _attend(
    listening: Sequence[socket], idle_seconds: float, app: Services, tokens: TokenFile, names: Sequence[str]
) -> None:
    from kiwi_rag.cli.command_handler import CommandHandler
    from kiwi_rag.http import web
    from kiwi_rag.http.api import Api
    from kiwi_rag.http.apps import Apps
    from kiwi_rag.http.server import Service
    from kiwi_rag.http.web.workspaces import Workspaces
    from kiwi_rag.mcp.context import ServerContext

    apps = Apps()
    handler = CommandHandler(apps)
    await handler.import_modules()
    gc.freeze()
    try:
        async with apps.lend(app) as lent, contextlib.aclosing(ServerContext(lent)) as context:
            context.warm()
            service = Service(handler, idle_seconds, Api(context), tokens, names)
            async with contextlib.aclosing(workspaces := Workspaces(context, apps)):
                service.add(web.routes(context, workspaces), web.refuse)
                await service.serve([*listening])
    finally:
        handler.close()
        await apps.close()


def _stop(session: Session) -> None:
    folder = _folder(session)
    if not lock.is_running(folder):
        session.notify("the service is not running")
        return
    reply = _call(folder, STOP)
    if all(lock.is_running(folder) for _ in polls(_STOP_SECONDS, pause=0.05)):
        raise KiwiError(f"the service in {folder} still runs after the request to stop", hint=_kill_hint(folder))
    session.notify(f"the service has stopped (process {reply.get('pid')})")


def _install(session: Session, minutes: int) -> None:
    manager = autostart.manager_of(environ := session.environment())
    if lock.is_running(_folder(session)) and not manager.path.exists():
        raise KiwiError(f"a service that {manager.name} did not start is running", hint="kiwi serve --stop")
    path = autostart.install(["serve", "--idle-exit", str(minutes)], environ)
    session.notify(f"installed {path}: the service starts now and at each login")


def _folder(session: Session) -> Path:
    return Path(run_folder(session.environment())).absolute()


def _call(folder: Path, path: str) -> dict[str, Any]:
    try:
        return client.call(str(folder), path, {})
    except Declined as reason:
        raise KiwiError(f"the service in {folder} does not answer: {reason}", hint=_kill_hint(folder)) from None


def _kill_hint(folder: Path) -> str:
    try:
        return f"kill {(folder / LOCK_NAME).read_text(encoding='ascii').strip()}"
    except (OSError, ValueError):
        return "kill its process"


def _tokens(session: Session) -> TokenFile:
    from kiwi_rag.http.access import TokenFile

    return TokenFile(session.app().user_dir / "tokens.json")


@serve.group(cls=Group)
def token() -> None:
    """Make, list and remove the tokens by which programs and agents reach the local service."""


@token.command(epilog="Example: kiwi serve token new ci --role reader")
@click.argument("name")
@option("--role", choices=("reader", "admin"), default="reader", help="What it may do; an admin indexes and publishes.")
def new(session: Session, name: str, role: str) -> None:
    """Make a token and print it; it is not stored, and cannot be shown again."""
    from kiwi_rag.http.access import Role

    value = _tokens(session).add(name, Role[role.upper()])
    session.print_data({"name": name, "role": role, "token": value}, [value])


@token.command("list")
def list_tokens(session: Session) -> None:
    """List the tokens: name, role and date."""
    rows = [render.attributes(one, "name", "role", "created_at") for one in _tokens(session).all()]
    session.print_data(rows, ("  ".join(row.values()) for row in rows))


@token.command()
@click.argument("name")
def remove(session: Session, name: str) -> None:
    """Remove a token; the running service refuses it from now on."""
    _tokens(session).remove(name)
    session.notify(f"removed the token {name}")


@command(epilog="Example: kiwi ui")
@option("--no-browser", is_flag=True, help="Print the address, which can be used once within two minutes.")
def ui(session: Session, no_browser: bool) -> None:
    """Open the web interface in a browser that is signed in; start the local service if none runs."""
    folder = _folder(session)
    if not lock.is_running(folder):
        _start(folder)
    answer = _call(folder, SIGN_IN)
    page = folder / "sign-in.html"
    if not no_browser:  # other users can read the browser's command line, but not this file
        atomic_write(page, answer["page"].encode())
    if no_browser or not webbrowser.open(page.as_uri()):
        session.print(str(answer["url"]))
    else:
        session.notify(f"the browser opens {page}; if it may not read that: kiwi ui --no-browser")


def _start(folder: Path) -> None:
    """Start the service as a process of its own, and wait until it answers."""
    null = subprocess.DEVNULL
    command_line = [sys.executable, "-P", "-m", "kiwi_rag.cli", "serve"]
    process = subprocess.Popen(command_line, stdin=null, stdout=null, stderr=null, start_new_session=True)
    for _ in polls(_START_SECONDS, pause=0.1):
        with contextlib.suppress(Declined):
            client.call(str(folder), SERVICE)
            return
        if process.poll() is not None:
            break
    raise KiwiError("the service did not start", hint="kiwi serve shows why")
