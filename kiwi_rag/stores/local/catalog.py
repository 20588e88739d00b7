"""What is written to and read from the catalog, item by item. Plain and blocking; callers hold the locks."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from kiwi_rag.errors import FingerprintMismatch
from kiwi_rag.lexical import terms
from kiwi_rag.model import Admission, EmbeddingRecord, Filters, StoredItem
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.stores.local.records import (
    SourceStamp,
    item_row,
    item_tags,
    passage_row,
    stored_item,
    timestamp,
)

# Every filter is a parameter, and an empty one does not narrow: one statement, whatever is asked.
_MATCHING = """
SELECT i.item_key FROM items i WHERE
    (:item_type = '' OR i.item_type = :item_type) AND (:category = '' OR i.category = :category)
    AND (:author = '' OR i.author = :author) AND (:namespace = '' OR i.namespace = :namespace)
    AND (:signer = '' OR i.principal = :signer OR i.key_id = :signer) AND (:since = '' OR i.signed_at >= :since)
    AND (:file_types = '[]' OR i.file_type IN (SELECT value FROM json_each(:file_types)))
    AND (:service = '' OR i.service = :service) AND (:domain = '' OR i.domain = :domain)
    AND (:path = '' OR i.item_id GLOB :path OR i.item_id GLOB :below)
    AND (:tag_count = 0 OR :tag_count = (
        SELECT count(*) FROM tags t WHERE t.item_key = i.item_key AND t.tag IN (SELECT value FROM json_each(:tags))))
"""
_LIST = """
SELECT i.*, (SELECT count(*) FROM passages p WHERE p.item_key = i.item_key) AS passages
FROM items i WHERE i.item_key IN (SELECT value FROM json_each(?)) ORDER BY i.item_type, i.item_id
"""
_GET = """
SELECT i.*, (SELECT count(*) FROM passages p WHERE p.item_key = i.item_key) AS passages
FROM items i WHERE i.item_type = ? AND i.folded_id = ?
"""
_INSERT_ITEM = """
INSERT INTO items (item_type, item_id, folded_id, namespace, version, digest, content_sha256, payload_type, payload,
    signatures, key_id, principal, policy, admitted_at, signed_at, path, metadata, category, author,
    file_type, service, domain)
VALUES (:item_type, :item_id, :folded_id, :namespace, :version, :digest, :content_sha256, :payload_type, :payload,
    :signatures, :key_id, :principal, :policy, :admitted_at, :signed_at, :path, :metadata, :category, :author,
    :file_type, :service, :domain)
"""
_INSERT_PASSAGE = """
INSERT INTO passages (item_key, ordinal, text, context, heading, start_line, end_line, kind, length)
VALUES (:item_key, :ordinal, :text, :context, :heading, :start_line, :end_line, :kind, :length)
"""
_PUT_SOURCE = """
INSERT OR REPLACE INTO sources (path, size, mtime_ns, sha256, sig_sha256, gate_stamp, item_type, item_id, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def meta(connection: sqlite3.Connection, name: str) -> Any:
    """Return one value of the catalog's meta table; None when there is none."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return row[0] if row else None


def state(connection: sqlite3.Connection) -> str:
    """Name what the catalog holds: another name after every write, and for a catalog that took this one's place."""
    return f"{meta(connection, 'catalog_id')}/{meta(connection, 'generation')}"


def set_meta(connection: sqlite3.Connection, name: str, value: str | int) -> None:
    """Set one value of the catalog's meta table."""
    connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))


def touch(connection: sqlite3.Connection) -> None:
    """Count up the generation, which tells every reader that what it cached is old."""
    connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'generation'")


def put_item(
    connection: sqlite3.Connection,
    admission: Admission,
    records: Sequence[EmbeddingRecord],
    source: SourceStamp | None,
) -> None:
    """Write one item wholly, inside the caller's transaction. Changes nothing when it is there already."""
    _check_fingerprint(connection, records[0])
    row = item_row(admission, source.path if source else "")
    if source:
        put_source(connection, source)
    if _is_stored(connection, row, records):
        return
    remove_item(connection, ItemRef(admission.ref.item_type, admission.ref.item_id))
    _remember_version(connection, row)
    _insert(connection, row, admission, records)
    touch(connection)


def _insert(
    connection: sqlite3.Connection, row: Mapping[str, Any], admission: Admission, records: Sequence[EmbeddingRecord]
) -> None:
    item_key = connection.execute(_INSERT_ITEM, row).lastrowid
    tags = [(item_key, tag) for tag in item_tags(admission)]
    connection.executemany("INSERT INTO tags (item_key, tag) VALUES (?, ?)", tags)
    words = [terms(record.passage.indexed_text) for record in records]
    keys = [
        connection.execute(_INSERT_PASSAGE, passage_row(int(item_key or 0), record.passage, len(found))).lastrowid
        for record, found in zip(records, words, strict=True)
    ]
    postings = [(key, " ".join(found)) for key, found in zip(keys, words, strict=True)]
    connection.executemany("INSERT INTO postings (rowid, terms) VALUES (?, ?)", postings)
    vectors = [(key, vector_bytes(record)) for key, record in zip(keys, records, strict=True)]
    connection.executemany("INSERT INTO vectors (passage_key, vector) VALUES (?, ?)", vectors)


def vector_bytes(record: EmbeddingRecord) -> bytes:
    """Return a vector as it is kept: little-endian ``float32``."""
    return record.vector.astype("<f4").tobytes()


def _check_fingerprint(connection: sqlite3.Connection, record: EmbeddingRecord) -> None:
    stored, dimension = meta(connection, "fingerprint"), len(record.vector)
    if not meta(connection, "passages"):
        set_meta(connection, "fingerprint", record.fingerprint)
        set_meta(connection, "dimension", dimension)
    elif (stored, meta(connection, "dimension")) != (record.fingerprint, dimension):
        raise FingerprintMismatch(
            f"this tier holds vectors of {stored}, not of {record.fingerprint}",
            hint="index again with one model: kiwi index --rebuild",
        )


def _is_stored(connection: sqlite3.Connection, row: Mapping[str, Any], records: Sequence[EmbeddingRecord]) -> bool:
    """Whether the very same item, passages and vectors are there; when it was admitted does not count."""
    old = connection.execute(_GET, (row["item_type"], row["folded_id"])).fetchone()
    if old is None or any(old[name] != value for name, value in row.items() if name != "admitted_at"):
        return False
    stored = connection.execute(
        "SELECT p.ordinal, p.text, p.context, p.heading, p.start_line, p.end_line, p.kind, v.vector "
        "FROM passages p JOIN vectors v USING (passage_key) WHERE p.item_key = ? ORDER BY p.ordinal",
        (old["item_key"],),
    )
    names = ("ordinal", "text", "context", "heading", "start_line", "end_line", "kind")
    wanted = sorted((r.passage.ordinal, r) for r in records)
    rows = [(*(passage_row(0, r.passage, 0)[n] for n in names), vector_bytes(r)) for _, r in wanted]
    return [tuple(s) for s in stored] == rows


def _remember_version(connection: sqlite3.Connection, row: Mapping[str, Any]) -> None:
    if not row["version"]:  # a document has none
        return
    # The first content of a version stays on record for good, whatever comes later under its name.
    connection.execute(
        "INSERT OR IGNORE INTO versions (item_type, folded_id, version, content_sha256, digest, seen_at) "
        "VALUES (:item_type, :folded_id, :version, :content_sha256, :digest, :admitted_at)",
        row,
    )


def remove_item(connection: sqlite3.Connection, ref: ItemRef) -> bool:
    """Remove an item, inside the caller's transaction; passages, vectors and postings go with it."""
    item_type, folded = ref.key
    row = connection.execute(
        "SELECT item_key FROM items WHERE item_type = :type AND folded_id = :id "
        "AND (:version = '' OR version = :version)",
        {"type": item_type.value, "id": folded, "version": ref.version or ""},
    ).fetchone()
    if row:
        remove_keys(connection, [row["item_key"]])
    return row is not None


def remove_keys(connection: sqlite3.Connection, item_keys: Sequence[int]) -> None:
    """Remove items by their keys, with all that belongs to them."""
    keys = json.dumps(list(item_keys))
    connection.execute(
        "DELETE FROM postings WHERE rowid IN (SELECT passage_key FROM passages WHERE item_key IN "
        "(SELECT value FROM json_each(?)))",
        (keys,),
    )
    connection.execute("DELETE FROM items WHERE item_key IN (SELECT value FROM json_each(?))", (keys,))
    touch(connection)


def get_item(connection: sqlite3.Connection, ref: ItemRef) -> StoredItem | None:
    """Return the item, or None when it is not there in that version."""
    item_type, folded = ref.key
    row = connection.execute(_GET, (item_type.value, folded)).fetchone()
    return stored_item(row) if row and ref.version in (None, row["version"]) else None


def list_items(connection: sqlite3.Connection, filters: Filters) -> list[StoredItem]:
    """Return the items that match, ordered by type and id."""
    keys = json.dumps(matching_items(connection, filters))
    return [stored_item(row) for row in connection.execute(_LIST, (keys,))]


def matching_items(connection: sqlite3.Connection, filters: Filters) -> list[int]:
    """Return the keys of the items that pass the filters."""
    return [row[0] for row in connection.execute(_MATCHING, _filter_parameters(filters)).fetchall()]


def history(connection: sqlite3.Connection, ref: ItemRef) -> dict[str, str]:
    """Return version → content sha256 of every version ever seen."""
    item_type, folded = ref.key
    rows = connection.execute(
        "SELECT version, content_sha256 FROM versions WHERE item_type = ? AND folded_id = ?", (item_type.value, folded)
    )
    return {row["version"]: row["content_sha256"] for row in rows}


def _filter_parameters(filters: Filters) -> dict[str, str | int]:
    tags = sorted(set(filters.tags))
    path = filters.path.rstrip("/").replace("[", "[[]")  # the one other sign that GLOB reads as more than itself
    return {
        "item_type": filters.item_type.value if filters.item_type else "",
        "category": filters.category,
        "author": filters.author,
        "namespace": filters.namespace,
        "signer": filters.signer,
        "since": timestamp(filters.since) if filters.since else "",
        "file_types": json.dumps(filters.file_types),
        "service": filters.service,
        "domain": filters.domain,
        "path": path,
        "below": f"{path}/*",
        "tags": json.dumps(tags),
        "tag_count": len(tags),
    }


def put_source(connection: sqlite3.Connection, stamp: SourceStamp) -> None:
    """Remember what a file was when it was indexed."""
    values = (stamp.path, stamp.size, stamp.mtime_ns, stamp.sha256, stamp.sig_sha256, stamp.gate_stamp)
    connection.execute(_PUT_SOURCE, (*values, stamp.item_type.value, stamp.item_id, stamp.digest))


def delete_source(connection: sqlite3.Connection, path: str) -> bool:
    """Forget a file; return whether it was known."""
    return connection.execute("DELETE FROM sources WHERE path = ?", (path,)).rowcount > 0


def all_sources(connection: sqlite3.Connection, _: None = None) -> dict[str, SourceStamp]:
    """Return path → what is remembered of every indexed file."""
    rows = connection.execute(
        "SELECT path, size, mtime_ns, sha256, sig_sha256, gate_stamp, item_type, item_id, digest FROM sources"
    )
    types = {one.value: one for one in ItemType}
    return {  # thousands of rows, each run
        path: SourceStamp(path, size, mtime_ns, sha256, sig_sha256, gate_stamp, types[item_type], item_id, digest)
        for path, size, mtime_ns, sha256, sig_sha256, gate_stamp, item_type, item_id, digest in rows
    }


def clear(connection: sqlite3.Connection) -> None:
    """Remove all items and source stamps; versions and audit stay."""
    remove_keys(connection, matching_items(connection, Filters()))
    connection.execute("DELETE FROM sources")
