"""The local service: one process per user that keeps the model, the tiers and the connections open.

It speaks HTTP on a Unix socket that only its user reaches, and on a loopback port (``routes``). ``client`` is what the
``kiwi`` command uses: it sends a command line, the service runs it as the client's process would, and returns the
output and the exit code. If the service declines, the client runs the command itself.

This module is what both sides share: the socket's path and the fields of a request. It and ``client`` import very
little, because starting Python is most of the time of a search through the service. On the socket alone are:

- ``GET /api/v1/service`` and ``POST /api/v1/service/stop``: the service's state.
- ``POST /api/v1/command``: a command line. A space is sent each second until it is done, then a JSON object with
  ``exit`` and ``output``, a list of ``[1 or 2, text]`` in the order in which it was written to stdout and stderr.
- ``POST /api/v1/session``: an agent's session. The first line of the body is the request, the others are its stdin;
  the body of the answer is its stdout. Both are open at the same time.
- ``POST /api/v1/sign-in``: ``url``, at which a browser is signed in once, and ``page``, a page that leads there.

``{"declined": why}`` may be the answer to each of them.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import TextIO

from kiwi_rag import __version__
from kiwi_rag.system import is_open_to_others, user_id

MAX_REQUEST = 1 << 20
MAX_ANSWER = 64 << 20
SERVICE, STOP, COMMAND, SESSION, SIGN_IN = (
    f"/api/v1/{name}" for name in ("service", "service/stop", "command", "session", "sign-in")
)
MCP = "mcp"
SERVED = frozenset({"search", "show", "list", "workspace search", "memory search", "memory context"})
"""Commands that the service runs: those that only read. All others run in the client's process."""

OTHER_NETWORK = "it was started with other variables for connections (PG*, *_proxy, SSL_CERT_*, NETRC)"

_SENT = frozenset({"HOME", "NO_COLOR", "KONG_AI_URL", "OPENAI_API_KEY", "QDRANT_URL", "VECTOR_BACKEND"})
_NEVER_SENT = frozenset({"KIWI_SIGNING_KEY", "KIWI_KEY_PASSPHRASE", "KIWI_MCP_TOKEN"})


class Declined(Exception):
    """The service does not run this, so the client does it itself. Shown to users with ``--verbose`` only."""


def is_served(words: Sequence[str]) -> bool:
    """Whether the service runs a command line that begins with these words."""
    return " ".join(words[: 2 if words[:1] in (["workspace"], ["memory"]) else 1]) in SERVED


def sent_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the served commands depend on, without keys, passphrases and tokens."""
    sent = (name for name in environ if name in _SENT or name.startswith(("KIWI_", "SUPABASE_")))
    return {name: environ[name] for name in sent if name not in _NEVER_SENT}


def terminal_columns(environ: Mapping[str, str], stream: TextIO) -> int:
    """Return the columns of the terminal that `stream` writes to, or what COLUMNS says; 0 where there is neither."""
    columns = environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdecimal() and 0 < len(columns) < 6:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):  # no terminal, or no file at all
        return 0


def network_fingerprint(environ: Mapping[str, str]) -> int:
    """Return a checksum of the variables that libraries read from the process itself for connections."""
    names = [n for n in environ if n.startswith(("PG", "SSL_CERT_")) or n == "NETRC" or n.lower().endswith("_proxy")]
    return zlib.crc32(ascii([(name, environ[name]) for name in sorted(names)]).encode())


def code_fingerprint() -> str:
    """Return a text that is the same for two processes with the same code: Python, package folder, state of its files.

    An upgrade, a checkout of another revision, or an edit changes it. Takes about a millisecond.
    """
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib is slow
    python = f"{sys.prefix} {'.'.join(map(str, sys.version_info[:3]))}"
    return f"{__version__} {_state_of(package):08x} {package} {python}"


def _state_of(folder: str) -> int:
    """Return a checksum of names, sizes and times of a folder's files; not a secret, so no digest is needed."""
    state = 0
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in ("__pycache__", "_database"))
        for file in sorted(files):
            found = os.lstat(f"{path}/{file}")  # an editor's lock file is a dangling link
            state = zlib.crc32(os.fsencode(f"{path}/{file} {found.st_mtime_ns} {found.st_size}"), state)
    return state


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
    if found.st_uid != user_id():
        return f"{folder} belongs to another user"
    return f"{folder} is accessible to other users" if is_open_to_others(found.st_mode) else ""


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
    return bool(uid == user_id())
