"""The audit log in a catalog: append-only, each record with the hash of the one before.

Blocking; each call is a transaction of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from sqlite3 import Connection, Row
from typing import Any

from kiwi_rag.errors import AuditBroken
from kiwi_rag.storage.sqlite import transaction
from kiwi_rag.stores.base import timestamp
from kiwi_rag.stores.local.catalog import insert
from kiwi_rag.validation.audit import AuditEvent, AuditHead, AuditRecord, AuditSink, seal_record, verify_records

_ADMISSIONS = """
SELECT * FROM audit WHERE event = 'admitted' AND ref IN (SELECT value FROM json_each(?))
    AND json_valid(details) AND details ->> 'policy' = ? ORDER BY seq
"""


class SqliteAuditLog:
    """The append-only, hash-chained log in the catalog. SQLite serialises the appends.

    Each append is a short transaction without the writer's lock, so readers append too. `borrow` yields a connection to
    the catalog for one thread at a time, `read` one that need not write. Without `digests` the records have none: of
    what may have to be forgotten, one would confirm a guess.
    """

    def __init__(
        self, borrow: Callable[[], AbstractContextManager[Connection]],
        read: Callable[[], AbstractContextManager[Connection]] | None = None, *, digests: bool = True,
    ) -> None:  # fmt: skip
        self._borrow, self._read, self._digests = borrow, read or borrow, digests

    def append(self, event: AuditEvent, /) -> None:
        """Append a record, durable when this returns."""
        self.append_all([event])

    def append_all(self, events: Sequence[AuditEvent]) -> None:
        """Append a record for each event in one transaction, durable when this returns."""
        if not events:
            return
        with self._borrow() as connection, transaction(connection):
            head = _head(connection)
            for event in events:
                kept = event if self._digests else replace(event, digest="")
                record = seal_record(head, timestamp(datetime.now(UTC)), kept)
                details = json.dumps(dict(record.details), ensure_ascii=False)
                insert(connection, "audit", asdict(record) | {"details": details})
                head = AuditHead(record.seq, record.hash)

    @contextmanager
    def together(self) -> Iterator[AuditSink]:
        """Yield a sink whose records are appended in one transaction when the block ends, also if it raises."""
        events: list[AuditEvent] = []
        try:
            yield events
        finally:
            self.append_all(events)

    def newest(self, since_seq: int = 0, limit: int = 1000, before: int | None = None) -> list[AuditRecord]:
        """Return the last `limit` records with a number above `since_seq`, and below `before` if given, in order."""
        with self._read() as connection:
            end = _head(connection).seq if before is None else min(_head(connection).seq, before - 1)
            begin = max(since_seq, end - limit)
            return list(_records(connection, begin, max(0, end - begin)))

    def admissions(self, refs: Sequence[str], policy: str) -> list[AuditRecord]:
        """Return the records of the admissions of some versions by a policy, in order."""
        with self._borrow() as connection:
            rows = connection.execute(_ADMISSIONS, [json.dumps(list(refs)), policy])
            return [_record(row) for row in rows]

    def verify_chain(self) -> AuditHead:
        """Verify every record and return the head.

        Raises
        ------
        AuditBroken
            Naming the first record that is wrong or missing, also at the end.
        """
        with self._read() as connection, transaction(connection, "BEGIN"):
            return verify_audit(connection)


def verify_audit(connection: Connection) -> AuditHead:
    """Verify the whole log of a catalog."""
    head = verify_records(_records(connection, 0, -1))
    # A chain without its last records is valid by itself. SQLite's counter of the table still has their numbers.
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'audit'").fetchone()
    if row and row[0] != head.seq:
        raise AuditBroken(f"the audit chain breaks at record {head.seq + 1}: records up to {row[0]} were removed")
    return head


def _head(connection: Connection) -> AuditHead:
    row = connection.execute("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1").fetchone()
    return AuditHead(row[0], row[1]) if row else AuditHead()


def _records(connection: Connection, since_seq: int, limit: int) -> Iterator[AuditRecord]:
    for row in connection.execute("SELECT * FROM audit WHERE seq > ? ORDER BY seq LIMIT ?", (since_seq, limit)):
        yield _record(row)


def _record(row: Row) -> AuditRecord:
    return AuditRecord(**{**dict(row), "details": _details(row["details"])})


def _details(text: str) -> dict[str, Any]:
    try:
        details = json.loads(text)
    except ValueError:
        details = None
    # Kiwi writes objects only, so this text was altered. It stays visible, and the record's hash will not match.
    return details if isinstance(details, dict) else {"unreadable": text}
