"""Starting the service at login: a systemd user unit on Linux, a launchd agent on macOS.

The unit's text is in ``kiwi.service`` beside this file.
"""

from __future__ import annotations

import os
import plistlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kiwi_rag.errors import KiwiError

NAME = "kiwi.service"
LABEL = "kiwi-rag.kiwi"
_SECONDS = 30
Command = Sequence[str]


@dataclass(frozen=True, slots=True)
class Manager:
    """What starts a user's services: its name, its file for this one, and its commands."""

    name: str
    path: Path
    text: str
    start: Sequence[Command]
    stop: Command
    forget: Sequence[Command] = ()


def install(arguments: Sequence[str], environ: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Write the file, which runs ``kiwi`` with `arguments`, and start it now and at each login; return its path.

    Raises
    ------
    KiwiError
        When it cannot be written, or systemd or launchd refuses it.
    """
    # -P: a folder kiwi_rag in the working directory must not be imported.
    manager = manager_of(environ, platform, [sys.executable, "-P", "-m", "kiwi_rag.cli", *arguments])
    path, hint = manager.path, f"kiwi serve starts the service without {manager.name}"
    before = path.read_text(encoding="utf-8") if path.is_file() else None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(manager.text, encoding="utf-8")
    except OSError as error:
        raise KiwiError(f"cannot write {path}: {error.strerror}", hint=hint) from error
    try:
        if before is not None:
            with suppress(KiwiError):  # launchd starts no agent that it has already
                _run(manager.stop, hint)
        for command in manager.start:
            _run(command, hint)
    except KiwiError:
        if before is None:
            path.unlink()  # a file that was refused must not look installed
        else:
            path.write_text(before, encoding="utf-8")
        raise
    return path


def uninstall(environ: Mapping[str, str], platform: str = sys.platform) -> Path | None:
    """Stop the service and remove the file; return its path, None when there was none.

    Raises
    ------
    KiwiError
        When systemd or launchd cannot stop it.
    """
    manager = manager_of(environ, platform)
    if not manager.path.exists():
        return None
    hint = f"remove {manager.path} yourself, and log in again"
    _run(manager.stop, hint)
    manager.path.unlink()
    for command in manager.forget:
        _run(command, hint)
    return manager.path


def manager_of(environ: Mapping[str, str], platform: str = sys.platform, command: Command = ()) -> Manager:
    """Return what starts services on this platform, with the file that runs `command`."""
    return _launchd(command) if platform == "darwin" else _systemd(environ, command)


def _systemd(environ: Mapping[str, str], command: Command) -> Manager:
    folder = environ.get("XDG_CONFIG_HOME", "")
    settings = Path(folder) if os.path.isabs(folder) else Path("~/.config").expanduser()  # noqa: PTH117
    unit = Path(__file__).with_name(NAME).read_text(encoding="utf-8")
    text = unit.format(command=" ".join(map(_quoted, command)))
    calls = (["daemon-reload"], ["enable", NAME], ["restart", NAME], ["disable", "--now", NAME])
    reload, enable, restart, disable = (["systemctl", "--user", *call] for call in calls)
    return Manager("systemd", settings / "systemd/user" / NAME, text, [reload, enable, restart], disable, [reload])


def _launchd(command: Command) -> Manager:
    path = Path("~/Library/LaunchAgents").expanduser() / f"{LABEL}.plist"
    # An embedded registry that it started keeps running for other processes; the last of them stops it.
    keep = {"RunAtLoad": True, "KeepAlive": {"SuccessfulExit": False}, "AbandonProcessGroup": True}
    text = plistlib.dumps({"Label": LABEL, "ProgramArguments": list(command), **keep}).decode()
    domain = f"gui/{os.getuid()}"
    leave, join = ["launchctl", "bootout", f"{domain}/{LABEL}"], ["launchctl", "bootstrap", domain, str(path)]
    return Manager("launchd", path, text, [join], leave)


def _quoted(word: str) -> str:
    """Return a word quoted for a unit's command line (systemd.service(5), "Command lines")."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _run(command: Command, hint: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KiwiError(f"{command[0]}: {error}", hint=hint) from error
    if done.returncode:
        raise KiwiError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}", hint=hint)
