"""The monitor of a registry: reads its checkpoint, and checks it and its items against the pinned state.

One `ConsistencyCheck` belongs to one request (a search, a `get`). It begins with the audit log, checks each item that
the request will show after its signature was verified, and ends with one small write if anything is new.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kiwi_rag.errors import AuditBroken, Refused, RegistryUnreachable
from kiwi_rag.model import StoredItem
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.monitor import pinned_state
from kiwi_rag.monitor.pinned_state import RegistryIdentity, SeenVersion, VersionState
from kiwi_rag.monitor.pinned_state_file import PinnedState, pinned_state_path
from kiwi_rag.registry.checkpoint import Checkpoint, parse_head
from kiwi_rag.registry.client import RegistryClient
from kiwi_rag.signing.trust import RevocationNotice, SignerStatus, TrustPolicy, apply_revocations
from kiwi_rag.validation.audit import AuditHead

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

    def __init__(
        self, client: RegistryClient, pinned: PinnedState, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.pinned = pinned
        self._client = client
        self._now = now
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
        pinned, number = self.pinned.head(), self.pinned.last_number()
        since = 0 if fully else self.pinned.signers_seq()
        # The registry lists what was yanked after this record. For 0 it lists nothing, and before record 1 nothing can
        # have been yanked, so 1 lists all of it for a client that pinned no head yet.
        checkpoint = await self._checkpoint(pinned.seq or 1, since)
        head = pinned_state.follow(pinned, checkpoint)
        if pinned.seq and not self.pinned.has_all_yanks():
            checkpoint = replace(checkpoint, yanked=(await self._checkpoint(1, head.seq)).yanked)
        if self._is_worth_writing(pinned, checkpoint, fully):
            await asyncio.to_thread(self.pinned.pin_checkpoint, head, checkpoint, self._now())
        return ConsistencyCheck(self, number, tuple(self.pinned.notices()))

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
        with suppress(RegistryUnreachable):  # the next check will verify its log
            await self.check()
            head = self._receipt_head
            pinned_state.follow(head, await self._checkpoint(head.seq, head.seq))

    async def close(self) -> None:
        """Verify the receipts, and close the pinned state."""
        try:
            await self.verify_receipts()
        finally:
            self.pinned.close()

    async def version_states(self, ref: ItemRef) -> Mapping[str, VersionState]:
        """Return the registry's present state of each version of an item."""
        rows = await self._client.item_status(replace(ref, version=None))
        return {str(row["version"]): _state(row) for row in rows if row["visibility"] == "public"}

    async def get_yanked(self, ref: ItemRef) -> StoredItem | None:
        """Return the version that `ref` names if it was yanked, otherwise None."""
        stored = await self._client.get_item(ref, yanked_too=True)
        return stored if stored and stored.yanked_at else None

    async def _checkpoint(self, known_seq: int, signers_since: int) -> Checkpoint:
        name = self.pinned.identity.name
        return await self._client.registry_checkpoint(known_seq, signers_since, name)

    def _is_worth_writing(self, pinned: AuditHead, checkpoint: Checkpoint, fully: bool) -> bool:
        pinned_notices = {(n.key_id, n.status) for n in self.pinned.notices()}
        has_notices = any((n.key_id, n.status) not in pinned_notices for n in checkpoint.notices)
        checked_at = self.pinned.checked_at()
        is_due = checked_at is None or self._now() - checked_at > WRITE_AFTER or not self.pinned.has_all_yanks()
        return checkpoint.head != pinned or has_notices or fully or is_due


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
        if before and before.yanked and not yanked:
            await self._check_not_just_yanked(ref)
        pinned_state.check_seen(ref, stored.digest, before, yanked=yanked)
        if newest:
            await self._check_newest(ref, seen, found_by)
        now = SeenVersion(ref.version or "", stored.digest, key_id, yanked, found_by)
        if before is None or (yanked, found_by or before.found_by) != (before.yanked, before.found_by):
            self.fresh.append((ref, now))

    def pinned_items(self) -> Sequence[ItemRef]:
        """Return every pinned item, without versions, under its folded id."""
        return [ItemRef(item_type, folded_id) for item_type, folded_id in self.monitor.pinned.items()]

    async def check_missing(self, ref: ItemRef) -> None:
        """Check an item, or the version that `ref` names, that the registry does not serve.

        Raises
        ------
        Yanked, WrongKey
            When every version of it was yanked, or signed by a revoked key.
        RolledBack
            When it is pinned, and was neither yanked nor its key revoked.
        """
        states, revoked = await self.monitor.version_states(ref), self._revoked()
        seen = [one for one in self.monitor.pinned.seen(ref).values() if ref.version in (None, one.version)]
        for one in seen:
            if one.number <= self.number and not one.yanked and one.key_id not in revoked and one.version not in states:
                raise pinned_state.missing_version(ref, one)
        if states and not ref.version and all(state.yanked or state.revoked for state in states.values()):
            raise pinned_state.no_version_left(ref, states)

    def save(self) -> None:
        """Write what is new, if anything is. Blocks for a short time."""
        if self.fresh:
            self.monitor.pinned.pin_versions(self.fresh)
            self.fresh.clear()

    async def _check_not_just_yanked(self, ref: ItemRef) -> None:
        """Raise `Refused` if it was yanked after this answer, as another process pinned: no contradiction."""
        state = (await self.monitor.version_states(ref)).get(ref.version or "")
        if state and state.yanked:
            raise Refused(f"{ref} was yanked a moment ago")

    async def _check_newest(self, ref: ItemRef, seen: Mapping[str, SeenVersion], found_by: str) -> None:
        earlier = [one for one in seen.values() if one.number <= self.number]
        if not pinned_state.newer(ref.version or "", earlier, self._revoked()):
            return
        # A key may have been revoked since this check began, so that its versions no longer count.
        self.notices = (await self.monitor.check(fully=True)).notices
        states = await self.monitor.version_states(ref)
        for one in pinned_state.newer(ref.version or "", earlier, self._revoked()):
            if pinned_state.check_rollback(ref, one, states.get(one.version), found_by) == "yanked":
                self.fresh.append((replace(ref, version=one.version), replace(one, yanked=True)))

    def _revoked(self) -> set[str]:
        return {notice.key_id for notice in self.notices if notice.status is SignerStatus.COMPROMISED}


def open_monitor(client: RegistryClient, folder: Path, identity: RegistryIdentity) -> RegistryMonitor:
    """Return a monitor of a registry, with its pinned state below `folder`."""
    return RegistryMonitor(client, PinnedState(pinned_state_path(folder, identity), identity))


def _state(row: Mapping[str, Any]) -> VersionState:
    revoked = row["signer_status"] == SignerStatus.COMPROMISED
    return VersionState(str(row["digest"]), row["yanked_at"] is not None, revoked, int(row["passages"]))


_FIELDS = ("previous_hash", "seq", "at", "event", "ref", "digest", "key_id", "details")


def verify_rows(rows: Iterable[Mapping[str, Any]], head: AuditHead) -> AuditHead:
    """Verify that rows of ``audit_records`` follow `head`, and return the new head.

    Raises
    ------
    AuditBroken
        Naming the first record that is wrong or missing.
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
