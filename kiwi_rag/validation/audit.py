"""The audit log's hash chain: what a record is, how it is hashed, how a sequence is verified. No I/O.

Each record's hash covers the hash before it. A record that is altered, moved or removed from the middle makes every
later hash wrong. The head (number and hash of the last record) therefore proves all records before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from kiwi_rag.errors import AuditBroken

GENESIS = "0" * 64
"""The previous hash of the first record."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """A record of one event: what happened, to which item, by which key, when.

    ``seq`` counts from 1 without gaps; ``at`` is RFC 3339 in UTC; ``previous`` and ``hash`` are hex SHA-256.
    """

    seq: int
    at: str
    event: str
    ref: str
    digest: str
    key_id: str
    details: Mapping[str, Any]
    previous: str
    hash: str


@dataclass(frozen=True, slots=True)
class AuditHead:
    """The end of a chain: number and hash of the last record; 0 and `GENESIS` if it is empty."""

    seq: int = 0
    hash: str = GENESIS


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """The content of a record before it is appended to a log."""

    event: str
    ref: str
    digest: str
    key_id: str
    details: Mapping[str, Any]


class AuditSink(Protocol):
    """Takes the records of the gate."""

    def append(self, event: AuditEvent, /) -> None:
        """Add one record at the end. Blocking and short; durable once it returns, unless the sink gathers records."""


def seal_record(head: AuditHead, at: str, event: AuditEvent) -> AuditRecord:
    """Return the record that follows `head`."""
    draft = AuditRecord(head.seq + 1, at, **asdict(event), previous=head.hash, hash="")
    return replace(draft, hash=record_hash(draft))


def record_hash(record: AuditRecord) -> str:
    """Return hex SHA-256 over the previous hash (32 bytes) and the record's RFC 8785 canonical JSON."""
    import rfc8785

    body = {name: value for name, value in asdict(record).items() if name not in {"previous", "hash"}}
    return hashlib.sha256(bytes.fromhex(record.previous) + rfc8785.dumps(body)).hexdigest()


def verify_records(
    records: Iterable[AuditRecord], head: AuditHead | None = None, hash_of: Callable[[AuditRecord], str] = record_hash
) -> AuditHead:
    """Verify that `records` follow `head` (an empty chain when None) and return the new head.

    Raises
    ------
    AuditBroken
        Naming the first record that is missing or was altered.
    """
    current = head or AuditHead()
    for record in records:
        if record.seq != current.seq + 1:
            problem = f"it is missing, {record.seq} follows"
            raise AuditBroken(f"the audit chain breaks at record {current.seq + 1}: {problem}")
        if record.previous != current.hash:
            raise AuditBroken(f"the audit chain breaks at record {record.seq}: it does not follow the one before")
        if record.hash != hash_of(record):
            raise AuditBroken(f"the audit chain breaks at record {record.seq}: it was altered")
        current = AuditHead(record.seq, record.hash)
    return current
