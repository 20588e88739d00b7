"""Which files a workspace has: every text file that no pattern leaves out, and no link that leads out of it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kiwi_rag.errors import KiwiError, NotFound, SourceUnreadable
from kiwi_rag.signing.documents import MAX_PATH_CHARACTERS, is_nameable
from kiwi_rag.storage.safe_open import unreadable
from kiwi_rag.workspace.ignoring import Ignoring

# By their suffixes no text; anything else is looked into before it is believed to be text.
_BINARY = re.compile(
    r"\.(?:7z|a|avi|avif|bin|bmp|bz2|class|dll|dmg|docx?|dylib|ear|eot|exe|flac|gif|gz|ico|icns|iso|jar|jpe?g|jks"
    r"|keystore|lib|mkv|mov|mp3|mp4|o|obj|odt|ogg|onnx|otf|pdf|png|pptx?|psd|py[co]|rar|safetensors|so|sqlite3?|tar"
    r"|tgz|tiff?|ttf|war|wasm|wav|webm|webp|woff2?|xlsx?|xz|zip|zst)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that is to be indexed: its path below the root, its size in bytes, and when it last changed.

    ``changed_ns`` is the later of the times at which its content and its entry changed: an editor can set the first
    back, nobody the second. Nanoseconds since 1970.
    """

    path: str
    size: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class NotWalked:
    """What stands below the root and is not followed or cannot be listed, and why."""

    path: str
    error: KiwiError


def walk(root: Path) -> Iterator[FoundFile | NotWalked]:
    """Yield the files of a workspace in the order of their paths, and what could not be walked.

    Links to files inside the root are passed over, for what they lead to is found where it is.

    Raises
    ------
    NotFound
        When the root is not there: a workspace that cannot be seen is not empty.
    """
    if not root.is_dir():
        raise NotFound(f"{root} is no folder", hint="name the workspace's root: kiwi workspace index ROOT")
    yield from walk_below(root, "")


def walk_below(root: Path, path: str) -> Iterator[FoundFile | NotWalked]:
    """Yield the files below one folder of a workspace, as `walk` does; the folder itself is not held against patterns.

    A stack, and no recursion: folders may be nested as deep as a file system lets them.
    """
    resolved = root.resolve()
    ignoring = Ignoring.at_root()
    for step in _steps(path)[:-1]:
        ignoring = ignoring.below(root / step, step)
    stack: list[_Open] = [iter([_Folder(path, ignoring)])]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
        elif isinstance(entry, _Folder):
            stack.append(_entries(root, resolved, entry))
        else:
            yield entry


def look(root: Path, path: str) -> FoundFile | NotWalked | None:
    """Return the file at one path below the root, as `walk` would, patterns aside; None when there is none."""
    if not is_nameable(path):
        return _unnameable(path)
    try:
        entry = (root / path).lstat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        return NotWalked(path, unreadable(path, error))
    if stat.S_ISLNK(entry.st_mode):
        return _link(root, root.resolve(), path)
    if not stat.S_ISREG(entry.st_mode) or _is_binary(path):
        return None
    return found(path, entry)


def found(path: str, entry: os.stat_result) -> FoundFile:
    """Return the file that a stat call tells of."""
    return FoundFile(path, entry.st_size, max(entry.st_mtime_ns, entry.st_ctime_ns))


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder that is still to be listed, and what counts in those above it."""

    path: str
    above: Ignoring


_Open = Iterator["FoundFile | NotWalked | _Folder"]


def _steps(path: str) -> list[str]:
    """Return the folders on the way to a path, the root first, and the path itself."""
    steps = path.split("/") if path else []
    return ["", *("/".join(steps[:depth]) for depth in range(1, len(steps) + 1))]


def _entries(root: Path, resolved: Path, folder: _Folder) -> _Open:
    base = folder.path
    try:
        ignoring = folder.above.below(root / base, base)
        with os.scandir(root / base) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except SourceUnreadable as error:
        yield NotWalked(base or ".", error)
        return
    except OSError as error:
        yield NotWalked(base or ".", unreadable(base or ".", error))
        return
    for entry in entries:
        path = f"{base}/{entry.name}" if base else entry.name
        found = _seen(entry, root, resolved, path, ignoring)
        if found is not None:
            yield found


def _seen(
    entry: os.DirEntry[str], root: Path, resolved: Path, path: str, ignoring: Ignoring
) -> FoundFile | NotWalked | _Folder | None:
    try:
        is_folder = entry.is_dir(follow_symlinks=False)
        if ignoring.leaves_out(path, is_folder=is_folder or entry.is_dir()):
            return None
        if is_folder and is_nameable(path):
            return _Folder(path, ignoring)
        return _file(entry, root, resolved, path)
    except FileNotFoundError:  # deleted between listing and looking
        return None
    except OSError as error:
        return NotWalked(path, unreadable(path, error))


def _file(entry: os.DirEntry[str], root: Path, resolved: Path, path: str) -> FoundFile | NotWalked | None:
    if not is_nameable(path):
        return _unnameable(path)
    if entry.is_symlink():
        return _link(root, resolved, path)
    if entry.is_file(follow_symlinks=False) and not _is_binary(entry.name):
        return found(path, entry.stat(follow_symlinks=False))
    return None


def _unnameable(path: str) -> NotWalked:
    shown = path.encode("unicode_escape", "replace").decode("ascii")[:MAX_PATH_CHARACTERS]
    error = SourceUnreadable(f"{shown} has a name that cannot be shown", hint="rename it")
    return NotWalked(shown, error)


def _link(root: Path, resolved: Path, path: str) -> NotWalked | None:
    try:
        target = (root / path).resolve()
    except (OSError, RuntimeError):  # a circle
        target = Path("/")
    if target.is_relative_to(resolved):
        return None
    hint = "index the folder that it leads to as a workspace of its own, or name the link in .kiwiignore"
    return NotWalked(path, SourceUnreadable(f"{path} is a link out of the workspace, which is not followed", hint=hint))


def _is_binary(path: str) -> bool:
    dot = path.rfind(".")
    return dot >= 0 and _BINARY.fullmatch(path, dot) is not None
