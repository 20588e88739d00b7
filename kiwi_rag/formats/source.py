"""Item files on disk: listing them, their ids, and reading one without following a link out of its root."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kiwi_rag.errors import InvalidItemId, UsageError
from kiwi_rag.model import Finding
from kiwi_rag.model.refs import ITEM_TYPES, ItemRef, ItemType, check_item_id, fold_item_id
from kiwi_rag.storage.safe_open import read_linked

MAX_BYTES = 256 * 1024
MAX_SIGNATURE_BYTES = 2 << 20
_SKIPPED_FOLDERS = frozenset({"vectors", "__pycache__"})


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file below one of the three item folders. A file with a ``problem`` is reported and not read."""

    path: Path
    item_type: ItemType
    item_id: str | None
    problem: Finding | None = None


@dataclass(frozen=True, slots=True)
class ItemFiles:
    """What is on disk of an item: file name → bytes, relative to the folder of the ``main`` file, and the signature.

    ``executables`` are the names of files that may be executed. ``signature`` is None where there is no such file.
    """

    files: Mapping[str, bytes]
    main: str
    executables: tuple[str, ...] = ()
    signature: bytes | None = None


def signature_path(path: Path) -> Path:
    """Return the path of an item's signature: ``<file>.sig`` beside its main file."""
    return path.with_name(f"{path.name}.sig")


def read_item(source: SourceFile, root: Path) -> ItemFiles:
    """Return the files of an item and its signature, which must lie below `root` once links are followed.

    Raises
    ------
    SourceUnreadable
        As `read_source`.
    """
    side = signature_path(source.path)
    signature = read_linked(side, root, MAX_SIGNATURE_BYTES) if os.path.lexists(side) else None
    return ItemFiles({source.path.name: read_source(source.path, root)}, source.path.name, signature=signature)


def item_id_of(relative: str | Path) -> str:
    """Return the item id that a path relative to its type's folder stands for.

    Raises
    ------
    InvalidItemId
        If the path is absolute, climbs with ``..``, or spells no legal id.
    """
    path = Path(relative)
    if path.is_absolute() or ".." in path.parts or not path.name:
        raise InvalidItemId(f"{str(relative)!r} is not below the folder of its items", hint="name an item below .ai/")
    return check_item_id(path.with_suffix("").as_posix())


def path_of(ai_dir: Path, ref: ItemRef) -> Path:
    """Return where the item's file stands below `ai_dir`: the inverse of `item_id_of`.

    Raises
    ------
    InvalidItemId
        If the id is not legal, so that no path leaves `ai_dir`.
    """
    return ai_dir / ref.item_type.folder / f"{check_item_id(ref.item_id)}{ref.item_type.suffix}"


def locate(ai_dir: Path, file: Path) -> tuple[ItemType, str]:
    """Return the type and id of the item that `file` holds, by its place below `ai_dir` (a ``.ai`` folder).

    Raises
    ------
    UsageError
        If the file is in none of the three item folders, or does not have its type's suffix.
    InvalidItemId
        If its place spells no legal id.
    """
    for item_type in ITEM_TYPES:
        folder = _absolute(ai_dir / item_type.folder)
        if _absolute(file).is_relative_to(folder) and file.suffix == item_type.suffix:
            return item_type, item_id_of(_absolute(file).relative_to(folder))
    folders = ", ".join(f"{t.folder}/*{t.suffix}" for t in ITEM_TYPES)
    raise UsageError(f"{file} is not an item file of {ai_dir}", hint=f"items are {folders} below it")


def walk(ai_dir: Path) -> Iterator[SourceFile]:
    """Yield every item file below `ai_dir`, sorted by type and path; a bad one does not end the iteration.

    Left out: hidden files and folders, ``.sig`` files and other suffixes, ``vectors``, ``__init__.py``. A link that
    leaves `ai_dir`, a linked folder, an illegal id and an id that equals another's once folded come with a problem.
    """
    for item_type in ITEM_TYPES:
        seen: dict[str, str] = {}
        for path, is_folder in _entries(ai_dir / item_type.folder, item_type.suffix):
            yield _source(ai_dir, path, is_folder, item_type, seen)


def read_source(path: Path, root: Path) -> bytes:
    """Return the bytes of the file at `path`, which must lie below `root` once links are followed.

    At most one byte more than `MAX_BYTES` is read, so that an oversized file can be refused without holding it.

    Raises
    ------
    SourceUnreadable
        If it is missing, not a regular file, not readable, or leaves `root` by a link.
    """
    return read_linked(path, root, MAX_BYTES)


def display_path(path: Path) -> str:
    """Return `path` relative to the working directory where it is below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def _entries(folder: Path, suffix: str) -> list[tuple[Path, bool]]:
    """Return item files and linked folders below `folder` as (path, is a folder), sorted."""
    if folder.is_symlink():
        return [(folder, True)]
    if not folder.exists():
        return []
    found: list[tuple[Path, bool]] = []

    def note(error: OSError) -> None:
        found.append((Path(error.filename), True))

    for parent, folders, files in os.walk(folder, onerror=note):
        linked = [name for name in folders if Path(parent, name).is_symlink() and _is_visible(name)]
        folders[:] = [name for name in folders if _is_visible(name) and name not in linked]
        found += [(Path(parent, name), True) for name in linked]
        found += [(Path(parent, name), False) for name in _item_names(files, suffix)]
    return sorted(found)


def _item_names(files: Iterable[str], suffix: str) -> list[str]:
    return [name for name in files if name.endswith(suffix) and _is_visible(name) and name != "__init__.py"]


def _is_visible(name: str) -> bool:
    return not name.startswith(".") and name not in _SKIPPED_FOLDERS


def _source(ai_dir: Path, path: Path, is_folder: bool, item_type: ItemType, seen: dict[str, str]) -> SourceFile:
    problem = _folder_problem(path) if is_folder else _link_problem(path, ai_dir)
    if problem:
        return SourceFile(path, item_type, None, problem)
    try:
        item_id = item_id_of(path.relative_to(ai_dir / item_type.folder))
    except InvalidItemId as error:
        return SourceFile(path, item_type, None, Finding("source.item-id", error.message, 0, str(path), error.hint))
    return SourceFile(path, item_type, item_id, _collision(path, item_id, seen))


def _folder_problem(path: Path) -> Finding:
    if path.is_symlink():
        hint = "replace the link with a real folder"
        return Finding("source.linked-folder", "a linked folder is not followed", 0, str(path), hint)
    return Finding("source.unreadable", "this folder cannot be read", 0, str(path), "check its mode and owner")


def _link_problem(path: Path, ai_dir: Path) -> Finding | None:
    if not path.is_symlink():
        return None
    try:
        inside = path.resolve(strict=True).is_relative_to(ai_dir.resolve())
    except (OSError, RuntimeError) as error:
        return Finding(
            "source.unreadable", f"the target of the link cannot be read: {error}", 0, str(path), "remove the link"
        )
    hint = "replace the link with a copy of the file"
    return None if inside else Finding("source.link-leaves-root", f"the link leads out of {ai_dir}", 0, str(path), hint)


def _collision(path: Path, item_id: str, seen: dict[str, str]) -> Finding | None:
    first = seen.setdefault(fold_item_id(item_id), item_id)
    if first == item_id:
        return None
    message = f"{item_id!r} and {first!r} are the same id, because '-' and '_' are equal in ids"
    return Finding("source.same-id", message, 0, str(path), "rename one of the two files")


def _absolute(path: Path) -> Path:
    # Not resolve(): the path of the link gives the id, not its target.
    return Path(os.path.normpath(path.absolute()))
