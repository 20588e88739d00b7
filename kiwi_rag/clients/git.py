"""What git says of a repository, asked of git itself: where its work tree, its own folder and its hooks are."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from kiwi_rag.clients.refusals import HooksRefused

HOOKS_PATH = "core.hooksPath"


@dataclass(frozen=True, slots=True)
class Repository:
    """One work tree of a repository.

    Parameters
    ----------
    top
        The work tree's folder, links followed.
    common
        The folder that all work trees of the repository share: ``.git``, or a bare repository.
    own
        The folder that is this work tree's alone: `common`, or one in it.
    """

    top: Path
    common: Path
    own: Path

    @classmethod
    def at(cls, folder: Path) -> Repository:
        """Return the repository that a folder is in.

        Raises
        ------
        HooksRefused
            When it is in none, when it is in a bare one, which has no files to index, or when there is no git.
        """
        if _asked(folder, "rev-parse", "--is-bare-repository") == "true":
            raise HooksRefused(f"{folder} is a bare repository", hint="run this in one of its work trees")
        found = _git(folder, "rev-parse", "--show-toplevel", "--git-common-dir", "--absolute-git-dir")
        if found.returncode:
            why = found.stderr.removeprefix("fatal: ").partition("\n")[0]
            raise HooksRefused(f"{folder} is in no git work tree: {why}", hint="git init makes one")
        return cls(*((folder / line).resolve() for line in found.stdout.splitlines()))

    def hooks_path(self) -> str | None:
        """Return ``core.hooksPath`` as git sees it here, whichever file sets it, or None."""
        return self.setting("--type=path", HOOKS_PATH)

    def setting(self, *which: str) -> str | None:
        """Return a setting, or None where it is not set."""
        return _asked(self.top, "config", "--get", *which)

    def set(self, name: str, value: str | None) -> None:
        """Write a setting of this repository, or take it out."""
        change = ("--unset", name) if value is None else (name, value)
        done = _git(self.top, "config", "--local", *change)
        if done.returncode:
            raise HooksRefused(f"git could not set {name}: {done.stderr.strip()[:200]}", hint="run this again")

    def holds(self, path: Path) -> bool:
        """Return whether a path is of this repository: in the work tree, or in git's own folder."""
        real = path.resolve()
        return real.is_relative_to(self.top) or real.is_relative_to(self.common)

    def tracks(self, path: Path) -> bool:
        """Return whether a file is in the index, so that it is everybody's."""
        return _git(self.top, "ls-files", "--error-unmatch", "--", str(path)).returncode == 0


def _asked(folder: Path, *arguments: str) -> str | None:
    done = _git(folder, *arguments)
    return None if done.returncode else done.stdout.removesuffix("\n")


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-C", str(folder), *arguments]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="surrogateescape", check=False, env=_environment()
        )
    except FileNotFoundError as error:
        raise HooksRefused("there is no git on the PATH", hint="install git, and run this again") from error


def _environment() -> dict[str, str]:
    """Return the environment without what would point git at another repository than the folder's."""
    pointing = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX")
    return {name: value for name, value in os.environ.items() if name not in pointing} | {"LC_ALL": "C"}
