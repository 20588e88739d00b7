"""The systemd user unit that starts the service at login; its text is in ``kiwi.service`` beside this file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kiwi_rag.errors import KiwiError

NAME = "kiwi.service"
_SECONDS = 30
_HINT = "kiwi serve starts the service without systemd"


def install(arguments: Sequence[str], environ: Mapping[str, str]) -> Path:
    """Write the unit, which runs ``kiwi`` with `arguments`, and start it now and at each login; return its path.

    Raises
    ------
    KiwiError
        When it cannot be written, or systemd refuses it.
    """
    path = path_of(environ)
    # -P: a folder kiwi_rag in the working directory must not be imported.
    before = path.read_text(encoding="utf-8") if path.is_file() else None
    command = [sys.executable, "-P", "-m", "kiwi_rag.cli", *arguments]
    unit = Path(__file__).with_name(NAME).read_text(encoding="utf-8")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(unit.format(command=" ".join(map(_quoted, command))), encoding="utf-8")
    except OSError as error:
        raise KiwiError(f"cannot write {path}: {error.strerror}", hint=_HINT) from error
    try:
        _systemctl("daemon-reload")
        _systemctl("enable", NAME)
        _systemctl("restart", NAME)
    except KiwiError:
        if before is None:
            path.unlink()  # a unit that systemd refused must not look installed
        else:
            path.write_text(before, encoding="utf-8")
        raise
    return path


def uninstall(environ: Mapping[str, str]) -> Path | None:
    """Stop the unit and remove it; return its path, None when there was none.

    Raises
    ------
    KiwiError
        When systemd cannot disable it.
    """
    path = path_of(environ)
    if not path.exists():
        return None
    _systemctl("disable", "--now", NAME)
    path.unlink()
    _systemctl("daemon-reload")
    return path


def path_of(environ: Mapping[str, str]) -> Path:
    """Return where systemd looks for a user's own units."""
    folder = environ.get("XDG_CONFIG_HOME", "")
    return (Path(folder) if os.path.isabs(folder) else Path("~/.config").expanduser()) / "systemd/user" / NAME  # noqa: PTH117


def _quoted(word: str) -> str:
    """Return a word quoted for a unit's command line (systemd.service(5), "Command lines")."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _systemctl(*arguments: str) -> None:
    command = ["systemctl", "--user", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KiwiError(f"systemctl: {error}", hint=_HINT) from error
    if done.returncode:
        raise KiwiError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}", hint=_HINT)
