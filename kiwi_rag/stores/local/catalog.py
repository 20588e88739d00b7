"""Reads and writes of the catalog. Blocking; the callers hold the locks and open the transactions."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from kiwi_rag.errors import FingerprintMismatch
from kiwi_rag.lexical import terms
from kiwi_rag.model import Admission, EmbeddingRecord, Filters, Item, StoredItem
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.stores.base import timestamp
from kiwi_rag.stores.local.records import item_row, item_tags, passage_row, stored_item

# One statement for all combinations of filters: each is a parameter, and an empty one matches every item. A tag filter
# matches items that have all of its tags, so their number is compared.
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
    signatures, key_id, principal, policy, admitted_at, signed_at, metadata, category, author,
    file_type, service, domain)
VALUES (:item_type, :item_id, :folded_id, :namespace, :version, :digest, :content_sha256, :payload_type, :payload,
    :signatures, :key_id, :principal, :policy, :admitted_at, :signed_at, :metadata, :category, :author,
    :file_type, :service, :domain)
"""
_INSERT_PASSAGE = """
INSERT INTO passages (item_key, ordinal, text, context, heading, start_line, end_line, kind, file, length)
VALUES (:item_key, :ordinal, :text, :context, :heading, :start_line, :end_line, :kind, :file, :length)
"""
_FILES = """
SELECT f.path, CAST(b.content AS BLOB) FROM item_files f JOIN blobs b USING (sha256)
WHERE f.item_key = :key AND (:names IS NULL OR f.path IN (SELECT value FROM json_each(:names)))
"""
# Two items may have one content. What it holds is compared, so that a damaged one is written anew.
_PUT_BLOB = """
INSERT INTO blobs (sha256, content) VALUES (?, ?)
ON CONFLICT DO UPDATE SET content = excluded.content WHERE content <> excluded.content
"""
_PASSAGE_COLUMNS = ("ordinal", "text", "context", "heading", "start_line", "end_line", "kind", "file")


def meta(connection: sqlite3.Connection, name: str) -> Any:
    """Return one value of the catalog's meta table; None when there is none."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return row[0] if row else None


def state(connection: sqlite3.Connection) -> str:
    """Name the catalog's content: another name after every write, and for another catalog in the same place."""
    return f"{meta(connection, 'catalog_id')}/{meta(connection, 'generation')}"


def set_meta(connection: sqlite3.Connection, name: str, value: str | int) -> None:
    """Set one value of the catalog's meta table."""
    connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))


def increment_generation(connection: sqlite3.Connection) -> None:
    """Increment the generation, by which readers notice that their caches are out of date."""
    connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'generation'")


def put_item(connection: sqlite3.Connection, admission: Admission, records: Sequence[EmbeddingRecord]) -> None:
    """Write an item with its passages, unless this very item is stored, inside the caller's transaction."""
    _check_fingerprint(connection, records[0])
    row = item_row(admission)
    if _is_stored(connection, row, records):
        return
    remove_item(connection, ItemRef(admission.ref.item_type, admission.ref.item_id))
    _record_version(connection, row)
    _insert(connection, row, admission, records)
    increment_generation(connection)


def _insert(
    connection: sqlite3.Connection, row: Mapping[str, Any], admission: Admission, records: Sequence[EmbeddingRecord]
) -> None:
    item_key = connection.execute(_INSERT_ITEM, row).lastrowid
    tags = [(item_key, tag) for tag in item_tags(admission)]
    connection.executemany("INSERT INTO tags (item_key, tag) VALUES (?, ?)", tags)
    if admission.ref.item_type is not ItemType.DOCUMENT:
        _insert_files(connection, item_key, admission.item)
    term_lists = [terms(record.passage.indexed_text) for record in records]
    # One by one, because `executemany` does not return the keys, which postings and vectors need.
    keys = [
        connection.execute(_INSERT_PASSAGE, passage_row(int(item_key or 0), record.passage, len(term_list))).lastrowid
        for record, term_list in zip(records, term_lists, strict=True)
    ]
    postings = [(key, " ".join(term_list)) for key, term_list in zip(keys, term_lists, strict=True)]
    connection.executemany("INSERT INTO postings (rowid, terms) VALUES (?, ?)", postings)
    vectors = [(key, _vector_bytes(record)) for key, record in zip(keys, records, strict=True)]
    connection.executemany("INSERT INTO vectors (passage_key, vector) VALUES (?, ?)", vectors)


def _insert_files(connection: sqlite3.Connection, item_key: int | None, item: Item) -> None:
    digests = item.digests
    contents = [(digest, item.files[path]) for path, digest in digests.items()]
    connection.executemany(_PUT_BLOB, contents)
    rows = [(item_key, path, digest) for path, digest in digests.items()]
    connection.executemany("INSERT INTO item_files (item_key, path, sha256) VALUES (?, ?, ?)", rows)


def _vector_bytes(record: EmbeddingRecord) -> bytes:
    """Return the stored form of a vector: little-endian ``float32``."""
    return record.vector.astype("<f4").tobytes()


def _check_fingerprint(connection: sqlite3.Connection, record: EmbeddingRecord) -> None:
    stored, dimension = meta(connection, "fingerprint"), len(record.vector)
    if not meta(connection, "passages"):
        set_meta(connection, "fingerprint", record.fingerprint)
        set_meta(connection, "dimension", dimension)
    elif (stored, meta(connection, "dimension")) != (record.fingerprint, dimension):
        raise FingerprintMismatch(
            f"the stored vectors are of {stored}, not of {record.fingerprint}",
            hint="index again with one model: kiwi index --rebuild",
        )


def _is_stored(connection: sqlite3.Connection, row: Mapping[str, Any], records: Sequence[EmbeddingRecord]) -> bool:
    """Whether this very item is stored with these passages and vectors; the time of admission may differ."""
    old = connection.execute(_GET, (row["item_type"], row["folded_id"])).fetchone()
    if old is None or any(old[name] != value for name, value in row.items() if name != "admitted_at"):
        return False
    stored = connection.execute(
        "SELECT ordinal, text, context, heading, start_line, end_line, kind, file, vector "
        "FROM passages JOIN vectors USING (passage_key) WHERE item_key = ? ORDER BY ordinal",
        (old["item_key"],),
    )
    wanted = sorted((r.passage.ordinal, r) for r in records)
    rows = [(*(passage_row(0, r.passage, 0)[n] for n in _PASSAGE_COLUMNS), _vector_bytes(r)) for _, r in wanted]
    return [tuple(s) for s in stored] == rows


def _record_version(connection: sqlite3.Connection, row: Mapping[str, Any]) -> None:
    if not row["version"]:  # documents have no versions
        return
    # IGNORE: the first content of a version stays recorded for good, so that other content under it is noticed.
    connection.execute(
        "INSERT OR IGNORE INTO versions (item_type, folded_id, version, content_sha256, digest, seen_at) "
        "VALUES (:item_type, :folded_id, :version, :content_sha256, :digest, :admitted_at)",
        row,
    )


def remove_item(connection: sqlite3.Connection, ref: ItemRef) -> bool:
    """Remove an item with its passages, vectors and postings, inside the caller's transaction."""
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
    """Remove items by their keys, with their passages, vectors and postings."""
    keys = json.dumps(list(item_keys))
    # Postings first, and by hand: a virtual table has no foreign key, and no trigger may reach it.
    connection.execute(
        "DELETE FROM postings WHERE rowid IN (SELECT passage_key FROM passages WHERE item_key IN "
        "(SELECT value FROM json_each(?)))",
        (keys,),
    )
    connection.execute("DELETE FROM items WHERE item_key IN (SELECT value FROM json_each(?))", (keys,))
    increment_generation(connection)


def get_item(connection: sqlite3.Connection, ref: ItemRef, files: Sequence[str] | None) -> StoredItem | None:
    """Return the item with the files of these names, or all of them; None when it is not stored in that version."""
    item_type, folded = ref.key
    row = connection.execute(_GET, (item_type.value, folded)).fetchone()
    if row is None or ref.version not in (None, row["version"]):
        return None
    names = None if files is None else json.dumps(list(files))
    found = connection.execute(_FILES, {"key": row["item_key"], "names": names})
    return stored_item(row, dict(found.fetchall()))


def digests(connection: sqlite3.Connection) -> dict[ItemRef, str]:
    """Return the statement's digest of every item, by its reference without a version."""
    rows = connection.execute("SELECT item_type, item_id, digest FROM items")
    types = {one.value: one for one in ItemType}
    return {ItemRef(types[item_type], item_id): digest for item_type, item_id, digest in rows}


def list_items(connection: sqlite3.Connection, filters: Filters) -> list[StoredItem]:
    """Return the items that match, ordered by type and id."""
    keys = json.dumps(matching_items(connection, filters))
    return [stored_item(row) for row in connection.execute(_LIST, (keys,))]


def matching_items(connection: sqlite3.Connection, filters: Filters) -> list[int]:
    """Return the keys of the items that pass the filters."""
    return [row[0] for row in connection.execute(_MATCHING, _filter_parameters(filters)).fetchall()]


def history(connection: sqlite3.Connection, ref: ItemRef) -> dict[str, str]:
    """Return every version ever stored, as version → content sha256 (hex)."""
    item_type, folded = ref.key
    rows = connection.execute(
        "SELECT version, content_sha256 FROM versions WHERE item_type = ? AND folded_id = ?", (item_type.value, folded)
    )
    return {row["version"]: row["content_sha256"] for row in rows}


def _filter_parameters(filters: Filters) -> dict[str, str | int]:
    tags = sorted(set(filters.tags))
    # ``*`` and ``?`` mean the same in GLOB. ``[`` is literal in a filter, and written ``[[]`` in GLOB.
    path = filters.path.rstrip("/").replace("[", "[[]")
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


def clear(connection: sqlite3.Connection) -> None:
    """Remove all items; versions and audit stay."""
    remove_keys(connection, matching_items(connection, Filters()))
