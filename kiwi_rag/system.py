"""What operating systems do not have in common: owners and modes of files, folders that can be opened, signals.

On Windows a file has neither a user id nor permission bits: access control lists protect the files of a user's folder,
and Kiwi does not read them. Only the local service and the embedded registry use more of POSIX than is here, and they
do not run on Windows. It imports little, because the local service's client does.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import PurePath

HAS_MODES = hasattr(os, "fchmod")
"""Whether files have an owner and permission bits."""
OPENS_FOLDERS = hasattr(os, "O_DIRECTORY")
"""Whether a folder can be opened, and files by their names in it."""
_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10))}


def open_flags(*names: str) -> int:
    """Return the flags of `os.open` with these names together, without those that this system lacks."""
    return sum(int(getattr(os, name, 0)) for name in names)


def user_id() -> int:
    """Return this process's user id; 0 on Windows, where it is the `st_uid` of every file."""
    return int(getattr(os, "geteuid", int)())


def is_open_to_others(mode: int) -> bool:
    """Whether a file's mode lets other users use it; never on Windows, where it says nothing about them."""
    return HAS_MODES and bool(mode & 0o077)


def differing_executables(found: Iterable[str], signed: Iterable[str]) -> set[str]:
    """Return the names of files that are executable in one of two sets only; none on Windows, which has no such bit."""
    return set(found) ^ set(signed) if HAS_MODES else set()


def windows_problem(path: str | PurePath) -> str:
    """Return why Windows would write a file to another place than the relative `path`; an empty string otherwise."""
    from pathlib import PureWindowsPath

    read = PureWindowsPath(path)
    if read.anchor or any(":" in step for step in read.parts):
        return "it has a colon or a drive"
    if any(step.partition(".")[0].rstrip().lower() in _RESERVED for step in read.parts):
        return "it has the name of a device"
    return "a part of it ends in a dot or a space" if any(step[-1] in ". " for step in read.parts) else ""


def accept_all_characters(stream: object) -> None:
    """Let a text stream write every character: on Windows as UTF-8, and where the encoding was chosen by escapes.

    Windows' default for a pipe is a code page that lacks most characters, and agents read UTF-8.
    """
    if isinstance(stream, io.TextIOWrapper):
        is_chosen = HAS_MODES or "PYTHONIOENCODING" in os.environ
        stream.reconfigure(encoding=None if is_chosen else "utf-8", errors="backslashreplace")


def call_on_signals(stop: Callable[[], object]) -> None:
    """Call `stop` in the running event loop on SIGINT and SIGTERM.

    Windows' loops have no signal handlers: there Ctrl-C cancels what `asyncio.run` runs.
    """
    import asyncio
    import signal

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(number, stop)


@contextmanager
def process_deadline(seconds: float, before_end: Callable[[], None]) -> Iterator[None]:
    """End this process, as if it had succeeded, where the block takes longer, whatever its threads wait for."""
    from threading import Timer

    def end() -> None:
        before_end()
        os._exit(0)

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
