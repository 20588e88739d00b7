"""What is left out of a workspace: ``.gitignore`` and ``.kiwiignore`` files, and what no index is better for.

The patterns are git's (https://git-scm.com/docs/gitignore), read by pathspec. A file in a deeper folder goes before one
above it; within a folder ``.kiwiignore`` goes before ``.gitignore``, so ``!docs/generated/`` there brings back what git
leaves out. Nothing below a folder that is left out is looked at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kiwi_rag.errors import SourceUnreadable
from kiwi_rag.storage.safe_open import read_optional

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
class Ignoring:
    """The patterns that count in one folder: its own, and those of the folders above it, the deepest last.

    Each entry is a folder's path below the root (empty for the root itself) and the patterns that stand there.
    """

    levels: tuple[tuple[str, Any], ...]

    @classmethod
    def at_root(cls) -> Ignoring:
        """Return what counts before any pattern is read: what is left out by its name."""
        return cls(())

    def below(self, folder: Path, path: str) -> Ignoring:
        """Return what counts in a folder that lies at `path` below the root, its own patterns included.

        Raises
        ------
        SourceUnreadable
            When an ignore file is there and cannot be read or used: what it leaves out must not be indexed. One that
            is a link does not count, as it does not for git.
        """
        own = tuple((path, spec) for name in IGNORE_FILES if (spec := _read(folder / name)) is not None)
        return Ignoring((*self.levels, *own)) if own else self

    def leaves_out(self, path: str, *, is_folder: bool) -> bool:
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


def leaves_out_on_the_way(root: Path, path: str) -> bool:
    """Say whether the file at `path` below `root` is left out, itself or by a folder it stands in."""
    ignoring = Ignoring.at_root().below(root, "")
    steps = path.split("/")
    for depth in range(1, len(steps)):
        folder = "/".join(steps[:depth])
        if ignoring.leaves_out(folder, is_folder=True):
            return True
        ignoring = ignoring.below(root / folder, folder)
    return ignoring.leaves_out(path, is_folder=False)


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
