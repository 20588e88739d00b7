"""The path of the socket, and the check of its owner. Both sides import it, so it imports little."""

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


def unsafe_reason(folder: str) -> str:
    """Return why a folder is not safe for the socket, or an empty string."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is a link or not a folder"
    if found.st_uid != os.geteuid():
        return f"{folder} belongs to another user"
    return f"{folder} is accessible to other users" if found.st_mode & 0o077 else ""


def socket_in(folder: str) -> str:
    """Return the path of the socket."""
    return f"{folder}/{SOCKET_NAME}"


def is_own(line: socket.socket) -> bool:
    """Whether the process at the other end belongs to this user, according to the kernel.

    Where the kernel does not provide that, the permissions of the folder are the protection; they are always checked.
    """
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    _, uid, _ = _PEER.unpack(line.getsockopt(socket.SOL_SOCKET, option, _PEER.size))
    return bool(uid == os.geteuid())
