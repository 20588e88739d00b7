"""Bytes on disk → items with metadata, sections and true line ranges. One module a format.

Parsing never raises for bad content: it collects findings. `parse_item` parses; `walk`, `locate` and `read_source`
find and read the files.
"""

from __future__ import annotations

from kiwi_rag.formats.outcome import ParseOutcome
from kiwi_rag.formats.source import (
    MAX_BYTES,
    ItemFiles,
    SourceFile,
    display_path,
    item_id_of,
    locate,
    path_of,
    read_item,
    read_source,
    signature_path,
    walk,
)
from kiwi_rag.model.refs import ItemType

__all__ = [
    "MAX_BYTES",
    "ItemFiles",
    "ParseOutcome",
    "SourceFile",
    "display_path",
    "item_id_of",
    "locate",
    "parse_item",
    "path_of",
    "read_item",
    "read_source",
    "signature_path",
    "walk",
]


def parse_item(item_type: ItemType, item_id: str, content: str, path: str = "") -> ParseOutcome:
    """Parse the main file of an item of this type and id; `path` is only named in findings.

    Raises
    ------
    InvalidItemId
        If `item_id` is not legal: which is an error of the caller, not of the content.
    """
    from kiwi_rag.formats import directive, knowledge, script, skill
    from kiwi_rag.model.refs import ItemRef, check_item_id

    if item_type is ItemType.SKILL:
        return skill.parse(check_item_id(item_id), {ItemRef(item_type, item_id).main_file: content.encode()}, (), path)
    parsers = {ItemType.DIRECTIVE: directive.parse, ItemType.SCRIPT: script.parse, ItemType.KNOWLEDGE: knowledge.parse}
    return parsers[item_type](check_item_id(item_id), content, path)
