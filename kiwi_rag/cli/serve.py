"""``kiwi serve``: the resident service."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kiwi_rag.cli.session import DONE, Session
from kiwi_rag.errors import KiwiError, UsageError
from kiwi_rag.retry import wait_until

if TYPE_CHECKING:
    from socket import socket

    from kiwi_rag.app import App

IDLE_MINUTES = 60
_STOP_SECONDS = 20.0


@click.command(epilog="Example: kiwi serve &, or kiwi serve --install to have systemd start it now and at each login")
@click.option("--stop", is_flag=True, help="End the service, once what it does is done.")
@click.option("--install", is_flag=True, help="Have systemd start it now and at each login, for this user.")
@click.option("--uninstall", is_flag=True, help="Undo --install.")
@click.option(
    "--idle-exit",
    type=click.IntRange(0, 100_000),
    metavar="MINUTES",
    help=f"End after so long without a caller; 0: never. Default: {IDLE_MINUTES}, by systemd 0.",
)
@click.pass_obj
def serve(session: Session, stop: bool, install: bool, uninstall: bool, idle_exit: int | None) -> int:
    """Keep model, tiers and connections open, so that searches of this user start warm.

    The command line and agents' sessions use the service where it runs, and work without it.
    """
    if stop + install + uninstall > 1:
        raise UsageError("--stop, --install and --uninstall exclude each other", hint="one of them")
    if stop:
        return _stop(session)
    if install or uninstall:
        return _install(session, idle_exit or 0) if install else _uninstall(session)
    return _serve(session, IDLE_MINUTES if idle_exit is None else idle_exit)


def _serve(session: Session, minutes: int) -> int:
    from kiwi_rag.resident.listening import listening

    app = session.app()
    session.log(app)
    with listening(_folder(session)) as line:
        session.say(f"serving at {line.getsockname()}; Ctrl-C or kiwi serve --stop ends it")
        asyncio.run(_attend(line, minutes * 60.0 if minutes else math.inf, app))
    session.say("the service has ended")
    return DONE


async def _attend(line: socket, idle_seconds: float, app: App) -> None:
    from kiwi_rag.cli.served import Served
    from kiwi_rag.resident.apps import Apps
    from kiwi_rag.resident.server import Service

    apps = Apps()
    served = Served(apps)
    warming = asyncio.create_task(served.warm(app))
    try:
        await Service(served, idle_seconds).serve(line)
    finally:
        warming.cancel()
        await asyncio.gather(warming, return_exceptions=True)
        served.close()
        await apps.close()


def _stop(session: Session) -> int:
    from kiwi_rag.resident import calls, listening, protocol

    folder = _folder(session)
    if not listening.is_running(folder):
        session.say("no service runs")
        return DONE
    try:
        told = calls.call(str(folder), {"ask": protocol.STOP})
    except protocol.NotServed as reason:
        raise KiwiError(f"the service does not listen: {reason}", hint=_kill_hint(folder)) from None
    if not wait_until(lambda: not listening.is_running(folder), _STOP_SECONDS, pause=0.05):
        raise KiwiError("the service was told to end, and does not", hint=_kill_hint(folder))
    session.say(f"the service has ended (process {told.get('pid')})")
    return DONE


def _install(session: Session, minutes: int) -> int:
    from kiwi_rag.resident import listening, unit

    environ = session.around.environment()
    if listening.is_running(_folder(session)) and not unit.path_of(environ).exists():
        raise KiwiError("a service runs already, and not by systemd", hint="kiwi serve --stop, then install")
    path = unit.install(["serve", "--idle-exit", str(minutes)], environ)
    session.say(f"installed {path}: the service starts now and at each login")
    return DONE


def _uninstall(session: Session) -> int:
    from kiwi_rag.resident import unit

    path = unit.uninstall(session.around.environment())
    session.say(f"stopped, and removed {path}" if path else "it is not installed")
    return DONE


def _folder(session: Session) -> Path:
    from kiwi_rag.resident import place

    return Path(place.run_folder(session.around.environment())).absolute()


def _kill_hint(folder: Path) -> str:
    from kiwi_rag.resident import place

    try:
        return f"kill {(folder / place.LOCK_NAME).read_text(encoding='ascii').strip()}"
    except (OSError, ValueError):
        return "end its process"
