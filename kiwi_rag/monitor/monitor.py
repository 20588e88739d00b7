"""The monitor of a registry: reads its checkpoint, and checks it and its items against the pinned state.

One `ConsistencyCheck` belongs to one request (a search, a `get`). It begins with the audit log, checks each item that
the request will show after its signature was verified, and ends with one small write if anything is new.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from kiwi_rag import errors
from kiwi_rag.formats.bump import version_order
from kiwi_rag.model import Filters, ItemRef, StoredItem
from kiwi_rag.monitor.pinned_state import ACCEPT, PinnedState, SeenVersion
from kiwi_rag.registry.calls import checked_url
from kiwi_rag.registry.client import RegistryClient
from kiwi_rag.registry.rows import Checkpoint, parse_head
from kiwi_rag.signing.trust import RevocationNotice, SignerStatus, TrustPolicy, apply_revocations
from kiwi_rag.validation.audit import AuditHead, AuditRecord, verify_records

NEWEST_RECORDS = 1000
"""How many records of the audit log are searched for an item that the registry does not serve."""
WRITE_AFTER = timedelta(minutes=10)
"""How old the time of the last check may be on disk: otherwise every search would write it."""


class RegistryMonitor:
    """Monitors one registry for one user.

    Parameters
    ----------
    client
        The registry's functions.
    pinned
        What this user pinned of it.
    """

    def __init__(self, client: RegistryClient, pinned: PinnedState) -> None:
        self.pinned = pinned
        self._client = client
        self._published: list[tuple[ItemRef, SeenVersion]] = []
        self._receipt_head = AuditHead()  # the highest that a receipt named

    async def check(self, *, fully: bool = False) -> ConsistencyCheck:
        """Check the registry's audit log; with `fully`, read the status of all keys that lost trust, not of new ones.

        Raises
        ------
        ChainShortened, ChainForked
            When the log does not contain the pinned head.
        RegistryError
            When the registry cannot be reached, or its answer is invalid.
        """
        pinned = self.pinned.read()
        # The registry lists what was yanked after this record. For 0 it lists nothing, and before record 1 nothing can
        # have been yanked, so 1 lists all of it for a client that pinned no head yet.
        checkpoint = await self._checkpoint(pinned.head.seq or 1, 0 if fully else pinned.signers_seq)
        head = follow(pinned.head, checkpoint)
        if pinned.head.seq and not pinned.has_all_yanks:
            checkpoint = replace(checkpoint, yanked=(await self._checkpoint(1, head.seq)).yanked)
        known = {(notice.key_id, notice.status) for notice in self.pinned.notices()}
        has_news = head != pinned.head or any((one.key_id, one.status) not in known for one in checkpoint.notices)
        now = datetime.now(UTC)
        is_due = pinned.checked_at is None or now - pinned.checked_at > WRITE_AFTER or not pinned.has_all_yanks
        if has_news or is_due or fully:
            await asyncio.to_thread(self.pinned.pin_checkpoint, head, checkpoint, now)
        return ConsistencyCheck(self, pinned.number, self.pinned.notices())

    def add_receipt(self, ref: ItemRef, digest: str, key_id: str, head: str) -> None:
        """Collect what a receipt says; `verify_receipts` verifies that against the log and writes it."""
        self._published.append((ref, SeenVersion(ref.version or "", digest, key_id)))
        self._receipt_head = max(self._receipt_head, parse_head(head), key=lambda one: one.seq)

    async def verify_receipts(self) -> None:
        """Write what the receipts say, and verify that the log contains the pinned head and the receipts' head.

        Raises
        ------
        ChainShortened, ChainForked
            When the log does not contain one of them.
        """
        if not self._published:
            return
        published, self._published = self._published, []
        await asyncio.to_thread(self.pinned.pin_versions, published)
        with suppress(errors.RegistryUnreachable):  # the next check will verify its log
            await self.check()
            head = self._receipt_head
            follow(head, await self._checkpoint(head.seq, head.seq))

    async def close(self) -> None:
        """Verify the receipts, and close the pinned state."""
        try:
            await self.verify_receipts()
        finally:
            self.pinned.close()

    async def version_states(self, ref: ItemRef) -> Mapping[str, VersionState]:
        """Return the registry's present state of each version of an item."""
        rows = await self._client.item_status(ref)
        return {row["version"]: _state(row) for row in rows if row["visibility"] == "public"}

    async def get_yanked(self, ref: ItemRef) -> StoredItem | None:
        """Return the version that `ref` names if it was yanked, otherwise None."""
        stored = await self._client.get_item(ref, yanked_too=True)
        return stored if stored and stored.yanked_at else None

    async def find_named(self, ref: ItemRef) -> str:
        """Return where the registry names an item, or the version that `ref` names; an empty string where it does not.

        Only the newest records of the audit log are read, and those by administrators alone.
        """
        for version, state in (await self.version_states(ref)).items():
            if ref.version == version or not (ref.version or state.yanked or state.revoked):
                return f"lists its version {version}"
        with suppress(errors.RegistryRefused):
            since = max(self.pinned.read().head.seq - NEWEST_RECORDS, 0)
            for record in await self._client.audit_records(since, NEWEST_RECORDS):
                named = record["ref"] if ref.version else record["ref"].rpartition("@")[0]
                if record["event"] == "publish" and named == str(ref):
                    return f"has record {record['seq']} of its publication"
        listed = await self._client.list_items(Filters(item_type=ref.item_type, namespace=ref.namespace))
        is_listed = any(item.ref.key == ref.key and ref.version in (None, item.ref.version) for item in listed)
        return "lists it" if is_listed else ""

    async def _checkpoint(self, known_seq: int, signers_since: int) -> Checkpoint:
        name = self.pinned.identity.name
        return await self._client.registry_checkpoint(known_seq, signers_since, name)


@dataclass(frozen=True, slots=True)
class VersionState:
    """The registry's present state of one version."""

    digest: str
    yanked: bool
    revoked: bool
    passages: int


@dataclass(slots=True)
class ConsistencyCheck:
    """The checks of one request, for a registry whose audit log contains the pinned head.

    ``number`` is that of the version pinned last when the check began. What another process has pinned since then may
    be newer than the answers of this request, and says nothing about them.
    """

    monitor: RegistryMonitor
    number: int
    notices: Sequence[RevocationNotice]
    fresh: list[tuple[ItemRef, SeenVersion]] = field(default_factory=list)

    def apply_revocations(self, trust: TrustPolicy) -> TrustPolicy:
        """Return `trust` without the keys that this registry retired or revoked."""
        return apply_revocations(trust, self.notices)

    async def check_consistency(self, stored: StoredItem, key_id: str, *, newest: bool, found_by: str = "") -> None:
        """Check an item that has just verified against the pinned state.

        Parameters
        ----------
        key_id
            The key that signed it.
        newest
            Whether it is served as the item's newest version, and not because the request names this version.
        found_by
            The fingerprint of the model, for an item that a search found.

        Raises
        ------
        VersionChanged, YankUndone, RolledBack
            When it contradicts the pinned state.
        """
        ref, seen = stored.ref, self.monitor.pinned.seen(stored.ref)
        if stored.private and not any(one.digest == stored.digest for one in seen.values()):
            # A private item has its own versions, which are not pinned. But a registry must not hide a rollback of a
            # public item by calling it private, so the versions that were seen still count.
            return await self._check_newest(ref, seen, found_by) if newest else None
        before, yanked = seen.get(ref.version or ""), stored.yanked_at is not None
        if before and before.digest != stored.digest:
            digests = f"digest {before.digest[:16]}…, now {stored.digest[:16]}…"
            raise errors.VersionChanged(f"{ref} was seen with other bytes ({digests})", hint=_accept_hint(ref))
        if before and before.yanked and not yanked:
            state = (await self.monitor.version_states(ref)).get(ref.version or "")
            if state and state.yanked:  # after this answer, as another process pinned: no contradiction
                raise errors.Refused(f"{ref} was yanked a moment ago")
            raise errors.YankUndone(f"{ref} was yanked, and the registry serves it again", hint=_accept_hint(ref))
        if newest:
            await self._check_newest(ref, seen, found_by)
        now = SeenVersion(ref.version or "", stored.digest, key_id, yanked, found_by)
        if before is None or (yanked, found_by or before.found_by) != (before.yanked, before.found_by):
            self.fresh.append((ref, now))

    async def check_missing(self, ref: ItemRef) -> None:
        """Check an item, or the version that `ref` names, that the registry does not serve.

        Raises
        ------
        Yanked, WrongKey
            When every version of it was yanked, or signed by a revoked key.
        Withheld
            When it is pinned, and was neither yanked nor its key revoked.
        """
        states, revoked = await self.monitor.version_states(ref), self._revoked()
        seen = [one for one in self.monitor.pinned.seen(ref).values() if ref.version in (None, one.version)]
        for one in seen:
            if one.number <= self.number and not one.yanked and one.key_id not in revoked and one.version not in states:
                missing = f"{replace(ref, version=one.version)} was seen, and the registry does not have it now"
                raise errors.Withheld(missing, hint=_accept_hint(ref))
        if states and not ref.version and all(state.yanked or state.revoked for state in states.values()):
            if all(state.yanked for state in states.values()):
                newest = replace(ref, version=next(iter(states)))
                raise errors.Yanked(f"{ref} was yanked, in all its versions", hint=f"kiwi get {newest}@registry")
            hint = "ask its author to sign it with another key and to publish it again"
            raise errors.WrongKey(
                f"{ref}: the key that signed it was revoked, and no other key signed a version", hint=hint
            )

    def save(self) -> None:
        """Write what is new, if anything is. Blocks for a short time."""
        if self.fresh:
            self.monitor.pinned.pin_versions(self.fresh)
            self.fresh.clear()

    async def _check_newest(self, ref: ItemRef, seen: Mapping[str, SeenVersion], found_by: str) -> None:
        earlier = [one for one in seen.values() if one.number <= self.number]
        if not newer(ref.version or "", earlier, self._revoked()):
            return
        # A key may have been revoked since this check began, so that its versions no longer count.
        self.notices = (await self.monitor.check(fully=True)).notices
        states = await self.monitor.version_states(ref)
        for one in newer(ref.version or "", earlier, self._revoked()):
            if check_rollback(ref, one, states.get(one.version), found_by):
                self.fresh.append((replace(ref, version=one.version), replace(one, yanked=True)))

    def _revoked(self) -> set[str]:
        return {notice.key_id for notice in self.notices if notice.status is SignerStatus.COMPROMISED}


def _state(row: Mapping[str, Any]) -> VersionState:
    revoked = row["signer_status"] == SignerStatus.COMPROMISED
    return VersionState(row["digest"], row["yanked_at"] is not None, revoked, row["passages"])


def verify_rows(rows: Iterable[Mapping[str, Any]], head: AuditHead) -> AuditHead:
    """Verify that rows of ``audit_records`` follow `head`, and return the new head; raises as `verify_records`."""
    return verify_records((AuditRecord(*row.values()) for row in rows), head, _row_hash)


def _row_hash(record: AuditRecord) -> str:
    """Return the hash that a record of a registry should have."""
    *fields, previous, _ = astuple(record)
    return hashlib.sha256("\n".join(map(str, (previous, *fields))).encode()).hexdigest()


def database_address(url: str) -> str:
    """Return the address of a database from its URL: host, port and name, without user, password and options.

    Raises
    ------
    RegistryUnreachable
        When the URL is not a valid one.
    """
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(checked_url(url))
    host = str(parts.get("host") or parts.get("hostaddr") or "localhost").lower()
    return f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or ''}"


def follow(pinned: AuditHead, checkpoint: Checkpoint) -> AuditHead:
    """Return the registry's head, if its log contains the pinned one.

    Raises
    ------
    ChainShortened
        When the log ends before the pinned head.
    ChainForked
        When its record with the number of the pinned head is another one.
    """
    if checkpoint.head.seq < pinned.seq:
        end = f"the registry's audit log ends at record {checkpoint.head.seq}"
        raise errors.ChainShortened(f"{end}, but record {pinned.seq} was seen", hint=ACCEPT)
    hash_at_pinned = checkpoint.head.hash if checkpoint.head.seq == pinned.seq else checkpoint.known_hash
    if pinned.seq and hash_at_pinned != pinned.hash:
        message = f"the registry's audit log was rewritten: record {pinned.seq} is another one than was seen"
        raise errors.ChainForked(message, hint=ACCEPT)
    return checkpoint.head


def newer(version: str, seen: Iterable[SeenVersion], revoked: Iterable[str]) -> Sequence[SeenVersion]:
    """Return the versions in `seen` that contradict serving `version` as the newest, highest first.

    Those are the higher ones that were not yanked, and whose key is not in `revoked`.
    """
    revoked, served = set(revoked), version_order(version)
    above = [s for s in seen if not s.yanked and s.key_id not in revoked and version_order(s.version) > served]
    return sorted(above, key=lambda s: version_order(s.version), reverse=True)


def check_rollback(ref: ItemRef, above: SeenVersion, state: VersionState | None, found_by: str) -> bool:
    """Check that the registry may serve `ref` as the newest though `above` was seen, by the present `state` of that.

    It may if that was yanked (then this returns true), or if a search with the model `found_by` cannot find it because
    it is not indexed yet. The latter does not hold for a version that a search with this model has found before.

    Raises
    ------
    RolledBack
        When there is no such reason.
    """
    if state and state.digest == above.digest:
        if state.yanked:
            return True
        if found_by and state.passages == 0 and above.found_by != found_by:
            return False
    message = f"the registry serves {ref} as the newest, but {above.version} was seen and was not yanked"
    raise errors.RolledBack(message, hint=_accept_hint(ref))


def _accept_hint(ref: ItemRef) -> str:
    item = f"{ref.item_type}:{ref.item_id}"
    return f"ask the registry's operator why; to accept what it says now: kiwi registry accept {item}"
