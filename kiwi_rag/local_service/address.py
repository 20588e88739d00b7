"""Where the socket is, and whether it may be trusted. Cheap to import: both sides use it."""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Mapping

SOCKET_NAME = "kiwi.sock"
LOCK_NAME = "kiwi.lock"
_PEER = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid


def run_folder(environ: Mapping[str, str]) -> str:
    """Return the folder for the socket: ``$XDG_RUNTIME_DIR/kiwi``, else ``run`` in the user tier's folder."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and os.path.isdir(runtime):  # noqa: PTH112, PTH117 - pathlib is slow to import
        return f"{runtime}/kiwi"
    home = environ.get("KIWI_HOME") or "~/.ai"
    return os.path.join(os.path.expanduser(home), "run")  # noqa: PTH111, PTH118


def distrust(folder: str) -> str:
    """Return why a folder is not safe for the socket; an empty text when it is."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is not a folder, or a link"
    if found.st_uid != os.geteuid():
        return f"{folder} belongs to somebody else"
    return f"{folder} is open to others" if found.st_mode & 0o077 else ""


def socket_in(folder: str) -> str:
    """Return the path of the socket."""
    return f"{folder}/{SOCKET_NAME}"


def is_own(line: socket.socket) -> bool:
    """Whether the process at the other end belongs to this user, as the kernel says.

    A system that cannot tell leaves it to the permissions of the folder, which are checked in any case.
    """
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    _, uid, _ = _PEER.unpack(line.getsockopt(socket.SOL_SOCKET, option, _PEER.size))
    return bool(uid == os.geteuid())
