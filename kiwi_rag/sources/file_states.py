"""What each file was when it was last read, and notes of index runs: one object on this machine for every store.

It is a SQLite file in the folder of the local index, also where the collection is in the registry or in Qdrant. Its
name derives from a secret of this user, so a file that came with a cloned repository is never opened. It holds nothing
that cannot be had again: when it is missing or damaged, the next run reads every file once more. After a kill between a
store's write and this one, a file is read once more too, which changes nothing in the store.
"""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple
from pathlib import Path
from typing import TypeVar

from kiwi_rag.errors import StoreError, UsageError
from kiwi_rag.model.refs import ItemType
from kiwi_rag.storage.atomic import make_derived_folder
from kiwi_rag.storage.sqlite import DerivedDatabase, transaction, translate_sqlite_errors
from kiwi_rag.stores.base import SourceStamp

_FORMAT = 1  # of the tables, and of what a stamp means; a file of another format is emptied
_TABLES = (
    "DROP TABLE IF EXISTS stamps",
    "DROP TABLE IF EXISTS notes",
    """CREATE TABLE stamps (
        path TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, sha256 TEXT NOT NULL,
        sig_sha256 TEXT NOT NULL, gate_stamp TEXT NOT NULL, item_type TEXT NOT NULL, item_id TEXT NOT NULL,
        digest TEXT NOT NULL
    ) STRICT, WITHOUT ROWID""",
    "CREATE TABLE notes (name TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT, WITHOUT ROWID",
    f"PRAGMA user_version = {_FORMAT}",
)
_PUT = "INSERT OR REPLACE INTO stamps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"

Result = TypeVar("Result")


class FileStates:
    """The stamps of one collection's files by path, and its notes. Each call blocks for some milliseconds.

    Files are opened at first use; any thread may call.

    Parameters
    ----------
    folder
        The folder of derived data; it is made when something is written.
    owner_token
        A secret of this user on this machine, kept outside every repository.

    Raises
    ------
    StoreBusy, StoreFull, StoreError
        From each method, when the file cannot be used. A damaged one is moved aside, and an empty one takes its place.
    """

    def __init__(self, folder: Path, owner_token: str) -> None:
        # Bound to the place: another folder's file, published by accident, is not believed here either.
        place = f"kiwi:file-states:{folder.absolute()}".encode()
        mark = hmac.new(owner_token.encode(), place, hashlib.sha256).hexdigest()
        self.path = folder / f"file-states-{mark[:32]}.sqlite3"
        self._database = DerivedDatabase(self.path, lambda: make_derived_folder(folder), _create_tables)

    def all(self) -> Mapping[str, SourceStamp]:
        """Return the stamps of all files by path."""
        return self._read(_read_stamps, {})

    def get(self, path: str) -> SourceStamp | None:
        """Return the stamp of one file; None when there is none."""
        return self._read(lambda c: _read_stamps(c, path).get(path), None)

    def put(self, stamps: Iterable[SourceStamp]) -> None:
        """Store the stamps of files, in one transaction."""
        rows = [astuple(stamp) for stamp in stamps]
        self._write(lambda c: c.executemany(_PUT, rows))

    def delete(self, path: str) -> bool:
        """Remove a file's stamp; return whether there was one."""
        return self._write(lambda c: c.execute("DELETE FROM stamps WHERE path = ?", (path,)).rowcount > 0)

    def clear(self) -> None:
        """Remove all stamps; notes stay."""
        self._write(lambda c: c.execute("DELETE FROM stamps"))

    def note(self, name: str) -> str:
        """Return the text stored under a name, such as the state of the last run; empty when there is none."""
        return self._read(lambda c: _read_note(c, name), "")

    def set_note(self, name: str, text: str) -> None:
        """Store a short text under a name, for later processes."""
        self._write(lambda c: c.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, text)))

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._database.close()

    def _read(self, function: Callable[[sqlite3.Connection], Result], nothing: Result) -> Result:
        """Return what `function` returns, or `nothing` while there is no file: reading makes none."""
        return self._use(function) if self.path.exists() else nothing

    def _write(self, function: Callable[[sqlite3.Connection], Result]) -> Result:
        def write(connection: sqlite3.Connection) -> Result:
            with transaction(connection):
                return function(connection)

        return self._use(write)

    def _use(self, function: Callable[[sqlite3.Connection], Result]) -> Result:
        try:
            with translate_sqlite_errors(self.path, self._failed, "the record of read files"):
                return self._database.use(function)
        except UnicodeEncodeError as error:
            raise UsageError("a path is not valid Unicode: it contains half of a surrogate pair") from error

    def _failed(self, error: sqlite3.Error) -> StoreError:
        return StoreError(f"{self.path} failed: {error}")


def _create_tables(connection: sqlite3.Connection) -> None:
    if _format(connection) == _FORMAT:
        return
    with transaction(connection):
        if _format(connection) != _FORMAT:  # another process may have created them meanwhile
            for statement in _TABLES:
                connection.execute(statement)


def _format(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _read_stamps(connection: sqlite3.Connection, path: str = "") -> Mapping[str, SourceStamp]:
    types = {one.value: one for one in ItemType}
    one_file = ("SELECT * FROM stamps WHERE path = ?", (path,))
    rows = connection.execute(*one_file) if path else connection.execute("SELECT * FROM stamps")
    return {  # built from tuples, because every run reads thousands of rows
        path: SourceStamp(path, size, mtime_ns, sha256, sig_sha256, gate_stamp, types[item_type], item_id, digest)
        for path, size, mtime_ns, sha256, sig_sha256, gate_stamp, item_type, item_id, digest in rows
    }


def _read_note(connection: sqlite3.Connection, name: str) -> str:
    row = connection.execute("SELECT text FROM notes WHERE name = ?", (name,)).fetchone()
    return str(row[0]) if row else ""
