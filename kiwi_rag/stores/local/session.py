"""The connections to a catalog, each for one thread at a time; how a catalog is made, and when one is not opened."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from kiwi_rag.errors import StoreBusy, StoreCorrupt, StoreError, UsageError
from kiwi_rag.storage.atomic import make_derived_folder
from kiwi_rag.storage.sqlite import connect, move_database_aside, result_code, translate_sqlite_errors
from kiwi_rag.stores.local.catalog import meta, set_meta
from kiwi_rag.stores.local.ownership import CATALOG_NAME, Ownership, WriterLock
from kiwi_rag.stores.local.schema import SCHEMA_VERSION, migrate, schema_version

REPAIR_HINT = "kiwi doctor --repair"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
Lane = Literal["read", "write", "audit"]
_FileIdentity = tuple[int, int] | None


class CatalogSession:
    """The connections to one catalog, opened at first use.

    Reading, writing and auditing each have their own connection, so that none waits for another inside this process.
    Between processes SQLite's write-ahead log does the same.
    """

    def __init__(self, folder: Path, ownership: Ownership, lock: WriterLock) -> None:
        self.path = folder / CATALOG_NAME
        self._folder = folder
        self._ownership = ownership
        self._lock = lock
        self._connections: dict[Lane, sqlite3.Connection] = {}
        self._files: dict[Lane, _FileIdentity] = {}
        self._opening = threading.Lock()
        self._mutexes: dict[Lane, threading.Lock] = {
            "read": threading.Lock(),
            "write": threading.Lock(),
            "audit": threading.Lock(),
        }

    @contextmanager
    def borrow(self, lane: Lane) -> Iterator[sqlite3.Connection]:
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
                connection = self._connections.pop(lane, None)
                if connection is not None:
                    connection.close()

    def move_aside(self, reason: str) -> Path | None:
        """Move the catalog aside, so that the next use makes an empty one. Requires the writer's lock."""
        self.close()
        return move_database_aside(self.path, reason)

    def _connection(self, lane: Lane) -> sqlite3.Connection:
        with self._opening:
            if lane in self._connections and self._files[lane] != _file_identity(self.path):
                # The file was deleted or replaced. SQLite would go on with the old one without an error.
                self._connections.pop(lane).close()
            if lane not in self._connections:
                self._connections[lane] = self._open(lane)
                self._files[lane] = _file_identity(self.path)
            return self._connections[lane]

    def _open(self, lane: Lane) -> sqlite3.Connection:
        make_derived_folder(self._folder)
        if not (self._ownership.catalog_id() and self.path.exists()):
            self._create()
        connection = connect(self.path, readonly=lane == "read")
        try:
            _check_not_truncated(connection, self.path)
            return self._verified(connection, lane)
        except BaseException:
            connection.close()
            raise

    def _verified(self, connection: sqlite3.Connection, lane: Lane) -> sqlite3.Connection:
        connection.row_factory = sqlite3.Row
        if schema_version(connection) != SCHEMA_VERSION:
            self._upgrade(connection)
        if meta(connection, "catalog_id") == self._ownership.catalog_id():
            return connection
        # The file was replaced after this folder was claimed, as ``git pull`` can do.
        connection.close()
        self._replace_foreign()
        return self._open(lane)

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            connection.execute("PRAGMA query_only = OFF")  # the reading connection may be the first to open the file
            migrate(connection)

    def _create(self) -> None:
        """Make an empty catalog unless this user has one; another process may be making it at the same time."""
        try:
            with self._lock:
                if not (self._ownership.catalog_id() and self.path.exists()):
                    move_database_aside(self.path, "foreign")
                    self._make_catalog()
        except StoreBusy:
            if not (self._ownership.catalog_id() and self.path.exists()):
                raise

    def _replace_foreign(self) -> None:
        with self._lock:  # another process may have replaced it already
            if self._stored_id() != self._ownership.catalog_id():
                move_database_aside(self.path, "foreign")
                self._make_catalog()

    def _stored_id(self) -> str:
        connection = connect(self.path, readonly=True)
        try:
            return str(meta(connection, "catalog_id"))
        finally:
            connection.close()

    def _make_catalog(self) -> None:
        """Make the catalog under another name and rename it, so that no process opens a half-made one."""
        catalog_id = self._ownership.claim()
        draft = self.path.with_name(f"{self.path.name}.new")
        for leftover in (draft, *(draft.with_name(draft.name + suffix) for suffix in ("-wal", "-shm"))):
            leftover.unlink(missing_ok=True)
        connection = connect(draft)
        try:
            migrate(connection)
            set_meta(connection, "catalog_id", catalog_id)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()
        draft.replace(self.path)


@contextmanager
def catalog_errors(path: Path) -> Iterator[None]:
    """Translate the errors of SQLite and the file system about the catalog at `path`.

    Raises
    ------
    StoreFull, StoreCorrupt, StoreBusy, StoreError
        By SQLite's result code, not by its words.
    UsageError
        When a parameter is not valid Unicode.
    """

    def otherwise(error: sqlite3.Error) -> StoreError:
        if result_code(error) in _DAMAGED or _is_undecodable(error):
            return StoreCorrupt(f"the catalog {path} is damaged: {error}", hint=REPAIR_HINT)
        return StoreError(f"the catalog {path} failed: {error}")

    try:
        with translate_sqlite_errors(path, otherwise, "the catalog"):
            yield
    except UnicodeEncodeError as error:
        raise UsageError(
            "the request is not valid Unicode: it contains a character that UTF-8 cannot encode"
        ) from error


def find_damage(session: CatalogSession) -> str:
    """Return why the catalog cannot be opened or fails SQLite's own check; empty when it is sound."""
    try:
        with session.borrow("read") as connection:
            results = [str(row[0]) for row in connection.execute("PRAGMA quick_check(5)")]
    except StoreCorrupt as error:
        return error.message
    return "" if results == ["ok"] else "the catalog is damaged: " + "; ".join(results)


def _file_identity(path: Path) -> _FileIdentity:
    """Return device and inode. The file is not opened: closing it would drop SQLite's locks on it."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_undecodable(error: sqlite3.Error) -> bool:
    # The sqlite3 module itself raises this error, and only this one, without a result code.
    return not hasattr(error, "sqlite_errorcode") and "decode" in str(error)


def _check_not_truncated(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `StoreCorrupt` when the file is shorter than its own header says.

    SQLite would notice only when it reads a missing page. Not checked while a write-ahead log may hold the missing
    pages. The header is read through SQLite: opening and closing the file beside it would drop the POSIX locks of
    every connection in this process (sqlite.org/howtocorrupt.html, §2.2), and with them the write-ahead log.
    """
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size:
        return
    pages, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    if path.stat().st_size < pages * size:
        raise StoreCorrupt(f"the catalog {path} is truncated", hint=REPAIR_HINT)
