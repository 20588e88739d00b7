"""Typed callers for the SQL functions of a registry's admins: signers, yanking, the name, the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kiwi_rag.refs import ItemRef, ItemType
from kiwi_rag.signing.trust import Signer, SignerStatus

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.AsyncConnection[Any]


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


async def enrol_signer(connection: Connection, signer: Signer) -> str:
    """Enrol a key, or change what an enrolled one may sign; return its key id.

    Raises
    ------
    RegistryRefused
        When the key was retired or revoked here, or the role is not an admin's.
    """
    arguments = [
        signer.public_key.hex(),
        signer.principal,
        list(signer.patterns),
        [kind.value for kind in signer.types],
        signer.valid_after,
        signer.valid_before,
    ]
    call = "select public.enrol_signer(%s, %s, %s::text[], %s::text[], %s::timestamptz, %s::timestamptz)"
    return str(await _value(connection, call, arguments))


async def retire_signer(connection: Connection, key_id: str, reason: str = "") -> bool:
    """Take a key out of use; what it signed before stays. Return whether that changed anything."""
    return bool(await _value(connection, "select public.retire_signer(%s, %s)", [key_id, reason]))


async def revoke_signer(connection: Connection, key_id: str, reason: str = "") -> bool:
    """Mark a key compromised: all that it signed vanishes from search now. Return whether that changed anything."""
    return bool(await _value(connection, "select public.revoke_signer(%s, %s)", [key_id, reason]))


async def list_signers(connection: Connection) -> Sequence[EnrolledSigner]:
    """Return every signer, by principal."""
    found = await (await connection.execute("select * from public.list_signers()")).fetchall()
    return [_signer(row) for row in found]


async def yank_item(connection: Connection, ref: ItemRef, reason: str = "") -> int:
    """Take back one version, or all when `ref` names none; return how many were."""
    call = "select public.yank_item(%s, %s, %s, %s)"
    return int(await _value(connection, call, [ref.item_type.value, ref.item_id, ref.version, reason]))


async def set_audience(connection: Connection, name: str) -> None:
    """Name the registry. Refused once something was published under another name."""
    await connection.execute("select public.set_audience(%s)", [name])


async def verify_audit(connection: Connection) -> int | None:
    """Return the number of the first audit record that breaks the chain; None when it holds."""
    broken = await _value(connection, "select public.verify_audit()", [])
    return None if broken is None else int(broken)


def _signer(row: Sequence[Any]) -> EnrolledSigner:
    _, principal, patterns, types, valid_after, valid_before, status, changed, public_key = row
    signer = Signer(
        principal,
        bytes.fromhex(public_key),
        tuple(patterns),
        tuple(ItemType(name) for name in types),
        valid_after,
        valid_before,
        SignerStatus(status),
    )
    return EnrolledSigner(signer, changed)


async def _value(connection: Connection, query: Any, arguments: Sequence[Any]) -> Any:
    row = await (await connection.execute(query, arguments)).fetchone()
    return row[0] if row else None
