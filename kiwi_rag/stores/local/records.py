"""Conversion between rows of the catalog and Kiwi's records, and a cache of the records that searches read."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from kiwi_rag.errors import StoreCorrupt
from kiwi_rag.model import Admission, Envelope, Passage, StoredItem
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.stores.base import timestamp


def item_row(admission: Admission) -> dict[str, Any]:
    """Return the columns of ``items`` for an admission."""
    item, envelope = admission.item, admission.envelope
    return {
        "item_type": item.ref.item_type.value,
        "item_id": item.ref.item_id,
        "folded_id": item.ref.key[1],
        "namespace": item.ref.namespace,
        "version": item.ref.version or "",
        "digest": admission.digest,
        "content_sha256": item.content_sha256,
        "payload_type": envelope.payload_type,
        "payload": envelope.payload,
        "signatures": signatures_text(envelope),
        "key_id": admission.key_id,
        "principal": admission.principal,
        "policy": admission.policy,
        "admitted_at": timestamp(admission.admitted_at),
        "signed_at": timestamp(admission.signed_at),
        "metadata": json.dumps(_plain(item.metadata), ensure_ascii=False, sort_keys=True),
        "category": str(item.metadata.get("category") or ""),
        "author": str(item.metadata.get("author") or ""),
        **{name: str(item.metadata.get(name) or "") for name in ("file_type", "service", "domain")},
    }


def item_tags(admission: Admission) -> tuple[str, ...]:
    """Return the distinct tags of an item."""
    return tuple(dict.fromkeys(str(tag) for tag in admission.item.metadata.get("tags") or ()))


def signatures_text(envelope: Envelope) -> str:
    """Return an envelope's signatures as JSON, each ``[keyid, base64]``."""
    return json.dumps([[key, base64.b64encode(raw).decode()] for key, raw in envelope.signatures])


def stored_item(row: sqlite3.Row, files: Mapping[str, bytes] | None = None) -> StoredItem:
    """Return an item from a row of ``items`` with the number of its ``passages``, and some of its files.

    Raises
    ------
    StoreCorrupt
        When the row has a value that Kiwi never writes.
    """
    try:
        return _stored_item(row, files or {})
    except (ValueError, TypeError) as error:
        raise StoreCorrupt(f"a row of the catalog cannot be parsed: {error}", hint="kiwi index --rebuild") from error


def _stored_item(row: sqlite3.Row, files: Mapping[str, bytes]) -> StoredItem:
    pairs = tuple((key, base64.b64decode(raw)) for key, raw in json.loads(row["signatures"]))
    return StoredItem(
        ref=item_ref(row),
        envelope=Envelope(row["payload_type"], row["payload"], pairs),
        digest=row["digest"],
        content_sha256=row["content_sha256"],
        admitted_at=datetime.fromisoformat(row["admitted_at"]),
        policy=row["policy"],
        passages=row["passages"],
        files=files,
    )


def item_ref(row: sqlite3.Row) -> ItemRef:
    """Return the reference of a row of ``items``."""
    return ItemRef(ItemType(row["item_type"]), row["item_id"], row["version"] or None)


def passage(row: sqlite3.Row) -> Passage:
    """Return a passage from a row of ``passages``."""
    heading = tuple(json.loads(row["heading"]))
    lines = row["start_line"], row["end_line"]
    return Passage(row["ordinal"], row["text"], row["context"], heading, *lines, row["kind"], row["file"])


def passage_row(item_key: int, value: Passage, length: int) -> dict[str, Any]:
    """Return the columns of ``passages``; `length` in terms."""
    return {
        "item_key": item_key,
        "ordinal": value.ordinal,
        "text": value.text,
        "context": value.context,
        "heading": json.dumps(list(value.heading), ensure_ascii=False),
        "start_line": value.start_line,
        "end_line": value.end_line,
        "kind": value.kind,
        "file": value.file,
        "length": length,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


MAX_CACHED = 20_000

_PASSAGES = """
SELECT passage_key, ordinal, text, context, heading, start_line, end_line, kind, file
FROM passages WHERE passage_key IN (SELECT value FROM json_each(?))
"""
_ITEMS = """
SELECT item_key, item_type, item_id, version, digest, content_sha256, metadata, key_id, signed_at
FROM items WHERE item_key IN (SELECT value FROM json_each(?))
"""

Cached = TypeVar("Cached")
Read = Callable[[sqlite3.Connection, list[int]], Iterable[tuple[int, Cached]]]


class ItemDetails(NamedTuple):
    """The fields that all candidates of one item share."""

    ref: ItemRef
    digest: str
    content_sha256: str
    metadata: Mapping[str, Any]
    key_id: str
    signed_at: datetime


class DetailsCache:
    """Items and passages by their keys, up to `MAX_CACHED` of each."""

    def __init__(self) -> None:
        self._items: dict[int, ItemDetails] = {}
        self._passages: dict[int, Passage] = {}

    def items(self, connection: sqlite3.Connection, keys: Iterable[int]) -> Mapping[int, ItemDetails]:
        """Return a mapping with at least these item keys."""
        return _complete(connection, self._items, keys, _read_items)

    def passages(self, connection: sqlite3.Connection, keys: Iterable[int]) -> Mapping[int, Passage]:
        """Return a mapping with at least these passage keys."""
        return _complete(connection, self._passages, keys, _read_passages)


def _complete(
    connection: sqlite3.Connection, cache: dict[int, Cached], keys: Iterable[int], read: Read[Cached]
) -> Mapping[int, Cached]:
    """Read the keys that are missing in `cache`; return it."""
    missing = [key for key in keys if key not in cache]
    if not missing:
        return cache
    fresh = dict(read(connection, missing))
    if len(cache) + len(fresh) > MAX_CACHED:
        requested = {key: cache[key] for key in keys if key in cache}
        cache.clear()
        cache.update(requested)
    cache.update(fresh)
    return cache


def _read_items(connection: sqlite3.Connection, keys: list[int]) -> Iterator[tuple[int, ItemDetails]]:
    for row in connection.execute(_ITEMS, (json.dumps(keys),)):
        signed_at = datetime.fromisoformat(row["signed_at"])
        metadata = json.loads(row["metadata"])
        details = ItemDetails(item_ref(row), row["digest"], row["content_sha256"], metadata, row["key_id"], signed_at)
        yield row["item_key"], details


def _read_passages(connection: sqlite3.Connection, keys: list[int]) -> Iterator[tuple[int, Passage]]:
    for row in connection.execute(_PASSAGES, (json.dumps(keys),)):
        yield row["passage_key"], passage(row)
