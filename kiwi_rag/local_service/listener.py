"""The one place where a user's service listens: a socket in a folder that is closed to others, held by a lock."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from kiwi_rag.errors import KiwiError
from kiwi_rag.local_service import address
from kiwi_rag.retry import wait_until
from kiwi_rag.storage.locks import try_lock

BACKLOG = 256
"""Callers that wait to be let in."""


@contextlib.contextmanager
def listening(folder: Path) -> Iterator[socket.socket]:
    """Take the place of the user's service, and listen there.

    Raises
    ------
    KiwiError
        When one runs already, or the folder cannot be used or trusted.
    """
    with _taken(folder), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        path = Path(address.socket_in(str(folder)))
        try:
            path.unlink(missing_ok=True)  # of one that was killed: whoever lives holds the lock
            line.bind(str(path))
            path.chmod(0o600)
            line.listen(BACKLOG)
        except OSError as error:
            hint = "let XDG_RUNTIME_DIR name a folder with a short path, on a local disk"
            raise KiwiError(f"cannot listen at {path}: {error.strerror or error}", hint=hint) from error
        try:
            yield line
        finally:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _taken(folder: Path) -> Iterator[None]:
    """Hold the lock that tells that a service runs; the kernel frees it when this process ends, however it ends."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        why = address.distrust(str(folder))
        descriptor = -1 if why else os.open(folder / address.LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        why = f"{folder}: {error.strerror}"
    if why:
        raise KiwiError(f"the socket has no safe place: {why}", hint=f"chmod 700 {folder}, as its owner")
    with os.fdopen(descriptor, "r+") as file:
        # Another process may hold the lock for a moment, to see whether a service runs.
        if not wait_until(lambda: try_lock(descriptor), 0.1, pause=0.02):
            pid = file.read(20).strip()
            raise KiwiError(f"a service runs already (process {pid})", hint="kiwi serve --stop ends it")
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def is_running(folder: Path) -> bool:
    """Whether a service holds its place."""
    try:
        descriptor = os.open(folder / address.LOCK_NAME, os.O_RDWR)
    except OSError:
        return False
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)
