"""Advisory locks between processes; the operating system frees them when their process ends, however it ends."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from kiwi_rag.errors import KiwiError


def acquire_lock(path: Path, seconds: float, busy: Callable[[], KiwiError]) -> AbstractContextManager[Any]:
    """Lock the file at `path`, and return what unlocks it at the end of a ``with`` block.

    Raises
    ------
    KiwiError
        What `busy` returns, when another process or thread has held it for `seconds`.
    OSError
        When the file cannot be made.
    """
    from filelock import FileLock, Timeout

    try:
        return FileLock(path, thread_local=False).acquire(timeout=seconds)
    except Timeout as error:
        raise busy() from error


def try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file until it is closed, at once or not at all; return whether it is locked."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
