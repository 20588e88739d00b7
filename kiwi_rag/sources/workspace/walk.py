"""Which files a workspace has: every text file that no pattern leaves out, and no link that leads out of it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kiwi_rag.errors import KiwiError, NotFound, SourceUnreadable
from kiwi_rag.signing.document_statement import MAX_PATH_CHARACTERS, is_nameable
from kiwi_rag.storage.safe_open import read_optional, unreadable

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
    ignoring = IgnoreRules.at_root()
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


def find_file(root: Path, path: str) -> FoundFile | NotWalked | None:
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
    above: IgnoreRules


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
    entry: os.DirEntry[str], root: Path, resolved: Path, path: str, ignoring: IgnoreRules
) -> FoundFile | NotWalked | _Folder | None:
    try:
        is_folder = entry.is_dir(follow_symlinks=False)
        if ignoring.ignores(path, is_folder=is_folder or entry.is_dir()):
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


IGNORE_FILES = (".gitignore", ".kiwiignore")
"""In the order in which they count, the last most."""
MAX_BYTES = 1 << 18
MAX_PATTERNS = 2_000
MAX_CHARACTERS = 1_024
MAX_STARS = 3
"""Of one step of a path: matching takes the name's length to this power."""
_STARS = re.compile(r"(?<=[^*/])\*{2,}|\*{2,}(?=[^*/])|\*{3,}")

NEVER = frozenset({".git", ".hg", ".svn", ".ai"})
"""Folders that no pattern brings back: what versions keep, and the tier of items, which is an index of its own."""

# Left out unless a pattern brings it back. By name and not by pathspec, which tries forty patterns one after the other:
# that would be half of the time of a run over files that have not changed.
_FOLDERS = frozenset(
    {
        "node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".tox",
        ".gradle", ".idea", ".vscode", ".githooks", ".terraform", ".vector-db",
    }
)  # fmt: skip
_FILES = re.compile(
    r"\.DS_Store|\.env(?:\..*)?|\.gitignore|\.kiwiignore|\.gitattributes|package-lock\.json|npm-shrinkwrap\.json"
    r"|(?:yarn|poetry|uv|Pipfile|Cargo|composer|Gemfile)\.lock|pnpm-lock\.yaml|go\.sum"
    r"|.*\.(?:min\.js|min\.css|map|svg|csv|tsv|snap|log|sig|pem|key)"
)


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The patterns that count in one folder: its own, and those of the folders above it, the deepest last.

    Each entry is a folder's path below the root (empty for the root itself) and the patterns that stand there.
    """

    levels: tuple[tuple[str, Any], ...]

    @classmethod
    def at_root(cls) -> IgnoreRules:
        """Return what counts before any pattern is read: what is left out by its name."""
        return cls(())

    def below(self, folder: Path, path: str) -> IgnoreRules:
        """Return what counts in a folder that lies at `path` below the root, its own patterns included.

        Raises
        ------
        SourceUnreadable
            When an ignore file is there and cannot be read or used: what it leaves out must not be indexed. One that
            is a link does not count, as it does not for git.
        """
        own = tuple((path, spec) for name in IGNORE_FILES if (spec := _read(folder / name)) is not None)
        return IgnoreRules((*self.levels, *own)) if own else self

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Say whether a file or folder at `path` below the root is left out; of two patterns the later one counts."""
        name = path.rpartition("/")[2]
        if is_folder and name in NEVER:
            return True
        for base, spec in reversed(self.levels):
            own = path[len(base) + 1 :] if base else path
            said = spec.check_file(f"{own}/" if is_folder else own).include
            if said is not None:
                return bool(said)
        return name in _FOLDERS if is_folder else _FILES.fullmatch(name) is not None


def is_path_ignored(root: Path, path: str) -> bool:
    """Say whether the file at `path` below `root` is left out, itself or by a folder it stands in."""
    ignoring = IgnoreRules.at_root().below(root, "")
    steps = path.split("/")
    for depth in range(1, len(steps)):
        folder = "/".join(steps[:depth])
        if ignoring.ignores(folder, is_folder=True):
            return True
        ignoring = ignoring.below(root / folder, folder)
    return ignoring.ignores(path, is_folder=False)


def _spec(text: str, path: Path) -> Any:
    from pathspec import GitIgnoreSpec

    patterns = [_STARS.sub("*", line) for line in text.split("\n") if line.strip() and not line.startswith("#")]
    if len(patterns) > MAX_PATTERNS or any(_is_costly(pattern) for pattern in patterns):
        hint = f"up to {MAX_PATTERNS} patterns, each with up to {MAX_STARS} '*' between two slashes"
        raise SourceUnreadable(f"{path} holds patterns that take too long to match", hint=hint)
    return GitIgnoreSpec.from_lines(patterns)


def _is_costly(pattern: str) -> bool:
    return len(pattern) > MAX_CHARACTERS or any(step.count("*") > MAX_STARS for step in pattern.split("/"))


def _read(path: Path) -> Any:
    data = read_optional(path, MAX_BYTES)
    return None if data is None else _spec(data[:MAX_BYTES].decode("utf-8", "replace"), path)
