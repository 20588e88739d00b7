"""Git, and its hooks that update a workspace's index: which lines are added to which files, and how they are removed.

Where the hooks are:

1. Where ``core.hooksPath`` is set, git runs hooks of that folder alone: Kiwi adds its lines to those.
2. Where it is not set, but git's own folder has hooks, setting it would stop these: Kiwi adds its lines to them.
3. Else they are in ``.githooks``, to be committed for everybody, and ``core.hooksPath`` is to be set to it.

Kiwi's lines are between two marks, below the first line of the script. They are above the user's own lines, because a
hook may end early (``exec``, ``exit``), and change nothing for those: no variable, no shell option, no exit status.

A repository that came as an archive, or is in another one as a folder of files, has a configuration of its own, and
git starts the programs that it names. `SAFE` and `safe_environment` prevent that: whoever starts git uses both.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from kiwi_rag.errors import KiwiError
from kiwi_rag.integrations.client_files import ClientFile, FileChange
from kiwi_rag.integrations.config_edit import Malformed, ManagedBlock

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


class HooksRefused(KiwiError, code="git-hooks"):
    """Kiwi cannot add to the hooks of this repository; nothing was written."""


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
        folders = "--show-toplevel", "--git-common-dir", "--absolute-git-dir"
        found = _git(folder, "rev-parse", "--is-bare-repository", *folders)
        if found.stdout.startswith("true\n") or "safe.bareRepository" in found.stderr:
            raise HooksRefused(f"{folder} is a bare repository", hint="run this in one of its work trees")
        if found.returncode:
            why = found.stderr.removeprefix("fatal: ").partition("\n")[0]
            raise HooksRefused(f"{folder} is in no git work tree: {why}", hint="git init makes one")
        _, *lines = found.stdout.removesuffix("\n").split("\n")
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

    def read(self, path: Path) -> ClientFile:
        """Read a file, to which links may lead from within this repository only; see `ClientFile.read`."""
        return ClientFile.read(path, [self.top, self.common])

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
    env = safe_environment()
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="surrogateescape", check=False, env=env)
    except FileNotFoundError as error:
        raise HooksRefused("git is not on the PATH", hint="install git, and run this again") from error


def _refuse_control(path: Path) -> Path:
    """Return a path that can stand in a line of a script, and be shown."""
    shown = _CONTROL.sub("�", str(path))
    if shown != str(path):
        hint = "rename the folder, then run this again"
        raise HooksRefused(f"{shown} has a control character in its path", hint=hint)
    return path


FOLDER = ".githooks"
HEAD = "#!/bin/sh\n# Made by `kiwi workspace hooks`; lines of yours may follow the marked ones.\n"
# When each hook has something to index. Git names a checkout's kind (1: of a branch) and what rewrote commits.
CONDITIONS = {"post-checkout": '[ "${3-}" = 1 ] && ', "post-merge": "", "post-rewrite": '[ "${1-}" = rebase ] && '}
HOOKS_PATH = "core.hooksPath"
_SET_BY_KIWI = "kiwi.setHooksPath"
_HUSKY = (".husky", "_")  # Husky overwrites this folder, and runs the scripts in the folder above it.
_SHELLS = {"sh", "ash", "bash", "busybox", "dash", "ksh", "mksh", "zsh"}

# A hook that starts while another one runs leaves a request (the file `again`) and ends. The running one checks for
# requests after each run, when the lock is free, so none is lost. The lock names the process that holds it: a lock of a
# process that was killed is removed.
_LINES = Path(__file__).with_name("git_hook.sh").read_text(encoding="utf-8").removesuffix("\n")


class HookBlock(ManagedBlock):
    """Kiwi's lines in the script of a hook."""

    def inserted(self, text: str) -> str:
        """Return a script with the lines below its first one; raise `Malformed` where it is not for a shell."""
        first, ends, rest = text.partition("\n")
        if not first.startswith("#!"):  # git, as a shell, hands such a file to sh
            return f"{self.lines}\n{text}"
        words = [PurePath(word).name.removesuffix(".exe") for word in first[2:].split()]
        if words[:1] == ["env"]:
            words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        if not words or words[0] not in _SHELLS:
            raise Malformed(f"it is not a shell script: {first[:80]}")
        return f"{first}\n{self.lines}\n{rest}" if ends else f"{first}\n{self.lines}"

    def edited(self, file: ClientFile, *, remove: bool = False) -> bytes:
        """Return a hook's bytes with the lines in it, or without them."""
        text = (file.data or b"").decode("utf-8", "surrogateescape")
        try:
            after = self.take(text) if remove else f"{HEAD}{self.lines}\n" if file.data is None else self.put(text)
        except Malformed as error:
            hint = "call kiwi from it yourself: kiwi workspace index; or repair it, and run this again"
            raise HooksRefused(f"{file.path}:{error.line}: {error.what}", hint=hint) from error
        return after.encode("utf-8", "surrogateescape")


def hook_block(hook: str, root: str = ".") -> HookBlock:
    """Return the lines of a hook that index `root`, a path below the work tree's folder, in the background."""
    return HookBlock(_LINES.replace("{condition}", CONDITIONS[hook]).replace("{root}", shlex.quote(root)))


_ANY = HookBlock("# kiwi")  # to find and remove the lines of any hook


@dataclass(frozen=True, slots=True)
class HookPlan:
    """What installing or removing the hooks changes.

    Parameters
    ----------
    repository
        The repository.
    changes
        The hooks that are to be changed.
    hooks_path
        True: ``core.hooksPath`` is to be set to `FOLDER`; False: it is to be unset; None: it stays.
    left
        Hooks of Kiwi's that stay, because they are committed and git no longer runs them here.
    """

    repository: Repository
    changes: Sequence[FileChange]
    hooks_path: bool | None = None
    left: Sequence[Path] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not self.changes and self.hooks_path is None

    def apply(self) -> None:
        """Write it; a second run finishes one that fails.

        Raises
        ------
        ClientFileError, HooksRefused
            When a file cannot be written, or git cannot write its configuration.
        """
        for change in self.changes:
            change.apply(0o755)
        if self.hooks_path is not None:
            self.repository.set(HOOKS_PATH, FOLDER if self.hooks_path else None)
            self.repository.set(_SET_BY_KIWI, "true" if self.hooks_path else None)
        own = self.repository.top / FOLDER
        if any(change.after is None for change in self.changes) and own.is_dir() and not any(own.iterdir()):
            own.rmdir()


def plan_install(root: Path, *, local: bool = False) -> HookPlan:
    """Return what makes git index `root`, a folder of a work tree, after merges, branch checkouts and rebases.

    `local`: in git's own folder, where no commit can change them.

    Raises
    ------
    HooksRefused
        When there is no work tree, or when Kiwi's lines would not run, would run for other repositories as well, or
        would make other hooks run.
    """
    repository = Repository.at(root)
    folder, sets_path = _folder(repository, local)
    files = {hook: repository.read(folder / hook) for hook in CONDITIONS}
    _refuse_not_run(list(files.values()))
    if sets_path and (others := _others(folder)):
        raise HooksRefused(
            f"{FOLDER} has other hooks, which do not run in this clone: {', '.join(path.name for path in others)}",
            hint=f"read them; git config {HOOKS_PATH} {FOLDER} lets them run; then run this again",
        )
    below = root.resolve().relative_to(repository.top).as_posix()
    changes = [FileChange(file, hook_block(hook, below).edited(file)) for hook, file in files.items()]
    return HookPlan(repository, [change for change in changes if change.after != change.file.data], sets_path or None)


def plan_removal(root: Path) -> HookPlan:
    """Return what takes Kiwi's lines out of a repository's hooks again.

    Raises
    ------
    HooksRefused
        When there is no work tree, or marks in a hook are not one pair.
    """
    repository = Repository.at(root)
    own = repository.top / FOLDER
    was_set = repository.setting("--local", _SET_BY_KIWI) and repository.setting("--local", HOOKS_PATH) == FOLDER
    unsets = bool(was_set) and not _others(own)
    changes, left = [], []
    for file in _installed(repository):
        rest = _ANY.edited(file, remove=True)
        is_own = rest == HEAD.encode()
        if unsets and is_own and file.path.parent == own and repository.tracks(file.path):
            left.append(file.path)
        else:
            changes.append(FileChange(file, None if is_own else rest))
    return HookPlan(repository, changes, False if unsets else None, left)


def remove_run_files(repository: Repository) -> None:
    """Remove what hooks left of their runs: the lock, the request for another run and the last run's log."""
    shutil.rmtree(repository.own / "kiwi", ignore_errors=True)


def _folder(repository: Repository, local: bool) -> tuple[Path, bool]:
    """Return the folder for the hooks, and whether ``core.hooksPath`` is to be set to it."""
    inner, configured = repository.common / "hooks", repository.setting("--type=path", HOOKS_PATH)
    if configured is None:
        return (inner, False) if local or _active(inner) else (repository.top / FOLDER, True)
    folder = _configured(repository, configured)
    if local and folder.resolve() != inner.resolve():
        what, hint = "git runs no hooks of other folders", "run this without --local"
    elif not configured or not repository.holds(folder):
        what = "which is not in this repository: hooks there are not this one's alone"
        hint = f"give this repository its own first: git config {HOOKS_PATH} {FOLDER}; then run this again"
    else:
        return folder, False
    raise HooksRefused(f"{HOOKS_PATH} is {configured!r}, {what}", hint=hint)


def _configured(repository: Repository, value: str) -> Path:
    folder = repository.top / value
    return folder.parent if folder.parts[-2:] == _HUSKY else folder


def _active(folder: Path) -> Sequence[Path]:
    """Return the hooks in a folder that git would run."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in found if path.is_file() and path.suffix != ".sample" and os.access(path, os.X_OK)]


def _others(folder: Path) -> Sequence[Path]:
    """Return the hooks in a folder that are not, or not only, Kiwi's."""
    found = ((path, ClientFile(path, path.read_bytes())) for path in _active(folder))
    return [path for path, file in found if _ANY.edited(file, remove=True) != HEAD.encode()]


def _installed(repository: Repository) -> Sequence[ClientFile]:
    """Return the hooks with lines of Kiwi's, from every folder where an installation may have put them."""
    configured = repository.setting("--type=path", HOOKS_PATH)
    folders = [repository.top / FOLDER, repository.common / "hooks"]
    folders += [_configured(repository, configured)] if configured else []
    paths = {(folder / hook).resolve() for folder in folders for hook in CONDITIONS}
    files = [repository.read(path) for path in sorted(paths) if path.is_file() and repository.holds(path)]
    return [file for file in files if _ANY.edited(file, remove=True) != file.data]


def _refuse_not_run(files: Sequence[ClientFile]) -> None:
    """Refuse to add to hooks that git does not run, because they are not executable, or that are one file."""
    for file in files:
        if not (file.data is None or os.access(file.path, os.X_OK) or file.path.parent.name == _HUSKY[0]):
            hint = f"chmod +x {file.path}, or move it away; then run this again"
            raise HooksRefused(f"{file.path} is not executable, so git does not run it", hint=hint)
        if [other.path for other in files].count(file.path) > 1:
            hint = "call kiwi from it yourself: kiwi workspace index"
            raise HooksRefused(f"{file.path} is several hooks at once, by links", hint=hint)
