"""The one door to SQLite: connections, transactions, and its errors in Kiwi's words."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from kiwi_rag.errors import StoreBusy, StoreCorrupt, StoreError, StoreFull, UsageError

REPAIR_HINT = "kiwi doctor --repair"
BUSY_SECONDS = 5.0


def connect(path: Path, *, readonly: bool) -> sqlite3.Connection:
    """Open the catalog; used from worker threads, so callers guard a connection with a lock of their own.

    A reader is opened for writing with ``query_only`` set: a WAL database opened read-only cannot be read
    when its shared-memory file has to be made first.
    """
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        _configure(connection, readonly)
    except BaseException:
        connection.close()
        raise
    return connection


def _configure(connection: sqlite3.Connection, readonly: bool) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA foreign_keys = ON")
    if readonly:
        connection.execute("PRAGMA query_only = ON")
        return
    connection.execute("PRAGMA journal_mode = WAL")
    # FULL: a commit that was acknowledged is on the disk, not only in the page cache.
    connection.execute("PRAGMA synchronous = FULL")


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
        # SQLite has rolled back by itself after a full disk.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def sqlite_door(path: Path) -> Iterator[None]:
    """Translate whatever SQLite or the file system says about `path`.

    Raises
    ------
    StoreFull, StoreCorrupt, StoreBusy, StoreError
        By SQLite's result code, not by its words.
    UsageError
        When it was asked for something that is no text.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(error, path) from error
    except UnicodeEncodeError as error:
        raise UsageError("what was asked for is no text: it holds half a character") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(f"no space left for {path}; nothing was half-written", hint="free some space") from error
        raise StoreError(f"cannot use {path}: {error.strerror or error}") from error


def _translate(error: sqlite3.Error, path: Path) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"no space left for {path}; nothing was half-written", hint="free some space")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or _undecodable(error):
        return StoreCorrupt(f"the catalog {path} is damaged: {error}", hint=REPAIR_HINT)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(f"the catalog {path} stayed locked for {BUSY_SECONDS:.0f} s")
    return StoreError(f"the catalog {path} failed: {error}")


def _undecodable(error: sqlite3.Error) -> bool:
    # The one case that the sqlite3 module raises itself, without a result code.
    return not hasattr(error, "sqlite_errorcode") and "decode" in str(error)


def check_not_truncated(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `StoreCorrupt` when the file is shorter than its own header says.

    SQLite would notice only once it reads a missing page. Says nothing while a write-ahead log may hold the missing
    pages. The header is read through SQLite: opening and closing the file beside it would drop the POSIX locks of
    every connection in this process (sqlite.org/howtocorrupt.html, §2.2), and with them the write-ahead log.
    """
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size:
        return
    pages, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    if path.stat().st_size < pages * size:
        raise StoreCorrupt(f"the catalog {path} is cut short", hint=REPAIR_HINT)
