"""Typed callers for the SQL functions of a registry's admins: signers, yanking, the name, the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kiwi_rag.errors import RegistryError
from kiwi_rag.refs import ItemRef, ItemType
from kiwi_rag.registry import rows
from kiwi_rag.registry.calls import Caller, Row
from kiwi_rag.signing.trust import Signer, SignerStatus

_AUDIT_RECORD = rows.Columns({int: "seq", str: "at event ref digest key_id details previous_hash hash"})
_SIGNER = rows.Columns({str: "principal public_key status", list[str]: "item_patterns item_types"})


@dataclass(frozen=True, slots=True)
class EnrolledSigner:
    """A signer as the registry knows it, and since when it has its status."""

    signer: Signer
    status_changed_at: datetime

    def as_dict(self) -> dict[str, object]:
        """Return the signer as JSON-ready data."""
        signer = self.signer
        return {
            "key_id": signer.key_id,
            "principal": signer.principal,
            "patterns": list(signer.patterns),
            "types": [kind.value for kind in signer.types],
            "valid_after": signer.valid_after.isoformat() if signer.valid_after else None,
            "valid_before": signer.valid_before.isoformat() if signer.valid_before else None,
            "status": signer.status.value,
            "status_changed_at": self.status_changed_at.isoformat(),
            "public_key": signer.public_key.hex(),
        }


async def enrol_signer(caller: Caller, signer: Signer) -> str:
    """Enrol a key, or change what an enrolled one may sign; return its key id.

    Raises
    ------
    RegistryRefused
        When the key was retired or revoked here, or the role is not an admin's.
    """
    arguments = {
        "public_key": signer.public_key.hex(),
        "principal": signer.principal,
        "item_patterns": list(signer.patterns),
        "item_types": [kind.value for kind in signer.types],
        "valid_after": signer.valid_after.isoformat() if signer.valid_after else None,
        "valid_before": signer.valid_before.isoformat() if signer.valid_before else None,
    }
    return rows.text(await caller.value("enrol_signer", arguments))


async def retire_signer(caller: Caller, key_id: str, reason: str = "") -> bool:
    """Take a key out of use; what it signed before stays. Return whether that changed anything."""
    return rows.truth(await caller.value("retire_signer", {"key_id": key_id, "reason": reason}))


async def revoke_signer(caller: Caller, key_id: str, reason: str = "") -> bool:
    """Mark a key compromised: all that it signed vanishes from search now. Return whether that changed anything."""
    return rows.truth(await caller.value("revoke_signer", {"key_id": key_id, "reason": reason}))


async def list_signers(caller: Caller) -> Sequence[EnrolledSigner]:
    """Return every signer, by principal."""
    return [_signer(row) for row in await caller.rows("list_signers", {})]


async def yank_item(caller: Caller, ref: ItemRef, reason: str = "") -> int:
    """Take back one version, or all when `ref` names none; return how many were."""
    named = {"item_type": ref.item_type.value, "item_id": ref.item_id, "version": ref.version, "reason": reason}
    return rows.number(await caller.value("yank_item", named))


async def set_audience(caller: Caller, name: str) -> None:
    """Name the registry. Refused once something was published under another name."""
    await caller.value("set_audience", {"name_of_registry": name})


async def verify_audit(caller: Caller) -> int | None:
    """Return the number of the first audit record that breaks the chain; None when it holds."""
    broken = await caller.value("verify_audit", {})
    return None if broken is None else rows.number(broken)


async def audit_records(caller: Caller, since: int, limit: int) -> Sequence[dict[str, Any]]:
    """Return up to `limit` audit records with a number above `since`, in order; ``details`` is JSON as text.

    Raises
    ------
    RegistryRefused
        When the role may not read them.
    RegistryError
        When a record is none.
    """
    found = await caller.rows("audit_records", {"since": since, "max_count": limit})
    with rows.readable("audit record"):
        for row in found:
            _AUDIT_RECORD(row)
    return found


@rows.readable("signer")
def _signer(row: Row) -> EnrolledSigner:
    _SIGNER(row)
    signer = Signer(
        row["principal"],
        bytes.fromhex(row["public_key"]),
        tuple(row["item_patterns"]),
        tuple(ItemType(name) for name in row["item_types"]),
        rows.moment(row["valid_after"]),
        rows.moment(row["valid_before"]),
        SignerStatus(row["status"]),
    )
    changed = rows.moment(row["status_changed_at"])
    if changed is None:
        raise RegistryError("the registry gave a signer without the time of its status")
    return EnrolledSigner(signer, changed)
