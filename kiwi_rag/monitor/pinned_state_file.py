"""The pinned state on disk: one SQLite file for each registry, below the user's folder, mode 0600.

SQLite locks it between processes, and a commit is durable when it returns. Until the user accepts the present state of
the registry, the head only moves forward, a version stays yanked, and a key stays revoked.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from kiwi_rag.errors import ChainForked, PinnedStateDamaged, StoreError
from kiwi_rag.model import sha256_hex
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.monitor.pinned_state import ACCEPT, RegistryIdentity, SeenVersion
from kiwi_rag.registry.checkpoint import Checkpoint, is_hash
from kiwi_rag.signing.trust import RevocationNotice, SignerStatus
from kiwi_rag.storage.atomic import link_new, new_file
from kiwi_rag.storage.sqlite import closed_on_error, connect, move_database_aside, transaction, translate_sqlite_errors
from kiwi_rag.validation.audit import GENESIS, AuditHead

_T = TypeVar("_T")
MAX_VERSIONS = 200_000
MAX_VERSIONS_OF_AN_ITEM = 64
MAX_NOTICES = 10_000
MAX_YANKS = 100_000
SUFFIX = ".sqlite3"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS registry (
    name TEXT NOT NULL, place TEXT NOT NULL, head_seq INTEGER NOT NULL, head_hash TEXT NOT NULL,
    signers_seq INTEGER NOT NULL, asked_at TEXT NOT NULL, only_row INTEGER PRIMARY KEY CHECK (only_row = 1)
) STRICT;
CREATE TABLE IF NOT EXISTS versions (
    id INTEGER PRIMARY KEY, item_type TEXT NOT NULL, folded_id TEXT NOT NULL, version TEXT NOT NULL,
    digest TEXT NOT NULL, key_id TEXT NOT NULL, yanked INTEGER NOT NULL, found_by TEXT NOT NULL,
    UNIQUE (item_type, folded_id, version)
) STRICT;
CREATE INDEX IF NOT EXISTS versions_by_digest ON versions (digest);
CREATE TABLE IF NOT EXISTS notices (
    key_id TEXT NOT NULL, status TEXT NOT NULL, principal TEXT NOT NULL, since TEXT NOT NULL, reason TEXT NOT NULL,
    overruled INTEGER NOT NULL, PRIMARY KEY (key_id, status)
) STRICT;
"""

_YANKS = """
CREATE TABLE IF NOT EXISTS yanks (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE) STRICT
"""
"""The digests of all yanked versions: a local tier may have a copy of one that was never seen at the registry.

Files of earlier versions lack this table and have ``user_version`` 0: the first check reads all that was yanked.
"""

_COLUMNS = {
    "registry": {"name", "place", "head_seq", "head_hash", "signers_seq", "asked_at"},
    "versions": {"id", "item_type", "folded_id", "version", "digest", "key_id", "yanked", "found_by"},
    "notices": {"key_id", "status", "principal", "since", "reason", "overruled"},
}
_SEEN = "version, digest, key_id, yanked, found_by, id"


def pinned_state_path(folder: Path, identity: RegistryIdentity) -> Path:
    """Return the path of a registry's pinned state below `folder`."""
    return folder / f"{sha256_hex(str((identity.name, identity.address)).encode())[:16]}{SUFFIX}"


class PinnedState:
    """What this user pinned of one registry; the file is made at the first write.

    Threads may share one. A lock gives each the file while it reads or writes.

    Parameters
    ----------
    path
        The file.
    identity
        The registry; None for the one that the file names.
    """

    def __init__(self, path: Path, identity: RegistryIdentity | None = None) -> None:
        self.path = path
        self._expected = identity
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.RLock()

    @property
    def identity(self) -> RegistryIdentity:
        """The registry."""
        return self._expected or self._row()[0]

    def head(self) -> AuditHead:
        """Return the pinned head; number 0 when there is none."""
        return self._row()[1] if self.path.exists() else AuditHead()

    def signers_seq(self) -> int:
        """Return the audit record up to which changes of signers were read; 0 when none were."""
        return self._row()[2] if self.path.exists() else 0

    def checked_at(self) -> datetime | None:
        """Return when the registry was last checked; None when it never was."""
        return self._row()[3] if self.path.exists() else None

    def seen(self, ref: ItemRef) -> Mapping[str, SeenVersion]:
        """Return the pinned versions of an item."""
        sql = f"SELECT {_SEEN} FROM versions WHERE item_type = ? AND folded_id = ?"  # noqa: S608  # a constant
        return {seen.version: seen for seen in self._read(_seen, sql, *ref.key)}

    def last_number(self) -> int:
        """Return the number of the version that was pinned last; 0 when there is none."""
        return sum(self._read(_number, "SELECT coalesce(max(id), 0) FROM versions"))

    def items(self) -> Mapping[tuple[ItemType, str], Sequence[SeenVersion]]:
        """Return the pinned versions of all items, by type and folded id."""
        items: dict[tuple[ItemType, str], list[SeenVersion]] = {}
        sql = f"SELECT {_SEEN}, item_type, folded_id FROM versions"  # noqa: S608  # a constant
        for item_type, folded_id, seen in self._read(lambda row: (ItemType(row[-2]), row[-1], _seen(row)), sql):
            items.setdefault((item_type, folded_id), []).append(seen)
        return items

    def notices(self) -> Sequence[RevocationNotice]:
        """Return the notices of this registry about keys that it retired or revoked."""

        def notice(row: Sequence[Any]) -> RevocationNotice:
            key_id, principal, status, since, reason, overruled = row
            at, name = datetime.fromisoformat(since), self.identity.name
            return RevocationNotice(key_id, principal, SignerStatus(status), at, reason, name, bool(overruled))

        sql = "SELECT key_id, principal, status, since, reason, overruled FROM notices ORDER BY since"
        return self._read(notice, sql)

    def has_all_yanks(self) -> bool:
        """Whether all versions that were yanked up to the head are pinned, not only those that this user had seen."""
        return any(self._read(_number, "PRAGMA user_version"))

    def yanked(self, digests: Sequence[str]) -> frozenset[str]:
        """Return those of some digests whose versions were yanked."""
        sql = (
            "SELECT value FROM json_each(?) WHERE value IN (SELECT digest FROM yanks) "
            "OR value IN (SELECT digest FROM versions WHERE yanked)"
        )
        return frozenset(self._read(lambda row: str(row[0]), sql, json.dumps(list(digests))))

    def pin_checkpoint(self, head: AuditHead, checkpoint: Checkpoint, at: datetime) -> None:
        """Pin a head that was followed, with what was yanked and the keys that lost trust up to it.

        The head only moves forward. Yanked digests have their own table with its own limit, so that a registry cannot
        displace the versions that this user has seen by listing very many.

        Raises
        ------
        ChainForked
            When another process pinned another record with this number.
        """
        with self._writing() as connection:
            _move_head(connection, head)
            connection.executemany(
                "UPDATE versions SET yanked = 1 WHERE digest = ?", [(digest,) for digest in checkpoint.yanked]
            )
            _pin_yanks(connection, checkpoint.yanked)
            connection.executemany(
                "INSERT INTO notices (key_id, status, principal, since, reason, overruled) VALUES (?, ?, ?, ?, ?, 0) "
                "ON CONFLICT (key_id, status) DO NOTHING",
                [(n.key_id, n.status.value, n.principal, n.since.isoformat(), n.reason) for n in checkpoint.notices],
            )
            connection.execute(
                "DELETE FROM notices WHERE rowid IN (SELECT rowid FROM notices ORDER BY since DESC LIMIT -1 OFFSET ?)",
                [MAX_NOTICES],
            )
            connection.execute(
                "UPDATE registry SET signers_seq = max(signers_seq, ?), asked_at = ?", [head.seq, at.isoformat()]
            )

    def pin_versions(self, versions: Iterable[tuple[ItemRef, SeenVersion]]) -> None:
        """Pin versions that verified. Of one that is pinned already only ``yanked`` and ``found_by`` change."""
        with self._writing() as connection:
            for ref, seen in versions:
                _pin_version(connection, ref, seen)
            connection.execute("DELETE FROM versions WHERE id <= (SELECT max(id) FROM versions) - ?", [MAX_VERSIONS])

    def overrule(self, key_id: str, *, overruled: bool) -> int:
        """Ignore this registry's notices about a key, or follow them again; return how many changed."""
        if not self.path.exists():
            return 0
        with self._writing() as connection:
            sql = "UPDATE notices SET overruled = ? WHERE key_id = ? AND overruled <> ?"
            return connection.execute(sql, [overruled, key_id, overruled]).rowcount

    def accept(self, head: AuditHead) -> None:
        """Replace the pinned head, and remove all pinned versions; notices about keys stay."""
        with self._writing() as connection:
            connection.execute("DELETE FROM versions")
            _forget_yanks(connection)
            connection.execute(
                "UPDATE registry SET head_seq = ?, head_hash = ?, signers_seq = 0", [head.seq, head.hash]
            )

    def forget(self, ref: ItemRef) -> int:
        """Remove the pinned versions of one item; return how many there were."""
        with self._writing() as connection:
            _forget_yanks(connection)
            sql = "DELETE FROM versions WHERE item_type = ? AND folded_id = ?"
            return connection.execute(sql, ref.key).rowcount

    def move_aside(self) -> Path:
        """Rename a damaged file; return its new path."""
        self.close()
        try:
            return move_database_aside(self.path, "damaged") or self.path
        except OSError as error:
            raise StoreError(f"cannot move {self.path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _read(self, parse: Callable[[Sequence[Any]], _T], sql: str, *arguments: str) -> tuple[_T, ...]:
        """Return the rows of a query, each parsed; none where there is no file."""
        if not self.path.exists():
            return ()
        with self._connected() as connection:
            return tuple(parse(row) for row in connection.execute(sql, arguments).fetchall())

    def _row(self) -> tuple[RegistryIdentity, AuditHead, int, datetime | None]:
        with self._connected() as connection:
            found = connection.execute(
                "SELECT name, place, head_seq, head_hash, signers_seq, asked_at FROM registry"
            ).fetchone()
            if found is None or not is_hash(found[3]) or (found[2] == 0) != (found[3] == GENESIS) or found[2] < 0:
                raise ValueError("it has no valid registry or head")
            identity = RegistryIdentity(found[0], found[1])
            if self._expected not in (None, identity):
                raise ValueError(f"it belongs to {identity}")
            checked_at = datetime.fromisoformat(found[5]) if found[5] else None
            return identity, AuditHead(found[2], found[3]), found[4], checked_at

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction, which excludes other threads by `_lock` and other processes by SQLite's lock."""
        with self._lock:
            if not self.path.exists():
                self._create()
            self._row()
            with self._connected() as connection, transaction(connection):
                yield connection

    def _create(self) -> None:
        """Make the file under another name and link it, so that no process sees one without its registry."""
        if self._expected is None:
            raise StoreError(f"{self.path} was removed", hint="run the command again")
        with self._translated(), new_file(self.path) as draft:
            with closing(connect(draft, wal=False)) as connection:
                connection.executescript(_SCHEMA)
                connection.execute(_YANKS)
                connection.execute(
                    "INSERT INTO registry VALUES (?, ?, 0, ?, 0, '', 1)",
                    [self._expected.name, self._expected.address, GENESIS],
                )
            link_new(draft, self.path)  # if another process was first, its file stays

    def _translated(self) -> AbstractContextManager[None]:
        return translate_sqlite_errors(self.path, lambda error: _damaged(self.path, error))

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection, and translate SQLite's errors and those of parsing the file's content.

        Raises
        ------
        PinnedStateDamaged, StoreBusy, StoreFull, StoreError
            By SQLite's result code.
        """
        try:
            with self._lock, self._translated():
                if self._connection is None:
                    connection = connect(self.path, wal=False)
                    with closed_on_error(connection):
                        _check_tables(connection)
                        connection.execute(_YANKS)
                    self._connection = connection
                yield self._connection
        except (ValueError, TypeError, OverflowError) as error:
            raise _damaged(self.path, error) from error


def pinned_states(folder: Path) -> Sequence[PinnedState]:
    """Return the pinned states of all registries that this user has used."""
    return [PinnedState(path) for path in sorted(folder.glob(f"[0-9a-f]*{SUFFIX}"))]


def read_notices(folder: Path) -> Sequence[RevocationNotice]:
    """Return the notices of all registries below `folder` about keys that they retired or revoked."""
    found: list[RevocationNotice] = []
    for pinned in pinned_states(folder):
        with closing(pinned):
            found += pinned.notices()
    return found


def find_yanked(folder: Path, digests: Sequence[str]) -> frozenset[str]:
    """Return those of some digests whose versions were yanked by any registry below `folder`."""
    found: frozenset[str] = frozenset()
    for pinned in pinned_states(folder) if digests else ():
        with closing(pinned):
            found |= pinned.yanked(digests)
    return found


def _check_tables(connection: sqlite3.Connection) -> None:
    """Raise `ValueError` when a table or a column is missing."""
    # SQLite has one result code for a missing table and for wrong SQL, which would count as a fault in Kiwi.
    for table, columns in _COLUMNS.items():
        existing = {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", [table])}
        if not columns <= existing:
            raise ValueError(f"its table {table} is missing or incomplete")


def _number(row: Sequence[Any]) -> int:
    return int(row[0])


def _seen(row: Sequence[Any]) -> SeenVersion:
    version, digest, key_id, yanked, found_by, number = row[:6]
    return SeenVersion(version, digest, key_id, bool(yanked), found_by, number)


def _move_head(connection: sqlite3.Connection, head: AuditHead) -> None:
    seq, pinned_hash = connection.execute("SELECT head_seq, head_hash FROM registry").fetchone()
    if seq == head.seq and pinned_hash != head.hash:
        raise ChainForked(f"the registry gave two records with the number {seq} for its audit log", hint=ACCEPT)
    if head.seq > seq:
        connection.execute("UPDATE registry SET head_seq = ?, head_hash = ?", [head.seq, head.hash])


def _pin_version(connection: sqlite3.Connection, ref: ItemRef, seen: SeenVersion) -> None:
    connection.execute(
        "INSERT INTO versions (item_type, folded_id, version, digest, key_id, yanked, found_by) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (item_type, folded_id, version) DO UPDATE SET "
        "yanked = max(yanked, excluded.yanked), "
        "found_by = CASE excluded.found_by WHEN '' THEN found_by ELSE excluded.found_by END "
        "WHERE digest = excluded.digest",
        [*ref.key, seen.version, seen.digest, seen.key_id, seen.yanked, seen.found_by],
    )
    # The highest versions matter, and versions grow, so those pinned last stay.
    connection.execute(
        "DELETE FROM versions WHERE id IN (SELECT id FROM versions WHERE item_type = ? AND folded_id = ? "
        "ORDER BY id DESC LIMIT -1 OFFSET ?)",
        [*ref.key, MAX_VERSIONS_OF_AN_ITEM],
    )


def _pin_yanks(connection: sqlite3.Connection, digests: Iterable[str]) -> None:
    connection.executemany("INSERT OR IGNORE INTO yanks (digest) VALUES (?)", [(digest,) for digest in digests])
    connection.execute("DELETE FROM yanks WHERE id <= (SELECT max(id) FROM yanks) - ?", [MAX_YANKS])
    connection.execute("PRAGMA user_version = 1")


def _forget_yanks(connection: sqlite3.Connection) -> None:
    """Remove what was yanked; the next check reads all of it again."""
    connection.execute("DELETE FROM yanks")
    connection.execute("PRAGMA user_version = 0")


def _damaged(path: Path, error: Exception) -> PinnedStateDamaged:
    return PinnedStateDamaged(
        f"the pinned state of a registry, {path}, is damaged: {error}",
        hint="kiwi registry accept moves it aside; versions and revocations are then pinned anew",
    )
