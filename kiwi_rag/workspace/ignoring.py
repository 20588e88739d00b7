"""What is left out of a workspace: ``.gitignore`` and ``.kiwiignore`` files, and what no index is better for.

The patterns are git's (https://git-scm.com/docs/gitignore), read by pathspec. A file in a deeper folder goes before one
above it; within a folder ``.kiwiignore`` goes before ``.gitignore``, so ``!docs/generated/`` there brings back what git
leaves out. Nothing below a folder that is left out is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kiwi_rag.errors import SourceUnreadable

IGNORE_FILES = (".gitignore", ".kiwiignore")
"""In the order in which they count, the last most."""
MAX_BYTES = 1 << 20

NEVER = frozenset({".git", ".hg", ".svn", ".ai"})
"""Folders that no pattern brings back: what versions keep, and the tier of items, which is an index of its own."""

# Left out unless a pattern brings it back. By name and not by pathspec, which tries forty patterns one after the other:
# that would be half of the time of a run over files that have not changed.
_FOLDERS = frozenset(
    {
        "node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".tox",
        ".gradle", ".idea", ".terraform", ".vector-db",
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
            When an ignore file is there and cannot be read: what it leaves out must not be indexed.
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


def _spec(text: str) -> Any:
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(_lines(text))


def _lines(text: str) -> Sequence[str]:
    # A pattern with a NUL or of absurd length matches no path, and costs time.
    return [line for line in text.split("\n") if len(line) < 4096 and "\0" not in line]


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise SourceUnreadable(f"cannot read {path}: {error.strerror}", hint=f"chmod +r {path}") from error
    return _spec(text)
