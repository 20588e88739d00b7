"""One typed caller for each of the registry's SQL functions that readers and publishers use.

Every one takes a `Caller`, which binds the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kiwi_rag.errors import RegistryError
from kiwi_rag.lexical import bm25_weights
from kiwi_rag.model import Candidates, CollectionStatistics, Envelope, Filters, StoredItem, StoreQuery, Visibility
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.registry import rows
from kiwi_rag.registry.calls import Caller, Row, refusal
from kiwi_rag.registry.checkpoint import Checkpoint
from kiwi_rag.signing import dsse
from kiwi_rag.signing.trust import Signer, SignerStatus

_RECEIPT = rows.Columns({str: "digest audit_head visibility", int: "sequence", bool: "known opened"})
_VERSION = rows.Columns({str: "version digest content_sha256 key_id"})


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version of an item: ``content_sha256`` hex, ``yanked`` whether it was taken back."""

    ref: ItemRef
    digest: str
    content_sha256: str
    key_id: str
    yanked: bool


async def publish_item(caller: Caller, envelope: Envelope, visibility: Visibility | None = None) -> Mapping[str, Any]:
    """Hand in an envelope; return the answer: a receipt, or a refusal. `receipt` tells them apart.

    Without a `visibility` a new item is public, and one that is there stays what it is.

    A refusal is an answer, and not raised here: raised inside the session, it would take the transaction with it, and
    with that its own record in the registry's audit log.
    """
    arguments: dict[str, Any] = {"envelope": dsse.encode(envelope)}
    if visibility:
        arguments["visibility"] = visibility
    return rows.told(await caller.value("publish_item", arguments))


def receipt(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the receipt: ``sequence``, ``digest``, ``audit_head``, ``known``, ``opened``, ``visibility``
    and two times, ``received_at`` and ``yanked_at``.

    Raises
    ------
    RegistryRefused
        When the registry's own checks said no.
    RegistryError
        When the answer is neither.
    """
    if "code" in answer:
        raise refusal(str(answer["code"]), str(answer.get("message") or ""), str(answer.get("hint") or ""))
    with rows.readable("receipt"):
        _RECEIPT(answer)
    return answer


async def collection_statistics(caller: Caller, terms: Sequence[str], fingerprint: str = "") -> CollectionStatistics:
    """Return the statistics of a model's collection, of the largest one when none is named."""
    arguments = {"terms": list(terms), "model_fingerprint": fingerprint or None}
    return rows.statistics(await caller.value("collection_statistics", arguments))


async def similar_terms(caller: Caller, terms: Sequence[str], fingerprint: str = "") -> Mapping[str, Sequence[str]]:
    """Return for each term those of the vocabulary that share a half with it, the most frequent first."""
    arguments = {"terms": list(terms), "model_fingerprint": fingerprint or None}
    return rows.vocabulary(await caller.value("similar_terms", arguments))


async def search_hybrid(caller: Caller, query: StoreQuery) -> Candidates:
    """Return both legs' best passages with both scores, BM25 by the query's own statistics."""
    terms, weights = rows.bm25_inputs(bm25_weights(query.statistics, query.terms))
    arguments = {
        "query_embedding": rows.vector_text(query.vector),
        "terms": terms,
        "weights": weights,
        "average_length": query.statistics.average_length,
        "average_item_length": query.statistics.average_item_length,
        "depth": query.depth,
        "filter": rows.filter_object(query.filters),
        "model_fingerprint": query.fingerprint,
    }
    found = await caller.rows("search_hybrid", arguments)
    read, refused = rows.candidates(found[: 2 * query.depth])  # two legs, and never more
    return Candidates(tuple(read), rows.plan_of(found[:1]), tuple(refused))


async def get_item(caller: Caller, ref: ItemRef, *, yanked_too: bool = False) -> StoredItem | None:
    """Return one version, the newest that was not yanked when `ref` names none."""
    found = await caller.rows("get_item", _named(ref) | {"version": ref.version})
    found = [row for row in found if yanked_too or row.get("yanked_at") is None]
    return rows.stored_item(found[0]) if found else None


async def list_items(caller: Caller, filters: Filters) -> Sequence[StoredItem]:
    """Return the newest version of every item that the filters let through, by type and id."""
    found = await caller.rows("list_items", {"filter": rows.filter_object(filters)})
    return rows.stored_items(found)


async def list_versions(caller: Caller, ref: ItemRef) -> Sequence[VersionRow]:
    """Return every version of an item that was ever taken, oldest first."""
    return [_version(ref, row) for row in await caller.rows("list_versions", _named(ref))]


async def item_status(caller: Caller, ref: ItemRef) -> Sequence[Mapping[str, Any]]:
    """Return what became of each version: version, signer_status, yanked_at, passages, searchable."""
    return [rows.version_status(row) for row in await caller.rows("item_status", _named(ref))]


async def registry_status(caller: Caller) -> Mapping[str, Any]:
    """Return counts, versions and health."""
    return rows.registry_status(await caller.value("registry_status", {}))


async def registry_news(caller: Caller, known_seq: int, signers_since: int, name: str) -> Checkpoint:
    """Return the registry's head, its hash at record `known_seq`, and who lost trust after record `signers_since`.

    `name` is the registry's, for the notices.
    """
    told = await caller.value("registry_news", {"known_seq": known_seq, "signers_since": signers_since})
    return rows.checkpoint(told, name)


@rows.readable("version")
def _version(ref: ItemRef, row: Row) -> VersionRow:
    found = _VERSION(row)
    named = ItemRef(ref.item_type, ref.item_id, found.pop("version"))
    return VersionRow(named, **found, yanked=rows.moment(row["yanked_at"]) is not None)


def _named(ref: ItemRef) -> dict[str, Any]:
    return {"item_id": ref.item_id, "item_type": ref.item_type.value}


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
