"""The check of a store, and its repair without embedding anything again."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from kiwi_rag.errors import AuditBroken, StoreBusy, StoreError
from kiwi_rag.lexical import terms
from kiwi_rag.model import Passage, content_digest, sha256_hex
from kiwi_rag.model.refs import ItemType
from kiwi_rag.storage.sqlite import transaction
from kiwi_rag.stores.base import StoreStatus
from kiwi_rag.stores.local.audit import verify_audit
from kiwi_rag.stores.local.catalog import increment_generation, meta, remove_keys, set_meta
from kiwi_rag.stores.local.chroma import ChromaFailed, ChromaIndex, is_behind
from kiwi_rag.stores.local.ownership import WriterLock
from kiwi_rag.stores.local.schema import CREATE_POSTINGS, SCHEMA_VERSION
from kiwi_rag.stores.local.session import CatalogSession, find_damage

_COUNTS = (
    ("items without passages", "SELECT count(*) FROM items WHERE item_key NOT IN (SELECT item_key FROM passages)"),
    ("contents without a file", "SELECT count(*) FROM blobs WHERE sha256 NOT IN (SELECT sha256 FROM item_files)"),
    (
        "passages without a vector",
        "SELECT count(*) FROM passages WHERE passage_key NOT IN (SELECT passage_key FROM vectors)",
    ),
    (
        "passages without postings",
        "SELECT count(*) FROM passages WHERE passage_key NOT IN (SELECT id FROM postings_docsize)",
    ),
    (
        "postings without a passage",
        "SELECT count(*) FROM postings_docsize WHERE id NOT IN (SELECT passage_key FROM passages)",
    ),
)
_ORPHANS = 'SELECT "table", parent, count(*) FROM pragma_foreign_key_check GROUP BY 1, 2'
_TOTALS = "SELECT count(*), coalesce(sum(length), 0) FROM passages"


def _catalog_problems(connection: sqlite3.Connection) -> Iterator[str]:
    for what, count in _COUNTS:
        number = connection.execute(count).fetchone()[0]
        if number:
            yield f"{number} {what}"
    for table, parent, number in connection.execute(_ORPHANS):
        yield f"{number} rows of {table} without their row of {parent}"
    yield from _posting_problems(connection)
    yield from _vector_problems(connection)
    yield from _item_problems(connection)
    try:
        verify_audit(connection)
    except AuditBroken as error:
        yield error.message


def _posting_problems(connection: sqlite3.Connection) -> Iterator[str]:
    try:
        connection.execute("INSERT INTO postings (postings) VALUES ('integrity-check')")
    except sqlite3.DatabaseError as error:
        yield f"the postings are damaged: {error}"
        return
    passages, length = connection.execute(_TOTALS).fetchone()
    if (meta(connection, "passages"), meta(connection, "total_length")) != (passages, length):
        yield "the collection's statistics differ from a recount"
    occurrences = connection.execute("SELECT coalesce(sum(cnt), 0) FROM posting_terms").fetchone()[0]
    if occurrences != length:
        yield f"the postings have {occurrences} occurrences of terms, the passages {length}"


def _vector_problems(connection: sqlite3.Connection) -> Iterator[str]:
    bad = _bad_vectors(connection)
    if bad:
        yield f"{len(bad)} vectors have another length than 1 or another dimension than the catalog"


def _bad_vectors(connection: sqlite3.Connection) -> list[int]:
    size = 4 * int(meta(connection, "dimension"))
    rows = connection.execute("SELECT passage_key, vector FROM vectors")
    return [key for key, blob in rows if len(blob) != size or not _is_unit(blob)]


def _is_unit(blob: bytes) -> bool:
    norm = np.linalg.norm(np.frombuffer(blob, dtype="<f4").astype(np.float64))
    return bool(abs(norm - 1.0) < 1e-3)


def _item_problems(connection: sqlite3.Connection) -> Iterator[str]:
    altered = _altered_items(connection)
    if altered:
        yield f"the payloads or files of {len(altered)} items do not match their digests"


def _altered_items(connection: sqlite3.Connection) -> set[int]:
    """Return the items whose payload or files are not those that their digests name; files may also be missing."""
    rows = connection.execute("SELECT item_key, digest, CAST(payload AS BLOB) FROM items").fetchall()
    altered = {key for key, digest, payload in rows if sha256_hex(payload) != digest}
    contents = connection.execute("SELECT sha256, CAST(content AS BLOB) FROM blobs")
    genuine = {digest for digest, content in contents if sha256_hex(content) == digest}
    files: dict[int, dict[str, str]] = {}
    for key, path, digest in connection.execute("SELECT item_key, path, sha256 FROM item_files"):
        if digest in genuine:
            files.setdefault(key, {})[path] = digest
    items = connection.execute("SELECT item_key, content_sha256 FROM items WHERE item_type <> ?", (ItemType.DOCUMENT,))
    return altered | {key for key, digest in items if content_digest(files.get(key, {})) != digest}


def _repair_catalog(connection: sqlite3.Connection) -> list[str]:
    """Repair the catalog in one transaction and return what was done.

    What can be derived from passages is made again. An item that lacks more (a vector, a passage, a file, its signed
    payload) is removed, so that the next index run stores it again.
    """
    with transaction(connection):
        connection.execute("DELETE FROM passages WHERE item_key NOT IN (SELECT item_key FROM items)")
        connection.execute("DELETE FROM vectors WHERE passage_key NOT IN (SELECT passage_key FROM passages)")
        connection.execute("DELETE FROM tags WHERE item_key NOT IN (SELECT item_key FROM items)")
        connection.execute("DELETE FROM item_files WHERE item_key NOT IN (SELECT item_key FROM items)")
        _rebuild_postings(connection)
        removed = _remove_broken(connection)
        connection.execute("DELETE FROM blobs WHERE sha256 NOT IN (SELECT sha256 FROM item_files)")
        _recount(connection)
        increment_generation(connection)
    done = [f"removed {removed} damaged items: run kiwi index to store them again"] if removed else []
    return [*done, "rebuilt postings and statistics from the passages"]


def _remove_broken(connection: sqlite3.Connection) -> int:
    keys = {row[0] for row in connection.execute(_BROKEN_ITEMS)} | _altered_items(connection)
    for passage_key in _bad_vectors(connection):
        row = connection.execute("SELECT item_key FROM passages WHERE passage_key = ?", (passage_key,)).fetchone()
        keys |= {row[0]}
    remove_keys(connection, sorted(keys))
    return len(keys)


_BROKEN_ITEMS = """
SELECT item_key FROM items WHERE item_key NOT IN (SELECT item_key FROM passages)
UNION SELECT item_key FROM passages WHERE passage_key NOT IN (SELECT passage_key FROM vectors)
"""


def _rebuild_postings(connection: sqlite3.Connection) -> None:
    for drop in ("DROP TABLE posting_instances", "DROP TABLE posting_terms", "DROP TABLE postings"):
        connection.execute(drop)
    for create in CREATE_POSTINGS:
        connection.execute(create)
    for key, text, context in connection.execute("SELECT passage_key, text, context FROM passages").fetchall():
        found = terms(Passage(0, text, context, (), 0, 0).indexed_text)
        connection.execute("INSERT INTO postings (rowid, terms) VALUES (?, ?)", (key, " ".join(found)))
        connection.execute("UPDATE passages SET length = ? WHERE passage_key = ?", (len(found), key))


def _recount(connection: sqlite3.Connection) -> None:
    passages, length = connection.execute(_TOTALS).fetchone()
    set_meta(connection, "passages", passages)
    set_meta(connection, "total_length", length)


class Maintenance:
    """Updates, checks and repairs the folder of one store, with the store's connections, lock and Chroma client."""

    def __init__(
        self, session: CatalogSession, lock: WriterLock, chroma: ChromaIndex, exact_limit: int, index_from: int = 0
    ) -> None:
        self._index_from = index_from
        self._session = session
        self._lock = lock
        self._chroma = chroma
        self._exact_limit = exact_limit
        self._chroma_failure = ""

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the writing connection, under the writer's lock."""
        self._session.path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock, self._session.borrow("write") as connection:
            yield connection

    def flush(self) -> None:
        """Update Chroma from the catalog; `status` reports a failure, and searches are exact until the next success."""
        with self.writing() as connection:
            if int(meta(connection, "passages")) < self._index_from:
                return
            try:
                self._chroma.synchronise(connection)
                self._chroma_failure = ""
            except ChromaFailed as error:
                self._chroma_failure = f"chroma cannot be written, so searches stay exact: {error}"

    def flush_if_free(self) -> None:
        """Flush, unless another process is writing, which will flush itself."""
        try:
            self.flush()
        except StoreBusy:
            return

    def status(self) -> StoreStatus:
        """Return counts, and the problems that are found without a full check."""
        with self._session.borrow("read") as connection, transaction(connection, "BEGIN"):
            passages = int(meta(connection, "passages"))
            problems = [self._chroma_failure] if self._chroma_failure else []
            return StoreStatus(
                items=connection.execute("SELECT count(*) FROM items").fetchone()[0],
                passages=passages,
                fingerprint=str(meta(connection, "fingerprint")) if passages else "",
                problems=tuple(problems),
                details={
                    "path": str(self._session.path),
                    "schema": SCHEMA_VERSION,
                    "generation": meta(connection, "generation"),
                    "chroma": "behind" if is_behind(connection) else "current",
                    "plan": "exact" if passages <= self._exact_limit else "chroma",
                },
            )

    def check(self) -> tuple[str, ...]:
        """Return a message for every problem."""
        damage = find_damage(self._session)
        if damage:
            return (damage,)
        with self._session.borrow("audit") as connection:
            problems = tuple(self._check_catalog(connection))
            needed = int(meta(connection, "passages")) >= self._index_from
            chroma = self._chroma.problem(connection) if needed else ""
        return (*problems, chroma) if chroma else problems

    def repair(self) -> list[str]:
        """Repair what `check` finds; what only the signed files can restore is moved aside or removed."""
        self._session.path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            return [*self._repair_file(), *self._repair_rows(), *self._repair_chroma()]

    @staticmethod
    def _check_catalog(connection: sqlite3.Connection) -> list[str]:
        # FTS5's own check is an INSERT, so that it needs a write transaction, which is rolled back.
        connection.execute("BEGIN IMMEDIATE")
        try:
            return list(_catalog_problems(connection))
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _repair_file(self) -> list[str]:
        damage = find_damage(self._session)
        if not damage:
            return []
        self._chroma.close()
        moved = self._session.move_aside("corrupt")
        aside = f"moved it aside as {moved.name}" if moved else "it was missing"
        return [f"{damage}; {aside} and made an empty one: run kiwi index to store the items again"]

    def _repair_rows(self) -> list[str]:
        with self._session.borrow("write") as connection:
            problems = self._check_catalog(connection)
            # A broken audit chain is never repaired: it is evidence.
            if not any("audit chain" not in problem for problem in problems):
                return []
            return _repair_catalog(connection)

    def _repair_chroma(self) -> list[str]:
        with self._session.borrow("write") as connection:
            if not self._chroma.problem(connection):
                return []
            try:
                self._chroma.rebuild(connection)
            except ChromaFailed as error:
                raise StoreError(f"chroma cannot be rebuilt: {error}", hint="check the disk's free space") from error
            return ["rebuilt the Chroma index from the catalog's vectors"]

    def close(self) -> None:
        """Close Chroma and the catalog."""
        self._chroma.close()
        self._session.close()
