"""The table of a memory's exchanges: what was said, verbatim, and the truth from which the index is made.

A SQLite file that this user alone can read. What is deleted is overwritten, and the write-ahead log is emptied before
`forget` returns, so that no byte of a forgotten exchange is left. Of each forgotten one its id stays, without a digest,
which would confirm a guess: it is not added again, and an index that still has it is corrected.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from kiwi_rag.errors import StoreCorrupt, StoreError, UsageError
from kiwi_rag.model import Exchange
from kiwi_rag.storage.atomic import create_file, make_private
from kiwi_rag.storage.sqlite import (
    ReadOnlyConnection,
    closed_on_error,
    connect,
    connect_for_reading,
    file_identity,
    transaction,
    translate_sqlite_errors,
    truncate_log,
)
from kiwi_rag.stores.base import timestamp

_TABLES = """
CREATE TABLE IF NOT EXISTS exchanges (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, path TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL, thread_id TEXT NOT NULL, at TEXT NOT NULL, data BLOB NOT NULL,
    indexed INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX IF NOT EXISTS exchanges_to_index ON exchanges (number) WHERE NOT indexed;
CREATE INDEX IF NOT EXISTS exchanges_by_session ON exchanges (session_id, at, number);
CREATE INDEX IF NOT EXISTS exchanges_by_time ON exchanges (at);
CREATE TABLE IF NOT EXISTS forgotten (
    id TEXT PRIMARY KEY, path TEXT NOT NULL, at TEXT NOT NULL, indexed INTEGER NOT NULL, kept INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS positions (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
PRAGMA user_version = 1;
"""
# Field of a selection → what it asks of an exchange.
_CONDITIONS = {
    "ids": "id IN (SELECT value FROM json_each(:ids))", "session_id": "session_id = :session_id",
    "thread_id": "thread_id = :thread_id", "since": "at >= :since", "before": "at < :before",
    "text": "contains(data, :text)",
}  # fmt: skip
# The exchanges of a session next to one of them, on either side, the nearest first.
_NEXT_TO = """
SELECT data FROM (
    SELECT data, at, number FROM exchanges JOIN (SELECT session_id s, at a, number n FROM exchanges WHERE id = :id)
    WHERE session_id = s AND (at, number) {0} (a, n) ORDER BY at {1}, number {1} LIMIT :count
)
"""
# The first step reads an index alone, and threads are read of the sessions that are wanted.
_SESSIONS = """
WITH wanted AS (
    SELECT session_id s, count(*) exchanges, min(at) first, max(at) last FROM exchanges
    GROUP BY s ORDER BY last DESC, s LIMIT :limit OFFSET :offset
)
SELECT s, exchanges, first, last,
    (SELECT json_group_array(DISTINCT thread_id) FROM exchanges WHERE session_id = s),
    (SELECT substr(json_extract(CAST(data AS TEXT), '$.user_message'), 1, 300) FROM exchanges
     WHERE session_id = s ORDER BY at, number LIMIT 1) FROM wanted ORDER BY last DESC, s
"""


class Outcome(StrEnum):
    """What became of an exchange: stored, there already, stored in place of another version, or not stored.

    It is not stored when it was forgotten before, or another exchange has its id.
    """

    NEW = "new"
    KNOWN = "known"
    REPLACED = "replaced"
    FORGOTTEN = "forgotten"
    OTHER_SESSION = "other-session"
    OTHER_CONTENT = "other-content"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which exchanges are meant: those that match all fields that are not empty. ``text`` occurs in a message."""

    ids: tuple[str, ...] = ()
    session_id: str = ""
    thread_id: str = ""
    since: datetime | None = None
    before: datetime | None = None
    text: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether it names nothing, and so would mean everything."""
        return self == Selection()

    def require_named(self) -> None:
        """Raise `UsageError` where it names nothing: what is to be forgotten has to be said."""
        if self.is_empty:
            hint = "name them: ids, session_id, thread_id, before, matching"
            raise UsageError("nothing says which exchanges are to be forgotten", hint=hint)

    @property
    def where(self) -> str:
        """The clause of a query that has `parameters`."""
        conditions = [condition for name, condition in _CONDITIONS.items() if getattr(self, name)]
        return f"WHERE {' AND '.join(conditions)}" if conditions else ""

    def parameters(self) -> dict[str, str]:
        """Return the parameters of a query."""
        moments = {"since": self.since, "before": self.before}
        return {
            "ids": json.dumps(self.ids), "session_id": self.session_id, "thread_id": self.thread_id,
            "text": self.text.casefold(), **{name: timestamp(one) if one else "" for name, one in moments.items()},
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session of a memory: how many exchanges it has, its first and last moment, its threads, how it begins."""

    session_id: str
    exchanges: int
    first: datetime
    last: datetime
    threads: tuple[str, ...] = ()
    question: str = ""


class ExchangeTable:
    """The exchanges of one memory. Each call blocks for some milliseconds; any thread and any process may call.

    Parameters
    ----------
    path
        The file; made with its folder, which git ignores, when something is first written or read.

    Raises
    ------
    StoreBusy, StoreFull, StoreCorrupt, StoreError
        From each method, when the file cannot be used; nothing is half-written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[object, ...] = ()
        self._mutex = threading.Lock()

    def add(self, exchanges: Sequence[Exchange], *, replace: bool = False) -> Sequence[Outcome]:
        """Store exchanges in their order, in one transaction that is durable on return; one outcome for each.

        With `replace`, one is stored in place of that with its id, unless that is of another session.
        """
        with self._using(writing=True) as connection, transaction(connection):
            return [_add(connection, exchange, replace=replace) for exchange in exchanges]

    def get(self, path: str) -> tuple[bytes, int]:
        """Return the canonical JSON of the exchange at a path, and the number of this version of it.

        Raises
        ------
        FileNotFoundError
            When there is none.
        """
        with self._using() as connection:
            row = connection.execute("SELECT data, number FROM exchanges WHERE path = ?", (path,)).fetchone()
        if row is None:
            raise FileNotFoundError(path)
        return bytes(row[0]), row[1]

    def select(self, selection: Selection, limit: int = -1, offset: int = 0) -> Sequence[Exchange]:
        """Return the exchanges that a selection names, the oldest first."""
        query = f"SELECT data FROM exchanges {selection.where} ORDER BY at, number LIMIT :limit OFFSET :offset"  # noqa: S608
        parameters = {**selection.parameters(), "limit": limit, "offset": offset}
        with self._using() as connection:
            return [_read(row) for row in connection.execute(query, parameters)]

    def paths(self, selection: Selection, matches: Callable[[Mapping[str, Any]], bool] | None = None) -> Sequence[str]:
        """Return the paths of the exchanges that a selection names, the oldest first; of those that match alone."""
        columns = "path, data" if matches else "path, NULL"
        query = f"SELECT {columns} FROM exchanges {selection.where} ORDER BY at, number"  # noqa: S608
        with self._using() as connection:
            rows = connection.execute(query, selection.parameters())
            return [path for path, data in rows if matches is None or matches(json.loads(data))]

    def neighbours(self, exchange_id: str, count: int) -> tuple[Sequence[Exchange], Sequence[Exchange]]:
        """Return up to `count` exchanges of the same session before and after one, each in the order of time."""
        parameters = {"id": exchange_id, "count": count}
        with self._using() as connection:
            sides = [connection.execute(_NEXT_TO.format(*side), parameters) for side in (("<", "DESC"), (">", "ASC"))]
            before, after = ([_read(row) for row in side] for side in sides)
        return before[::-1], after

    def sessions(self, limit: int = -1, offset: int = 0) -> Sequence[SessionSummary]:
        """Return the sessions, the last one first."""
        with self._using() as connection:
            rows = connection.execute(_SESSIONS, {"limit": limit, "offset": offset}).fetchall()
        return [
            SessionSummary(
                name,
                count,
                datetime.fromisoformat(first),
                datetime.fromisoformat(last),
                tuple(filter(None, json.loads(threads))),
                question,
            )
            for name, count, first, last, threads, question in rows
        ]

    def totals(self) -> tuple[int, int, datetime | None, datetime | None]:
        """Return the numbers of exchanges and of sessions, and the first and last moment."""
        query = "SELECT count(*), count(DISTINCT session_id), min(at), max(at) FROM exchanges"
        with self._using() as connection:
            exchanges, sessions, *moments = connection.execute(query).fetchone()
        first, last = (datetime.fromisoformat(one) if one else None for one in moments)
        return exchanges, sessions, first, last

    def count(self, selection: Selection | None = None) -> int:
        """Return how many exchanges there are, or how many a selection names."""
        selection = selection or Selection()
        query = f"SELECT count(*) FROM exchanges {selection.where}"  # noqa: S608
        with self._using() as connection:
            return int(connection.execute(query, selection.parameters()).fetchone()[0])

    def versions(self) -> Sequence[tuple[str, int, int]]:
        """Return the path of each exchange, its size in bytes, and a number that no other version of it has."""
        with self._using() as connection:
            return connection.execute("SELECT path, length(data), number FROM exchanges ORDER BY path").fetchall()

    def newest(self) -> int:
        """Return the number of the version that was stored last; 0 where there is none."""
        with self._using() as connection:
            return int(connection.execute("SELECT max(number) FROM exchanges").fetchone()[0] or 0)

    def has_unindexed(self) -> bool:
        """Whether a version of an exchange was stored and is not known to be in the index."""
        with self._using() as connection:
            return bool(connection.execute("SELECT EXISTS (SELECT 1 FROM exchanges WHERE NOT indexed)").fetchone()[0])

    def mark_indexed(self, first: int, last: int) -> None:
        """Note that the versions with these numbers, and those between, are in the index."""
        with self._using(writing=True) as connection:
            connection.execute(
                "UPDATE exchanges SET indexed = 1 WHERE NOT indexed AND number BETWEEN ? AND ?", (first, last)
            )

    def begin_forgetting(self, selection: Selection, *, keep: bool = True) -> Sequence[str]:
        """Delete the exchanges that a selection names, and leave a tombstone of each; return their ids.

        They are in the index until `finish_forgetting`, which a later run does if this one is killed. The tombstones
        stay after that if `keep` is set.
        """
        matching = f"SELECT id, path, :now, 1, :keep FROM exchanges {selection.where}"  # noqa: S608
        parameters = {**selection.parameters(), "now": timestamp(datetime.now(UTC)), "keep": keep}
        with self._using(writing=True) as connection, transaction(connection):
            ids = [row[0] for row in connection.execute(matching, parameters)]
            connection.execute(f"INSERT OR REPLACE INTO forgotten {matching}", parameters)
            connection.execute(f"DELETE FROM exchanges {selection.where}", parameters)  # noqa: S608
        return ids

    def indexed_forgotten(self) -> Mapping[str, str]:
        """Return the paths of forgotten exchanges that an index may still have, by their ids."""
        with self._using() as connection:
            return dict(connection.execute("SELECT id, path FROM forgotten WHERE indexed").fetchall())

    def finish_forgetting(self, ids: Iterable[str]) -> None:
        """Empty the write-ahead log, and note that forgotten exchanges are in no index any more.

        Raises
        ------
        StoreBusy
            When another process reads for half a minute: its bytes are on the disk until the log can be emptied.
        """
        with self._using(writing=True) as connection:
            truncate_log(connection, self.path)  # before the note: a later run does what is left after a failure
            with transaction(connection):
                connection.executemany("UPDATE forgotten SET indexed = 0 WHERE id = ?", [(one,) for one in ids])
                connection.execute("DELETE FROM forgotten WHERE NOT (indexed OR kept)")

    def position(self, name: str) -> Any:
        """Return how far a transcript was read, as it was set; None where it was not."""
        with self._using() as connection:
            row = connection.execute("SELECT value FROM positions WHERE name = ?", (name,)).fetchone()
        return json.loads(row[0]) if row else None

    def set_position(self, name: str, value: object) -> None:
        """Keep how far a transcript was read, as JSON."""
        with self._using(writing=True) as connection:
            connection.execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", (name, json.dumps(value)))

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._mutex:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    @contextmanager
    def _using(self, *, writing: bool = False) -> Iterator[sqlite3.Connection]:
        with self._mutex, translate_sqlite_errors(self.path, self._damaged, "the memory"):
            opened, only_reads = self._connection, isinstance(self._connection, ReadOnlyConnection)
            if opened and (self._identity != file_identity(self.path, opened) or (writing and only_reads)):
                # The file was moved or replaced. SQLite would go on with the old one without an error.
                opened.close()
                self._connection = None
            if self._connection is None:
                self._connection = self._open() if writing else connect_for_reading(self.path, self._open, _create)
                self._identity = file_identity(self.path, self._connection)
                self._connection.create_function("contains", 2, _contains, deterministic=True)
            yield self._connection

    def _open(self) -> sqlite3.Connection:
        make_private(self.path.parent)
        create_file(self.path)  # with mode 0600, which SQLite gives the files beside it, too
        connection = connect(self.path)
        with closed_on_error(connection):
            if connection.execute("PRAGMA user_version").fetchone()[0] > 1:
                raise StoreError(f"a newer Kiwi made {self.path}", hint="upgrade kiwi-rag")
            _create(connection)
        return connection

    def _damaged(self, error: sqlite3.Error) -> StoreError:
        hint = f"restore it from a backup, or move it away and import again: mv {self.path} {self.path}.damaged"
        return StoreCorrupt(f"the memory {self.path} is damaged: {error}", hint=hint)


def _create(connection: sqlite3.Connection) -> None:
    connection.executescript(_TABLES)


def _add(connection: sqlite3.Connection, exchange: Exchange, *, replace: bool) -> Outcome:
    data, thread = exchange.canonical, exchange.thread_id or ""
    if connection.execute("SELECT 1 FROM forgotten WHERE id = ?", (exchange.id,)).fetchone():
        return Outcome.FORGOTTEN
    row = exchange.id, exchange.path, exchange.session_id, thread, timestamp(exchange.timestamp), data
    before = connection.execute("SELECT session_id, data FROM exchanges WHERE id = ?", row[:1]).fetchone()
    if before is not None and before[0] != exchange.session_id:
        return Outcome.OTHER_SESSION
    if before is not None and (bytes(before[1]) == data or not replace):
        return Outcome.KNOWN if bytes(before[1]) == data else Outcome.OTHER_CONTENT
    columns = "(id, path, session_id, thread_id, at, data) VALUES (?, ?, ?, ?, ?, ?)"
    connection.execute(f"INSERT OR REPLACE INTO exchanges {columns}", row)
    return Outcome.NEW if before is None else Outcome.REPLACED


def _contains(data: bytes, text: str) -> bool:
    """Whether a message of an exchange has `text`, which is case-folded."""
    said = json.loads(data)  # it was validated when it was stored
    return any(text in said[name].casefold() for name in ("user_message", "assistant_message"))


def _read(row: Sequence[bytes]) -> Exchange:
    return Exchange.of(row[0])
