"""Which files a workspace has: every text file that no pattern leaves out, and no link that leads out of it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kiwi_rag.errors import KiwiError, NotFound, SourceUnreadable
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
    yield from _walk(root, root.resolve(), "", Ignoring.at_root())


def look(root: Path, path: str) -> FoundFile | NotWalked | None:
    """Return the file at one path below the root, as `walk` would, patterns aside; None when there is none."""
    try:
        entry = (root / path).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return NotWalked(path, _unreadable(path, error))
    if stat.S_ISLNK(entry.st_mode):
        return _link(root, root.resolve(), path)
    if not stat.S_ISREG(entry.st_mode) or _is_binary(path):
        return None
    return found(path, entry)


def found(path: str, entry: os.stat_result) -> FoundFile:
    """Return the file that a stat call tells of."""
    return FoundFile(path, entry.st_size, max(entry.st_mtime_ns, entry.st_ctime_ns))


def _walk(folder: Path, root: Path, base: str, above: Ignoring) -> Iterator[FoundFile | NotWalked]:
    try:
        ignoring = above.below(folder, base)
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except SourceUnreadable as error:
        yield NotWalked(base or ".", error)
        return
    except OSError as error:
        yield NotWalked(base or ".", _unreadable(base or ".", error))
        return
    for entry in entries:
        path = f"{base}/{entry.name}" if base else entry.name
        yield from _entry(entry, root, path, ignoring)


def _entry(entry: os.DirEntry[str], root: Path, path: str, ignoring: Ignoring) -> Iterator[FoundFile | NotWalked]:
    try:
        is_folder = entry.is_dir(follow_symlinks=False)
        if ignoring.leaves_out(path, is_folder=is_folder or entry.is_dir()):
            return
        if is_folder:
            yield from _walk(Path(entry.path), root, path, ignoring)
        elif entry.is_symlink():
            refused = _link(Path(entry.path[: -len(path) - 1]), root, path)
            if refused:
                yield refused
        elif entry.is_file(follow_symlinks=False) and not _is_binary(entry.name):
            yield found(path, entry.stat(follow_symlinks=False))
    except FileNotFoundError:  # deleted between listing and looking
        return
    except OSError as error:
        yield NotWalked(path, _unreadable(path, error))


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


def _unreadable(path: str, error: OSError) -> SourceUnreadable:
    return SourceUnreadable(f"cannot read {path}: {error.strerror or error}", hint="check the owner and the mode")
