"""The server that a client is told to start: Kiwi, over stdio."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath, PureWindowsPath
from typing import Any

from kiwi_rag.clients.refusals import NameTaken

NAME = "kiwi"
VERB = "mcp"
TOOLSETS = "items,workspace"
"""What a server offers unless it is told otherwise."""
_OPTION = "--toolsets"
MODULE = "kiwi_rag.cli"


@dataclass(frozen=True, slots=True)
class Server:
    """How a client starts Kiwi.

    Parameters
    ----------
    command
        ``kiwi``, or the path of a program.
    args
        Its arguments, up to and with ``mcp``.
    extra
        What else the client wants said: ``type``, ``cwd``.
    toolsets
        What it offers, separated by commas.
    """

    command: str = NAME
    args: Sequence[str] = (VERB,)
    extra: Mapping[str, str] = field(default_factory=dict)
    toolsets: str = TOOLSETS

    def merged(self, there: Any) -> dict[str, Any]:
        """Return the entry to write where `there` stands now, or None does.

        What somebody added to Kiwi's entry stays: other keys, and arguments behind ``mcp`` but the toolsets.

        Raises
        ------
        NameTaken
            When `there` starts something else.
        """
        args = [*self.args, _OPTION, self.toolsets]
        if there is None:
            return {**self.extra, "command": self.command, "args": args}
        if not starts_kiwi(there):
            raise NameTaken(f"there already is a server named {NAME!r}, and it is not this one")
        added = _without_toolsets(there["args"][there["args"].index(VERB) + 1 :])
        return {**self.extra, **there, "command": self.command, "args": [*args, *added]}


def _without_toolsets(args: Sequence[Any]) -> Sequence[Any]:
    left: list[Any] = []
    words = iter(args)
    for word in words:
        if word == _OPTION:
            next(words, None)
        elif not str(word).startswith(f"{_OPTION}="):
            left.append(word)
    return left


def starts_kiwi(entry: Any) -> bool:
    """Return whether an entry starts ``kiwi … mcp``, by whichever path."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("args"), list):
        return False
    program = PureWindowsPath(str(entry.get("command", ""))).stem.lower()  # reads both kinds of slashes
    return VERB in entry["args"] and (program == NAME or MODULE in entry["args"])


def starting_command(path: str | None, *, by_name: bool) -> Sequence[str]:
    """Return what starts this Kiwi: ``kiwi``, found on `path`, or this interpreter.

    `by_name` says that the client sees `path` too, so that the name alone will do: unless that is a virtual
    environment's, which is on the PATH of this terminal and of no other.
    """
    installed = shutil.which(NAME, path=path)
    if installed is None:
        return [sys.executable, "-P", "-m", MODULE]  # -P: what lies in the folder where it starts is not run
    is_local = sys.prefix != sys.base_prefix and PurePath(installed).is_relative_to(sys.prefix)
    return [NAME if by_name and not is_local else installed]
