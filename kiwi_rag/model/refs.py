"""Item references: type, id and version. Imports only the errors from Kiwi."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from kiwi_rag.errors import InvalidItemId

_SEGMENT = re.compile(r"[a-z0-9][a-z0-9_-]*")
MAX_ID_SEGMENTS = 8
MAX_ID_LENGTH = 128


class ItemType(StrEnum):
    """The types of signed content: four kinds of item, and documents, which are no items."""

    DIRECTIVE = "directive"
    SCRIPT = "script"
    KNOWLEDGE = "knowledge"
    SKILL = "skill"
    DOCUMENT = "document"

    @property
    def folder(self) -> str:
        """Name of the folder below ``.ai/`` that holds this type."""
        return "knowledge" if self is ItemType.KNOWLEDGE else f"{self.value}s"

    @property
    def suffix(self) -> str:
        """File suffix of this type, with its dot."""
        return ".py" if self is ItemType.SCRIPT else ".md"

    @property
    def is_folder(self) -> bool:
        """Whether an item of this type is a folder of files, and not one file."""
        return self is ItemType.SKILL


ITEM_TYPES = (ItemType.DIRECTIVE, ItemType.SCRIPT, ItemType.KNOWLEDGE, ItemType.SKILL)
"""The four kinds of item, which are below ``.ai/`` and can be published; by default a signer may sign these."""


def check_item_id(item_id: str) -> str:
    """Return `item_id` if it is legal.

    Legal is 1–8 ASCII segments ``[a-z0-9][a-z0-9_-]*`` joined by ``/``, 128 characters at most.

    Raises
    ------
    InvalidItemId
        When it is not; the message names the rule.
    """
    segments = item_id.split("/")
    if len(item_id) > MAX_ID_LENGTH or len(segments) > MAX_ID_SEGMENTS:
        limits = f"{MAX_ID_SEGMENTS} segments or {MAX_ID_LENGTH} characters"
        raise InvalidItemId(f"item id {item_id[:40]!r}… has over {limits}")
    if not all(_SEGMENT.fullmatch(segment) for segment in segments):
        hint = "use ASCII lower case, digits, '-' and '_'; rename the file or folder"
        raise InvalidItemId(f"item id {item_id!r} is not made of segments [a-z0-9][a-z0-9_-]* joined by '/'", hint=hint)
    return item_id


def fold_item_id(item_id: str) -> str:
    """Return the form under which two ids are the same id: case, ``-`` and ``_`` folded."""
    return item_id.lower().replace("_", "-")


@dataclass(frozen=True, slots=True, order=True)
class ItemRef:
    """Names an item, or one version of it: ``directive:acme/deploy/staging@1.2.0``; or a document by its path."""

    item_type: ItemType
    item_id: str
    version: str | None = None

    def __str__(self) -> str:
        version = f"@{self.version}" if self.version else ""
        return f"{self.item_type}:{self.item_id}{version}"

    @property
    def key(self) -> tuple[ItemType, str]:
        """Type and folded id: equal for two references to the same item. A document's path is not folded."""
        if self.item_type is ItemType.DOCUMENT:
            return self.item_type, self.item_id
        return self.item_type, fold_item_id(self.item_id)

    @property
    def main_file(self) -> str:
        """Name of the item's main file, in the folder that holds the item's files."""
        if self.item_type.is_folder:
            return "SKILL.md"
        return self.item_id.rpartition("/")[2] + self.item_type.suffix

    @property
    def namespace(self) -> str:
        """First segment of the id."""
        return self.item_id.partition("/")[0]
