"""SQLite: connections with Kiwi's settings, transactions, and what its result codes mean.

No function opens a database file by itself: closing it again would drop the POSIX locks that every connection of this
process holds on it (sqlite.org/howtocorrupt.html, section 2.2).
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeVar

from kiwi_rag.errors import StoreBusy, StoreError, UsageError
from kiwi_rag.storage.atomic import CHECK, FULL, disk_error

_log = logging.getLogger(__name__)

BUSY_SECONDS = 5.0
TRUNCATE_SECONDS = 30.0
_SHARED_BYTES = 1 << 15
MAX_COPIED = 1 << 30
"""Bytes of a database with its log that are copied for reading, where no file can be made beside it."""
_READONLY = sqlite3.SQLITE_READONLY
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_INACCESSIBLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM)
_NOT_WRITTEN = (*_INACCESSIBLE, sqlite3.SQLITE_FULL)
_NO_WRITES = (*FULL, errno.EROFS, errno.EACCES, errno.EPERM)
_WRONG_CALL = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISUSE)
_HINTS = dict.fromkeys(_INACCESSIBLE, CHECK)
_HINTS |= dict.fromkeys(_WRONG_CALL, "try again; if the error stays, it is a fault in Kiwi")


def connect(
    path: Path, *, readonly: bool = False, wal: bool = True, synchronous: Literal["FULL", "NORMAL"] = "FULL"
) -> sqlite3.Connection:
    """Open a database; any thread may use the connection, so callers guard it with a lock of their own.

    Parameters
    ----------
    readonly
        Refuse writes. The file is opened for writing all the same: a WAL database opened read-only cannot be read
        when its shared-memory file has to be made first.
    wal
        Keep a write-ahead log, so that readers and a writer do not wait for each other.
    synchronous
        ``FULL``: an acknowledged commit is on the disk. ``NORMAL``: a power cut may cost the newest commits alone.
    """
    return _prepared(_opened(path), readonly=readonly, wal=wal, synchronous=synchronous)


def _opened(path: Path | str, factory: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
    options: Any = {"timeout": BUSY_SECONDS, "isolation_level": None, "check_same_thread": False}
    return sqlite3.connect(path, uri=isinstance(path, str), factory=factory, **options)


def _prepared(
    connection: sqlite3.Connection, *, readonly: bool = True, wal: bool = False, synchronous: str = "FULL"
) -> sqlite3.Connection:
    with closed_on_error(connection):
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA foreign_keys = ON")
        # What is deleted is overwritten. Some builds of SQLite have it as their default, a memory needs it everywhere.
        connection.execute("PRAGMA secure_delete = ON")
        if wal and not readonly:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA query_only = ON" if readonly else f"PRAGMA synchronous = {synchronous}")
    return connection


class ReadOnlyConnection(sqlite3.Connection):
    """A connection to a database on a disk that is read-only or full: what is written meanwhile is not in it."""


def connect_for_reading(
    path: Path | None, open_: Callable[[], sqlite3.Connection], create: Callable[[sqlite3.Connection], object]
) -> sqlite3.Connection:
    """Return what `open_` returns or, where the disk takes no writes, a `ReadOnlyConnection` to the file at `path`.

    To read a database with a write-ahead log, SQLite makes a file of shared memory beside it. Where it cannot, the
    database is opened as one that does not change, unless its log has content, which is not read then: such a database
    is copied (sqlite.org/wal.html#read_only_databases). Where there is no file, `create` makes the tables of an empty
    one in memory. Compare `file_identity` before each use: another process may be able to write again.

    Raises
    ------
    StoreError, OSError, sqlite3.Error
        When it cannot be opened for another reason, or is too large to be copied.
    """
    try:
        return open_()
    except (OSError, sqlite3.Error, StoreError) as error:
        if not _takes_no_writes(error):
            raise
    if path is None or not path.exists():
        empty = _opened(":memory:", ReadOnlyConnection)
        with closed_on_error(empty):
            create(empty)
        return _prepared(empty)
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        return _copied(path, log)
    return _prepared(_opened(f"{path.absolute().as_uri()}?mode=ro&immutable=1", ReadOnlyConnection))


def _takes_no_writes(error: Exception) -> bool:
    """Whether an error, or what it was made from, says that a file cannot be made or written."""
    cause = error.__cause__ if isinstance(error, StoreError) else error
    return getattr(cause, "errno", None) in _NO_WRITES or result_code(cause or error) in _NOT_WRITTEN


def _copied(path: Path, log: Path) -> sqlite3.Connection:
    """Return a connection to a copy, whose files have lost their names already: no process can leave them behind."""
    size = path.stat().st_size + log.stat().st_size
    if size > MAX_COPIED:
        message = f"{path} cannot be read where nothing can be written: its write-ahead log holds a part of it"
        raise StoreError(message, hint="make its folder writable, or free some space")
    memory = Path("/dev/shm")  # noqa: S108  # a file system in memory, with a folder of a random name and mode 0700
    place = memory if memory.is_dir() and shutil.disk_usage(memory).free > 2 * size else None
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as folder:
        for file in (path, log):  # no connection of this process has it open: it could not be opened
            shutil.copyfile(file, Path(folder, file.name))
        connection = _prepared(_opened(Path(folder, path.name).as_uri(), ReadOnlyConnection))
        with closed_on_error(connection):
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # opens the log, too
    return connection


@contextmanager
def closed_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    """Close the connection where the block, which prepares its use, raises."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


@contextmanager
def transaction(
    connection: sqlite3.Connection, kind: Literal["BEGIN", "BEGIN IMMEDIATE"] = "BEGIN IMMEDIATE"
) -> Iterator[sqlite3.Connection]:
    """Run one transaction: committed when the block ends, rolled back when it raises."""
    connection.execute(kind)
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        # SQLite has rolled back by itself after a full disk, and a second ROLLBACK would hide why.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def translate_sqlite_errors(
    path: Path, damaged: Callable[[sqlite3.Error], StoreError], name: str = "the file"
) -> Iterator[None]:
    """Translate what SQLite or the file system raises inside the block, by SQLite's result code, not by its words.

    Parameters
    ----------
    path
        The database.
    damaged
        Makes the error for a code that speaks of neither a lock, the disk nor a wrong call.
    name
        What the database is, for messages.

    Raises
    ------
    StoreFull, StoreBusy, StoreError
        Or what `damaged` returns.
    UsageError
        When a parameter is not valid Unicode.
    """
    try:
        yield
    except UnicodeEncodeError as error:
        message = "the request is not valid Unicode: it contains a character that UTF-8 cannot encode"
        raise UsageError(message) from error
    except OSError as error:
        raise disk_error(path, error) from error
    except sqlite3.Error as error:
        if cause := _disk_cause(error, path.parent):
            raise disk_error(path, cause) from error
        if result_code(error) in _LOCKED:
            message = f"{name} {path} stayed locked for {BUSY_SECONDS:.0f} s"
            raise StoreBusy(message, hint="try again in a moment") from error
        if hint := _HINTS.get(result_code(error)):
            raise StoreError(f"cannot use {name} {path}: {error}", hint=hint) from error
        raise damaged(error) from error


def _disk_cause(error: sqlite3.Error, folder: Path) -> OSError | None:
    """Return what the operating system says, which SQLite does not repeat; None where the error is not about the disk.

    Where SQLite could not open or write a file, another one is written in the folder, as large as its shared memory.
    """
    if result_code(error) == sqlite3.SQLITE_FULL:
        return OSError(errno.ENOSPC, str(error))
    try:
        if result_code(error) in _INACCESSIBLE:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(_SHARED_BYTES))
    except OSError as cause:
        return cause
    return None


def truncate_log(connection: sqlite3.Connection, path: Path) -> None:
    """Empty the write-ahead log of a database, so that what was deleted is nowhere on the disk.

    Raises
    ------
    StoreBusy
        When another process reads the database for half a minute.
    """
    deadline = time.monotonic() + TRUNCATE_SECONDS
    while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        if time.monotonic() > deadline:
            message = f"{path} is being read for over {TRUNCATE_SECONDS:.0f} s, so its log cannot be emptied"
            raise StoreBusy(message, hint="stop the other program and run the command again")
        time.sleep(0.05)


def file_identity(path: Path, connection: sqlite3.Connection | None = None) -> tuple[object, ...]:
    """Return device and inode, and for a `ReadOnlyConnection` also sizes and times of the database and its log.

    No file is opened: closing it would drop SQLite's locks on it.
    """
    if not isinstance(connection, ReadOnlyConnection):
        return _facts(path)[:2]
    return (*_facts(path), *_facts(path.with_name(f"{path.name}-wal")))


def _facts(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def result_code(error: BaseException) -> int:
    """Return the primary result code of SQLite; of an error that the sqlite3 module raises itself a similar one, or 0.

    Without a code are a wrong call, as of a closed connection, and a text of the database that is not UTF-8.
    """
    own = sqlite3.SQLITE_MISUSE if isinstance(error, sqlite3.ProgrammingError) else 0
    return int(getattr(error, "sqlite_errorcode", own)) & 0xFF


def move_database_aside(path: Path, reason: str) -> Path | None:
    """Rename a database to the first free ``<name>.<reason>-<n>`` and return that; None when there is none.

    Its write-ahead log goes with it: it belongs to this database and to no later one.
    """
    log, shared = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    shared.unlink(missing_ok=True)
    if not os.path.lexists(path):
        log.unlink(missing_ok=True)
        return None
    targets = (path.with_name(f"{path.name}.{reason}-{number}") for number in count(1))
    target = next(target for target in targets if not os.path.lexists(target))
    path.rename(target)
    if log.exists():
        log.rename(target.with_name(f"{target.name}-wal"))
    return target


_T = TypeVar("_T")
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_ERROR})


class DerivedDatabase:
    """A database of what can be computed or read again: where it is damaged, an empty one takes its place.

    It is opened at first use, and any thread and any process may use it.

    Parameters
    ----------
    path
        The file.
    prepare
        Makes its folder, or the file; called before it is opened.
    create
        Creates the tables that are missing.
    """

    def __init__(
        self, path: Path, prepare: Callable[[], object], create: Callable[[sqlite3.Connection], object]
    ) -> None:
        self.path = path
        self._prepare, self._create = prepare, create
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[object, ...] = ()
        self._mutex = threading.Lock()

    def use(self, action: Callable[[sqlite3.Connection], _T]) -> _T:
        """Return what `action` returns; if the file is damaged, it is called again on an empty one.

        Raises
        ------
        sqlite3.Error, OSError
            When the file cannot be used.
        """
        with self._mutex:
            try:
                return action(self._opened())
            except (sqlite3.Error, LookupError, UnicodeDecodeError) as error:  # the last two: values never written
                is_write = isinstance(self._connection, ReadOnlyConnection) and result_code(error) == _READONLY
                if isinstance(error, sqlite3.Error) and result_code(error) not in _DAMAGED and not is_write:
                    raise
            self._close()
            if is_write:  # what cannot be written says why
                self._connection = self._open()
                return action(self._connection)
            aside = move_database_aside(self.path, "damaged")
            _log.warning("%s was damaged; it was moved to %s and replaced by an empty one", self.path, aside)
            return action(self._opened())

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._mutex:
            self._close()

    def _opened(self) -> sqlite3.Connection:
        if self._identity != file_identity(self.path, self._connection):
            self._close()
        if self._connection is None:
            self._connection = connect_for_reading(self.path, self._open, self._create)
            self._identity = file_identity(self.path, self._connection)
        return self._connection

    def _open(self) -> sqlite3.Connection:
        self._prepare()
        # NORMAL: a power cut may cost the newest rows, which can be had again.
        connection = connect(self.path, synchronous="NORMAL")
        with closed_on_error(connection):
            self._create(connection)
        return connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
