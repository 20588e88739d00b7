"""A client's eyes on a registry: asks it what it says of itself, and holds that against what is remembered.

One `Look` belongs to one request (a search, a `get`): it begins with the audit log, then judges each item that the
request wants to show, once the item has verified, and ends with one small write if anything is new.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from kiwi_rag.errors import AuditBroken, Refused, RegistryUnreachable
from kiwi_rag.model import StoredItem
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.monitor import pinned_state
from kiwi_rag.monitor.pinned_state import Identity, SeenVersion, VersionState
from kiwi_rag.monitor.pinned_state_file import PinnedState, path_of
from kiwi_rag.registry import client
from kiwi_rag.registry.calls import Caller, Transport, with_retries
from kiwi_rag.registry.checkpoint import Checkpoint, parse_head
from kiwi_rag.retry import READING
from kiwi_rag.signing.trust import RevocationNotice, SignerStatus, TrustPolicy, apply_revocations
from kiwi_rag.validation.audit import AuditHead

_T = TypeVar("_T")
NOTE_AFTER = timedelta(minutes=10)
"""How much older the time of the last look may be on disk than it is: else every search would write."""


class RegistryMonitor:
    """Watches one registry for one user.

    Parameters
    ----------
    transport
        The way to the registry.
    remembered
        What this user remembers of it.
    """

    def __init__(
        self, transport: Transport, remembered: PinnedState, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.memory = remembered
        self._transport = transport
        self._now = now
        self._noted: list[tuple[ItemRef, SeenVersion]] = []
        self._head = AuditHead()

    async def look(self, *, fully: bool = False) -> ConsistencyCheck:
        """Ask the registry what it says of itself; `fully` asks for every key that lost trust, not for what is new.

        Raises
        ------
        ChainShortened, ChainForked
            When its audit log is not the one that was seen before.
        RegistryError
            When it cannot be reached, or gives no proper answer.
        """
        known, number = self.memory.head(), self.memory.newest_number()
        since = 0 if fully else self.memory.signers_seq()
        # Without a known head, too, the registry is to say what was yanked; nothing can be by its first record.
        checkpoint = await self._news(known.seq or 1, since)
        head = pinned_state.follow(known, checkpoint)
        if known.seq and not self.memory.knows_yanks():
            checkpoint = replace(checkpoint, yanked=(await self._news(1, head.seq)).yanked)
        if self._is_worth_writing(known, checkpoint, fully):
            await asyncio.to_thread(self.memory.remember_news, head, checkpoint, self._now())
        return ConsistencyCheck(self, number, tuple(self.memory.notices()))

    def note(self, ref: ItemRef, digest: str, key_id: str, head: str) -> None:
        """Take down what a receipt says; `settle` holds it against the log and writes it."""
        self._noted.append((ref, SeenVersion(ref.version or "", digest, key_id)))
        self._head = max(self._head, parse_head(head), key=lambda one: one.seq)

    async def settle(self) -> None:
        """Remember what receipts said, if the log holds the head that was known before and the one that they name.

        Raises
        ------
        ChainShortened, ChainForked
            When it does not.
        """
        if not self._noted:
            return
        noted, self._noted = self._noted, []
        await asyncio.to_thread(self.memory.remember_versions, noted)
        with suppress(RegistryUnreachable):  # it went away after its receipts; the next look will see its log
            await self.look()
            pinned_state.follow(self._head, await self._news(self._head.seq, self._head.seq))

    async def close(self) -> None:
        """Settle, and close the memory."""
        try:
            await self.settle()
        finally:
            self.memory.close()

    async def states(self, ref: ItemRef) -> Mapping[str, VersionState]:
        """Return what the registry says now of each version of an item."""
        rows = await self._ask(lambda caller: client.item_status(caller, replace(ref, version=None)))
        return {str(row["version"]): _state(row) for row in rows if row["visibility"] == "public"}

    async def yanked(self, ref: ItemRef) -> StoredItem | None:
        """Return the version that `ref` names, if it is there and was yanked."""
        stored = await self._ask(lambda caller: client.get_item(caller, ref, yanked_too=True))
        return stored if stored and stored.yanked_at else None

    async def _news(self, known_seq: int, signers_since: int) -> Checkpoint:
        name = self.memory.identity.name
        return await self._ask(lambda caller: client.registry_news(caller, known_seq, signers_since, name))

    async def _ask(self, call: Callable[[Caller], Awaitable[_T]]) -> _T:
        async def ask() -> _T:
            async with self._transport.session() as caller:
                return await call(caller)

        return await with_retries(ask, READING)

    def _is_worth_writing(self, known: AuditHead, checkpoint: Checkpoint, fully: bool) -> bool:
        told = {(n.key_id, n.status) for n in checkpoint.notices} - {
            (n.key_id, n.status) for n in self.memory.notices()
        }
        asked = self.memory.asked_at()
        due = asked is None or self._now() - asked > NOTE_AFTER or not self.memory.knows_yanks()
        return checkpoint.head != known or bool(told) or fully or due


@dataclass(slots=True)
class ConsistencyCheck:
    """One look at a registry whose audit log holds.

    ``number`` is that of the version met last when the look began: what another process met since then says nothing
    about answers that were asked for before.
    """

    watch: RegistryMonitor
    number: int
    notices: Sequence[RevocationNotice]
    fresh: list[tuple[ItemRef, SeenVersion]] = field(default_factory=list)

    def apply_revocations(self, trust: TrustPolicy) -> TrustPolicy:
        """Return `trust` less what this registry took away."""
        return apply_revocations(trust, self.notices)

    async def check_consistency(self, stored: StoredItem, key_id: str, *, newest: bool, found_by: str = "") -> None:
        """Return if nothing that was seen before speaks against an item that has just verified.

        Parameters
        ----------
        key_id
            The key that signed it.
        newest
            Whether it is served as the item's newest version, and not because that very version was asked for.
        found_by
            For what a search found: the fingerprint of its model.

        Raises
        ------
        VersionChanged, YankUndone, RolledBack
            When something does.
        """
        ref, seen = stored.ref, self.watch.memory.seen(stored.ref)
        if stored.private and not any(one.digest == stored.digest for one in seen.values()):
            # Its owner's own line of versions, which is not remembered; nor may the word hide an older public one.
            return await self._check_newest(ref, seen, found_by) if newest else None
        before, yanked = seen.get(ref.version or ""), stored.yanked_at is not None
        if before and before.yanked and not yanked:
            await self._check_not_late(ref)
        pinned_state.check_seen(ref, stored.digest, before, yanked=yanked)
        if newest:
            await self._check_newest(ref, seen, found_by)
        now = SeenVersion(ref.version or "", stored.digest, key_id, yanked, found_by)
        if before is None or (yanked, found_by or before.found_by) != (before.yanked, before.found_by):
            self.fresh.append((ref, now))

    def remembered(self) -> Sequence[ItemRef]:
        """Return every item that was seen, without versions; by its folded id, which names it as well."""
        return [ItemRef(item_type, folded_id) for item_type, folded_id in self.watch.memory.items()]

    async def check_missing(self, ref: ItemRef) -> None:
        """Return if an item, or the version that `ref` names, may be missing though it was asked for.

        Raises
        ------
        Yanked, WrongKey
            When it is there, and every version of it was yanked, or signed by a key that was revoked.
        RolledBack
            When it was seen before and was not taken back.
        """
        states, revoked = await self.watch.states(ref), self._revoked()
        seen = [one for one in self.watch.memory.seen(ref).values() if ref.version in (None, one.version)]
        for one in seen:
            if one.number <= self.number and not one.yanked and one.key_id not in revoked and one.version not in states:
                raise pinned_state.withheld(ref, one)
        if states and not ref.version and all(state.yanked or state.revoked for state in states.values()):
            raise pinned_state.nothing_left(ref, states)

    def keep(self) -> None:
        """Write what is new, if anything is. Blocking, short."""
        if self.fresh:
            self.watch.memory.remember_versions(self.fresh)
            self.fresh.clear()

    async def _check_not_late(self, ref: ItemRef) -> None:
        """Raise `Refused` when another process saw the yank that came after this answer: the registry did not lie."""
        state = (await self.watch.states(ref)).get(ref.version or "")
        if state and state.yanked:
            raise Refused(f"{ref} was yanked a moment ago")

    async def _check_newest(self, ref: ItemRef, seen: Mapping[str, SeenVersion], found_by: str) -> None:
        earlier = [one for one in seen.values() if one.number <= self.number]
        above = pinned_state.newer(ref.version or "", earlier, self._revoked())
        if not above:
            return
        self.notices = (await self.watch.look(fully=True)).notices  # a key may have been revoked since this look began
        states = await self.watch.states(ref)
        for one in pinned_state.newer(ref.version or "", earlier, self._revoked()):
            if pinned_state.excuse(ref, one, states.get(one.version), found_by) == "yanked":
                self.fresh.append((replace(ref, version=one.version), replace(one, yanked=True)))

    def _revoked(self) -> set[str]:
        return {notice.key_id for notice in self.notices if notice.status is SignerStatus.COMPROMISED}


def watch(transport: Transport, folder: Path, identity: Identity) -> RegistryMonitor:
    """Return a watch over a registry, whose memory is kept below `folder`."""
    return RegistryMonitor(transport, PinnedState(path_of(folder, identity), identity))


def _state(row: Mapping[str, Any]) -> VersionState:
    revoked = row["signer_status"] == SignerStatus.COMPROMISED
    return VersionState(str(row["digest"]), row["yanked_at"] is not None, revoked, int(row["passages"]))


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
