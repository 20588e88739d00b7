"""Bytes on disk → items with metadata, sections and true line ranges. One module a format.

Parsing never raises for bad content: it collects findings. `kiwi_rag.formats.source` finds and reads the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from kiwi_rag.formats.outcome import FindingList, MalformedSource, ValidationResult
from kiwi_rag.model import Item, ItemRef, ItemType, check_item_id


def parse_item(  # noqa: PLR0913, PLR0917  # an item: its name, its files, and what was signed about them
    item_type: ItemType, item_id: str, content: str, path: str = "", files: Mapping[str, bytes] | None = None,
    given: Sequence[tuple[str, Any]] = (),
) -> ValidationResult:  # fmt: skip
    """Parse an item of this type and id; `content` is its main file.

    Parameters
    ----------
    path
        That of the main file, which findings name.
    files
        All files of a skill, of which the main one has `content`.
    given
        Of knowledge and skills, values of a statement for metadata that the files do not declare.

    Raises
    ------
    InvalidItemId
        If `item_id` is not legal: which is an error of the caller, not of the content.
    """
    main = ItemRef(item_type, check_item_id(item_id)).main_file
    found = FindingList(path)
    more = [dict(given)] if given else []  # only knowledge and skills take it
    try:
        version, metadata, sections = import_module(f"{__name__}.{item_type}").parse(item_id, content, found, *more)
    except MalformedSource as error:
        found.add(error.code, error.message, error.line, error.hint)
        return ValidationResult(None, tuple(found.found))
    files = files or {main: content.encode()}
    if len(files) > 1:
        from kiwi_rag.formats.skill import other_sections

        sections += tuple(other_sections(files, main))
    findings, ref = tuple(found.found), ItemRef(item_type, item_id, version)
    return ValidationResult(Item(ref, files, main, metadata, sections, findings), findings)
