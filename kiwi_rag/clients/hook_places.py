"""Where a repository keeps its hooks.

1. Where ``core.hooksPath`` is set, hooks are there and nowhere else: Kiwi adds its lines to those.
2. Where it is not, but git's own folder has hooks, these would fall silent if it were set: Kiwi adds its lines to them.
3. Else hooks go to ``.githooks``, to be committed for everybody, and ``core.hooksPath`` is to be set to it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kiwi_rag.clients.git import HOOKS_PATH, Repository
from kiwi_rag.clients.refusals import HooksRefused

FOLDER = ".githooks"
HUSKY = (".husky", "_")
"""Husky makes that folder anew each time, and runs the scripts in the one above it, executable or not."""


def place(repository: Repository, local: bool) -> tuple[Path, bool]:
    """Return the folder for the hooks, and whether ``core.hooksPath`` is to be set to it."""
    inner, configured = repository.common / "hooks", repository.hooks_path()
    if configured is None:
        return (inner, False) if local or active(inner) else (repository.top / FOLDER, True)
    folder = _configured(repository, configured)
    if local and folder.resolve() != inner.resolve():
        raise HooksRefused(
            f"{HOOKS_PATH} is {configured!r}: git looks for hooks nowhere else", hint="run this without --local"
        )
    if not configured or not repository.holds(folder):
        raise HooksRefused(
            f"{HOOKS_PATH} is {configured!r}, which is not in this repository: hooks there are not this one's alone",
            hint=f"give this repository its own first: git config {HOOKS_PATH} {FOLDER}; then run this again",
        )
    return folder, False


def every_place(repository: Repository) -> Sequence[Path]:
    """Return all folders in which a setup may have put hooks."""
    configured = repository.hooks_path()
    given = [_configured(repository, configured)] if configured else []
    return [repository.top / FOLDER, repository.common / "hooks", *given]


def active(folder: Path) -> Sequence[Path]:
    """Return the hooks in a folder that git would run."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in found if path.is_file() and path.suffix != ".sample" and os.access(path, os.X_OK)]


def _configured(repository: Repository, value: str) -> Path:
    folder = repository.top / value
    return folder.parent if folder.parts[-2:] == HUSKY else folder
