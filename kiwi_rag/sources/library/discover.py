"""Which files of a package or a repository are its documentation, decided by their paths.

Documentation are the pages below folders such as ``docs``, the examples, and elsewhere README, CHANGELOG and other
Markdown; never tests, vendored or built files, or translations of pages that are there in English.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from kiwi_rag.errors import NotFound
from kiwi_rag.sources.library.record import PATH, Library
from kiwi_rag.sources.source import FoundFile, SyncReport, named_paths
from kiwi_rag.sources.workspace.config import WorkspaceConfig, head_commit
from kiwi_rag.sources.workspace.source import WorkspaceSource
from kiwi_rag.storage.safe_open import read_below

PAGE, EXAMPLE, CODE, INCLUDED = "page", "example", "code", "included"
"""The roles of a file; one that is `INCLUDED` is not indexed itself, but a page may show it."""

_DOCS = frozenset({"docs", "doc", "documentation", "adr", "adrs"})
_EXAMPLES = frozenset({"examples", "example", "samples", "sample", "demos", "docs_src"})
_BUILT = frozenset({"dist", "build", "lib", "types"})
_SKIPPED = re.compile(
    r"\.(?!agents$).*|tests?|testing|__tests__|__mocks__|(?:__)?fixtures?(?:__)?|specs?|e2e|(?:js|integration)[_-]?tests?"
    r"|node_modules|_?vendor(?:ed)?|third[_-]party|site-packages|bench(?:marks?)?|locales?|dist|build|coverage"
    r"|.*\.egg-info|templates|static|scripts|tools"
)
# Below a folder of documentation, pages about tests or builds stand in folders of such names.
_SKIPPED_DOCS = re.compile(
    r"\..*|node_modules|__pycache__|_(?:static|templates?|themes?|build|ext|includes|layouts|images|site)"
)
_PAGE = re.compile(r".*\.(?:md|mdx|markdown|rst|rest|adoc|asciidoc|ipynb)")
_DOCS_PAGE = re.compile(r".*\.(?:txt|html?|puml|plantuml)")
_NOTES = re.compile(
    r"(?:readme|changelog|changes|history|news|releases?|release[_-]notes|upgrad(?:e|ing)|migrat(?:ion|ing))"
    r"(?:[_-][a-z0-9_-]*)?(?:\.txt)?|llms(?:-full)?\.txt"
)
_API = re.compile(r"(?:.*[._-])?(?:openapi|swagger|asyncapi)(?:[._-].*)?\.(?:json|ya?ml)")
_NO_PAGE = re.compile(
    r"(?:un)?licen[cs]es?(?:[._-].*)?|(?:copying|notice|code[_-]of[_-]conduct|governance|project[_-]charter|sponsors"
    r"|backers|security|authors|contributors|maintainers|contributing|.*_template)(?:[._-].*)?"
)
_NEVER = re.compile(r"(?:.*requirements.*|cmakelists|robots)\.txt|.*\.min\..*|.*[.-]lock(?:\..*)?")
_SOURCE = r"py|[mc]?jsx?|[mc]?tsx?|java|go|rs|rb|php|kts?|swift|cs?|h|cc|cpp|hpp"
_EXAMPLE = re.compile(rf".*\.(?:{_SOURCE}|sh|sql)")
_SHOWN = re.compile(rf".*\.(?:{_SOURCE}|sh|sql|ya?ml|toml|json|ini|cfg)")
_MODULE = re.compile(rf".*\.(?:pyi|{_SOURCE})")
_SCRIPT = re.compile(r".*\.[mc]?[jt]sx?")
_TYPES = re.compile(r".*\.d\.[mc]?ts")
_NO_MODULE = re.compile(
    r"test_.*|conftest\.py|setup\.py|noxfile\.py|tasks\.py|.*[._-](?:test|tests|spec|bench|stories|config)\.[a-z]+"
)
_DOCUMENTED = re.compile(rb'"""|\'\'\'|/\*\*|^[ \t]*(?:///|//!)', re.MULTILINE)


def role_of(path: str, include: Sequence[str] = ()) -> str:
    """Return the role of the file at `path` below a library's root; empty for one that is no documentation.

    With `include`, only files below these folders have one, and they are folders of documentation.
    """
    area = ""
    if include:
        below = next((path[len(folder) + 1 :] for folder in include if path.startswith(f"{folder}/")), None)
        if below is None:
            return ""
        path, area = below, PAGE
    *folders, name = path.lower().split("/")
    in_docs = bool(area)
    for folder in folders:
        skipped = (_SKIPPED_DOCS if in_docs else _SKIPPED).fullmatch(folder)
        if skipped and not (folder in _BUILT and _TYPES.fullmatch(name)):
            return ""
        in_docs |= folder in _DOCS
        area = EXAMPLE if folder in _EXAMPLES else PAGE if folder in _DOCS else area
    if _NEVER.fullmatch(name):
        return ""
    return _role_in(area, folders, name, in_docs=in_docs)


def _role_in(area: str, folders: Sequence[str], name: str, *, in_docs: bool) -> str:
    is_page = _PAGE.fullmatch(name) and (in_docs or not _NO_PAGE.fullmatch(name))
    if is_page or _NOTES.fullmatch(name) or _API.fullmatch(name) or (in_docs and _DOCS_PAGE.fullmatch(name)):
        return PAGE
    if area == EXAMPLE and _EXAMPLE.fullmatch(name) and (in_docs or not _NO_MODULE.fullmatch(name)):
        return EXAMPLE
    if area:
        return INCLUDED if _SHOWN.fullmatch(name) else ""
    is_module = _MODULE.fullmatch(name) and not _NO_MODULE.fullmatch(name)
    is_own = not _SCRIPT.fullmatch(name) or "src" in folders or _TYPES.fullmatch(name)
    return CODE if is_module and is_own else ""


_LANGUAGE = (
    r"(?:zh|ja|ko|fr|de|es|pt|ru|it|uk|tr|pl|vi|id|fa|ar|nl"
    r"|cs|sv|da|fi|nb|no|el|he|hi|hu|ro|bg|th|bn|ta|cn|jp|kr|tw|br)"
)
_TRANSLATED_FOLDER = re.compile(rf"{_LANGUAGE}(?:[-_](?:hans|hant|[a-z]{{2}}))?")
_TWO_LETTERS = re.compile(r"(?!en)[a-z]{2}(?:[-_](?:hans|hant|[a-z]{2}))?")
_TRANSLATED_NAME = re.compile(
    rf"(.+)\.{_LANGUAGE}(?:[-_][a-z]{{2,4}})?(\.[a-z]+)|(readme)[_-]{_LANGUAGE}(?:[-_][a-z]{{2,4}})?(\.[a-z]+)"
)
_TRANSLATIONS = frozenset({"i18n", "translations", "l10n"})


def without_translations(paths: Iterable[str]) -> list[str]:
    """Return the paths without those of pages in other languages, where English pages stand beside them."""
    listed = list(paths)
    known = {path.lower() for path in listed}
    english = {before for path in known for before, folder, _ in _steps(path) if folder == "en"}
    return [path for path in listed if not _is_translation(path.lower(), known, english)]


def _steps(path: str) -> Iterator[tuple[str, str, str]]:
    """Yield each folder of a path with what stands before and after it."""
    parts = path.split("/")
    for at, folder in enumerate(parts[:-1]):
        yield "/".join(parts[:at]), folder, "/".join(parts[at + 1 :])


def _is_translation(path: str, known: set[str], english: set[str]) -> bool:
    folder, _, name = path.rpartition("/")
    if match := _TRANSLATED_NAME.fullmatch(name):
        plain = (match[1] or match[3]) + (match[2] or match[4])
        if f"{folder}/{plain}".lstrip("/") in known:
            return True
    for before, step, after in _steps(path):
        if _TWO_LETTERS.fullmatch(step) and before in english:
            return True
        is_language = _TRANSLATED_FOLDER.fullmatch(step) is not None
        if is_language and (f"{before}/{after}".lstrip("/") in known or before.rpartition("/")[2] in _TRANSLATIONS):
            return True
    return False


def select(paths: Iterable[str], include: Sequence[str] = (), *, code: bool = False) -> Mapping[str, str]:
    """Return path → role of the files that are documentation, of all `paths` of a library."""
    roles = {path: role for path in paths if (role := role_of(path, include)) and (code or role != CODE)}
    return {path: roles[path] for path in without_translations(roles)}


def repeats_pages(full: bytes, pages: Iterable[bytes]) -> bool:
    """Whether ``llms-full.txt`` holds most of these pages: for most of them, their longest line."""
    longest = [max(page.splitlines(), key=len, default=b"").strip() for page in pages]
    found = [line in full for line in longest if len(line) >= 40]
    return sum(found) * 2 > len(found)


@dataclass(frozen=True)
class LibrarySource(WorkspaceSource):
    """The documentation of one library. The rules of a workspace hold: ignored files, links, sizes, included files."""

    library: Library

    @classmethod
    def of(cls, library: Library, max_bytes: int) -> LibrarySource:
        """Return the source of a library; no file of more than `max_bytes` is read."""
        return cls(WorkspaceConfig(library.root, library.name), max_bytes, library)

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
        chosen = [path for path, role in roles.items() if role != INCLUDED and self._is_worth(path, role)]
        pages = [path for path, role in roles.items() if role == PAGE]
        for path in chosen if paths is None else named_paths(paths, chosen):
            if not (path.lower().endswith("llms-full.txt") and self._repeats(path, pages)):
                yield files[path]

    def _is_worth(self, path: str, role: str) -> bool:
        return role != CODE or _DOCUMENTED.search(self._bytes(path)) is not None

    def _repeats(self, path: str, pages: Sequence[str]) -> bool:
        others = [page for page in pages if PurePosixPath(page).suffix not in {".txt", ""}][:_COMPARED]
        return bool(others) and repeats_pages(self._bytes(path), map(self._bytes, others))

    def _bytes(self, path: str) -> bytes:
        return read_below(self.workspace.resolved, path, self.max_bytes)[0]


_COMPARED = 40
"""Pages that are looked for in ``llms-full.txt``."""
