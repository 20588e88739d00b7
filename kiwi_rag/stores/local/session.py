"""The connections to a catalog, each for one thread at a time; its schema; and when a catalog is not opened.

The schema is made by numbered steps, and ``PRAGMA user_version`` is the number of the last one that was applied.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Literal, TypeVar, get_args

from kiwi_rag.errors import StoreBusy, StoreCorrupt, StoreError
from kiwi_rag.storage.atomic import make_derived_folder, new_file
from kiwi_rag.storage.sqlite import (
    ReadOnlyConnection,
    closed_on_error,
    connect,
    connect_for_reading,
    file_identity,
    move_database_aside,
    translate_sqlite_errors,
)
from kiwi_rag.stores.local.catalog import meta, set_meta
from kiwi_rag.stores.local.ownership import CATALOG_NAME, Ownership, WriterLock

REPAIR_HINT = "kiwi doctor --repair"
Lane = Literal["read", "verify", "write", "audit"]
_READING = ("read", "verify")
_T = TypeVar("_T")
_Waiting = tuple[Callable[[Connection], Any], asyncio.Future[Any]]

# Triggers keep the totals and the Chroma journal in step with `passages`, so that no writer can forget them. Postings
# have no trigger: with ``trusted_schema = OFF`` one may not touch a virtual table.
# Keys are AUTOINCREMENT, so a key that Chroma may still have is never used again.
#
# The terms are made by kiwi_rag.lexical. The 'ascii' tokenizer treats every character above U+007F as part of a
# token, folds only A-Z (which a term never has) and, with '_' added, splits at the joining spaces and nowhere else.
CREATE_POSTINGS = (
    """CREATE VIRTUAL TABLE postings USING fts5(terms, tokenize = "ascii tokenchars '_'")""",
    "CREATE VIRTUAL TABLE posting_terms USING fts5vocab('postings', 'row')",
    "CREATE VIRTUAL TABLE posting_instances USING fts5vocab('postings', 'instance')",
)

# One set of tables for items and documents. Columns that only one of them has are empty for the other. Of an item every
# file is kept, by its digest; of a document only its passages.
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
INSERT INTO meta (name, value) VALUES
    ('generation', 0), ('fingerprint', ''), ('dimension', 0), ('passages', 0), ('total_length', 0),
    ('chroma_generation', 0), ('chroma_deletes', 0);

CREATE TABLE items (
    item_key INTEGER PRIMARY KEY AUTOINCREMENT,
    item_type TEXT NOT NULL, item_id TEXT NOT NULL, folded_id TEXT NOT NULL, namespace TEXT NOT NULL,
    version TEXT NOT NULL, digest TEXT NOT NULL, content_sha256 TEXT NOT NULL,
    payload_type TEXT NOT NULL, payload BLOB NOT NULL, signatures TEXT NOT NULL,
    key_id TEXT NOT NULL, principal TEXT NOT NULL, policy TEXT NOT NULL,
    admitted_at TEXT NOT NULL, signed_at TEXT NOT NULL,
    metadata TEXT NOT NULL, category TEXT NOT NULL, author TEXT NOT NULL,
    file_type TEXT NOT NULL, service TEXT NOT NULL, domain TEXT NOT NULL,
    UNIQUE (item_type, folded_id)
);

CREATE TABLE blobs (sha256 TEXT PRIMARY KEY, content BLOB NOT NULL);

CREATE TABLE item_files (
    item_key INTEGER NOT NULL REFERENCES items ON DELETE CASCADE,
    path TEXT NOT NULL, sha256 TEXT NOT NULL REFERENCES blobs,
    PRIMARY KEY (item_key, path)
) WITHOUT ROWID;
CREATE INDEX item_files_by_content ON item_files (sha256);

CREATE TRIGGER file_removed AFTER DELETE ON item_files BEGIN
    DELETE FROM blobs WHERE sha256 = old.sha256 AND NOT EXISTS (SELECT 1 FROM item_files WHERE sha256 = old.sha256);
END;

CREATE TABLE versions (
    item_type TEXT NOT NULL, folded_id TEXT NOT NULL, version TEXT NOT NULL,
    content_sha256 TEXT NOT NULL, digest TEXT NOT NULL, seen_at TEXT NOT NULL,
    PRIMARY KEY (item_type, folded_id, version)
) WITHOUT ROWID;

CREATE TABLE tags (
    item_key INTEGER NOT NULL REFERENCES items ON DELETE CASCADE, tag TEXT NOT NULL,
    PRIMARY KEY (item_key, tag)
) WITHOUT ROWID;

CREATE TABLE passages (
    passage_key INTEGER PRIMARY KEY AUTOINCREMENT,
    item_key INTEGER NOT NULL REFERENCES items ON DELETE CASCADE,
    ordinal INTEGER NOT NULL, text TEXT NOT NULL, context TEXT NOT NULL, heading TEXT NOT NULL,
    start_line INTEGER NOT NULL, end_line INTEGER NOT NULL, kind TEXT NOT NULL, file TEXT NOT NULL,
    length INTEGER NOT NULL
);
CREATE INDEX passages_by_item ON passages (item_key, ordinal, length);

CREATE TABLE vectors (
    passage_key INTEGER PRIMARY KEY REFERENCES passages ON DELETE CASCADE, vector BLOB NOT NULL
);

CREATE TABLE chroma_journal (passage_key INTEGER PRIMARY KEY, present INTEGER NOT NULL);

CREATE TRIGGER passage_added AFTER INSERT ON passages BEGIN
    UPDATE meta SET value = value + 1 WHERE name = 'passages';
    UPDATE meta SET value = value + new.length WHERE name = 'total_length';
    INSERT OR REPLACE INTO chroma_journal (passage_key, present) VALUES (new.passage_key, 1);
END;
CREATE TRIGGER passage_removed AFTER DELETE ON passages BEGIN
    UPDATE meta SET value = value - 1 WHERE name = 'passages';
    UPDATE meta SET value = value - old.length WHERE name = 'total_length';
    INSERT OR REPLACE INTO chroma_journal (passage_key, present) VALUES (old.passage_key, 0);
END;

CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, event TEXT NOT NULL, ref TEXT NOT NULL,
    digest TEXT NOT NULL, key_id TEXT NOT NULL, details TEXT NOT NULL,
    previous TEXT NOT NULL, hash TEXT NOT NULL
);
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
"""

# The words of a document are stored before its vectors. Chroma's journal has a passage again once it has a vector, and
# the number of vectors says without a count which share of the passages has one.
_WORDS_FIRST = """
INSERT INTO meta (name, value) SELECT 'vectors', count(*) FROM vectors;
CREATE TRIGGER vector_added AFTER INSERT ON vectors BEGIN
    UPDATE meta SET value = value + 1 WHERE name = 'vectors';
    INSERT OR REPLACE INTO chroma_journal (passage_key, present) VALUES (new.passage_key, 1);
END;
CREATE TRIGGER vector_removed AFTER DELETE ON vectors BEGIN
    UPDATE meta SET value = value - 1 WHERE name = 'vectors';
END;
"""

BASELINE = 100
"""The number of the first step. Pre-release Kiwis had the lower ones, in another file."""

STEPS: tuple[str, ...] = (";\n".join([*CREATE_POSTINGS, _TABLES]), _WORDS_FIRST)
"""Step *i* (from 0) makes schema version `BASELINE` + *i*. Steps are added at the end and never edited."""

SCHEMA_VERSION = BASELINE + len(STEPS) - 1


class CatalogSession:
    """The connections to one catalog, opened at first use.

    Reading, verifying the audit log, writing and auditing each have their own connection, so that none waits for
    another inside this process. Between processes SQLite's write-ahead log does the same.
    """

    def __init__(self, folder: Path, ownership: Ownership, lock: WriterLock) -> None:
        self.path = folder / CATALOG_NAME
        self._ownership, self._lock = ownership, lock
        self._connections: dict[Lane, tuple[Connection, tuple[object, ...]]] = {}
        self._opening = threading.Lock()
        self._mutexes: dict[Lane, threading.Lock] = {lane: threading.Lock() for lane in get_args(Lane)}

    @contextmanager
    def borrow(self, lane: Lane) -> Iterator[Connection]:
        """Yield a connection for the use of one thread, and translate SQLite's errors.

        Raises
        ------
        StoreCorrupt, StoreFull, StoreBusy, StoreError
            By SQLite's result code, when the file is opened or inside the block.
        """
        with self._mutexes[lane], catalog_errors(self.path):
            yield self._connection(lane)

    def close(self) -> None:
        """Close every connection, once no thread uses it."""
        for lane, mutex in self._mutexes.items():
            with mutex:
                if opened := self._connections.pop(lane, None):
                    opened[0].close()

    def move_aside(self) -> Path | None:
        """Move the catalog aside, so that the next use makes an empty one. Requires the writer's lock."""
        self.close()
        return move_database_aside(self.path, "corrupt")

    def _connection(self, lane: Lane) -> Connection:
        with self._opening:
            opened = self._connections.get(lane)
            if opened and opened[1] != file_identity(self.path, opened[0]):
                # The file was deleted or replaced. SQLite would go on with the old one without an error.
                self._connections.pop(lane)[0].close()
                opened = None
            if not opened:
                connection = self._open_for_reading(lane) if lane in _READING else self._open(lane)
                opened = self._connections[lane] = connection, file_identity(self.path, connection)
            return opened[0]

    def _open_for_reading(self, lane: Lane) -> Connection:
        """Return a connection that reads, also where nothing can be written; only to the catalog that this user made"""
        expected = self._ownership.catalog_id()
        opened = connect_for_reading(self.path if expected else None, lambda: self._open(lane), migrate)
        if isinstance(opened, ReadOnlyConnection):
            with closed_on_error(opened):
                opened.row_factory = sqlite3.Row
                is_empty = meta(opened, "catalog_id") is None
                if not is_empty and (schema_version(opened), meta(opened, "catalog_id")) != (SCHEMA_VERSION, expected):
                    message = f"{self.path} is of another Kiwi, and nothing can be written to its disk"
                    raise StoreError(message, hint="run kiwi index where it can")
        return opened

    def _open(self, lane: Lane) -> Connection:
        make_derived_folder(self.path.parent)
        if not (self._ownership.catalog_id() and self.path.exists()):
            self._create()
        connection = connect(self.path, readonly=lane in _READING)
        with closed_on_error(connection):
            connection.row_factory = sqlite3.Row
            _check_not_truncated(connection, self.path)
            if schema_version(connection) != SCHEMA_VERSION:
                with self._lock:
                    connection.execute("PRAGMA query_only = OFF")  # the reading one may be the first to open the file
                    migrate(connection)
            if meta(connection, "catalog_id") == self._ownership.catalog_id():
                return connection
        # The file was replaced after this folder was claimed, as ``git pull`` can do.
        connection.close()
        self._create()
        return self._open(lane)

    def _create(self) -> None:
        """Make an empty catalog unless this user has one; another process may be making it at the same time."""
        try:
            with self._lock:
                if not self._is_made():
                    move_database_aside(self.path, "foreign")
                    self._make_catalog()
        except StoreBusy:
            if not self._is_made():
                raise

    def _is_made(self) -> bool:
        """Whether the catalog is the one that this user made."""
        expected = self._ownership.catalog_id()
        if expected is None or not self.path.exists():
            return False
        with closing(connect(self.path, readonly=True)) as connection:
            return bool(meta(connection, "catalog_id") == expected)

    def _make_catalog(self) -> None:
        """Make the catalog under another name and rename it, so that no process opens a half-made one."""
        with new_file(self.path) as draft:
            with closing(connect(draft)) as connection:
                migrate(connection)
                set_meta(connection, "catalog_id", self._ownership.claim())
            draft.replace(self.path)


class SharedReader:
    """Reads from a catalog for many callers: functions that wait share a worker thread and a transaction.

    A search reads items one by one, which each took less time than to hand it to a thread and back. A function sees
    all that was committed before it was passed in: no other joins a transaction that has begun. What may take long has
    a thread of its own.
    """

    def __init__(self, begin: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._begin = begin
        self._waiting: list[_Waiting] = []
        self._task: asyncio.Task[None] | None = None

    async def read(self, function: Callable[[Connection], _T]) -> _T:
        """Return what `function` returns for a connection."""
        done: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._waiting.append((function, done))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read_waiting())
        return await done

    async def _read_waiting(self) -> None:
        while batch := [one for one in self._waiting if not one[1].done()]:
            self._waiting = []
            try:
                finished = await asyncio.to_thread(self._run_together, batch)
            except BaseException:  # the loop or its threads end
                for _, done in (*batch, *self._waiting):
                    done.cancel()
                raise
            for (_, done), finish in zip(batch, finished, strict=True):
                if not done.done():  # its caller has not gone
                    finish()

    def _run_together(self, batch: Sequence[_Waiting]) -> Sequence[Callable[[], None]]:
        """Return what finishes each future, to be called in its loop; after an error another transaction begins."""
        finished: list[Callable[[], None]] = []
        while len(finished) < len(batch):
            try:
                with self._begin() as connection:
                    for function, done in batch[len(finished) :]:
                        finished.append(partial(done.set_result, function(connection)))
            except Exception as error:  # noqa: BLE001  # the future raises it
                finished += [partial(done.set_exception, error) for _, done in batch[len(finished) :][:1]]
        return finished


def migrate(connection: Connection, steps: tuple[str, ...] = STEPS) -> None:
    """Apply the missing steps, each in a transaction.

    Raises
    ------
    StoreError
        When a newer Kiwi made this catalog.
    StoreCorrupt
        When no Kiwi made it.
    """
    current, newest = schema_version(connection), BASELINE + len(steps) - 1
    if 0 < current < BASELINE:
        raise StoreCorrupt(f"the catalog has schema {current}, which no Kiwi made", hint=REPAIR_HINT)
    if current > newest:
        message = f"the catalog has schema {current}, this Kiwi has {newest}: a newer Kiwi made it"
        raise StoreError(message, hint="upgrade kiwi-rag")
    for number in range(max(current + 1, BASELINE), newest + 1):
        try:
            # PRAGMA takes no parameters; the number is our own counter.
            step = steps[number - BASELINE]
            connection.executescript(f"BEGIN IMMEDIATE;\n{step}\nPRAGMA user_version = {number:d};\nCOMMIT;")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def schema_version(connection: Connection) -> int:
    """Return the schema version; 0 for a catalog without tables."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def catalog_errors(path: Path) -> AbstractContextManager[None]:
    """Translate the errors of SQLite and the file system about the catalog at `path` in a block.

    Raises
    ------
    StoreFull, StoreCorrupt, StoreBusy, StoreError, UsageError
        As `translate_sqlite_errors` does: by SQLite's result code, not by its words.
    """

    def damaged(error: sqlite3.Error) -> StoreError:
        return StoreCorrupt(f"the catalog {path} is damaged: {error}", hint=REPAIR_HINT)

    return translate_sqlite_errors(path, damaged, "the catalog")


def find_damage(session: CatalogSession) -> str:
    """Return why the catalog cannot be opened or fails SQLite's own check; empty when it is sound."""
    try:
        with session.borrow("read") as connection:
            results = [str(row[0]) for row in connection.execute("PRAGMA quick_check(5)")]
    except StoreCorrupt as error:
        return error.message
    return "" if results == ["ok"] else "the catalog is damaged: " + "; ".join(results)


def _check_not_truncated(connection: Connection, path: Path) -> None:
    """Raise `StoreCorrupt` when the file is shorter than its own header says.

    SQLite would notice only when it reads a missing page. Not checked while a write-ahead log may hold the missing
    pages. The header is read through SQLite: opening and closing the file beside it would drop the POSIX locks of
    every connection in this process (sqlite.org/howtocorrupt.html, §2.2), and with them the write-ahead log.
    """
    pages, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    # In this order: pages that were counted in the log are in it still, or in the file, whose size is read last.
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size:
        return
    if path.stat().st_size < pages * size:
        raise StoreCorrupt(f"the catalog {path} is truncated", hint=REPAIR_HINT)
