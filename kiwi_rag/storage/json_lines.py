"""Rotating files of JSON lines, which any number of processes append to.

Each line is one write to a file opened for appending, so lines of several processes never mix. The process that finds
the file full moves it aside under a lock, as ``<name>.1``, ``<name>.2`` and on; the oldest is dropped. No link is
followed, and only regular files are written and read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kiwi_rag.storage.atomic import try_lock
from kiwi_rag.system import OPENS_FOLDERS, open_flags, user_id

_SAFE = open_flags("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY", "O_NOINHERIT")
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _SAFE
_READ = os.O_RDONLY | _SAFE


@dataclass(frozen=True, slots=True)
class RotatingLines:
    """A file of lines and the older ones moved aside, in a folder that exists.

    Parameters
    ----------
    path
        The file that is appended to; made with mode 0600.
    max_bytes
        Size above which it is moved aside.
    older
        How many files moved aside are kept.
    private
        The folder holds nothing else: it must be no link and this user's, and is closed to others (0700).
    """

    path: Path
    max_bytes: int
    older: int = 1
    private: bool = False

    def append(self, line: bytes) -> None:
        """Append one line, which ends in a line feed.

        Raises
        ------
        OSError
            When it cannot be written; half a line that a full disk took is removed again.
        """
        with self._folder() as folder:
            self._rotate_if_full(folder, len(line))
            with os.fdopen(os.open(self._name(), _APPEND, 0o600, dir_fd=folder), "wb", buffering=0) as file:
                fd = file.fileno()
                if stat.S_ISREG(os.fstat(fd).st_mode) and (written := os.write(fd, line)) < len(line):
                    _remove_partial_line(fd, written)

    def contents(self) -> Iterator[bytes]:
        """Yield what the files hold, the newest file first, of each the end where it is too large.

        A file that is moved aside meanwhile comes once: it is looked for under its new name too, but known again.
        """
        seen: set[int] = set()
        for number in range(self.older + 1):
            with suppress(OSError):
                inode, data = self._read(self._name(number))
                if inode not in seen:
                    seen.add(inode)
                    yield data

    def _read(self, name: str) -> tuple[int, bytes]:
        with self._folder() as folder, os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                return found.st_ino, b""
            file.seek(max(0, found.st_size - 2 * self.max_bytes))
            return found.st_ino, file.read(2 * self.max_bytes)

    @contextmanager
    def _folder(self) -> Iterator[int | None]:
        """Open the folder, in which files are then named; yield None on Windows, where their paths are used."""
        if not OPENS_FOLDERS:
            yield None
            return
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | self.private * os.O_NOFOLLOW)
        try:
            found = os.fstat(folder)
            if self.private and found.st_uid != user_id():
                raise PermissionError(f"{self.path.parent} belongs to another user")
            if self.private and found.st_mode & 0o077:
                os.fchmod(folder, 0o700)
            yield folder
        finally:
            os.close(folder)

    def _rotate_if_full(self, folder: int | None, needed: int) -> None:
        """Move a full file aside; its size is checked again under the lock, as another process may have done so."""
        if self._size(folder) + needed <= self.max_bytes:
            return
        # Where another process is moving it, the line goes into the full file. The lock is freed when the folder is
        # closed. Windows has no lock of a folder; it refuses to move a file that another process is writing to.
        with suppress(OSError):
            if (folder is None or try_lock(folder)) and self._size(folder) + needed > self.max_bytes:
                self._rotate(folder)

    def _rotate(self, folder: int | None) -> None:
        for number in range(self.older - 1, -1, -1):
            with suppress(FileNotFoundError):
                os.replace(self._name(number), self._name(number + 1), src_dir_fd=folder, dst_dir_fd=folder)

    def _size(self, folder: int | None) -> int:
        try:
            found = os.stat(self._name(), dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return 0
        return found.st_size if stat.S_ISREG(found.st_mode) else 0

    def _name(self, number: int = 0) -> str:
        path = self.path.name if OPENS_FOLDERS else str(self.path)
        return f"{path}.{number}" if number else path


def _remove_partial_line(file: int, written: int) -> None:
    """Remove the half of a line that a full disk took, if it is still the end: the next one would go on in it."""
    end = os.lseek(file, 0, os.SEEK_CUR)
    if os.fstat(file).st_size == end:
        os.ftruncate(file, end - written)
