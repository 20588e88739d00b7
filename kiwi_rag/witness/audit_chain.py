"""The registry's audit log, verified by whoever may read it: without the database's own word for it. Pure.

A record's hash is SHA-256 over its fields, a line each, as ``sql/functions/kiwi/audit_hash.sql`` makes it: the hash
before it, its number, its time, event, ref, digest, key id and details (the database's text of the JSON).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from kiwi_rag.errors import AuditBroken
from kiwi_rag.validation.audit import AuditHead

_FIELDS = ("previous_hash", "seq", "at", "event", "ref", "digest", "key_id", "details")


def verify_rows(rows: Iterable[Mapping[str, Any]], head: AuditHead) -> AuditHead:
    """Verify that rows of ``audit_records`` follow `head`, and return the new head.

    Raises
    ------
    AuditBroken
        Naming the first record that does not hold.
    """
    for row in rows:
        seq = head.seq + 1
        if row["seq"] != seq:
            raise AuditBroken(f"the registry's audit chain breaks at record {seq}: it is missing, {row['seq']} follows")
        if row["previous_hash"] != head.hash:
            raise AuditBroken(f"the registry's audit chain breaks at record {seq}: it does not follow the one before")
        if row["hash"] != row_hash(row):
            raise AuditBroken(f"the registry's audit chain breaks at record {seq}: it was altered")
        head = AuditHead(seq, row["hash"])
    return head


def row_hash(row: Mapping[str, Any]) -> str:
    """Return the hash that a row of ``audit_records`` should have."""
    return hashlib.sha256("\n".join(str(row[name]) for name in _FIELDS).encode()).hexdigest()
