"""The file of the embedding cache: SQLite, shared by processes.

All of its content can be computed again, so no fault of it is an error: a damaged file is moved aside and replaced by
an empty one; a file that is locked, read-only or on a full disk is not written. Each of these is a warning in the log.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kiwi_rag.storage.atomic import create_file
from kiwi_rag.storage.sqlite import connect, move_database_aside, result_code, transaction

if TYPE_CHECKING:
    from kiwi_rag.model import Vector

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

MAX_BYTES = 2 << 30
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_ERROR})
_UNIT_TOLERANCE = 1e-3

_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (
    id INTEGER PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    text_sha256 BLOB NOT NULL,
    vector BLOB NOT NULL,
    UNIQUE (text_sha256, fingerprint)
)"""


class VectorFile:
    """Vectors by fingerprint and text digest; any thread and any process may use it.

    Parameters
    ----------
    path
        The file; created with its folder when first used.
    max_bytes
        Size above which the oldest tenth of the vectors is dropped.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._warned = False

    def get(self, fingerprint: str, digests: Sequence[bytes], dimension: int) -> dict[bytes, Vector]:
        """Return the vectors of shape ``(dimension,)`` (0: any) in the file, by text digest; empty on any fault."""
        rows = self._attempt(lambda connection: _select(connection, fingerprint, digests)) or []
        vectors = ((digest, _vector(blob, dimension)) for digest, blob in rows)
        return {digest: vector for digest, vector in vectors if vector is not None}

    def put(self, fingerprint: str, vectors: Mapping[bytes, Vector]) -> None:
        """Store `vectors`, replacing those with the same keys; do nothing on any fault."""
        rows = [(fingerprint, digest, vector.astype("<f4").tobytes()) for digest, vector in vectors.items()]
        self._attempt(lambda connection: _insert(connection, rows, self._max_bytes))

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            self._drop_connection()

    def _attempt(self, action: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """Run `action`; None if the cache cannot be used."""
        with self._lock:
            try:
                return self._repaired(action)
            except (sqlite3.Error, OSError) as error:
                self._drop_connection()
                self._warn(error)
                return None

    def _repaired(self, action: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run `action`; if the file is damaged, run it again on an empty one."""
        try:
            return action(self._open())
        except sqlite3.Error as error:
            if not _is_damage(error):
                raise
        self._drop_connection()
        self._move_aside()
        return action(self._open())

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _restrict_mode(self._path)
            self._connection = connect(
                self._path, synchronous="NORMAL", prepare=lambda connection: connection.execute(_SCHEMA)
            )
        return self._connection

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _move_aside(self) -> None:
        aside = move_database_aside(self._path, "damaged")
        _log.warning("the embedding cache was damaged; it was moved to %s and replaced by an empty one", aside)

    def _warn(self, error: Exception) -> None:
        # One warning: indexing ten thousand passages on a read-only disk would log three hundred.
        level, self._warned = (logging.DEBUG if self._warned else logging.WARNING), True
        _log.log(level, "the embedding cache %s cannot be used now: %s", self._path, error)


def _restrict_mode(path: Path) -> None:
    """Create the file with mode 0600, because vectors and digests reveal something of the texts.

    SQLite gives the files beside it (``-wal``, ``-shm``) the same rights. The file is never opened here: closing it
    would drop the locks that SQLite holds on it for another thread (sqlite.org/howtocorrupt.html, section 2.2).
    """
    with contextlib.suppress(OSError):  # SQLite raises the error that matters
        if not create_file(path):
            path.chmod(path.stat().st_mode & 0o600)


def _select(connection: sqlite3.Connection, fingerprint: str, digests: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    statement = "SELECT vector FROM vectors WHERE text_sha256 = ? AND fingerprint = ?"
    found = ((digest, connection.execute(statement, (digest, fingerprint)).fetchone()) for digest in digests)
    return [(digest, row[0]) for digest, row in found if row]


def _insert(connection: sqlite3.Connection, rows: Sequence[tuple[str, bytes, bytes]], max_bytes: int) -> None:
    statement = "INSERT OR REPLACE INTO vectors (fingerprint, text_sha256, vector) VALUES (?, ?, ?)"
    with transaction(connection):
        connection.executemany(statement, rows)
        if _used_bytes(connection) > max_bytes:
            _prune(connection)


def _used_bytes(connection: sqlite3.Connection) -> int:
    row = connection.execute(
        "SELECT (page_count - freelist_count) * page_size"
        " FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
    ).fetchone()
    return int(row[0])


def _prune(connection: sqlite3.Connection) -> None:
    """Drop the oldest tenth; freed pages are used again, so the file stops growing."""
    connection.execute(
        "DELETE FROM vectors WHERE id IN"
        " (SELECT id FROM vectors ORDER BY id LIMIT (SELECT (count(*) + 9) / 10 FROM vectors))"
    )


def _vector(blob: object, dimension: int) -> Vector | None:
    """Return the stored vector, or None if its length or norm shows a damaged row."""
    import numpy as np

    if not isinstance(blob, bytes) or len(blob) != 4 * (dimension or len(blob) // 4):
        return None
    vector = np.frombuffer(blob, dtype="<f4").astype(np.float32)
    return vector if abs(float(vector @ vector) - 1.0) < _UNIT_TOLERANCE else None


def _is_damage(error: Exception) -> bool:
    return result_code(error) in _DAMAGED
