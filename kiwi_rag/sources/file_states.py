"""What each file was when it was last read, and the state of the last run: one object on this machine for every store.

It is a SQLite file in the folder of the local index, also where the collection is in the registry or in Qdrant. Its
name derives from a secret of this user, so a file that came with a cloned repository is never opened. It holds nothing
that cannot be had again: when it is missing or damaged, the next run reads every file once more. After a kill between a
store's write and this one, a file is read once more too, which changes nothing in the store.
"""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from sys import intern
from typing import TypeVar

from kiwi_rag.errors import StoreError
from kiwi_rag.model.refs import ItemType
from kiwi_rag.storage.atomic import make_derived_folder
from kiwi_rag.storage.sqlite import DerivedDatabase, transaction, translate_sqlite_errors, truncate_log
from kiwi_rag.stores.base import SourceStamp


class RunState(StrEnum):
    """The state of the last run over all files of a source: PARTLY where files failed."""

    BEGUN = "begun"
    COMPLETE = "complete"
    PARTLY = "partly"


FORMAT = 1
"""Of the tables, and of what a stamp means. Each format has a file of its own."""
_TABLES = """
CREATE TABLE IF NOT EXISTS stamps (
    path TEXT PRIMARY KEY, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, sha256 TEXT NOT NULL,
    sig_sha256 TEXT NOT NULL, gate_stamp TEXT NOT NULL, item_type TEXT NOT NULL, item_id TEXT NOT NULL,
    digest TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT, WITHOUT ROWID"""

_TYPES = {one.value: one for one in ItemType}
Result = TypeVar("Result")


class FileStates:
    """The stamps of one collection's files by path, and the state of its last run.

    Each call blocks for some milliseconds. Files are opened at first use; any thread may call.

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
        place = f"kiwi:file-states:{FORMAT}:{folder.absolute()}".encode()
        mark = hmac.new(owner_token.encode(), place, hashlib.sha256).hexdigest()
        self.path = folder / f"file-states-{mark[:32]}.sqlite3"
        self._database = DerivedDatabase(
            self.path, lambda: make_derived_folder(folder), lambda made: made.executescript(_TABLES)
        )

    def all(self) -> Mapping[str, SourceStamp]:
        """Return the stamps of all files by path."""
        return self._read(lambda c: _stamps(c.execute("SELECT * FROM stamps")))

    def get(self, path: str) -> SourceStamp | None:
        """Return the stamp of one file; None when there is none."""
        return self._read(lambda c: _stamps(c.execute("SELECT * FROM stamps WHERE path = ?", (path,)))).get(path)

    def put(self, stamps: Iterable[SourceStamp]) -> None:
        """Store the stamps of files, in one transaction."""
        self._write(
            "INSERT OR REPLACE INTO stamps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", [astuple(one) for one in stamps]
        )

    def erase(self, paths: Iterable[str]) -> None:
        """Remove the stamps of files, and leave no byte of them on the disk."""
        self._write("DELETE FROM stamps WHERE path = ?", [(path,) for path in paths])
        self._use(lambda connection: truncate_log(connection, self.path))

    def delete(self, path: str) -> None:
        """Remove a file's stamp, if there is one."""
        self._write("DELETE FROM stamps WHERE path = ?", [(path,)])

    def clear(self) -> None:
        """Remove all stamps; the state of the last run stays."""
        self._write("DELETE FROM stamps", [()])

    def run_state(self) -> str:
        """Return the state of the last run over all files; empty when there was none."""
        return self._note("run")

    def run_commit(self) -> str:
        """Return the commit that was checked out in the last run over all files that ended; empty for none."""
        return self._note("commit")

    def written_at(self) -> str:
        """Return when something was last indexed or removed, in UTC; empty where that is not known."""
        return self._note("at")

    def set_run_state(self, state: RunState, commit: str | None = None) -> None:
        """Store the state of a run, and its commit unless it is None, for later processes."""
        notes = [("run", str(state)), *([] if commit is None else [("commit", commit)])]
        self._write("INSERT OR REPLACE INTO notes VALUES (?, ?)", notes)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._database.close()

    def _note(self, name: str) -> str:
        return str(self._read(lambda c: dict(c.execute("SELECT name, text FROM notes"))).get(name, ""))

    def _read(self, function: Callable[[sqlite3.Connection], Mapping[str, Result]]) -> Mapping[str, Result]:
        """Return what `function` returns, or nothing while there is no file: reading makes none."""
        return self._use(function) if self.path.exists() else {}

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            with transaction(connection):
                connection.executemany(statement, rows)
                at = datetime.now(UTC).isoformat(timespec="seconds")
                connection.execute("INSERT OR REPLACE INTO notes VALUES ('at', ?)", (at,))

        self._use(write)

    def _use(self, function: Callable[[sqlite3.Connection], Result]) -> Result:
        name = "the record of read files"
        with translate_sqlite_errors(self.path, lambda error: StoreError(f"{self.path} failed: {error}"), name):
            return self._database.use(function)


def _stamps(rows: Iterable[tuple[str, int, int, str, str, str, str, str, str]]) -> Mapping[str, SourceStamp]:
    # A type that Kiwi never wrote raises LookupError: the file is damaged.
    return {row[0]: SourceStamp(*row[:5], intern(row[5]), _TYPES[row[6]], *row[7:]) for row in rows}
