"""The files of items below ``.ai``: those that paths and addresses name, and how they are written and removed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING

from kiwi_rag import ingest
from kiwi_rag.collection import Collection
from kiwi_rag.errors import MalformedEnvelope, SourceUnreadable, UsageError
from kiwi_rag.formats.source import ItemCandidate, SourceFile, path_of, read_item, signature_path, walk
from kiwi_rag.integrations.skill_folders import write_skill
from kiwi_rag.model import Admission, Envelope, Finding, ItemRef, ItemType, sha256_hex
from kiwi_rag.search.verify import Address, only_one
from kiwi_rag.signing import statement
from kiwi_rag.signing.statement import ItemStatement
from kiwi_rag.sources.source import read, root_of
from kiwi_rag.storage.atomic import disk_errors, remove_folder, write_user_files
from kiwi_rag.system import HAS_MODES, windows_problem
from kiwi_rag.validation.signature import envelope_of

if TYPE_CHECKING:
    from kiwi_rag.services import Services

_ITEM_FILES = "items are directives/*.md, scripts/*.py, knowledge/*.md and skills/*/SKILL.md below .ai"


def sources_of(paths: Sequence[Path], ai_dir: Path) -> list[SourceFile]:
    """Return the item files that `paths` name: files, or folders at or below the ``.ai`` folder `ai_dir`.

    Raises
    ------
    UsageError
        When a path does not exist, or names no item file of this tier.
    """
    found = list(walk(ai_dir))
    chosen: dict[Path, SourceFile] = {}
    for path in paths:
        below = [source for source in found if _is_named(source, path.absolute())]
        if not below and path.absolute() not in (ai_dir.absolute(), ai_dir.absolute().parent):  # a tier may be empty
            raise UsageError(f"{path} is not an item file or folder of {ai_dir}", hint=_ITEM_FILES)
        chosen.update({source.path: source for source in below})
    return list(chosen.values())


def _is_named(source: SourceFile, path: Path) -> bool:
    """Return whether `path` names a source: the file itself, a file of the skill, or a folder above."""
    file = source.path.absolute()
    inside = source.item_type.is_folder and file.parent in path.parents
    return file == path or path in file.parents or (inside and os.path.lexists(path))


def find_file(app: Services, address: Address) -> tuple[Collection, SourceFile] | None:
    """Return the tier and the file of the item at an address: of the tier that it names, or the nearest that has it."""
    for name in app.source_names("local" if address.tier in (None, "registry") else address.tier):
        sources = {ItemRef(one.item_type, one.item_id).key: one for one in walk(app.root(name)) if one.item_id}
        refs = [ref for ref in address.refs() if ref.key in sources]
        if ref := only_one(refs, address.item_id):
            return app.local(name), sources[ref.key]
    return None


def place_item(ai_dir: Path, envelope: Envelope, files: Mapping[str, bytes], *, overwrite: bool = False) -> SourceFile:
    """Write the files of a verified item and its signature below `ai_dir`, and return the main file.

    Of a skill, the folder is replaced as a whole: an interruption leaves the old one or the new one.

    Raises
    ------
    UsageError, SourceUnreadable, MalformedEnvelope
        As `check_place`.
    StoreFull, StoreError
        When a file cannot be written; of files that belong together none is replaced then.
    """
    placed = check_place(ai_dir, envelope, files, overwrite=overwrite)
    if not placed.item_type.is_folder:
        (content,) = files.values()
        signature = {signature_path(placed.path): statement.signature_file(envelope)}
        write_user_files({placed.path: content, **signature})
        return placed
    write_skill(placed.path.parent, envelope, files)
    return placed


async def add_item(
    app: Services, to: Collection, candidate: ItemCandidate, *, overwrite: bool
) -> tuple[Admission, SourceFile]:  # fmt: skip
    """Admit a signed item, write its files and its signature below the folder of a local tier, and index it there.

    It is admitted before it is written: a refused item must not replace a file. The caller holds ``to.writing()``.

    Raises
    ------
    Rejected
        When the tier does not admit it.
    KiwiError
        As `place_item`.
    """
    signed = root_of(to), envelope_of(candidate), candidate.files
    check_place(*signed, overwrite=overwrite)
    admission = await ingest.admit(candidate, to, app.gate)
    placed = place_item(*signed, overwrite=overwrite)
    await ingest.store(read(placed, to, app.gate), admission, to, app.writer)
    return admission, placed


def check_place(ai_dir: Path, envelope: Envelope, files: Mapping[str, bytes], *, overwrite: bool = False) -> SourceFile:
    """Return the main file of an item that would be written below `ai_dir`; nothing is written.

    Raises
    ------
    UsageError
        When the item exists with other content and `overwrite` is not set, a skill and another item would share a
        folder, or Windows cannot write one of its names.
    SourceUnreadable
        When a symbolic link leads out of `ai_dir`.
    MalformedEnvelope
        When `files` are not exactly those that were signed.
    """
    signed = statement.parse_item(envelope.payload)
    digests = {name: sha256_hex(data) for name, data in files.items()}
    if digests != signed.digests or signed.main != signed.ref.main_file:
        raise MalformedEnvelope(f"the files of {signed.ref} are not those that were signed")
    placed = find_place(ai_dir, signed.ref, files)
    path = placed.path
    if path.exists() and not overwrite and not _is_same(placed, ai_dir, signed, files):
        raise UsageError(f"{path} exists with other content", hint="compare them, then use --force to overwrite it")
    return placed


def check_names(ref: ItemRef, files: Iterable[str]) -> None:
    """Raise `UsageError` on Windows if it cannot write a file of an item by its name."""
    for name in () if HAS_MODES else files:
        if problem := windows_problem(PureWindowsPath(ref.item_id, name)):
            hint = f"ask its author to rename it; kiwi show {ref} prints it"
            raise UsageError(f"{name} of {ref} cannot be written on Windows: {problem}", hint=hint)


def find_place(ai_dir: Path, ref: ItemRef, files: Iterable[str]) -> SourceFile:
    """Return the main file of an item with these files, whatever is there now; raise as `check_place` does."""
    path = path_of(ai_dir, ref)
    folder = path.parent
    check_names(ref, files)
    linked = path.is_symlink() or (ref.item_type.is_folder and folder.is_symlink())
    if linked or not folder.resolve().is_relative_to(ai_dir.resolve()):
        raise SourceUnreadable(f"{path} leads out of {ai_dir} through a symbolic link", hint="remove the link")
    if ref.item_type.is_folder:
        _check_folder(ai_dir, folder)
    return SourceFile(path, ref.item_type, ref.item_id)


def _check_folder(ai_dir: Path, folder: Path) -> None:
    """Raise `UsageError` if a skill in `folder` would be inside of another, or would replace what is no skill."""
    main = ItemType.SKILL.folder
    for outer in folder.relative_to(ai_dir / main).parents:
        if outer.name and (ai_dir / main / outer / "SKILL.md").exists():
            raise UsageError(f"{folder} is inside of the skill {ai_dir / main / outer}", hint="remove one of the two")
    if folder.exists() and not (folder / "SKILL.md").is_file():
        raise UsageError(f"{folder} exists and is not a skill", hint="move it away; it is not overwritten")


def _is_same(placed: SourceFile, ai_dir: Path, signed: ItemStatement, files: Mapping[str, bytes]) -> bool:
    found = read_item(placed, ai_dir)
    expected = files, signed.executables
    return not isinstance(found, Finding) and (found.files, found.executables) == expected


def check_removable(source: SourceFile) -> None:
    """Raise `SourceUnreadable` when a folder on the way to an item is a link; nothing is removed."""
    folders = source.item_id.count("/") + 1 + source.item_type.is_folder  # up to that of the type
    for folder in source.path.parents[:folders]:
        if folder.is_symlink():
            raise SourceUnreadable(f"{folder} is a symbolic link", hint="remove the link")


def remove_files(source: SourceFile) -> None:
    """Remove an item and its signature, of a skill the whole folder; a missing one is no error.

    Raises
    ------
    SourceUnreadable, StoreError
        As `check_removable`, or when it cannot be removed.
    """
    check_removable(source)
    with disk_errors(source.path, "remove"):
        if source.item_type.is_folder:
            remove_folder(source.path.parent)
            return
        source.path.unlink(missing_ok=True)
        signature_path(source.path).unlink(missing_ok=True)
