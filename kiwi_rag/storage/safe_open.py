"""Reads files that other users may have written: not through links, no pipes or devices, and with a limit of size.

A link in a repository may lead anywhere, and the opening of a pipe waits until somebody writes to it. All reads return
up to one byte more than the limit, so that a file that is too large is noticed without holding it. What is wrong in a
file of settings is said without quoting it, because it may hold secrets or be a link to a file that does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from kiwi_rag.errors import ConfigError, SourceUnreadable
from kiwi_rag.system import OPENS_FOLDERS, open_flags

_FILE = os.O_RDONLY | open_flags("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY", "O_NOINHERIT")
_NO_LINK = open_flags("O_NOFOLLOW")
_FOLDER = os.O_RDONLY | open_flags("O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC")
_JUNCTION = 0xA0000003  # IO_REPARSE_TAG_MOUNT_POINT: Windows' other kind of link to a folder


class NotRegularFile(SourceUnreadable, code="not-a-file"):
    """It is a folder, a pipe, a socket or a device."""


def read_regular(path: Path, max_bytes: int, *, follow_links: bool = False) -> tuple[bytes, os.stat_result]:
    """Return up to `max_bytes` + 1 bytes of the file at `path`, and what it was when they were read.

    Raises
    ------
    OSError
        When it cannot be opened or read; where it is a link and `follow_links` is not set, with ``ELOOP``.
    NotRegularFile
        When it is something else than a file.
    """
    if OPENS_FOLDERS:
        descriptor = os.open(path, _FILE if follow_links else _FILE | _NO_LINK)
    else:
        descriptor = _open_by_path(path, () if follow_links else (path,))
    return _read(descriptor, str(path), max_bytes)


def read_optional(path: Path, max_bytes: int) -> bytes | None:
    """Return up to `max_bytes` + 1 bytes of a file that need not exist; None for none, a link, a pipe or a folder.

    Raises
    ------
    SourceUnreadable
        When a regular file is there and cannot be read.
    """
    try:
        return read_regular(path, max_bytes)[0]
    except NotRegularFile:
        return None
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            return None
        raise unreadable(str(path), error) from error


def read_below(root: Path, path: str, max_bytes: int) -> tuple[bytes, os.stat_result]:
    """Return up to `max_bytes` + 1 bytes of the file at `path` below `root`, and what it was when they were read.

    Raises
    ------
    FileNotFoundError
        When it is gone.
    SourceUnreadable
        When it cannot be read, is no regular file, or a link stands on the way to it.
    """
    with _explained(path):
        return _read(_open_below(root, path), path, max_bytes)


def open_below(root: Path, path: str) -> tuple[BinaryIO, os.stat_result]:
    """Return the file at `path` below `root`, open to be read in parts, and what it is; raise as `read_below` does."""
    with _explained(path):
        return _opened(_open_below(root, path), path)


def read_linked(path: Path, root: Path, max_bytes: int) -> bytes:
    """Return up to `max_bytes` + 1 bytes of the file at `path`, which links may lead to any place below `root`.

    Raises
    ------
    SourceUnreadable
        When it is missing, not a regular file, not readable, or a link leads out of `root`.
    """
    try:
        real, base = path.resolve(strict=True), root.resolve(strict=True)
        if not real.is_relative_to(base):
            raise SourceUnreadable(f"{path} leaves {root} by a link", hint="replace the link with a copy of the file")
        return _read(_open_below(base, real.relative_to(base).as_posix()), str(path), max_bytes)[0]
    except (OSError, RuntimeError) as error:  # before Python 3.13, a loop of links is a RuntimeError
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SourceUnreadable(f"{path} cannot be read: {reason}", hint="check that it exists and its mode") from error


def parse_settings(data: bytes, path: Path, max_bytes: int) -> dict[Any, Any]:
    """Return the keys and values of a YAML file, of which up to `max_bytes` + 1 bytes were read.

    Raises
    ------
    ConfigError
        When it is too large, is no YAML with keys and values, has aliases, or a key twice.
    """
    import yaml

    try:
        text = data.decode()
        # Before loading: a few hundred bytes of nested aliases expand to gigabytes.
        if len(data) > max_bytes or any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            message = f"{path} is over {max_bytes >> 10} KiB or has YAML aliases"
            raise ConfigError(message, hint="shorten it, and write aliases out")
        _check_unique(yaml.compose(text), path)
        document = yaml.safe_load(text) or {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        reason = f"{getattr(error, 'problem', '')} in line {mark.line + 1}" if mark else type(error).__name__
        raise ConfigError(f"{path} cannot be read as YAML: {reason}") from None  # the cause quotes the file
    if not isinstance(document, dict):
        raise ConfigError(f"{path} does not hold keys and values", hint="write one setting a line, as in: limit: 10")
    return document


def _check_unique(node: Any, path: Path) -> None:
    """Raise `ConfigError` when a mapping has a key twice: YAML keeps the last one, and the first has no effect."""
    import yaml

    if not isinstance(node, yaml.MappingNode):
        return
    names = [key.value for key, _ in node.value]
    for number, (key, value) in enumerate(node.value):
        if key.value in names[:number]:
            raise ConfigError(f"{path}: key {key.value!r} is given twice", hint="remove one of them")
        _check_unique(value, path)


def unreadable(path: str, error: OSError) -> SourceUnreadable:
    """Return the error for a file or folder that the operating system refuses to open."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        hint = "replace the link with a folder or file"
        return SourceUnreadable(f"{path} is not read, because a part of its path is a link", hint=hint)
    return SourceUnreadable(f"cannot read {path}: {error.strerror or error}", hint="check the owner and the mode")


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, ValueError) as error:
        raise FileNotFoundError(path) from error
    except OSError as error:
        raise unreadable(path, error) from error


def _open_below(root: Path, path: str) -> int:
    """Open each step from the one before, so that no folder can be exchanged for a link on the way."""
    *folders, name = path.split("/")
    if not OPENS_FOLDERS:
        steps = [root.joinpath(*folders[:depth]) for depth in range(1, len(folders) + 1)]
        return _open_by_path(root / path, (*steps, root / path))
    folder_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            inner = os.open(folder, _FOLDER, dir_fd=folder_fd)
            os.close(folder_fd)
            folder_fd = inner
        return os.open(name, _FILE | _NO_LINK, dir_fd=folder_fd)
    finally:
        os.close(folder_fd)


def _open_by_path(path: Path, no_links: Sequence[Path]) -> int:
    """Open a file on Windows, after a check that none of `no_links` is a link, and raise what POSIX systems raise.

    A link that another process puts there right after the check is followed: Windows has no flag against it.
    """
    for step in no_links:
        entry = step.lstat()
        if stat.S_ISLNK(entry.st_mode) or getattr(entry, "st_reparse_tag", 0) == _JUNCTION:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(step))
    if path.is_dir():
        raise _not_regular(str(path))
    return os.open(path, _FILE)


def _read(descriptor: int, path: str, max_bytes: int) -> tuple[bytes, os.stat_result]:
    file, entry = _opened(descriptor, path)
    with file:
        return file.read(max_bytes + 1), entry


def _opened(descriptor: int, path: str) -> tuple[BinaryIO, os.stat_result]:
    entry = os.fstat(descriptor)
    if not stat.S_ISREG(entry.st_mode):
        os.close(descriptor)
        raise _not_regular(path)
    return os.fdopen(descriptor, "rb"), entry


def _not_regular(path: str) -> NotRegularFile:
    return NotRegularFile(f"{path} is not a regular file", hint="replace it with a file")
