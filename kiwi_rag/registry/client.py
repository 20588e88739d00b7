"""One function for each SQL function of the registry that readers, publishers and admins use, of the same name.

Each takes a `Caller`, which binds the arguments, and returns the parsed answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kiwi_rag.model import Candidates, CollectionStatistics, Envelope, Filters, StoredItem, StoreQuery, Visibility
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.registry import rows
from kiwi_rag.registry.calls import Caller, Row, raise_refusal
from kiwi_rag.registry.checkpoint import Checkpoint
from kiwi_rag.signing import dsse
from kiwi_rag.signing.trust import Signer, SignerStatus

_RECEIPT = rows.Columns({str: "digest audit_head visibility", int: "sequence", bool: "known opened"})
_VERSION = rows.Columns({str: "version digest content_sha256 key_id"})
_AUDIT_RECORD = rows.Columns({int: "seq", str: "at event ref digest key_id details previous_hash hash"})
_SIGNER = rows.Columns({str: "principal public_key status", list[str]: "item_patterns item_types"})


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version of an item; ``content_sha256`` in hex."""

    ref: ItemRef
    digest: str
    content_sha256: str
    key_id: str
    yanked: bool


@dataclass(frozen=True, slots=True)
class EnrolledSigner:
    """A signer as the registry has it, with the time of its last change of status."""

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


async def publish_item(caller: Caller, envelope: Envelope, visibility: Visibility | None = None) -> Mapping[str, Any]:
    """Publish an envelope and return the answer, which is a receipt or a refusal; `parse_receipt` raises a refusal.

    Without a `visibility` a new item is public, and that of an existing one stays.
    """
    # Not raised here: inside the session it would roll back the refusal's own record in the registry's audit log.
    arguments: dict[str, Any] = {"envelope": dsse.encode(envelope)}
    if visibility:
        arguments["visibility"] = visibility
    return rows.parse_object(await caller.value("publish_item", arguments))


def parse_receipt(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the receipt of ``publish_item``.

    It has ``sequence``, ``digest``, ``audit_head``, ``visibility``, ``known`` (the item was already published),
    ``opened`` (it was private and was made public) and two times, ``received_at`` and ``yanked_at``.

    Raises
    ------
    RegistryRefused
        When the registry's own checks refused the item.
    RegistryError
        When the answer is neither.
    """
    raise_refusal(answer)
    with rows.parse_as("receipt"):
        _RECEIPT(answer)
    return answer


async def collection_statistics(caller: Caller, terms: Sequence[str], fingerprint: str = "") -> CollectionStatistics:
    """Return the statistics of a model's collection, or of the largest one when no `fingerprint` is named."""
    arguments = {"terms": list(terms), "model_fingerprint": fingerprint or None}
    return rows.parse_statistics(await caller.value("collection_statistics", arguments))


async def similar_terms(caller: Caller, terms: Sequence[str], fingerprint: str = "") -> Mapping[str, Sequence[str]]:
    """Return for each term the indexed terms that share its first or its second half, the most frequent first."""
    arguments = {"terms": list(terms), "model_fingerprint": fingerprint or None}
    return rows.parse_similar_terms(await caller.value("similar_terms", arguments))


async def search_hybrid(caller: Caller, query: StoreQuery) -> Candidates:
    """Return both legs' best passages with both scores, BM25 by the query's own statistics."""
    arguments = rows.search_arguments(query, rows.filter_object(query.filters))
    return rows.parse_candidates(await caller.rows("search_hybrid", arguments), query.depth)


async def get_item(caller: Caller, ref: ItemRef, *, yanked_too: bool = False) -> StoredItem | None:
    """Return the version that `ref` names, or the newest one that was not yanked."""
    found = await caller.rows("get_item", _item_arguments(ref) | {"version": ref.version})
    found = [row for row in found if yanked_too or row.get("yanked_at") is None]
    return rows.parse_item(found[0]) if found else None


async def list_items(caller: Caller, filters: Filters) -> Sequence[StoredItem]:
    """Return the newest version of every item that matches, ordered by type and id; see `parse_item_or_problem`."""
    found = await caller.rows("list_items", {"filter": rows.filter_object(filters)})
    return [rows.parse_item_or_problem(row) for row in found]


async def list_versions(caller: Caller, ref: ItemRef) -> Sequence[VersionRow]:
    """Return every version of an item that was ever published, oldest first."""
    return [_parse_version(ref, row) for row in await caller.rows("list_versions", _item_arguments(ref))]


async def item_status(caller: Caller, ref: ItemRef) -> Sequence[Mapping[str, Any]]:
    """Return the state of each version: version, signer_status, yanked_at, passages, searchable."""
    return [rows.parse_version_status(row) for row in await caller.rows("item_status", _item_arguments(ref))]


async def registry_status(caller: Caller) -> Mapping[str, Any]:
    """Return counts, versions and health."""
    return rows.parse_registry_status(await caller.value("registry_status", {}))


async def registry_news(caller: Caller, known_seq: int, signers_since: int, name: str) -> Checkpoint:
    """Return the head of the audit log, its hash at record `known_seq`, and what was revoked after `signers_since`.

    `name` is the registry's, for the notices.
    """
    answer = await caller.value("registry_news", {"known_seq": known_seq, "signers_since": signers_since})
    return rows.parse_checkpoint(answer, name)


async def enrol_signer(caller: Caller, signer: Signer) -> str:
    """Enrol a key, or change what an enrolled key may sign; return its key id.

    Raises
    ------
    RegistryRefused
        When the registry retired or revoked the key, or the role is not ``kiwi_admin``.
    """
    arguments = {
        "public_key": signer.public_key.hex(),
        "principal": signer.principal,
        "item_patterns": list(signer.patterns),
        "item_types": [kind.value for kind in signer.types],
        "valid_after": signer.valid_after.isoformat() if signer.valid_after else None,
        "valid_before": signer.valid_before.isoformat() if signer.valid_before else None,
    }
    return rows.parse_text(await caller.value("enrol_signer", arguments))


async def retire_signer(caller: Caller, key_id: str, reason: str = "") -> bool:
    """Retire a key: what it signed before stays valid. Return whether that changed anything."""
    return rows.parse_boolean(await caller.value("retire_signer", {"key_id": key_id, "reason": reason}))


async def revoke_signer(caller: Caller, key_id: str, reason: str = "") -> bool:
    """Revoke a key: nothing that it signed is found any more. Return whether that changed anything."""
    return rows.parse_boolean(await caller.value("revoke_signer", {"key_id": key_id, "reason": reason}))


async def list_signers(caller: Caller) -> Sequence[EnrolledSigner]:
    """Return every signer, by principal."""
    return [_parse_signer(row) for row in await caller.rows("list_signers", {})]


async def yank_item(caller: Caller, ref: ItemRef, reason: str = "") -> int:
    """Yank the version that `ref` names, or all versions; return how many were yanked."""
    arguments = _item_arguments(ref) | {"version": ref.version, "reason": reason}
    return rows.parse_integer(await caller.value("yank_item", arguments))


async def set_audience(caller: Caller, name: str) -> None:
    """Name the registry; refused once something was published under another name."""
    await caller.value("set_audience", {"name_of_registry": name})


async def verify_audit(caller: Caller) -> int | None:
    """Return the number of the first audit record that breaks the chain; None when none does."""
    broken = await caller.value("verify_audit", {})
    return None if broken is None else rows.parse_integer(broken)


async def audit_records(caller: Caller, since: int, limit: int) -> Sequence[dict[str, Any]]:
    """Return up to `limit` audit records with a number above `since`, in order; ``details`` is JSON as text.

    Raises
    ------
    RegistryRefused
        When the role may not read them.
    RegistryError
        When a record cannot be parsed.
    """
    found = await caller.rows("audit_records", {"since": since, "max_count": limit})
    with rows.parse_as("audit record"):
        for row in found:
            _AUDIT_RECORD(row)
    return found


@rows.parse_as("signer")
def _parse_signer(row: Row) -> EnrolledSigner:
    _SIGNER(row)
    signer = Signer(
        row["principal"],
        bytes.fromhex(row["public_key"]),
        tuple(row["item_patterns"]),
        tuple(ItemType(name) for name in row["item_types"]),
        rows.parse_time(row["valid_after"]),
        rows.parse_time(row["valid_before"]),
        SignerStatus(row["status"]),
    )
    return EnrolledSigner(signer, rows.require_time(row, "status_changed_at"))


@rows.parse_as("version")
def _parse_version(ref: ItemRef, row: Row) -> VersionRow:
    columns = _VERSION(row)
    versioned = ItemRef(ref.item_type, ref.item_id, columns.pop("version"))
    return VersionRow(versioned, **columns, yanked=rows.parse_time(row["yanked_at"]) is not None)


def _item_arguments(ref: ItemRef) -> dict[str, Any]:
    return {"item_id": ref.item_id, "item_type": ref.item_type.value}
