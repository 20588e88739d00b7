"""Why a client's file is left as it is.

::

    ClientFileError               client-file       it cannot be read or written, or a link leads out of its folder
    ├── MalformedClientFile       client-malformed  it is not what its client reads; names file and line
    └── NameTaken                 client-taken      it already has another server, or task, of Kiwi's name
    HooksRefused                  git-hooks         a repository's hooks are not such that Kiwi could add to them
"""

from __future__ import annotations

from kiwi_rag.errors import KiwiError

UNEDITABLE = "it is laid out so that it cannot be edited without harm"


class ClientFileError(KiwiError):
    """A client's file cannot be read or written."""

    code = "client-file"


class MalformedClientFile(ClientFileError):
    """A client's file is malformed; nothing was written."""

    code = "client-malformed"


class NameTaken(ClientFileError):
    """The client already has another server of this name."""

    code = "client-taken"


class HooksRefused(KiwiError):
    """The repository's git hooks are left as they are."""

    code = "git-hooks"


class Malformed(Exception):
    """What is wrong with a text, and in which line; `plan` names the file and raises `MalformedClientFile`."""

    def __init__(self, what: str, line: int = 1) -> None:
        super().__init__(what)
        self.what = what
        self.line = line
