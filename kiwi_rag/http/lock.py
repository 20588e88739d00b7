"""The Unix socket of the local service, in a private folder, with a lock file that allows one service only."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from kiwi_rag import local_service as service
from kiwi_rag.errors import KiwiError
from kiwi_rag.retry import polls
from kiwi_rag.storage.atomic import disk_errors, try_lock

BACKLOG = 256
"""Connections that wait to be accepted."""


@contextlib.contextmanager
def listening(folder: Path) -> Iterator[socket.socket]:
    """Lock the folder for this service, and listen on its socket.

    Raises
    ------
    KiwiError
        When a service runs already, or the folder is not safe or not writable.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise KiwiError("the local service does not run on Windows", hint="every command works without it")
    with _locked(folder), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        path = Path(service.socket_in(str(folder)))
        try:
            path.unlink(missing_ok=True)  # left by a killed service: a running one would hold the lock
            line.bind(str(path))
            path.chmod(0o600)
            line.listen(BACKLOG)
        except OSError as error:
            hint = "set XDG_RUNTIME_DIR to a folder with a short path on a local disk"
            raise KiwiError(f"cannot listen at {path}: {error.strerror or error}", hint=hint) from error
        try:
            yield line
        finally:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a running service. The kernel releases it when this process ends, also when it is killed."""
    path = folder / service.LOCK_NAME
    with disk_errors(path, "write"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if why := service.unsafe_reason(str(folder)):
            raise KiwiError(f"the socket's folder is not safe: {why}", hint=f"chmod 700 {folder}, as its owner")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as file:
        # `is_running` in another process may hold the lock for a moment.
        if not any(try_lock(descriptor) for _ in polls(0.1, pause=0.02)):
            pid = file.read(20).decode("ascii", "replace").strip()
            raise KiwiError(f"a service is running already (process {pid})", hint="stop it with: kiwi serve --stop")
        with disk_errors(path, "write"):
            file.truncate()
            file.write(f"{os.getpid()}\n".encode())
        yield


def is_running(folder: Path) -> bool:
    """Whether a service holds the lock."""
    with contextlib.suppress(OSError), (folder / service.LOCK_NAME).open("r+b") as file:
        return not try_lock(file.fileno())
    return False
