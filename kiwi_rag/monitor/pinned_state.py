"""The state that a client pins of a registry, on disk: one SQLite file for each, below the user's folder, mode 0600.

The owner of a database can remove every protection in it, but cannot change what a client has pinned: the head of the
audit log, the digest of each version, the highest version of each item, which versions were yanked and which keys were
revoked. The Update Framework's clients do the same (theupdateframework.github.io/specification, §1.5.2: rollback,
freeze and mix-and-match attacks).

SQLite locks the file between processes, and a commit is durable when it returns. Until the user accepts the present
state of the registry, the head only moves forward, a version stays yanked, and a key stays revoked.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import astuple, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kiwi_rag.errors import ChainForked, PinnedStateDamaged, StoreError
from kiwi_rag.model import ItemRef, ItemType, sha256_hex
from kiwi_rag.signing.trust import RevocationNotice, SignerStatus
from kiwi_rag.storage.atomic import link_new, new_file
from kiwi_rag.storage.sqlite import closed_on_error, connect, move_database_aside, transaction, translate_sqlite_errors
from kiwi_rag.validation.audit import GENESIS, AuditHead

if TYPE_CHECKING:
    from kiwi_rag.registry.rows import Checkpoint

_T = TypeVar("_T")
MAX_VERSIONS = 200_000
MAX_VERSIONS_OF_AN_ITEM = 64
MAX_NOTICES = 10_000
MAX_YANKS = 100_000
SUFFIX = ".sqlite3"
ACCEPT = "ask its operator why; if it was restored or replaced on purpose: kiwi registry accept"
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
CREATE TABLE IF NOT EXISTS yanks (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE) STRICT;
"""
"""Of all yanked versions ``yanks`` has the digests: a local tier may have one that was never seen at the registry.

Files of earlier versions lack it and have ``user_version`` 0: the first check reads all that was yanked.
"""
_PIN_VERSION = """
INSERT INTO versions (item_type, folded_id, version, digest, key_id, yanked, found_by) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (item_type, folded_id, version) DO UPDATE SET yanked = max(yanked, excluded.yanked),
    found_by = CASE excluded.found_by WHEN '' THEN found_by ELSE excluded.found_by END
WHERE digest = excluded.digest
"""
# The highest versions matter, and versions grow, so those pinned last stay.
_DROP_EARLIER = """
DELETE FROM versions WHERE id IN (
    SELECT id FROM versions WHERE item_type = ? AND folded_id = ? ORDER BY id DESC LIMIT -1 OFFSET ?
)
"""
_REGISTRY = "name, place, head_seq, head_hash, signers_seq, asked_at"
_READ_REGISTRY = f"""
SELECT {_REGISTRY}, (SELECT coalesce(max(id), 0) FROM versions), (SELECT user_version FROM pragma_user_version)
FROM registry
"""  # noqa: S608  # a constant
_SEEN = "version, digest, key_id, yanked, found_by, id"
_NOTICE = "key_id, principal, status, since, reason, overruled"


@dataclass(frozen=True, slots=True)
class RegistryIdentity:
    """The identity of a registry: its name and its address, without user and password."""

    name: str
    address: str

    def __str__(self) -> str:
        return f"{self.name} at {self.address}"


@dataclass(frozen=True, slots=True)
class SeenVersion:
    """One version of an item, as it was when it last verified.

    ``found_by`` is the fingerprint of the embedding model with which a search found it, empty when none did. ``number``
    counts the pinned versions in their order; it is 0 for one that is not pinned yet.
    """

    version: str
    digest: str
    key_id: str
    yanked: bool = False
    found_by: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class PinnedRegistry:
    """What is pinned of a registry besides its versions and notices.

    ``signers_seq`` is the audit record up to which changes of signers were read, ``checked_at`` when it was last
    checked, ``number`` that of the version that was pinned last. ``has_all_yanks`` says whether all versions that were
    yanked up to the head are pinned, not only those that this user had seen.
    """

    identity: RegistryIdentity
    head: AuditHead
    signers_seq: int = 0
    checked_at: datetime | None = None
    number: int = 0
    has_all_yanks: bool = False


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
        return self._expected or self.read().identity

    def read(self) -> PinnedRegistry:
        """Return what is pinned of the registry as a whole."""
        if self._expected and not self.path.exists():
            return PinnedRegistry(self._expected, AuditHead())
        with self._connected() as connection:
            row = connection.execute(_READ_REGISTRY).fetchone()
            if row is None:
                raise ValueError("it has no registry")
            name, address, seq, head, signers_seq, checked_at, number, has_all_yanks = row
            identity = RegistryIdentity(name, address)
            if self._expected not in (None, identity):
                raise ValueError(f"it belongs to {identity}")
            if not re.fullmatch("[0-9a-f]{64}", head) or seq < 0 or (seq == 0) != (head == GENESIS):
                raise ValueError("it has no valid head")
            at = datetime.fromisoformat(checked_at) if checked_at else None
            return PinnedRegistry(identity, AuditHead(seq, head), signers_seq, at, number, bool(has_all_yanks))

    def seen(self, ref: ItemRef) -> Mapping[str, SeenVersion]:
        """Return the pinned versions of an item."""
        sql = f"SELECT {_SEEN} FROM versions WHERE item_type = ? AND folded_id = ?"  # noqa: S608  # a constant
        return {seen.version: seen for seen in self._read(SeenVersion, sql, *ref.key)}

    def items(self) -> Sequence[ItemRef]:
        """Return every pinned item, without versions, under its folded id."""
        sql = "SELECT DISTINCT item_type, folded_id FROM versions ORDER BY folded_id, item_type"
        return self._read(lambda item_type, folded_id: ItemRef(ItemType(item_type), folded_id), sql)

    def key_ids(self) -> Sequence[str]:
        """Return the ids of the keys that signed the pinned versions."""
        return self._read(str, "SELECT DISTINCT key_id FROM versions")

    def notices(self) -> Sequence[RevocationNotice]:
        """Return the notices of this registry about keys that it retired or revoked."""

        def notice(*row: Any) -> RevocationNotice:
            key_id, principal, status, since, reason, overruled = row
            at, name = datetime.fromisoformat(since), self.identity.name
            return RevocationNotice(key_id, principal, SignerStatus(status), at, reason, name, bool(overruled))

        return self._read(notice, f"SELECT {_NOTICE} FROM notices ORDER BY since")  # noqa: S608  # a constant

    def yanked(self, digests: Sequence[str]) -> frozenset[str]:
        """Return those of some digests whose versions were yanked."""
        known = "SELECT digest FROM yanks UNION ALL SELECT digest FROM versions WHERE yanked"
        sql = f"SELECT value FROM json_each(?) WHERE value IN ({known})"  # noqa: S608  # a constant
        return frozenset(self._read(str, sql, json.dumps(list(digests))))

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
            digests = [(digest,) for digest in checkpoint.yanked]
            connection.executemany("UPDATE versions SET yanked = 1 WHERE digest = ?", digests)
            connection.executemany("INSERT OR IGNORE INTO yanks (digest) VALUES (?)", digests)
            connection.execute("DELETE FROM yanks WHERE id <= (SELECT max(id) FROM yanks) - ?", [MAX_YANKS])
            connection.execute("PRAGMA user_version = 1")
            connection.executemany(
                "INSERT INTO notices (key_id, status, principal, since, reason, overruled) VALUES (?, ?, ?, ?, ?, 0) "
                "ON CONFLICT (key_id, status) DO NOTHING",
                [(n.key_id, n.status.value, n.principal, n.since.isoformat(), n.reason) for n in checkpoint.notices],
            )
            earliest = "SELECT rowid FROM notices ORDER BY since DESC LIMIT -1 OFFSET ?"
            connection.execute(f"DELETE FROM notices WHERE rowid IN ({earliest})", [MAX_NOTICES])  # noqa: S608
            sql = "UPDATE registry SET signers_seq = max(signers_seq, ?), asked_at = ?"
            connection.execute(sql, [head.seq, at.isoformat()])

    def pin_versions(self, versions: Iterable[tuple[ItemRef, SeenVersion]]) -> None:
        """Pin versions that verified. Of one that is pinned already only ``yanked`` and ``found_by`` change."""
        with self._writing() as connection:
            for ref, seen in versions:
                values = seen.version, seen.digest, seen.key_id, seen.yanked, seen.found_by
                connection.execute(_PIN_VERSION, [*ref.key, *values])
                connection.execute(_DROP_EARLIER, [*ref.key, MAX_VERSIONS_OF_AN_ITEM])
            connection.execute("DELETE FROM versions WHERE id <= (SELECT max(id) FROM versions) - ?", [MAX_VERSIONS])

    def overrule(self, key_id: str, *, overruled: bool) -> int:
        """Ignore this registry's notices about a key, or follow them again; return how many changed."""
        with self._writing() as connection:
            sql = "UPDATE notices SET overruled = ? WHERE key_id = ? AND overruled <> ?"
            return connection.execute(sql, [overruled, key_id, overruled]).rowcount

    def accept(self, head: AuditHead) -> None:
        """Replace the pinned head, and remove all pinned versions; notices about keys stay."""
        with self._writing() as connection:
            connection.execute("DELETE FROM versions")
            _forget_yanks(connection)
            connection.execute("UPDATE registry SET head_seq = ?, head_hash = ?, signers_seq = 0", astuple(head))

    def forget(self, ref: ItemRef) -> int:
        """Remove the pinned versions of one item; return how many there were."""
        with self._writing() as connection:
            _forget_yanks(connection)
            sql = "DELETE FROM versions WHERE item_type = ? AND folded_id = ?"
            return connection.execute(sql, ref.key).rowcount

    def move_aside(self) -> Path:
        """Rename a damaged file; return its new path."""
        self.close()
        with self._translated():
            return move_database_aside(self.path, "damaged") or self.path

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _read(self, make: Callable[..., _T], sql: str, *arguments: str) -> Sequence[_T]:
        """Return what `make` makes of each row of a query; nothing where there is no file."""
        if not self.path.exists():
            return ()
        with self._connected() as connection:
            return tuple(make(*row) for row in connection.execute(sql, arguments).fetchall())

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction, which excludes other threads by `_lock` and other processes by SQLite's lock."""
        with self._lock:
            if not self.path.exists():
                self._create()
            self.read()
            with self._connected() as connection, transaction(connection):
                yield connection

    def _create(self) -> None:
        """Make the file under another name and link it, so that no process sees one without its registry."""
        if self._expected is None:
            raise StoreError(f"{self.path} was removed", hint="run the command again")
        with self._translated(), new_file(self.path) as draft:
            with closing(connect(draft, wal=False)) as connection:
                connection.executescript(_SCHEMA)
                values = self._expected.name, self._expected.address, GENESIS
                connection.execute("INSERT INTO registry VALUES (?, ?, 0, ?, 0, '', 1)", values)
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
                self._connection = self._connection or _open(self.path)
                yield self._connection
        except (ValueError, TypeError, OverflowError) as error:
            raise _damaged(self.path, error) from error


def pinned_states(folder: Path) -> Sequence[PinnedState]:
    """Return the pinned states of all registries that this user has used."""
    return [PinnedState(path) for path in sorted(folder.glob(f"[0-9a-f]*{SUFFIX}"))]


def read_all(folder: Path, read: Callable[[PinnedState], Iterable[_T]]) -> list[_T]:
    """Return what `read` returns for the pinned states of all registries."""
    found: list[_T] = []
    for pinned in pinned_states(folder):
        with closing(pinned):
            found += read(pinned)
    return found


def _open(path: Path) -> sqlite3.Connection:
    connection = connect(path, wal=False)
    with closed_on_error(connection):
        _check_tables(connection)
        connection.executescript(_SCHEMA)
    return connection


def _check_tables(connection: sqlite3.Connection) -> None:
    """Raise `ValueError` when a table or a column is missing."""
    # SQLite has one result code for that and for wrong SQL, which would count as a fault in Kiwi.
    for table, columns in {"registry": _REGISTRY, "versions": _SEEN, "notices": _NOTICE}.items():
        existing = {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", [table])}
        if not existing.issuperset(columns.split(", ")):
            raise ValueError(f"its table {table} is missing or incomplete")


def _move_head(connection: sqlite3.Connection, head: AuditHead) -> None:
    seq, pinned_hash = connection.execute("SELECT head_seq, head_hash FROM registry").fetchone()
    if seq == head.seq and pinned_hash != head.hash:
        raise ChainForked(f"the registry gave two records with the number {seq} for its audit log", hint=ACCEPT)
    if head.seq > seq:
        connection.execute("UPDATE registry SET head_seq = ?, head_hash = ?", [head.seq, head.hash])


def _forget_yanks(connection: sqlite3.Connection) -> None:
    """Remove what was yanked; the next check reads all of it again."""
    connection.execute("DELETE FROM yanks")
    connection.execute("PRAGMA user_version = 0")


def _damaged(path: Path, error: Exception) -> PinnedStateDamaged:
    hint = "kiwi registry accept moves it aside; versions and revocations are then pinned anew"
    return PinnedStateDamaged(f"the pinned state of a registry, {path}, is damaged: {error}", hint=hint)
