"""Git hooks that keep a workspace's index fresh: what installing and removing them changes in a repository.

As with clients' files, all is worked out before anything is written. `hook_places` says where hooks go, `hook_text`
what they say.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kiwi_rag.clients import hook_text
from kiwi_rag.clients.files import ClientFile, content
from kiwi_rag.clients.git import HOOKS_PATH, Repository
from kiwi_rag.clients.hook_places import FOLDER, HUSKY, active, every_place, place
from kiwi_rag.clients.refusals import ClientFileError, HooksRefused, Malformed

_SET_BY_KIWI = "kiwi.setHooksPath"
_HEAD = hook_text.HEAD.encode()


@dataclass(frozen=True, slots=True)
class HookPlan:
    """What installing or removing the hooks changes.

    Parameters
    ----------
    repository
        The repository.
    files
        Each hook that is to say something else, and its bytes to be; None: it is to go.
    hooks_path
        True: ``core.hooksPath`` is to be set to `FOLDER`; False: it is to be unset; None: it stays.
    left
        Hooks of Kiwi's that stay, because they are committed and git no longer runs them here.
    """

    repository: Repository
    files: Sequence[tuple[ClientFile, bytes | None]]
    hooks_path: bool | None = None
    left: Sequence[Path] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not self.files and self.hooks_path is None

    def carry_out(self) -> None:
        """Write it.

        Raises
        ------
        ClientFileError
            When a file cannot be written; a second run finishes.
        HooksRefused
            When git cannot write its configuration.
        """
        for file, after in self.files:
            file.write(after, 0o755)
        if self.hooks_path is not None:
            self.repository.set(HOOKS_PATH, FOLDER if self.hooks_path else None)
            self.repository.set(_SET_BY_KIWI, "true" if self.hooks_path else None)
        for folder in {file.path.parent for file, after in self.files if after is None and file.path.parent.exists()}:
            if folder.name == FOLDER and not any(folder.iterdir()):
                folder.rmdir()


def plan_install(root: Path, *, local: bool = False) -> HookPlan:
    """Return what makes git index `root`, a folder of a work tree, after merges, branch checkouts and rebases.

    `local`: in git's own folder, where no commit can change them.

    Raises
    ------
    HooksRefused
        When there is no work tree, or its hooks are such that Kiwi's lines would not run, would run for other
        repositories as well, or would set others going.
    """
    repository = Repository.at(root)
    folder, sets_path = place(repository, local)
    below = root.resolve().relative_to(repository.top).as_posix()
    files = {hook: _read(repository, folder / hook) for hook in hook_text.HOOKS}
    _refuse_idle(list(files.values()))
    if sets_path:
        _refuse_to_wake(folder)
    edited = [(file, _put(file, hook_text.block(hook, below))) for hook, file in files.items()]
    changes = [(file, after) for file, after in edited if after != file.data]
    return HookPlan(repository, changes, True if sets_path else None)


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
    for file in _kiwis(repository):
        rest = _taken(file)
        is_own = rest == _HEAD
        if unsets and is_own and file.path.parent == own and repository.tracks(file.path):
            left.append(file.path)
        else:
            changes.append((file, None if is_own else rest))
    return HookPlan(repository, changes, False if unsets else None, left)


def forget_runs(repository: Repository) -> None:
    """Remove what hooks left of their runs: the lock, the wish and the last run's log."""
    shutil.rmtree(repository.own / "kiwi", ignore_errors=True)


def _read(repository: Repository, path: Path) -> ClientFile:
    if not repository.holds(path):
        raise HooksRefused(f"{path} leads out of the repository", hint="put a file in the link's place")
    real = path.resolve()
    try:
        return ClientFile(real, content(real))
    except ClientFileError as error:
        raise HooksRefused(error.message, hint=error.hint) from error
    except OSError as error:
        raise HooksRefused(f"cannot read {path}: {error.strerror}", hint="check its owner and rights") from error


def _refuse_idle(files: Sequence[ClientFile]) -> None:
    """Refuse to add to hooks that git does not run, as their owner switched them off, or that are one file."""
    for file in files:
        if not (file.data is None or os.access(file.path, os.X_OK) or file.path.parent.name == HUSKY[0]):
            hint = f"chmod +x {file.path}, or move it away; then run this again"
            raise HooksRefused(f"{file.path} is not executable, so git does not run it", hint=hint)
        if [other.path for other in files].count(file.path) > 1:
            hint = "call kiwi from it yourself: kiwi workspace index"
            raise HooksRefused(f"{file.path} is several hooks at once, by links", hint=hint)


def _refuse_to_wake(folder: Path) -> None:
    """Refuse to set ``core.hooksPath`` to a folder with scripts that have not run here so far."""
    if others := _others(folder):
        raise HooksRefused(
            f"{FOLDER} has other hooks, which do not run in this clone: {', '.join(path.name for path in others)}",
            hint=f"read them; git config {HOOKS_PATH} {FOLDER} lets them run; then run this again",
        )


def _others(folder: Path) -> Sequence[Path]:
    """Return the hooks in a folder that are not, or not only, Kiwi's."""
    return [path for path in active(folder) if _taken(ClientFile(path, path.read_bytes())) != _HEAD]


def _kiwis(repository: Repository) -> Iterator[ClientFile]:
    """Find the hooks with lines of Kiwi's, in every place where a setup may have put them."""
    paths = {(folder / hook).resolve() for folder in every_place(repository) for hook in hook_text.HOOKS}
    for path in sorted(path for path in paths if path.is_file() and repository.holds(path)):
        file = _read(repository, path)
        if _taken(file) != file.data:
            yield file


def _put(file: ClientFile, lines: str) -> bytes:
    with _explained(file):
        return _bytes(hook_text.put(None if file.data is None else _text(file), lines))


def _taken(file: ClientFile) -> bytes:
    with _explained(file):
        return _bytes(hook_text.take(_text(file)))


@contextlib.contextmanager
def _explained(file: ClientFile) -> Iterator[None]:
    try:
        yield
    except Malformed as error:
        hint = "call kiwi from it yourself: kiwi workspace index; or mend it, and run this again"
        raise HooksRefused(f"{file.path}:{error.line}: {error.what}", hint=hint) from error


def _text(file: ClientFile) -> str:
    return (file.data or b"").decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
