"""Item files on disk: listing them, their ids, and reading one without following a link out of its root."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from kiwi_rag.errors import InvalidItemId, SourceUnreadable, UsageError
from kiwi_rag.formats import skill
from kiwi_rag.model import ITEM_TYPES, Envelope, Finding, ItemRef, ItemType, check_item_id, fold_item_id, sha256_hex
from kiwi_rag.storage.safe_open import read_below, read_linked

MAX_BYTES = 256 * 1024
MAX_SIGNATURE_BYTES = 2 << 20
_SKILL = "SKILL.md"
CACHE = "__pycache__"
_SKIPPED_FOLDERS = frozenset({"vectors", CACHE})
# What tools leave behind, and where settings of one machine stand: nobody means to publish these.
LEFT_BEHIND = frozenset({CACHE, ".git", ".hg", ".svn", ".DS_Store", ".env"})
_KIWI_FOLDERS = frozenset({"clients", "keys", "registry", "registries", "libraries", "logs"})
_TEXTS = frozenset({".md", ".markdown", ".mdc", ".txt", ".py"})


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The main file of an item: a file below one of the item folders, of a skill its ``SKILL.md``.

    One with a ``problem``, such as no legal id, is reported and not read.
    """

    path: Path
    item_type: ItemType
    item_id: str
    problem: Finding | None = None


@dataclass(frozen=True, slots=True)
class ItemCandidate:
    """An item that was not admitted yet: its files, and its signature as the bytes of a file or as an envelope.

    ``files`` is file name → bytes, relative to the folder of the ``main`` file; ``executables`` are the names of those
    that may be executed. ``path`` (of the main file) and ``tier`` are used in messages only. ``given`` are values for
    metadata that the files do not declare, where they are not to be those of the signature's statement.
    """

    item_type: ItemType
    item_id: str
    files: Mapping[str, bytes]
    main: str
    executables: tuple[str, ...] = ()
    signature: bytes | None = None
    envelope: Envelope | None = None
    path: str = ""
    tier: str = ""
    given: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of_file(cls, item_type: ItemType, item_id: str, data: bytes, path: str = "") -> ItemCandidate:
        """Return the unsigned candidate for an item of one file, whose bytes are `data`."""
        main = ItemRef(item_type, item_id).main_file
        return cls(item_type, item_id, {main: data}, main, path=path)

    @property
    def ref(self) -> ItemRef:
        """Type and id, without a version."""
        return ItemRef(self.item_type, self.item_id)

    @property
    def digests(self) -> dict[str, str]:
        """File name → hex SHA-256 of the file."""
        return {name: sha256_hex(data) for name, data in self.files.items()}

    def path_of(self, file: str) -> str:
        """Return the path of one of its files, for messages."""
        if file == self.main:
            return self.path
        return f"{self.path.removesuffix(self.main)}{file}" if self.path.endswith(f"/{self.main}") else file


def signature_path(path: Path) -> Path:
    """Return the path of an item's signature: ``<file>.sig`` beside its main file."""
    return path.with_name(f"{path.name}.sig")


def read_item(
    source: SourceFile, root: Path, tier: str = "", *, without: Container[str] = ()
) -> ItemCandidate | Finding:
    """Return the files of an item below `root` and its signature, or a finding that says why they cannot be read.

    The file of an item may be a link that stays below `root`. A skill has no links in it, and nothing that tools leave
    behind: what stands beside its signed files could be read or executed with them. `tier` is named in messages. Files
    and folders of a skill whose name is in `without` are passed over.
    """
    if source.problem:
        return source.problem
    path = source.path
    main = ItemRef(source.item_type, source.item_id).main_file
    of = ItemCandidate(source.item_type, source.item_id, {}, main, path=display_path(path), tier=tier)
    try:
        if source.item_type.is_folder:
            return _read_folder(of, path.parent, root, without)
        side = signature_path(path)
        signature = read_linked(side, root, MAX_SIGNATURE_BYTES) if os.path.lexists(side) else None
        return replace(of, files={main: read_linked(path, root, MAX_BYTES)}, signature=signature)
    except SourceUnreadable as error:
        return _problem(path, "source.unreadable", error.message, error.hint)
    except FileNotFoundError:
        return _problem(path, "source.unreadable", f"{path} is gone", "run it again")


def _read_folder(of: ItemCandidate, folder: Path, root: Path, without: Container[str]) -> ItemCandidate | Finding:
    files: dict[str, bytes] = {}
    executables: list[str] = []
    signature = None
    for path in _below(folder, without):
        name, steps = path.relative_to(folder).as_posix(), _absolute(path).relative_to(_absolute(root)).as_posix()
        if problem := _file_problem(path, name):
            return problem
        if path.is_dir():
            continue
        if name == f"{of.main}.sig":
            signature = read_below(root, steps, MAX_SIGNATURE_BYTES)[0]
            continue
        files[name], entry = read_below(root, steps, skill.MAX_ASSET_BYTES)
        if entry.st_mode & 0o111:
            executables.append(name)
        if exceeded := skill.exceeded_limit(len(files), sum(map(len, files.values())), str(folder / of.main)):
            return exceeded
    return replace(of, files=files, executables=tuple(sorted(executables)), signature=signature)


def _below(folder: Path, without: Container[str]) -> Iterator[Path]:
    """Yield the folders and files below a folder, a folder's own in their order and before those within them."""

    def unreadable(error: OSError) -> None:
        raise SourceUnreadable(f"cannot read {error.filename}: {error.strerror}", hint="check its mode and owner")

    for parent, folders, files in os.walk(folder, onerror=unreadable):
        folders[:] = sorted(name for name in folders if name not in without)
        yield from (Path(parent, name) for name in sorted([*folders, *files]) if name not in without)


def _file_problem(path: Path, name: str) -> Finding | None:
    """Return a finding about a file or folder that a skill must not have."""
    if path.name in LEFT_BEHIND:
        message = f"{name} was left by a tool or has local settings; a skill is signed as a whole"
        return _problem(path, "source.hidden-file", message, f"remove {path}")
    if path.is_symlink():
        hint = "replace it with a copy of the file"
        return _problem(path, "source.linked-file", f"{name} is a link, which a skill must not have", hint)
    return None


def _problem(path: Path, code: str, message: str, hint: str) -> Finding:
    return Finding(code, message, path=display_path(path), hint=hint)


def item_id_of(relative: str | PurePath) -> str:
    """Return the item id that a path relative to its type's folder stands for, its case folded.

    Raises
    ------
    InvalidItemId
        If the path is absolute, climbs with ``..``, or spells no legal id.
    """
    path = relative if isinstance(relative, PurePath) else PurePath(relative)
    if path.anchor or ".." in path.parts or not path.name:
        raise InvalidItemId(f"{str(relative)!r} is not below the folder of its items", hint="name an item below .ai/")
    return _folded_id(path.with_suffix(""))


def _folded_id(path: PurePath) -> str:
    return check_item_id(_fold_case(path.as_posix()))


def _fold_case(text: str) -> str:
    return text.lower() if text.isascii() else text  # the lower case of some other letters is ASCII


def path_of(ai_dir: Path, ref: ItemRef) -> Path:
    """Return where the item's main file stands below `ai_dir`, or is to be written.

    A file whose path differs in case only, such as ``README.md``, is found as it is spelled.

    Raises
    ------
    InvalidItemId
        If the id is not legal, so that no path leaves `ai_dir`.
    """
    folder, path = ai_dir / ref.item_type.folder, PurePath(check_item_id(ref.item_id))
    path = path / ref.main_file if ref.item_type.is_folder else path.with_name(ref.main_file)
    return folder / path if os.path.lexists(folder / path) else _spelled(folder, path) or folder / path


def _spelled(folder: Path, path: PurePath) -> Path | None:
    """Return the first of the files below `folder` whose path is `path` but for the case of some letters."""
    found = [folder]
    for step in path.parts:
        found = [Path(at, name) for at in found for name in _names(at) if _fold_case(name) == _fold_case(step)]
    return min(found, key=_order, default=None)


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir()]
    except OSError:
        return []


def _order(path: Path) -> tuple[str, str]:
    """Sort by path without case; of those that differ in case alone, lower case first."""
    return str(path).lower(), str(path).swapcase()


def locate(ai_dir: Path, file: Path) -> tuple[ItemType, str]:
    """Return the type and id of the item that `file` holds, by its place below `ai_dir` (a ``.ai`` folder).

    Raises
    ------
    UsageError
        If the file is in none of the item folders, does not have its type's suffix, or is in no skill.
    InvalidItemId
        If its place spells no legal id.
    """
    for item_type in ITEM_TYPES:
        folder = _absolute(ai_dir / item_type.folder)
        if not _absolute(file).is_relative_to(folder):
            continue
        relative = _absolute(file).relative_to(folder)
        if item_type.is_folder:
            return item_type, _skill_id(folder, relative)
        if file.suffix.lower() == item_type.suffix:
            return item_type, item_id_of(relative)
    folders = ", ".join(f"{t.folder}/*/SKILL.md" if t.is_folder else f"{t.folder}/*{t.suffix}" for t in ITEM_TYPES)
    raise UsageError(f"{file} is not an item file of {ai_dir}", hint=f"items are {folders} below it")


def _skill_id(folder: Path, relative: Path) -> str:
    """Return the id of the outermost skill that a path below the folder of skills belongs to."""
    for parent in [*reversed(relative.parents)][1:]:
        if (parent == relative.parent and relative.name == _SKILL) or (folder / parent / _SKILL).is_file():
            return _folded_id(parent)
    raise UsageError(f"{folder / relative} is in no skill", hint=f"a skill is a folder with {_SKILL}")


def walk(ai_dir: Path) -> Iterator[SourceFile]:
    """Yield the main file of every item below `ai_dir`, sorted by type and path; a bad one does not end the iteration.

    Left out: hidden files and folders, ``.sig`` files and other suffixes, ``vectors``, ``__init__.py``. A link that
    leaves `ai_dir`, a linked folder, an illegal id and an id that equals another's once folded come with a problem.
    """
    for item_type in ITEM_TYPES:
        seen: dict[str, Path] = {}
        for path, is_folder in _entries(ai_dir / item_type.folder, item_type):
            yield _source(ai_dir, path, is_folder, item_type, seen)


def strays(ai_dir: Path) -> Iterator[Path]:
    """Yield the files below `ai_dir` that are no items, in order: they are neither signed nor found by a search.

    Left out: hidden files, signatures, folders and files of Kiwi itself; outside of the item folders all but texts.
    """
    held = {source.path.parent if source.item_type.is_folder else source.path for source in walk(ai_dir)}
    item_folders = {ai_dir / item_type.folder for item_type in ITEM_TYPES}
    for parent, folders, files in os.walk(ai_dir):
        here = Path(parent)
        folders[:] = sorted(
            name for name in folders
            if _is_visible(name) and here / name not in held and (here != ai_dir or name not in _KIWI_FOLDERS)
        )  # fmt: skip
        holds_items = not item_folders.isdisjoint((here, *here.parents))
        for path in (here / name for name in sorted(files) if _is_visible(name)):
            is_text = path.suffix.lower() in _TEXTS or (holds_items and path.suffix != ".sig")
            if is_text and path not in held and path.name != "__init__.py":
                yield path


def display_path(path: Path) -> str:
    """Return `path` on one line, relative to the working directory where it is below it."""
    try:
        shown = str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        shown = str(path)
    return shown.replace("\n", "�")  # or a file's name could look like a line of Kiwi's


def _entries(folder: Path, item_type: ItemType) -> list[tuple[Path, bool]]:
    """Return item files and linked folders below `folder` as (path, is a folder), sorted."""
    if folder.is_symlink():
        return [(folder, True)]
    if not folder.exists():
        return []
    found: list[tuple[Path, bool]] = []
    unreadable: list[OSError] = []
    for parent, folders, files in os.walk(folder, onerror=unreadable.append):
        if item_type.is_folder and _SKILL in files:
            found.append((Path(parent, _SKILL), False))
            folders.clear()  # what is below belongs to this skill, and its links are found when it is read
        visible = [name for name in folders if _is_visible(name)]
        linked = {name for name in visible if Path(parent, name).is_symlink()}
        folders[:] = [name for name in visible if name not in linked]
        found += [(Path(parent, name), True) for name in linked]
        if not item_type.is_folder:
            names = (name for name in files if name.lower().endswith(item_type.suffix) and name != "__init__.py")
            found += [(Path(parent, name), False) for name in names if _is_visible(name)]
    found += ((Path(error.filename), True) for error in unreadable)
    return sorted(found, key=lambda entry: _order(entry[0]))


def _is_visible(name: str) -> bool:
    return not name.startswith(".") and name not in _SKIPPED_FOLDERS


def _source(ai_dir: Path, path: Path, is_folder: bool, item_type: ItemType, seen: dict[str, Path]) -> SourceFile:
    if problem := _folder_problem(path) if is_folder else _link_problem(path, ai_dir):
        return SourceFile(path, item_type, "", problem)
    try:
        relative = path.relative_to(ai_dir / item_type.folder)
        item_id = _folded_id(relative.parent) if item_type.is_folder else item_id_of(relative)
    except InvalidItemId as error:
        return SourceFile(path, item_type, "", _problem(path, "source.item-id", error.message, error.hint))
    first = seen.setdefault(fold_item_id(item_id), path)
    message = f"it has the id of {display_path(first)}, because case is folded, and '-' and '_' are equal in ids"
    same = None if first == path else _problem(path, "source.same-id", message, "rename one of the two files")
    return SourceFile(path, item_type, item_id, same)


def _folder_problem(path: Path) -> Finding:
    if path.is_symlink():
        hint = "replace the link with a real folder"
        return _problem(path, "source.linked-folder", "a linked folder is not followed", hint)
    return _problem(path, "source.unreadable", "this folder cannot be read", "check its mode and owner")


def _link_problem(path: Path, ai_dir: Path) -> Finding | None:
    try:
        if not path.is_symlink() or path.resolve(strict=True).is_relative_to(ai_dir.resolve()):
            return None
    except (OSError, RuntimeError) as error:
        return _problem(path, "source.unreadable", f"the target of the link cannot be read: {error}", "remove the link")
    hint = "replace the link with a copy of the file"
    return _problem(path, "source.link-leaves-root", f"the link leads out of {ai_dir}", hint)


def _absolute(path: Path) -> Path:
    # Not resolve(): the path of the link gives the id, not its target.
    return Path(os.path.normpath(path.absolute()))
