"""The files and folders of other tools that can be imported as items: which there are, and reading them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from kiwi_rag.errors import InvalidItemId, KiwiError, Rejected, UsageError
from kiwi_rag.formats import imported
from kiwi_rag.formats.source import LEFT_BEHIND, MAX_BYTES, ItemCandidate, SourceFile, display_path, read_item, strays
from kiwi_rag.model import Finding, ItemType, check_item_id
from kiwi_rag.sources.workspace.config import git_root
from kiwi_rag.sources.workspace.source import walk
from kiwi_rag.storage.safe_open import read_linked

_SKILL = "SKILL.md"
_TEXTS = (*imported.MARKDOWN, ".py")
_LEFT_OUT = LEFT_BEHIND - {".env"} | {".gitignore"}
"""What a skill's folder may have beside the skill."""
MAX_TAGS, MAX_TAG_LENGTH = 20, 64
"""Of patterns of file names that become tags."""


@dataclass(frozen=True, slots=True)
class ImportableFile:
    """A file, or a skill's folder, that may become an item: what it is, its candidate, tags from other tools' metadata.

    ``is_signed`` is set where the candidate keeps the signature that it has.
    """

    kind: str
    candidate: ItemCandidate
    tags: tuple[str, ...] = ()
    is_signed: bool = False

    @property
    def content(self) -> str:
        """The text of the main file."""
        return self.candidate.files[self.candidate.main].decode(errors="replace")


def find(paths: Sequence[Path], ai_dir: Path, namespace: str, failed: dict[str, KiwiError]) -> Iterator[ImportableFile]:
    """Yield what can be imported at or below `paths`, once each; `failed` gets path → why it cannot be read or named.

    Of the folder `ai_dir`, where the items stand, those files are meant that belong to no item.

    Raises
    ------
    UsageError
        When a path does not exist, or is an item.
    """
    seen: set[Path] = set()
    for path in paths:
        for base, name in _names(path, ai_dir.resolve(), failed):
            if base / name in seen:
                continue
            seen.add(base / name)
            try:
                if found := _read(base, name, namespace):
                    yield found
            except KiwiError as error:
                failed[display_path(base / name)] = error


def _names(path: Path, ai_dir: Path, failed: dict[str, KiwiError]) -> Iterator[tuple[Path, str]]:
    """Yield (folder, path below it) of each file at `path`, which names the item's id; of a skill its main file."""
    real = path.resolve()
    others = set(strays(ai_dir)) if real.is_relative_to(ai_dir) else None
    if real.is_file() and real.name.lower() != _SKILL.lower():
        if others is not None and real not in others:
            raise UsageError(f"{path} is an item, or a file of Kiwi", hint=f"kiwi add {path}")
        if real.suffix.lower() not in (*_TEXTS, ".txt", ""):
            raise UsageError(f"{path} is no text of a kind that can be an item", hint="name Markdown, or a folder")
        yield real.parent, real.name
        return
    folder = real.parent if real.is_file() else real
    if not folder.is_dir():
        raise UsageError(f"{path} does not exist", hint="name files or folders, such as docs or .cursor/rules")
    files = _walk(folder, failed) if others is None else sorted(other for other in others if folder in other.parents)
    yield from ((folder, name) for name in _without_parts([file.relative_to(folder).as_posix() for file in files]))


def _walk(folder: Path, failed: dict[str, KiwiError]) -> list[Path]:
    """Return the files below a folder that neither git nor Kiwi ignores there."""
    root = git_root(folder) or folder
    errors: dict[str, KiwiError] = {}
    files = [root / found.path for found in walk(root, "/".join(folder.relative_to(root).parts), errors)]
    of_interest = (*_TEXTS, "")  # the last is of folders
    failed.update({display_path(root / n): e for n, e in errors.items() if PurePosixPath(n).suffix in of_interest})
    return files


def _without_parts(names: Sequence[str]) -> Iterator[str]:
    """Yield the names of texts that are no part of a skill, and the main file of each skill that is in no other."""
    skills: list[str] = []
    for name in sorted(names, key=len):
        if PurePosixPath(name).name.lower() == _SKILL.lower() and not name.startswith(tuple(skills)):
            skills.append(name[: -len(_SKILL)])
            yield name
    for name in names:
        is_text = PurePosixPath(name).suffix.lower() in _TEXTS
        if is_text and not name.startswith(tuple(skills)):
            yield name


def _read(base: Path, name: str, namespace: str) -> ImportableFile | None:
    path = base / name
    if path.name.lower() == _SKILL.lower():
        return _read_skill(base, path, namespace)
    data = read_linked(path, base, MAX_BYTES)
    content = data.decode(errors="replace")
    recognised = imported.recognise(path.as_posix(), content)
    if recognised is None:
        return None
    kind, item_type = recognised
    item_id = check_item_id(f"{namespace}/{imported.id_of(name)}")
    tags = _cursor_tags(imported.loose_metadata(content)) if item_type is ItemType.KNOWLEDGE else ()
    return ImportableFile(kind, ItemCandidate.of_file(item_type, item_id, data, display_path(path)), tags)


def _cursor_tags(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the patterns of files for which a rule of Cursor is, and ``always`` for one that always applies."""
    always = ("always",) if metadata.get("alwaysApply") == "true" else ()
    return tuple(glob for glob in metadata["globs"] if len(glob) <= MAX_TAG_LENGTH)[:MAX_TAGS] + always


def _read_skill(base: Path, path: Path, namespace: str) -> ImportableFile:
    source = SourceFile(path, ItemType.SKILL, namespace)
    found = read_item(source, base, without=_LEFT_OUT)
    if isinstance(found, Finding):
        raise Rejected(found.path, [found])
    files = {_SKILL if name == path.name else name: data for name, data in found.files.items()}
    return ImportableFile("skill", _as_skill(replace(found, files=files), path.parent.name, namespace))


def _as_skill(found: ItemCandidate, folder: str, namespace: str) -> ItemCandidate:
    """Return a skill's candidate with an id: of the name that it declares, or of its folder's."""
    declared = imported.loose_metadata(found.files[_SKILL].decode(errors="replace")).get("name", "")
    name = declared if declared and imported.segment_of(declared) == declared else imported.segment_of(folder)
    if not name:
        raise InvalidItemId(f"{folder!r} has no ASCII letter or digit for an id", hint="name the skill in its SKILL.md")
    return replace(found, item_id=check_item_id(f"{namespace}/{name.replace('_', '-')}"))


def of_index(
    name: str, files: Mapping[str, bytes], executables: tuple[str, ...], namespace: str, path: str
) -> ImportableFile:
    """Return a skill of an index (``.well-known/agent-skills``), whose files were read and checked by their digests."""
    signature = files.get(f"{_SKILL}.sig")
    kept = {file: data for file, data in files.items() if file != f"{_SKILL}.sig"}
    found = ItemCandidate(ItemType.SKILL, namespace, kept, _SKILL, executables, signature, path=path)
    return ImportableFile("skill", _as_skill(found, name, namespace))
