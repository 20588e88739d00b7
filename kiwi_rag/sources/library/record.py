"""The libraries of this user: one JSON file each, named after the library's collection.

What was unpacked from a package stands beside its record, in a folder of the same name. A folder that the user named
is indexed where it stands.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path

from kiwi_rag.errors import KiwiError, MalformedEnvelope, NoSuchLibrary, StoreCorrupt, UsageError
from kiwi_rag.model import sha256_hex
from kiwi_rag.signing.dsse import strict_json
from kiwi_rag.signing.statement import check_collection, is_nameable
from kiwi_rag.storage.atomic import atomic_write, remove_folder
from kiwi_rag.storage.safe_open import read_optional

MAX_BYTES = 1 << 16
PATH = "path"
"""The origin of a library that is a folder of the user."""
_ID = re.compile(r"(?:/[a-z0-9@][a-z0-9._~-]{0,99}){2,6}")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,63}")
_ORIGIN = re.compile(r"path|(?:npm|pypi):[\w@./~-]{1,214}", re.ASCII)
_ESCAPES = {"/": "__", ".": "_p", "@": "_v", "-": "-"}
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
    """Return the name of the collection of the library with this canonical id; no two ids give the same.

    Letters in lower case, digits and ``-`` stand for themselves, and anything else is escaped with ``_``. Of a result
    that is too long only the beginning remains, with ``_z``, which is no escape, and 128 bits of a digest.
    """
    plain = canonical.removeprefix("/")
    escaped = "".join(c if re.fullmatch(r"[a-z0-9]", c) else _ESCAPES.get(c, _hex(c)) for c in plain)
    if len(escaped) > _LONGEST:
        escaped = f"{escaped[:_KEPT]}_z{sha256_hex(canonical.encode())[:32]}"
    return check_collection(escaped)


def _hex(character: str) -> str:
    return "".join(f"_{byte:02x}" for byte in character.encode())


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
            library = _parse(data)
        except (MalformedEnvelope, UsageError, ValueError, TypeError) as error:
            raise _damaged(path) from error
        is_misplaced = library.origin != PATH and library.root != self.folder / name
        if library.name != name or is_misplaced:
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
        """Write a library's record, in place of an older one."""
        members = {**asdict(library), "root": str(library.root)}
        data = json.dumps(members, indent=2, ensure_ascii=False).encode() + b"\n"
        _parse(data)
        atomic_write(self.folder / f"{library.name}.json", data)

    def remove(self, library: Library) -> None:
        """Remove a library's record, and what was unpacked for it; a folder that the user named is left alone."""
        (self.folder / f"{library.name}.json").unlink(missing_ok=True)
        if library.origin != PATH:
            remove_folder(self.files_of(library))


def _damaged(path: Path) -> StoreCorrupt:
    hint = f"remove it and add the library again: rm {shlex.quote(str(path))}"
    return StoreCorrupt(f"{path} is not a valid record of a library", hint=hint)


def _parse(data: bytes) -> Library:
    """Parse a record; raise `ValueError`, or an error of a check, for any that `write` does not write."""
    members = strict_json(data, "the record")
    names = {field.name for field in fields(Library)}
    if len(data) > MAX_BYTES or not isinstance(members, dict) or set(members) != names:
        raise ValueError("it does not have exactly the members of a record")
    lists = {name: members.pop(name) for name in ("aliases", "include")}
    code, root = members.pop("code"), Path(str(members["root"]))
    texts = [*members.values(), *(entry for entries in lists.values() for entry in entries)]
    if not isinstance(code, bool) or not all(isinstance(text, str) and text.isprintable() for text in texts):
        raise ValueError("a member has the wrong type")
    if (
        not _ORIGIN.fullmatch(members["origin"])
        or not root.is_absolute()
        or not all(map(is_nameable, lists["include"]))
    ):
        raise ValueError("a member has no valid value")
    if check_id(members["id"]) != members["id"] or check_version(members["version"]) != members["version"]:
        raise ValueError("the id or the version is not in its normal form")
    tuples = {name: tuple(entries) for name, entries in lists.items()}
    return Library(**{**members, **tuples, "code": code, "root": root})
