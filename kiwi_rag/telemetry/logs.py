"""Kiwi's log: one JSON object a line, in ``logs/`` below the user tier's folder, for users and for ``kiwi status``.

Any number of processes write to it. A failure to log never fails the command that logs.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kiwi_rag.storage.json_lines import RotatingLines

FOLDER, NAME = "logs", "kiwi.jsonl"
MAX_BYTES = 1 << 20
MAX_CHARACTERS = 500
_LOGGER = "kiwi_rag"
_FIELDS = ("command", "tool", "outcome", "milliseconds", "code")


def configure(user_dir: Path, level: str, *, verbose: bool = False) -> None:
    """Write Kiwi's records from `level` up, and warnings of libraries, to the log, and when `verbose` also to stderr.

    For long-running interfaces. A second call only changes the level.
    """
    root = logging.getLogger()
    if not any(isinstance(handler, _FileHandler) for handler in root.handlers):
        for handler in (_FileHandler(user_dir), *([logging.StreamHandler(sys.stderr)] if verbose else [])):
            handler.setFormatter(_JsonLines())
            root.addHandler(handler)
    logging.getLogger(_LOGGER).setLevel(level.upper())


def append_error(user_dir: Path, command: str, code: str, message: str) -> None:
    """Append the failure of a command; do nothing where the log cannot be written."""
    record = logging.makeLogRecord(
        {"name": f"{_LOGGER}.cli", "msg": message, "levelno": logging.ERROR, "levelname": "ERROR"}
    )
    record.__dict__.update(command=command, code=code)
    handler = _FileHandler(user_dir)
    handler.setFormatter(_JsonLines())
    handler.emit(record)


def read_last_errors(user_dir: Path, limit: int) -> list[dict[str, Any]]:
    """Return the newest errors, the latest first, each as it was written; empty where the log cannot be read."""
    found: list[dict[str, Any]] = []
    for data in _open_log(user_dir).contents():
        for line in reversed(data.splitlines()):
            if len(found) == limit:
                return found
            if b'"ERROR"' in line and (record := _parsed(line)):
                found.append(record)
    return found


class _JsonLines(logging.Formatter):
    """Formats records as JSON in ASCII, without control characters that a terminal would interpret.

    Of libraries the source line stands for the message, which may quote user input.
    """

    def format(self, record: logging.LogRecord) -> str:
        is_own = record.name.partition(".")[0] == _LOGGER
        message = record.getMessage() if is_own else f"{record.module}:{record.lineno}"
        entry: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "pid": os.getpid(),
            "message": message[:MAX_CHARACTERS].encode("utf-8", "replace").decode(),  # a file name's lone surrogate
        }
        if is_own:
            entry |= {name: value for name in _FIELDS if (value := getattr(record, name, "")) != ""}
        if record.exc_info and record.exc_info[0]:
            entry["exception"] = record.exc_info[0].__name__
        return json.dumps(entry, default=str)


class _FileHandler(logging.Handler):
    """Appends to the log. It opens the file for each record, so that other processes may rotate or delete it."""

    def __init__(self, user_dir: Path) -> None:
        super().__init__()
        self._user_dir = user_dir

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # a full or read-only disk, missing rights, a link: logging must not fail the command
            with suppress(FileExistsError):
                (self._user_dir / FOLDER).mkdir(mode=0o700)
            _open_log(self._user_dir).append(f"{self.format(record)}\n".encode())


def _open_log(user_dir: Path) -> RotatingLines:
    return RotatingLines(user_dir / FOLDER / NAME, MAX_BYTES, private=True)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return an error's record; None for anything else, such as a line truncated by a full disk."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_error = isinstance(record, Mapping) and record.get("level") == "ERROR" and isinstance(record.get("at"), str)
    return dict(record) if is_error else None
