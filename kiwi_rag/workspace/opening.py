"""Opening what lies in a workspace: never by way of a link, never a pipe, never more than was asked for.

A repository is a stranger's: a link in it may lead anywhere, and a pipe would be waited for until somebody writes.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from kiwi_rag.errors import SourceUnreadable

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


def read_below(root: Path, path: str, limit: int) -> tuple[bytes, os.stat_result]:
    """Return up to `limit` + 1 bytes of the file at `path` below `root`, and what it was when they were read.

    Each step is opened from the one before, so that no folder can be exchanged for a link on the way.

    Raises
    ------
    FileNotFoundError
        When it is gone.
    SourceUnreadable
        When it cannot be read, is no regular file, or a link stands on the way to it.
    """
    *folders, name = path.split("/")
    held = -1
    try:
        held = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for folder in folders:
            inner = os.open(folder, _FOLDER, dir_fd=held)
            os.close(held)
            held = inner
        return _read(os.open(name, _FILE, dir_fd=held), path, limit)
    except (FileNotFoundError, ValueError) as error:
        raise FileNotFoundError(path) from error
    except OSError as error:
        raise unreadable(path, error) from error
    finally:
        if held >= 0:
            os.close(held)


def read_beside(path: Path, limit: int) -> bytes | None:
    """Return up to `limit` + 1 bytes of a file that need not be there; None for none, a link, a pipe or a folder.

    Raises
    ------
    SourceUnreadable
        When a regular file is there and cannot be read.
    """
    try:
        return _read(os.open(path, _FILE), str(path), limit)[0]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return None
        raise unreadable(str(path), error) from error
    except NoRegularFile:
        return None


class NoRegularFile(SourceUnreadable):
    """It is a folder, a pipe, a socket or a device."""

    code = "not-a-file"


def _read(descriptor: int, path: str, limit: int) -> tuple[bytes, os.stat_result]:
    entry = os.fstat(descriptor)
    if not stat.S_ISREG(entry.st_mode):
        os.close(descriptor)
        raise NoRegularFile(f"{path} is not a regular file", hint="replace it with a file")
    with os.fdopen(descriptor, "rb") as file:
        return file.read(limit + 1), entry


def unreadable(path: str, error: OSError) -> SourceUnreadable:
    """Return what is said of a file or folder that the operating system does not let us read."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return SourceUnreadable(f"a link stands on the way to {path}", hint="it is not followed")
    return SourceUnreadable(f"cannot read {path}: {error.strerror or error}", hint="check the owner and the mode")
