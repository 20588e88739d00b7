"""The full check of a catalog's rows, and their repair without embedding anything again."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from sqlite3 import Connection
from typing import Any

import numpy as np

from kiwi_rag.errors import AuditBroken
from kiwi_rag.lexical import SYMBOL
from kiwi_rag.model import content_digest, sha256_hex
from kiwi_rag.storage.sqlite import result_code, transaction
from kiwi_rag.stores.local.audit import verify_audit
from kiwi_rag.stores.local.catalog import (
    INSERT_POSTING,
    increment_generation,
    item_ref,
    meta,
    posting_terms,
    read_passage,
    remove_keys,
    set_meta,
)
from kiwi_rag.stores.local.session import CREATE_POSTINGS

# Each query selects the keys of items that only their signed files can restore. The SQL functions are `_FUNCTIONS`.
_BROKEN_ITEMS = {
    "items without passages": "SELECT item_key FROM items WHERE item_key NOT IN (SELECT item_key FROM passages)",
    # The passages of a document may have none yet: the next run makes them.
    "items whose passages lack vectors": """
        SELECT DISTINCT item_key FROM passages JOIN items USING (item_key)
        WHERE item_type <> 'document' AND passage_key NOT IN (SELECT passage_key FROM vectors)""",
    "items with vectors of another length than 1 or another dimension than the catalog": """
        SELECT DISTINCT item_key FROM passages JOIN vectors USING (passage_key)
        WHERE NOT is_unit_vector(vector, (SELECT value FROM meta WHERE name = 'dimension'))""",
    "items whose payloads do not match their digests": """
        SELECT item_key FROM items WHERE sha256(CAST(payload AS BLOB)) <> digest""",
    "items whose files do not match their digests": """
        SELECT item_key FROM items WHERE item_type <> 'document' AND content_sha256 <> content_digest((
            SELECT json_group_object(path, sha256(CAST(content AS BLOB))) FROM item_files JOIN blobs USING (sha256)
            WHERE item_files.item_key = items.item_key))""",
}
# Each query selects what can be derived again from the rest of the catalog.
_DERIVED = {
    "contents without a file": "SELECT sha256 FROM blobs WHERE sha256 NOT IN (SELECT sha256 FROM item_files)",
    "passages without postings": """
        SELECT passage_key FROM passages WHERE passage_key NOT IN (SELECT id FROM postings_docsize)""",
    "postings without a passage": """
        SELECT id FROM postings_docsize WHERE id NOT IN (SELECT passage_key FROM passages)""",
}
_ORPHANS = 'SELECT "table", parent, count(*) FROM pragma_foreign_key_check GROUP BY 1, 2'
_TOTALS = "SELECT count(*), coalesce(sum(length), 0), (SELECT count(*) FROM vectors) FROM passages"
_TOTAL_NAMES = ("passages", "total_length", "vectors")
_OCCURRENCES = "SELECT coalesce(sum(cnt), 0) FROM posting_terms WHERE substr(term, 1, 1) <> ?"
_REMOVE_ORPHANS = """
DELETE FROM passages WHERE item_key NOT IN (SELECT item_key FROM items);
DELETE FROM vectors WHERE passage_key NOT IN (SELECT passage_key FROM passages);
DELETE FROM tags WHERE item_key NOT IN (SELECT item_key FROM items);
DELETE FROM item_files WHERE item_key NOT IN (SELECT item_key FROM items)
"""


def find_problems(connection: Connection) -> list[str]:
    """Return a message for every problem that a full check finds."""
    # FTS5's own check is an INSERT, so that it needs a write transaction, which is rolled back.
    connection.execute("BEGIN IMMEDIATE")
    try:
        return list(_problems(connection))
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def repair(connection: Connection) -> list[str]:
    """Repair the catalog in one transaction and return what was done.

    What can be derived from passages is made again. An item that lacks more (a vector, a passage, a file, its signed
    payload) is removed, so that the next index run stores it again. A broken audit chain is never repaired: it is
    evidence.
    """
    if all("audit chain" in problem for problem in find_problems(connection)):
        return []
    with transaction(connection):
        for statement in _REMOVE_ORPHANS.split(";"):
            connection.execute(statement)
        _rebuild_postings(connection)
        broken = {row[0] for query in _BROKEN_ITEMS.values() for row in connection.execute(query)}
        remove_keys(connection, sorted(broken))
        connection.execute("DELETE FROM blobs WHERE sha256 NOT IN (SELECT sha256 FROM item_files)")
        for name, total in zip(_TOTAL_NAMES, connection.execute(_TOTALS).fetchone(), strict=True):
            set_meta(connection, name, total)
        increment_generation(connection)
    done = [f"removed {len(broken)} damaged items: run kiwi index to store them again"] if broken else []
    return [*done, "rebuilt postings and statistics from the passages"]


def _problems(connection: Connection) -> Iterator[str]:
    for name, function in _FUNCTIONS.items():
        connection.create_function(name, -1, function, deterministic=True)
    for what, query in (_BROKEN_ITEMS | _DERIVED).items():
        if found := connection.execute(query).fetchall():
            yield f"{len(found)} {what}"
    for table, parent, number in connection.execute(_ORPHANS):
        yield f"{number} rows of {table} without their row of {parent}"
    yield from _posting_problems(connection)
    try:
        verify_audit(connection)
    except AuditBroken as error:
        yield error.message


def _posting_problems(connection: Connection) -> Iterator[str]:
    try:
        connection.execute("INSERT INTO postings (postings) VALUES ('integrity-check')")
    except sqlite3.DatabaseError as error:
        if result_code(error) != sqlite3.SQLITE_CORRUPT:  # nothing can be written here
            raise
        yield f"the postings are damaged: {error}"
        return
    totals = tuple(connection.execute(_TOTALS).fetchone())
    length = totals[1]
    if tuple(meta(connection, name) for name in _TOTAL_NAMES) != totals:
        yield "the collection's statistics differ from a recount"
    occurrences = connection.execute(_OCCURRENCES, (SYMBOL,)).fetchone()[0]
    if occurrences != length:
        yield f"the postings have {occurrences} occurrences of terms, the passages {length}"


def _rebuild_postings(connection: Connection) -> None:
    for table in ("posting_instances", "posting_terms", "postings"):
        connection.execute(f"DROP TABLE {table}")
    for create in CREATE_POSTINGS:
        connection.execute(create)
    for row in connection.execute("SELECT * FROM passages JOIN items USING (item_key)").fetchall():
        terms, length = posting_terms(item_ref(row), read_passage(row))
        connection.execute(INSERT_POSTING, (row["passage_key"], terms))
        connection.execute("UPDATE passages SET length = ? WHERE passage_key = ?", (length, row["passage_key"]))


def _is_unit_vector(vector: bytes, dimension: int) -> bool:
    if len(vector) != 4 * dimension:
        return False
    return bool(abs(np.linalg.norm(np.frombuffer(vector, dtype="<f4").astype(np.float64)) - 1.0) < 1e-3)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "sha256": sha256_hex,
    "is_unit_vector": _is_unit_vector,
    "content_digest": lambda digests: content_digest(json.loads(digests)),
}
