"""Which commit a workspace stands at, read from git's own files: a repository's settings could make git run commands.

Formats: https://git-scm.com/docs/gitrepository-layout (``HEAD``, ``refs``, ``packed-refs``, ``commondir``).
"""

from __future__ import annotations

import re
from pathlib import Path

from kiwi_rag.errors import SourceUnreadable
from kiwi_rag.storage.safe_open import read_optional

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF = re.compile(r"ref: (refs/[^\s\\:?*~^]{1,500})")
MAX_BYTES = 1 << 20


def head_commit(root: Path) -> str:
    """Return the commit that is checked out at or above `root`, as hex; empty outside of git's care. Blocking."""
    git = git_folder(root)
    return _head(git) if git else ""


def git_folder(root: Path) -> Path | None:
    """Return where git keeps what it knows of the working tree at or around `root`; None outside of git's care."""
    base = git_root(root.resolve())
    if base is None:
        return None
    return base / ".git" if (base / ".git").is_dir() else _linked(base / ".git")


def git_root(here: Path) -> Path | None:
    """Return the folder at or above `here` that git keeps; None when none does."""
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), None)


def _linked(file: Path) -> Path:
    """Return what the ``.git`` file of a worktree or a submodule leads to."""
    return file.parent / _text(file).removeprefix("gitdir:").strip()


def _head(git: Path) -> str:
    head = _text(git / "HEAD").strip()
    ref = _REF.fullmatch(head)
    if ref is None or ".." in head:
        return head if _COMMIT.fullmatch(head) else ""
    shared = git / (_text(git / "commondir").strip() or ".")
    for found in (_text(git / ref[1]), _text(shared / ref[1]), _packed(shared, ref[1])):
        if _COMMIT.fullmatch(found.strip()):
            return found.strip()
    return ""


def _packed(git: Path, ref: str) -> str:
    lines = (line.split(" ") for line in _text(git / "packed-refs").splitlines())
    return next((words[0] for words in lines if words[1:] == [ref]), "")


def _text(path: Path) -> str:
    try:
        return (read_optional(path, MAX_BYTES) or b"").decode("utf-8", "replace")
    except (SourceUnreadable, ValueError):
        return ""
