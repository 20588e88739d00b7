"""The files of a workspace as a source of documents: every text file that no pattern ignores.

Links out of the workspace are not followed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from kiwi_rag.errors import KiwiError, NotFound, SourceUnreadable
from kiwi_rag.formats.documents.includes import MAX_INCLUDED_BYTES, find_includes
from kiwi_rag.model import ItemRef
from kiwi_rag.signing.statement import MAX_PATH_CHARACTERS, is_nameable
from kiwi_rag.sources.source import FoundFile, Source, SourceContent, SyncReport, named_paths
from kiwi_rag.sources.workspace.config import WorkspaceConfig, head_commit
from kiwi_rag.storage.safe_open import read_below, read_optional, unreadable
from kiwi_rag.validation.document_gate import DocumentFile


@dataclass(frozen=True)
class WorkspaceSource(Source):
    """The files of a workspace. ``max_bytes`` is how large one may be; more is not read.

    A file that is ignored now is removed from the index like one that was deleted.
    """

    workspace: WorkspaceConfig
    max_bytes: int

    @property
    def rules(self) -> Sequence[object]:
        """Return the settings that the labels of documents are from."""
        return sorted(self.workspace.domains.items()), sorted(self.workspace.services.items())

    @cached_property
    def commit(self) -> str:
        """The commit that is checked out when the first file is read; empty outside of a git repository."""
        return head_commit(self.workspace.root)

    def check(self) -> None:
        """Raise `NotFound` when the root does not exist."""
        _check_root(self.workspace.root)

    def find(self, paths: Sequence[str] | None, indexed: Sequence[str], report: SyncReport) -> Iterator[FoundFile]:
        """Yield the files that are no binaries and that no pattern ignores; report why a path gives none."""
        root = self.workspace.root
        if paths is None:
            yield from walk(root, failed=report.failed)
            return
        for path in dict.fromkeys(paths):
            if is_path_ignored(root, path):
                report.skipped[path] = "left out, by .kiwiignore, .gitignore or its name"
            elif (root / path).is_dir():
                yield from walk(root, path, report.failed)
            elif file := find_file(root, path, report.failed):
                yield file
            elif path not in report.failed and not named_paths([path], indexed):
                report.skipped[path] = "there is no such file that is text"

    def path_of(self, ref: ItemRef) -> str:
        """Return the path of a document, which is its id."""
        return ref.item_id

    def read(self, path: str) -> SourceContent:
        """Return a file's bytes, and the labels that are not from them."""
        data, entry = read_below(self.workspace.resolved, path, self.max_bytes)
        modified = datetime.fromtimestamp(int(entry.st_mtime), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        service = self.workspace.service_of(path)
        labels = {"last_modified": modified, "git_commit": self.commit, "service": service}
        changed_ns = max(entry.st_mtime_ns, entry.st_ctime_ns)
        file = DocumentFile(path, data, labels, self._included(path, data))
        # The times of a file do not tell whether one that it includes has changed.
        return SourceContent(file, file.sha256, "", entry.st_size, 0 if file.included else changed_ns)

    def _included(self, path: str, data: bytes) -> Mapping[str, bytes]:
        """Return the files that a document includes: text below the root that no pattern ignores, not through links."""
        if b"literalinclude::" not in data and b"{*" not in data and b"{!" not in data:
            return {}
        included: dict[str, bytes] = {}
        for include in find_includes(path, data.decode("utf-8", "replace")):
            for name in include.paths:
                with suppress(FileNotFoundError, SourceUnreadable):
                    found, _ = read_below(self.workspace.resolved, name, MAX_INCLUDED_BYTES)
                    is_text = len(found) <= MAX_INCLUDED_BYTES and b"\0" not in found and is_nameable(name)
                    if is_text and not is_path_ignored(self.workspace.root, name):
                        included[name] = found
                    break
        return included


# Binary by their suffix. Of any other file the content decides, when it is read.
_BINARY = re.compile(
    r"\.(?:7z|a|avi|avif|bin|bmp|bz2|class|dll|dmg|docx?|dylib|ear|eot|exe|flac|gif|gz|ico|icns|iso|jar|jpe?g|jks"
    r"|keystore|lib|mkv|mov|mp3|mp4|o|obj|odt|ogg|onnx|otf|pdf|png|pptx?|psd|py[co]|rar|safetensors|so|sqlite3?|tar"
    r"|tgz|tiff?|ttf|war|wasm|wav|webm|webp|woff2?|xlsx?|xz|zip|zst)",
    re.IGNORECASE,
)


def _check_root(root: Path) -> None:
    if not root.is_dir():
        raise NotFound(f"{root} is no folder", hint="name the workspace's root: kiwi workspace index ROOT")


def walk(root: Path, path: str = "", failed: dict[str, KiwiError] | None = None) -> Iterator[FoundFile]:
    """Yield the files of a workspace, or below one of its folders, in the order of their paths.

    `failed` gets path → error for each entry that could not be read. Patterns do not apply to the folder itself. Links
    to targets inside the root are skipped, because the targets are found under their own paths.

    Raises
    ------
    NotFound
        When the root does not exist: a missing workspace must not be taken for an empty one.
    """
    _check_root(root)
    failed, rules = {} if failed is None else failed, IgnoreRules()
    for step in _steps(path)[:-1]:
        rules = rules.below(root / step, step)
    # A stack and no recursion: folders may be nested deeper than Python's recursion limit.
    stack: list[FoundFile | _Folder] = [_Folder(path, rules)]
    while stack:
        entry = stack.pop()
        if isinstance(entry, FoundFile):
            yield entry
            continue
        with _recording(entry.path, failed):
            stack += reversed(list(_entries(root, entry, failed)))


def find_file(root: Path, path: str, failed: dict[str, KiwiError]) -> FoundFile | None:
    """Return the file at one path below the root, as `walk` does but without patterns; None when there is none."""
    with _recording(path, failed), suppress(NotADirectoryError, ValueError):
        return _file(root, path, (root / path).lstat())
    return None


@contextmanager
def _recording(path: str, failed: dict[str, KiwiError]) -> Iterator[None]:
    """Record why the entry at a path cannot be read, except for one that does not exist any more."""
    try:
        yield
    except FileNotFoundError:
        pass
    except SourceUnreadable as error:
        failed[_shown(path)] = error
    except OSError as error:
        failed[_shown(path)] = unreadable(_shown(path), error)


def _shown(path: str) -> str:
    if not path or is_nameable(path):
        return path or "."
    return path.encode("unicode_escape", "replace").decode("ascii")[:MAX_PATH_CHARACTERS]


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder that is still to be listed, and the rules of the folders above it."""

    path: str
    above: IgnoreRules


def _steps(path: str) -> list[str]:
    """Return the folders above a path, the root first, and the path itself."""
    steps = path.split("/") if path else []
    return ["", *("/".join(steps[:depth]) for depth in range(1, len(steps) + 1))]


def _entries(root: Path, folder: _Folder, failed: dict[str, KiwiError]) -> Iterator[FoundFile | _Folder]:
    base = folder.path
    rules = folder.above.below(root / base, base)
    with os.scandir(root / base) as listed:
        entries = sorted(listed, key=lambda entry: entry.name)
    for entry in entries:
        path = f"{base}/{entry.name}" if base else entry.name
        with _recording(path, failed):
            if found := _inspect(entry, root, path, rules):
                yield found


def _inspect(entry: os.DirEntry[str], root: Path, path: str, rules: IgnoreRules) -> FoundFile | _Folder | None:
    is_folder = entry.is_dir(follow_symlinks=False)
    if rules.ignores(path, is_folder=is_folder or entry.is_dir()):
        return None
    if is_folder and is_nameable(path):
        return _Folder(path, rules)
    return _file(root, path, entry.stat(follow_symlinks=False))


def _file(root: Path, path: str, entry: os.stat_result) -> FoundFile | None:
    if not is_nameable(path):
        shown = _shown(path)
        raise SourceUnreadable(f"{shown} has a name with characters that cannot be displayed", hint="rename it")
    if stat.S_ISLNK(entry.st_mode):
        _check_link(root, path)
    if not stat.S_ISREG(entry.st_mode) or _is_binary(path):
        return None
    return FoundFile(path, entry.st_size, max(entry.st_mtime_ns, entry.st_ctime_ns))


def _check_link(root: Path, path: str) -> None:
    try:
        target = (root / path).resolve()
    except (OSError, RuntimeError):  # a loop of links
        target = Path("/")
    if not target.is_relative_to(root.resolve()):
        hint = "index its target as a separate workspace, or add the link to .kiwiignore"
        raise SourceUnreadable(f"{path} is a link out of the workspace, which is not followed", hint=hint)


def _is_binary(path: str) -> bool:
    dot = path.rfind(".")
    return dot >= 0 and _BINARY.fullmatch(path, dot) is not None


IGNORE_FILES = (".gitignore", ".kiwiignore")
"""In ascending order of precedence."""
MAX_BYTES = 1 << 18
MAX_PATTERNS = 2_000
MAX_CHARACTERS = 1_024
MAX_STARS = 3
"""Wildcards in one segment of a pattern: matching a name of length n takes n to this power."""
_STARS = re.compile(r"(?<=[^*/])\*{2,}|\*{2,}(?=[^*/])|\*{3,}")

NEVER = frozenset({".git", ".hg", ".svn", ".ai"})
"""Folders that no pattern can include: those of version control, and the project tier, which is indexed separately."""

# Ignored unless a pattern includes them. Compared by name and not by pathspec, which tries forty patterns in turn: that
# would be half of the time of a run over unchanged files.
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
    """The patterns that apply in one folder: its own, and those of the folders above it, the deepest last.

    Each entry is a folder's path below the root (empty for the root itself) and the patterns of a file there.
    """

    levels: tuple[tuple[str, Any], ...] = ()

    def below(self, folder: Path, path: str) -> IgnoreRules:
        """Return the rules of the folder at `path` below the root, its own patterns included.

        Raises
        ------
        SourceUnreadable
            When an ignore file exists and cannot be read or used: what it ignores must not be indexed. An ignore file
            that is a link has no effect, as in git.
        """
        new = tuple((path, spec) for name in IGNORE_FILES if (spec := _read(folder / name)) is not None)
        return IgnoreRules((*self.levels, *new)) if new else self

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """Whether a file or folder at `path` below the root is ignored; of two patterns the later one decides."""
        name = path.rpartition("/")[2]
        if is_folder and name in NEVER:
            return True
        for base, spec in reversed(self.levels):
            relative = path[len(base) + 1 :] if base else path
            ignored = spec.check_file(f"{relative}/" if is_folder else relative).include
            if ignored is not None:
                return bool(ignored)
        return name in _FOLDERS if is_folder else _FILES.fullmatch(name) is not None


def is_path_ignored(root: Path, path: str) -> bool:
    """Whether the file at `path` below `root` is ignored, itself or by one of its folders."""
    rules = IgnoreRules()
    for folder in _steps(path)[:-1]:
        if folder and rules.ignores(folder, is_folder=True):
            return True
        rules = rules.below(root / folder, folder)
    return rules.ignores(path, is_folder=False)


def _read(path: Path) -> Any:
    """Return the patterns of an ignore file; None where there is none."""
    data = read_optional(path, MAX_BYTES)
    if data is None:
        return None
    from pathspec import GitIgnoreSpec

    # Several stars in a row match what one does and cost more, so they are merged before the check.
    lines = data[:MAX_BYTES].decode("utf-8", "replace").split("\n")
    patterns = [_STARS.sub("*", line) for line in lines if line.strip() and not line.startswith("#")]
    if len(patterns) > MAX_PATTERNS or any(map(_is_costly, patterns)):
        hint = f"use up to {MAX_PATTERNS} patterns, each with up to {MAX_STARS} '*' between two slashes"
        raise SourceUnreadable(f"{path} holds patterns that take too long to match", hint=hint)
    return GitIgnoreSpec.from_lines(patterns)


def _is_costly(pattern: str) -> bool:
    return len(pattern) > MAX_CHARACTERS or any(step.count("*") > MAX_STARS for step in pattern.split("/"))
