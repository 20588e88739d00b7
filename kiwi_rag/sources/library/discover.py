"""Which files of a package or a repository are its documentation, decided by their paths.

Documentation are the pages below folders such as ``docs``, the examples, and elsewhere README, CHANGELOG and other
Markdown; never tests, vendored or built files, or translations of pages that are there in English. The names are in
``discover.toml``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path, PurePosixPath

from kiwi_rag.errors import NotFound, SourceUnreadable
from kiwi_rag.sources.library.record import PATH, Library
from kiwi_rag.sources.source import FoundFile, SyncReport, named_paths
from kiwi_rag.sources.workspace.config import head_commit
from kiwi_rag.sources.workspace.source import WorkspaceSource
from kiwi_rag.storage.safe_open import read_below

PAGE, EXAMPLE, CODE, INCLUDED = "page", "example", "code", "included"
"""The roles of a file; one that is `INCLUDED` is not indexed itself, but a page may show it."""
_DOCUMENTED = re.compile(rb'"""|\'\'\'|/\*\*|^[ \t]*(?:///|//!)', re.MULTILINE)
_COMPARED = 40
"""Pages that are looked for in ``llms-full.txt``."""


@cache
def _rules() -> dict[str, re.Pattern[str]]:
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return {name: re.compile("|".join(each)) for table in tables.values() for name, each in table.items()}


def _is(kind: str, name: str) -> bool:
    return _rules()[kind].fullmatch(name) is not None


def role_of(path: str, include: Sequence[str] = ()) -> str:
    """Return the role of the file at `path` below a library's root; empty for one that is no documentation.

    With `include`, only files below these folders have one, and they are folders of documentation.
    """
    if include:
        path = next((path[len(folder) + 1 :] for folder in include if path.startswith(f"{folder}/")), "")
    *folders, name = path.lower().split("/")
    in_docs, in_examples, in_tests = bool(include), False, False
    for folder, inner in pairwise([*folders, ""]):
        skipped = _is("skipped_docs" if in_docs else "skipped", folder)
        # A package may bring its type declarations and its documentation below its built files.
        if skipped and not (_is("built", folder) and (_is("types", name) or _is("docs", inner))):
            return ""
        in_docs, in_examples = in_docs or _is("docs", folder), in_examples or _is("examples", folder)
        in_tests |= folder in {"test", "tests"}
    if not name or _is("never", name):
        return ""
    is_page = _is("docs_page", name) or _is("page", name) if in_docs else _is("page", name) and not _is("no_page", name)
    if is_page or _is("notes", name) or _is("api", name):
        return PAGE
    if in_docs or in_examples:
        is_example = in_examples and _is("example", name) and not in_tests and (in_docs or not _is("test", name))
        return EXAMPLE if is_example else INCLUDED if _is("example", name) or _is("shown", name) else ""
    is_own = not _is("script", name) or "src" in folders or _is("types", name)
    return CODE if is_own and _is("module", name) and not _is("test", name) else ""


def _is_translation(path: str, known: set[str], english: set[str]) -> bool:
    """Whether a page is beside the same page without a language in its path, or in English; or always is one."""
    plain = (path[: found.start()] + path[found.end() :] for found in _rules()["translated"].finditer(path))
    beside = (path[: found.start()] in english for found in _rules()["other"].finditer(path))
    return any(one in known for one in plain) or any(beside) or _rules()["always"].search(path) is not None


def select(paths: Iterable[str], include: Sequence[str] = (), *, code: bool = False) -> Mapping[str, str]:
    """Return path → role of the files that are documentation, of all `paths` of a library."""
    roles = {path: role for path in paths if (role := role_of(path, include)) and (code or role != CODE)}
    known = {path.lower() for path in roles}
    english = {path[: found.start()] for path in known for found in _rules()["english"].finditer(path)}
    return {path: role for path, role in roles.items() if not _is_translation(path.lower(), known, english)}


@dataclass(frozen=True)
class LibrarySource(WorkspaceSource):
    """The documentation of one library. The rules of a workspace hold: ignored files, links, sizes, included files."""

    library: Library

    @cached_property
    def commit(self) -> str:
        """The commit that is checked out in a folder of the user; what was unpacked is of none."""
        return head_commit(self.library.root) if self.library.origin == PATH else self.library.commit

    def check(self) -> None:
        """Raise `NotFound` when the root does not exist."""
        if not self.library.root.is_dir():
            hint = f"add it again, or remove it: kiwi library remove {self.library.canonical}"
            raise NotFound(f"{self.library.canonical}: {self.library.root} is no folder", hint=hint)

    def find(self, paths: Sequence[str] | None, indexed: Sequence[str], report: SyncReport) -> Iterator[FoundFile]:
        """Yield the files that are documentation, of all or of those at `paths` and below them."""
        self.check()
        files = {file.path: file for file in super().find(None, indexed, report)}
        roles = select(files, self.library.include, code=self.library.code)
        own = ((path, role) for path, role in roles.items() if role != INCLUDED and files[path].size)
        chosen = [path for path, role in own if role != CODE or _DOCUMENTED.search(self._bytes(path, b"/**"))]
        pages = [path for path, role in roles.items() if role == PAGE]
        for path in chosen if paths is None else named_paths(paths, chosen):
            if not (path.lower().endswith("llms-full.txt") and self._repeats(path, pages)):
                yield files[path]

    def _repeats(self, path: str, pages: Sequence[str]) -> bool:
        """Whether ``llms-full.txt`` holds most of the pages: for most of them, their longest line."""
        full = self._bytes(path)
        others = [page for page in pages if PurePosixPath(page).suffix not in {".txt", ""}][:_COMPARED]
        longest = (max(self._bytes(page).splitlines(), key=len, default=b"").strip() for page in others)
        found = [line in full for line in longest if len(line) >= 40]
        return sum(found) * 2 > len(found)

    def _bytes(self, path: str, unreadable: bytes = b"") -> bytes:
        with suppress(SourceUnreadable, FileNotFoundError):
            return read_below(self.workspace.resolved, path, self.max_bytes)[0]
        return unreadable  # what is wrong with it is reported when it is indexed
