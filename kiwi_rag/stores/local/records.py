"""Rows of the catalog ↔ records of the house."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kiwi_rag.errors import StoreCorrupt
from kiwi_rag.model import Admission, Envelope, Passage, StoredItem
from kiwi_rag.refs import ItemRef, ItemType
from kiwi_rag.stores.base import SourceStamp

__all__ = ["SourceStamp"]


def timestamp(moment: datetime) -> str:
    """Return `moment` in UTC with microseconds, so that text order is time order; naive means UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="microseconds")


def item_row(admission: Admission, path: str) -> dict[str, Any]:
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
        "path": path,
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


def stored_item(row: sqlite3.Row) -> StoredItem:
    """Return an item from a row of ``items`` that also has its ``passages`` counted.

    Raises
    ------
    StoreCorrupt
        When the row holds what Kiwi never writes.
    """
    try:
        return _stored_item(row)
    except (ValueError, TypeError) as error:
        raise StoreCorrupt(f"a row of the catalog cannot be read: {error}", hint="kiwi index --rebuild") from error


def _stored_item(row: sqlite3.Row) -> StoredItem:
    pairs = tuple((key, base64.b64decode(raw)) for key, raw in json.loads(row["signatures"]))
    return StoredItem(
        ref=item_ref(row),
        envelope=Envelope(row["payload_type"], row["payload"], pairs),
        digest=row["digest"],
        content_sha256=row["content_sha256"],
        admitted_at=datetime.fromisoformat(row["admitted_at"]),
        policy=row["policy"],
        path=row["path"],
        passages=row["passages"],
    )


def item_ref(row: sqlite3.Row) -> ItemRef:
    """Return the reference that a row of ``items`` is about."""
    return ItemRef(ItemType(row["item_type"]), row["item_id"], row["version"] or None)


def passage(row: sqlite3.Row) -> Passage:
    """Return a passage from a row of ``passages``."""
    heading = tuple(json.loads(row["heading"]))
    lines = row["start_line"], row["end_line"]
    return Passage(row["ordinal"], row["text"], row["context"], heading, *lines, row["kind"])


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
        "length": length,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
