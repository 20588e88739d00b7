"""Reads and writes of the catalog, and the conversion between its rows and Kiwi's records.

Blocking; the callers hold the locks and open the transactions.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from operator import attrgetter
from sqlite3 import Connection
from typing import Any

from kiwi_rag.errors import StoreCorrupt
from kiwi_rag.model import Admission, Envelope, Filters, Item, ItemRef, ItemType, Passage, StoredItem, Vector
from kiwi_rag.stores.base import UnembeddedDocument, require_model, timestamp
from kiwi_rag.symbols import passage_terms

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
    AND (:ids IS NULL OR i.item_id IN (SELECT value FROM json_each(:ids)))
    AND (:tag_count = 0 OR :tag_count = (
        SELECT count(*) FROM tags t WHERE t.item_key = i.item_key AND t.tag IN (SELECT value FROM json_each(:tags))))
"""
# FTS5 keeps the structure of its index in row 10: a cookie of four bytes, then the number of levels as a varint
# (sqlite.org, ext/fts5/fts5_index.c). Each ``optimize`` of SQLite before 3.44 adds a level, and none can be read that
# has over 2,000; later ones stop at 64.
_HAS_MANY_LEVELS = "SELECT substr(block, 5, 1) >= x'60' FROM postings_data WHERE id = 10"
INSERT_POSTING = "INSERT INTO postings (rowid, terms) VALUES (?, ?)"
REBUILD = "index again with one model: kiwi index --rebuild"
_SELECT = "SELECT i.*, (SELECT count(*) FROM passages p WHERE p.item_key = i.item_key) AS passages FROM items i WHERE"
_LIST = f"{_SELECT} i.item_key IN (SELECT value FROM json_each(?)) ORDER BY i.item_type, i.item_id"  # noqa: S608
_GET = f"{_SELECT} i.item_type = ? AND i.folded_id = ?"
_FILES = """
SELECT f.path, CAST(b.content AS BLOB) FROM item_files f JOIN blobs b USING (sha256)
WHERE f.item_key = :key AND (:names IS NULL OR f.path IN (SELECT value FROM json_each(:names)))
"""
# Two items may have one content. What it holds is compared, so that a damaged one is written anew.
_PUT_BLOB = """
INSERT INTO blobs (sha256, content) VALUES (?, ?)
ON CONFLICT DO UPDATE SET content = excluded.content WHERE content <> excluded.content
"""
PASSAGES = "SELECT * FROM passages WHERE passage_key IN (SELECT value FROM json_each(?))"
# The covering index gives the keys of the passages, so that their texts are not read.
_UNEMBEDDED = """
SELECT i.item_id, i.file_type, coalesce(json_extract(i.metadata, '$.last_modified'), ''),
    json_group_array(p.passage_key)
FROM passages p INDEXED BY passages_by_item JOIN items i USING (item_key)
WHERE i.item_type = 'document' AND p.passage_key NOT IN (SELECT passage_key FROM vectors) GROUP BY item_key
"""


def meta(connection: Connection, name: str) -> Any:
    """Return one value of the catalog's meta table; None when there is none."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return row[0] if row else None


def state(connection: Connection) -> str:
    """Name the catalog's content: another name after every write, and for another catalog in the same place."""
    return f"{meta(connection, 'catalog_id')}/{meta(connection, 'generation')}"


def set_meta(connection: Connection, name: str, value: str | int) -> None:
    """Set one value of the catalog's meta table."""
    connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))


def increment_generation(connection: Connection) -> None:
    """Increment the generation, by which readers notice that their caches are out of date."""
    connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'generation'")


def put_item(
    connection: Connection,
    admission: Admission,
    passages: Sequence[Passage],
    fingerprint: str,
    vectors: Sequence[Vector] = (),
) -> None:
    """Write an item with its passages, unless this very item is stored, inside the caller's transaction.

    Without `vectors`, which are of the model `fingerprint`, its passages are found by words until `put_vectors`.
    """
    check_model(connection, fingerprint, vectors)
    row = _item_row(admission)
    if _is_stored(connection, row, passages, vectors):
        return
    remove_item(connection, replace(admission.ref, version=None))
    _record_version(connection, row)
    key = insert(connection, "items", row)
    tags = dict.fromkeys(str(tag) for tag in admission.item.metadata.get("tags") or ())
    connection.executemany("INSERT INTO tags (item_key, tag) VALUES (?, ?)", [(key, tag) for tag in tags])
    if admission.ref.item_type is not ItemType.DOCUMENT:
        _insert_files(connection, key, admission.item)
    keys = _insert_passages(connection, key, admission.ref, passages)
    insert_vectors(connection, zip(keys, vectors, strict=False))
    increment_generation(connection)


def insert(connection: Connection, table: str, row: Mapping[str, Any]) -> int:
    """Insert a row and return its key."""
    columns, values = ", ".join(row), ", ".join(f":{name}" for name in row)
    insert = f"INSERT INTO {table} ({columns}) VALUES ({values})"  # noqa: S608  # names of this module alone
    return connection.execute(insert, row).lastrowid or 0


def _insert_passages(connection: Connection, item_key: int, ref: ItemRef, passages: Sequence[Passage]) -> list[int]:
    keys, postings = [], []
    # One by one, because `executemany` does not return the keys, which postings and vectors need.
    for passage in passages:
        terms, length = posting_terms(ref, passage)
        keys.append(insert(connection, "passages", _passage_row(item_key, passage, length)))
        postings.append((keys[-1], terms))
    connection.executemany(INSERT_POSTING, postings)
    return keys


def posting_terms(ref: ItemRef, passage: Passage) -> tuple[str, int]:
    """Return the terms of a passage as its posting has them, and its length for BM25."""
    frequencies, length = passage_terms(ref, passage)
    return " ".join(frequencies.elements()), length


def insert_vectors(connection: Connection, vectors: Iterable[tuple[int, Vector]]) -> None:
    """Write vectors of passages by their keys; a passage keeps the one that it has."""
    rows = [(key, _vector_bytes(vector)) for key, vector in vectors]
    connection.executemany("INSERT OR IGNORE INTO vectors (passage_key, vector) VALUES (?, ?)", rows)


def _insert_files(connection: Connection, item_key: int, item: Item) -> None:
    files = item.digests.items()
    connection.executemany(_PUT_BLOB, [(digest, item.files[path]) for path, digest in files])
    rows = [(item_key, path, digest) for path, digest in files]
    connection.executemany("INSERT INTO item_files (item_key, path, sha256) VALUES (?, ?, ?)", rows)


def _vector_bytes(vector: Vector) -> bytes:
    """Return the stored form of a vector: little-endian ``float32``."""
    return vector.astype("<f4").tobytes()


def check_model(connection: Connection, fingerprint: str, vectors: Sequence[Vector]) -> None:
    """Return if the catalog's vectors are of this model, or it has none; else `FingerprintMismatch`."""
    if not meta(connection, "passages"):
        set_meta(connection, "fingerprint", fingerprint)
    if vectors and not meta(connection, "vectors"):
        set_meta(connection, "dimension", len(vectors[0]))
    stored = meta(connection, "fingerprint"), meta(connection, "dimension")
    require_model(stored, (fingerprint, len(vectors[0]) if vectors else stored[1]), REBUILD)


def _is_stored(
    connection: Connection, row: Mapping[str, Any], passages: Sequence[Passage], vectors: Sequence[Vector]
) -> bool:
    """Whether this very item is stored with these passages and vectors; the time of admission may differ."""
    old = connection.execute(_GET, (row["item_type"], row["folded_id"])).fetchone()
    if old is None or any(old[name] != value for name, value in row.items() if name != "admitted_at"):
        return False
    stored = connection.execute(
        "SELECT * FROM passages LEFT JOIN vectors USING (passage_key) WHERE item_key = ? ORDER BY ordinal",
        (old["item_key"],),
    ).fetchall()
    if [read_passage(one) for one in stored] != sorted(passages, key=_ordinal):
        return False
    wanted = sorted(zip(passages, vectors, strict=False), key=lambda pair: _ordinal(pair[0]))
    return not wanted or [one["vector"] for one in stored] == [_vector_bytes(vector) for _, vector in wanted]


def _record_version(connection: Connection, row: Mapping[str, Any]) -> None:
    if not row["version"]:  # documents have no versions
        return
    # IGNORE: the first content of a version stays recorded for good, so that other content under it is noticed.
    connection.execute(
        "INSERT OR IGNORE INTO versions (item_type, folded_id, version, content_sha256, digest, seen_at) "
        "VALUES (:item_type, :folded_id, :version, :content_sha256, :digest, :admitted_at)",
        row,
    )


def remove_item(connection: Connection, ref: ItemRef) -> bool:
    """Remove an item with its passages, vectors and postings, inside the caller's transaction."""
    row = _find(connection, ref)
    if row is not None:
        remove_keys(connection, [row["item_key"]])
    return row is not None


def remove_items(connection: Connection, refs: Iterable[ItemRef]) -> None:
    """Remove items of any version, as `remove_item` does."""
    rows = (connection.execute(_GET, ref.key).fetchone() for ref in refs)
    remove_keys(connection, [row["item_key"] for row in rows if row is not None])


def merge_postings(connection: Connection) -> None:
    """Merge the segments of the postings: FTS5 only marks what is deleted, and drops it then."""
    has_many_levels = connection.execute(_HAS_MANY_LEVELS).fetchone()[0]
    connection.execute("INSERT INTO postings (postings) VALUES (?)", ("rebuild" if has_many_levels else "optimize",))


def remove_keys(connection: Connection, item_keys: Sequence[int]) -> None:
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


def get_item(connection: Connection, ref: ItemRef, files: Sequence[str] | None) -> StoredItem | None:
    """Return the item with the files of these names, or all of them; None when it is not stored in that version."""
    row = _find(connection, ref)
    if row is None:
        return None
    names = None if files is None else json.dumps(list(files))
    return _stored_item(row, connection.execute(_FILES, {"key": row["item_key"], "names": names}))


def _find(connection: Connection, ref: ItemRef) -> sqlite3.Row | None:
    row: sqlite3.Row | None = connection.execute(_GET, ref.key).fetchone()
    return row if row is not None and ref.version in (None, row["version"]) else None


def digests(connection: Connection) -> dict[ItemRef, str]:
    """Return the statement's digest of every item, by its reference without a version."""
    rows = connection.execute("SELECT item_type, item_id, digest FROM items")
    return {ItemRef(ItemType(item_type), item_id): digest for item_type, item_id, digest in rows}


def list_items(connection: Connection, filters: Filters) -> list[StoredItem]:
    """Return the items that match, ordered by type and id."""
    keys = json.dumps(matching_items(connection, filters))
    return [_stored_item(row) for row in connection.execute(_LIST, (keys,))]


def matching_items(connection: Connection, filters: Filters) -> list[int]:
    """Return the keys of the items that pass the filters."""
    return [row[0] for row in connection.execute(_MATCHING, _filter_parameters(filters)).fetchall()]


def history(connection: Connection, ref: ItemRef) -> dict[str, str]:
    """Return every version ever stored, as version → content sha256 (hex)."""
    query = "SELECT version, content_sha256 FROM versions WHERE item_type = ? AND folded_id = ?"
    return dict(connection.execute(query, ref.key).fetchall())


def _filter_parameters(filters: Filters) -> dict[str, str | int | None]:
    tags = sorted(set(filters.tags))
    # ``*`` and ``?`` mean the same in GLOB. ``[`` is literal in a filter, and written ``[[]`` in GLOB.
    path = filters.path.rstrip("/").replace("[", "[[]")
    texts = ("category", "author", "namespace", "signer", "service", "domain")
    return {name: getattr(filters, name) for name in texts} | {
        "item_type": filters.item_type or "",
        "since": timestamp(filters.since) if filters.since else "",
        "file_types": json.dumps(filters.file_types),
        "path": path,
        "below": f"{path}/*",
        "ids": None if filters.ids is None else json.dumps(filters.ids),
        "tags": json.dumps(tags),
        "tag_count": len(tags),
    }


def clear(connection: Connection) -> None:
    """Remove all items; versions and audit stay."""
    remove_keys(connection, matching_items(connection, Filters()))


def _item_row(admission: Admission) -> dict[str, Any]:
    """Return the columns of ``items`` for an admission."""
    item, envelope = admission.item, admission.envelope
    signatures = [[key, base64.b64encode(raw).decode()] for key, raw in envelope.signatures]
    texts = ("category", "author", "file_type", "service", "domain")
    row = {name: str(item.metadata.get(name) or "") for name in texts}
    row |= {name: getattr(admission, name) for name in ("digest", "key_id", "principal", "policy")}
    return row | {
        "item_type": item.ref.item_type,
        "item_id": item.ref.item_id,
        "folded_id": item.ref.key[1],
        "namespace": item.ref.namespace,
        "version": item.ref.version or "",
        "content_sha256": item.content_sha256,
        "payload_type": envelope.payload_type,
        "payload": envelope.payload,
        "signatures": json.dumps(signatures),
        "admitted_at": timestamp(admission.admitted_at),
        "signed_at": timestamp(admission.signed_at),
        "metadata": json.dumps(item.metadata, ensure_ascii=False, sort_keys=True, default=dict),
    }


def _stored_item(row: sqlite3.Row, files: Iterable[tuple[str, bytes]] = ()) -> StoredItem:
    """Return an item from a row of ``items`` with the number of its ``passages``, and some of its files.

    Raises
    ------
    StoreCorrupt
        When the row has a value that Kiwi never writes.
    """
    try:
        signatures = tuple((key, base64.b64decode(raw)) for key, raw in json.loads(row["signatures"]))
        return StoredItem(
            ref=item_ref(row),
            envelope=Envelope(row["payload_type"], row["payload"], signatures),
            digest=row["digest"],
            content_sha256=row["content_sha256"],
            admitted_at=datetime.fromisoformat(row["admitted_at"]),
            policy=row["policy"],
            passages=row["passages"],
            files=dict(files),
        )
    except (ValueError, TypeError) as error:
        raise StoreCorrupt(f"a row of the catalog cannot be parsed: {error}", hint="kiwi index --rebuild") from error


def item_ref(row: sqlite3.Row) -> ItemRef:
    """Return the reference of a row of ``items``."""
    return ItemRef(ItemType(row["item_type"]), row["item_id"], row["version"] or None)


_ordinal = attrgetter("ordinal")


def read_passage(row: sqlite3.Row) -> Passage:
    """Return a passage from a row of ``passages``."""
    heading = tuple(json.loads(row["heading"]))
    lines = row["start_line"], row["end_line"]
    return Passage(row["ordinal"], row["text"], row["context"], heading, *lines, row["kind"], row["file"])


def _passage_row(item_key: int, passage: Passage, length: int) -> dict[str, Any]:
    """Return the columns of ``passages``; `length` in terms."""
    heading = json.dumps(passage.heading, ensure_ascii=False)
    return asdict(passage) | {"item_key": item_key, "heading": heading, "length": length}


def unembedded(connection: Connection) -> list[UnembeddedDocument]:
    """Return the documents with passages that have no vector yet."""
    if meta(connection, "vectors") == meta(connection, "passages"):  # usual, and the query reads every passage's key
        return []
    rows = connection.execute(_UNEMBEDDED)
    return [UnembeddedDocument(row[0], row[1], row[2], tuple(json.loads(row[3]))) for row in rows]


def read_passages(connection: Connection, keys: Sequence[int]) -> dict[int, Passage]:
    """Return those of some passages that are stored, by their keys."""
    rows = connection.execute(PASSAGES, (json.dumps(list(keys)),))
    return {row["passage_key"]: read_passage(row) for row in rows}


def put_vectors(
    connection: Connection, passages: Mapping[int, Passage], vectors: Mapping[int, Vector], fingerprint: str
) -> None:
    """Write the vectors of passages, by their keys, inside the caller's transaction.

    What is not stored any more, or is another passage in a catalog that was made anew, gets none.
    """
    stored = read_passages(connection, list(vectors))
    current = {key: vectors[key] for key, passage in stored.items() if passage == passages[key]}
    if current:
        check_model(connection, fingerprint, list(current.values()))
        insert_vectors(connection, current.items())
        increment_generation(connection)
