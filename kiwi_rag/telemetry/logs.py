"""Kiwi's log: one JSON object a line, in ``logs/`` below the user tier's folder, for people and for ``kiwi status``.

Any number of processes write to it: each record is one write to a file opened for appending. Who finds it full moves
it aside, under a lock. Trouble with the log never reaches what is being logged.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

FOLDER, NAME, OLDER = "logs", "kiwi.jsonl", "kiwi.jsonl.1"
MAX_BYTES = 1 << 20
MAX_CHARACTERS = 500
_OWN = "kiwi_rag"
_FIELDS = ("command", "tool", "outcome", "milliseconds", "code")
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def begin(user_dir: Path, level: str, *, verbose: bool = False) -> None:
    """Write what Kiwi logs from `level` up, and warnings of others, to the log, and to stderr too when `verbose`.

    For a door that stays open. Called again it changes the level alone.
    """
    root = logging.getLogger()
    if not any(isinstance(handler, _FileHandler) for handler in root.handlers):
        for handler in (_FileHandler(user_dir), *([logging.StreamHandler(sys.stderr)] if verbose else [])):
            handler.setFormatter(_JsonLines())
            root.addHandler(handler)
    logging.getLogger(_OWN).setLevel(level.upper())


def append_error(user_dir: Path, command: str, code: str, message: str) -> None:
    """Append the failure of a command; do nothing where that cannot be written."""
    record = logging.makeLogRecord(
        {"name": f"{_OWN}.cli", "msg": message, "levelno": logging.ERROR, "levelname": "ERROR"}
    )
    record.__dict__.update(command=command, code=code)
    handler = _FileHandler(user_dir)
    handler.setFormatter(_JsonLines())
    handler.emit(record)


def last_errors(user_dir: Path, limit: int) -> list[dict[str, Any]]:
    """Return the newest errors, the latest first, each as it was written; empty where there is no log to read."""
    found: list[dict[str, Any]] = []
    for name in (NAME, OLDER):
        for line in reversed(_tail(user_dir / FOLDER, name).splitlines()):
            if len(found) == limit:
                return found
            if b'"ERROR"' in line and (record := _parsed(line)):
                found.append(record)
    return found


class _JsonLines(logging.Formatter):
    """Records as JSON, in ASCII: no character in it is obeyed by a terminal."""

    def __init__(self) -> None:
        from pythonjsonlogger.json import JsonFormatter

        super().__init__()
        names = {"levelname": "level", "name": "logger", "process": "pid"}
        self._json = JsonFormatter([*names, "message"], rename_fields=names, timestamp="at")

    def format(self, record: logging.LogRecord) -> str:
        return self._json.format(_bare(record))


class _FileHandler(logging.Handler):
    """Appends to the log; opens it for each record, so that it may be moved aside by anybody, and be made later."""

    def __init__(self, user_dir: Path) -> None:
        super().__init__()
        self._folder = user_dir / FOLDER

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # full, read-only, somebody else's, a link: nothing that was being done may fail of it
            _append(self._folder, f"{self.format(record)}\n".encode())


def _bare(record: logging.LogRecord) -> logging.LogRecord:
    """Return what of a record may be kept. Others' messages may quote what a client sent, so their place stands in."""
    kept: dict[str, Any] = {name: getattr(record, name) for name in ("name", "levelno", "levelname", "created")}
    if record.name.partition(".")[0] == _OWN:
        message = record.getMessage()
        kept |= {name: value for name in _FIELDS if (value := getattr(record, name, "")) != ""}
    else:
        message = f"{record.module}:{record.lineno}"
    message = message[:MAX_CHARACTERS].encode("utf-8", "replace").decode()  # a file's name may hold half a character
    if record.exc_info and record.exc_info[0]:
        kept["exception"] = record.exc_info[0].__name__
    return logging.makeLogRecord({**kept, "msg": message, "process": os.getpid()})


def _append(folder: Path, line: bytes) -> None:
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    with _opened(folder) as place:
        _make_room(place, len(line))
        file = os.open(NAME, _APPEND, 0o600, dir_fd=place)
        try:
            if stat.S_ISREG(os.fstat(file).st_mode) and (written := os.write(file, line)) < len(line):
                _take_back(file, written)
        finally:
            os.close(file)


def _take_back(file: int, written: int) -> None:
    """Remove the half of a line that a full disk took, if it is still the end: the next one would go on in it."""
    end = os.lseek(file, 0, os.SEEK_CUR)
    if os.fstat(file).st_size == end:
        os.ftruncate(file, end - written)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """Open the folder itself, no link to it, and see that it is this user's alone."""
    place = os.open(folder, _READ | os.O_DIRECTORY)
    try:
        found = os.fstat(place)
        if found.st_uid != os.geteuid():
            raise PermissionError(f"{folder} is somebody else's")
        if found.st_mode & 0o077:
            os.fchmod(place, 0o700)
        yield place
    finally:
        os.close(place)


def _make_room(place: int, needed: int) -> None:
    """Move a full log aside, over the older one; who comes second under the lock finds the new one, and leaves it."""
    if _size(place) + needed <= MAX_BYTES:
        return
    with suppress(OSError):
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)  # let go when the folder is closed
        if _size(place) + needed > MAX_BYTES:
            os.replace(NAME, OLDER, src_dir_fd=place, dst_dir_fd=place)


def _size(place: int) -> int:
    try:
        return os.stat(NAME, dir_fd=place, follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


def _tail(folder: Path, name: str) -> bytes:
    """Return the end of a log; empty where there is none that may be read."""
    with suppress(OSError), _opened(folder) as place, os.fdopen(os.open(name, _READ, dir_fd=place), "rb") as file:
        found = os.fstat(file.fileno())
        if stat.S_ISREG(found.st_mode):
            file.seek(max(0, found.st_size - MAX_BYTES))
            return file.read(MAX_BYTES)
    return b""


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return an error's record; None for what is none, such as half a line from a disk that was full."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_error = isinstance(record, Mapping) and record.get("level") == "ERROR" and isinstance(record.get("at"), str)
    return dict(record) if is_error else None
