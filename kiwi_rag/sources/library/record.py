"""The libraries of this user: one JSON file each, a list of one, named after the library's collection.

What was unpacked from a package stands beside its record, in a folder of the same name. A folder that the user named
is indexed where it stands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from kiwi_rag.errors import KiwiError, NoSuchLibrary, StoreCorrupt, UsageError
from kiwi_rag.model import sha256_hex
from kiwi_rag.signing.statement import check_collection, is_nameable
from kiwi_rag.sources.workspace.config import LIBRARY_PREFIX
from kiwi_rag.storage.atomic import remove_folder, write_json
from kiwi_rag.storage.safe_open import read_optional

MAX_BYTES = 1 << 16
PATH = "path"
"""The origin of a library that is a folder of the user."""
_ID = re.compile(r"(?:/[a-z0-9@][a-z0-9._~-]{0,99}){2,6}")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,63}")
_ORIGIN = re.compile(r"path|(?:npm|pypi):[\w@./~-]{1,214}", re.ASCII)
_ESCAPES = {"/": "__", ".": "_p", "@": "_v"}
_LONGEST, _KEPT = 64, 30


@dataclass(frozen=True)
class Library:
    """The documentation of one version of a library.

    ``id`` is its name without a version, such as ``/fastapi/fastapi``; `aliases` are other names that users have for
    it. ``origin`` is ``npm:NAME``, ``pypi:NAME`` or ``path``. ``root`` is the folder with its files, of which only
    those below the folders `include` are indexed, if there are any. ``code`` says whether source code is, too.
    ``commit`` is what git had checked out in `root` when the library was added, and ``added_at`` that time (RFC 3339).
    """

    id: str
    version: str
    title: str
    aliases: tuple[str, ...]
    origin: str
    root: Path
    include: tuple[str, ...] = ()
    code: bool = False
    commit: str = ""
    added_at: str = ""

    def __post_init__(self) -> None:
        """Raise `UsageError` where a member has no valid value."""
        texts = "".join((self.title, self.commit, self.added_at, str(self.root), *self.aliases))
        is_normal = check_id(self.id) == self.id and check_version(self.version) == self.version
        is_valid = is_normal and _ORIGIN.fullmatch(self.origin) and self.root.is_absolute() and texts.isprintable()
        if not is_valid or not all(map(is_nameable, self.include)):
            raise UsageError(f"{self.canonical} cannot be recorded as a library", hint="name another folder or title")

    @property
    def canonical(self) -> str:
        """The id with the version, such as ``/fastapi/fastapi@0.121.0``."""
        return f"{self.id}@{self.version}"

    @cached_property
    def name(self) -> str:
        """The name of the library's collection; no two libraries have the same."""
        return collection_name(self.canonical)

    @property
    def ecosystem(self) -> str:
        """``npm``, ``pypi`` or ``path``, which decides how versions are compared."""
        return self.origin.partition(":")[0]

    @property
    def package(self) -> str:
        """The package's name in its ecosystem; empty for a folder."""
        return self.origin.partition(":")[2]


def check_id(text: str) -> str:
    """Return `text` as the id of a library, in lower case.

    Raises
    ------
    UsageError
        When it cannot be one.
    """
    folded = text.lower()
    if not _ID.fullmatch(folded):
        raise UsageError(f"{text[:80]!r} cannot be the id of a library", hint="an id is /owner/name, as /vitejs/vite")
    return folded


def check_version(text: str) -> str:
    """Return `text` as a version, without the ``v`` of a tag.

    Raises
    ------
    UsageError
        When it cannot be one.
    """
    version = text[1:] if text[:1] in "vV" and text[1:2].isdigit() else text
    if not _VERSION.fullmatch(version):
        raise UsageError(f"{text[:80]!r} cannot be a version", hint="letters, digits and . _ + ! -, 64 at most")
    return version


def collection_name(canonical: str) -> str:
    """Return the name of the collection of the library with this canonical id (ASCII); no two ids give the same.

    It begins with ``lib__``, as no workspace's does, so that both can be in one shared store. Letters in lower case,
    digits and ``-`` stand for themselves, and anything else is escaped with ``_``. Of a result that is too long only
    the beginning remains, with ``_z``, which is no escape, and 128 bits of a digest.
    """
    escaped = re.sub(r"[^a-z0-9-]", lambda found: _ESCAPES.get(found[0]) or f"_{ord(found[0]):02x}", canonical)
    escaped = LIBRARY_PREFIX + escaped.removeprefix("__")
    if len(escaped) > _LONGEST:
        escaped = f"{escaped[:_KEPT]}_z{sha256_hex(canonical.encode())[:32]}"
    return check_collection(escaped)


@dataclass(frozen=True)
class LibraryRecords:
    """The records in one folder, such as ``~/.ai/libraries``."""

    folder: Path

    def files_of(self, library: Library) -> Path:
        """Return the folder for what is unpacked from a library's package."""
        return self.folder / library.name

    def read(self, name: str) -> Library:
        """Read the record of the library with this collection.

        Raises
        ------
        NoSuchLibrary
            When there is none.
        StoreCorrupt
            When the record is damaged.
        SourceUnreadable
            When the file cannot be read.
        """
        path = self.folder / f"{name}.json"
        data = read_optional(path, MAX_BYTES)
        if data is None:
            raise NoSuchLibrary()
        try:
            library: Library = _adapter().validate_json(data)[0]
        except (LookupError, ValueError, UsageError) as error:  # of pydantic, which quotes the file, or of a check
            raise _damaged(path) from error
        is_in_place = library.origin == PATH or library.root == self.folder / name
        if library.name != name or not is_in_place or len(data) > MAX_BYTES:
            raise _damaged(path)
        return library

    def list(self) -> tuple[Sequence[Library], Sequence[KiwiError]]:
        """Return the libraries that can be read, by canonical id, and why each of the others cannot be."""
        found: list[Library] = []
        errors: list[KiwiError] = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                found.append(self.read(path.stem))
            except KiwiError as error:
                errors.append(_damaged(path) if isinstance(error, NoSuchLibrary) else error)
        return sorted(found, key=lambda library: library.canonical), errors

    def write(self, library: Library) -> None:
        """Write a library's record, in place of an older one; `StoreError` if it cannot be written."""
        write_json(self.folder / f"{library.name}.json", _adapter().dump_python([library], mode="json"))

    def remove(self, library: Library) -> None:
        """Remove a library's record, and what was unpacked for it; a folder that the user named is left alone."""
        (self.folder / f"{library.name}.json").unlink(missing_ok=True)
        if library.origin != PATH:
            remove_folder(self.files_of(library))


@cache
def _adapter() -> Any:
    from pydantic import ConfigDict, TypeAdapter

    # A list, because pydantic takes no configuration for a data class that it does not own.
    return TypeAdapter(list[Library], config=ConfigDict(strict=True, extra="forbid"))


def _damaged(path: Path) -> StoreCorrupt:
    hint = f"remove it and add the library again: rm {shlex.quote(str(path))}"
    return StoreCorrupt(f"{path} is not a valid record of a library", hint=hint)
