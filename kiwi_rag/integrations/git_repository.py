"""What git says of a repository: where its work tree, its own folder and its hooks are.

A repository that came as an archive, or is in another one as a folder of files, has a configuration of its own, and
git starts the programs that it names. `SAFE` and `safe_environment` prevent that: whoever starts git uses both.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from kiwi_rag.errors import KiwiError

SAFE = (
    "--no-pager",
    "-c", "core.fsmonitor=false",  # else a command that reads the index starts it
    "-c", "safe.bareRepository=explicit",  # else a folder of files that has the form of a repository is one
    "-c", "protocol.allow=never",
)  # fmt: skip
"""Options before git's command, with which it runs nothing that a repository names; `safe_environment` goes with it."""

_UNSET = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
)  # fmt: skip
# What ends a line, for git, for a shell or for Python, and other controls.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class HooksRefused(KiwiError):
    """Kiwi cannot add to the hooks of this repository; nothing was written."""

    code = "git-hooks"


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
            When it is in none, when it is in a bare one, which has no files to index, when its path has a line break
            or another control character, or when git is not installed.
        """
        _refuse_control(folder.resolve())
        bare = _git(folder, "rev-parse", "--is-bare-repository")
        if bare.stdout == "true\n" or "safe.bareRepository" in bare.stderr:
            raise HooksRefused(f"{folder} is a bare repository", hint="run this in one of its work trees")
        found = _git(folder, "rev-parse", "--show-toplevel", "--git-common-dir", "--absolute-git-dir")
        if found.returncode:
            why = found.stderr.removeprefix("fatal: ").partition("\n")[0]
            raise HooksRefused(f"{folder} is in no git work tree: {why}", hint="git init makes one")
        lines = found.stdout.removesuffix("\n").split("\n")
        if len(lines) != 3:  # core.worktree may name any folder
            raise HooksRefused(f"a folder of {folder}'s repository has a line break in its name", hint="rename it")
        return cls(*(_refuse_control((folder / line).resolve()) for line in lines))

    def setting(self, *which: str) -> str | None:
        """Return a setting, as ``git config --get`` names it, or None where it is not set."""
        done = _git(self.top, "config", "--get", *which)
        return None if done.returncode else done.stdout.removesuffix("\n")

    def set(self, name: str, value: str | None) -> None:
        """Write a setting of this repository, or remove it (None)."""
        done = _git(self.top, "config", "--local", *(("--unset", name) if value is None else (name, value)))
        if done.returncode:
            raise HooksRefused(f"git could not set {name}: {done.stderr.strip()[:200]}", hint="run this again")

    def holds(self, path: Path) -> bool:
        """Return whether a path is of this repository: in the work tree, or in git's own folder."""
        real = path.resolve()
        return real.is_relative_to(self.top) or real.is_relative_to(self.common)

    def tracks(self, path: Path) -> bool:
        """Return whether a file is in the index."""
        return _git(self.top, "ls-files", "--error-unmatch", "--", str(path)).returncode == 0


def safe_environment() -> dict[str, str]:
    """Return the environment for git: it uses the repository of the folder that it is given, and fetches nothing."""
    # An object that a partial clone lacks is fetched when it is read, by a program that the configuration names. A
    # repository may set protocol.NAME.allow, which is stronger than protocol.allow: the variable is stronger than both.
    # Newer versions of git need no protocol for that: GIT_NO_LAZY_FETCH forbids the fetch.
    nothing_fetched = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
    rest = {name: value for name, value in os.environ.items() if name not in _UNSET}
    return rest | nothing_fetched | {"LC_ALL": "C"}


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", *SAFE, "-C", str(folder), *arguments]
    environment = safe_environment()
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="surrogateescape", check=False, env=environment
        )
    except FileNotFoundError as error:
        raise HooksRefused("git is not on the PATH", hint="install git, and run this again") from error


def _refuse_control(path: Path) -> Path:
    """Return a path that can stand in a line of a script, and be shown."""
    shown = _CONTROL.sub("�", str(path))
    if shown != str(path):
        hint = "rename the folder, then run this again"
        raise HooksRefused(f"{shown} has a control character in its path", hint=hint)
    return path
