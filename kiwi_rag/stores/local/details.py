"""What candidates say of themselves, scores aside, read once a generation of the catalog and kept."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from kiwi_rag.model import Passage
from kiwi_rag.refs import ItemRef
from kiwi_rag.stores.local.records import item_ref, passage

MAX_KEPT = 20_000

_PASSAGES = """
SELECT passage_key, ordinal, text, context, heading, start_line, end_line, kind
FROM passages WHERE passage_key IN (SELECT value FROM json_each(?))
"""
_ITEMS = """
SELECT item_key, item_type, item_id, version, digest, content_sha256, metadata, key_id, signed_at
FROM items WHERE item_key IN (SELECT value FROM json_each(?))
"""

Kept = TypeVar("Kept")
Read = Callable[[sqlite3.Connection, list[int]], Iterable[tuple[int, Kept]]]


class ItemDetails(NamedTuple):
    """What all candidates of one item have in common."""

    ref: ItemRef
    digest: str
    content_sha256: str
    metadata: Mapping[str, Any]
    key_id: str
    signed_at: datetime


class Details:
    """Items and passages by their keys, up to `MAX_KEPT` of each in memory."""

    def __init__(self) -> None:
        self._items: dict[int, ItemDetails] = {}
        self._passages: dict[int, Passage] = {}

    def items(self, connection: sqlite3.Connection, keys: Iterable[int]) -> Mapping[int, ItemDetails]:
        """Return item key → details, for at least the given keys."""
        return _known(connection, self._items, keys, _read_items)

    def passages(self, connection: sqlite3.Connection, keys: Iterable[int]) -> Mapping[int, Passage]:
        """Return passage key → passage, for at least the given keys."""
        return _known(connection, self._passages, keys, _read_passages)


def _known(
    connection: sqlite3.Connection, kept: dict[int, Kept], keys: Iterable[int], read: Read[Kept]
) -> Mapping[int, Kept]:
    missing = [key for key in keys if key not in kept]
    if not missing:
        return kept
    fresh = dict(read(connection, missing))
    if len(kept) + len(fresh) > MAX_KEPT:
        asked = {key: kept[key] for key in keys if key in kept}
        kept.clear()
        kept.update(asked)
    kept.update(fresh)
    return kept


def _read_items(connection: sqlite3.Connection, keys: list[int]) -> Iterator[tuple[int, ItemDetails]]:
    for row in connection.execute(_ITEMS, (json.dumps(keys),)):
        signed_at = datetime.fromisoformat(row["signed_at"])
        metadata = json.loads(row["metadata"])
        details = ItemDetails(item_ref(row), row["digest"], row["content_sha256"], metadata, row["key_id"], signed_at)
        yield row["item_key"], details


def _read_passages(connection: sqlite3.Connection, keys: list[int]) -> Iterator[tuple[int, Passage]]:
    for row in connection.execute(_PASSAGES, (json.dumps(keys),)):
        yield row["passage_key"], passage(row)
