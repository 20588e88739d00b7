"""From an item that was found to a hit that may be shown: fetched, verified, and held against the other tiers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from kiwi_rag.errors import KiwiError, Refused, StoreError, TierTimedOut
from kiwi_rag.formats import path_of
from kiwi_rag.model import ItemState, Passage, RefusedHit, SearchResult, StoredItem, VersionConflict
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.search.ranking import Group, Scored
from kiwi_rag.search.state import conflict_of
from kiwi_rag.search.tier_query import Key, TierQuery
from kiwi_rag.search.verify import VerifiedItem, verified_passage, verify_stored
from kiwi_rag.signing.trust import TrustPolicy

MAX_NAMED = 20
"""Duplicates of a hit that are named, and looked for below the last one; how many more there are is counted."""


@dataclass(frozen=True, slots=True, eq=False)
class VerifiedHit:
    """The winner of a group, verified, and the passage to show it by."""

    group: Group
    item: VerifiedItem
    passage: Passage

    @property
    def tier(self) -> str:
        """The tier it comes from."""
        return self.group.winner.found.tier

    @property
    def principal(self) -> str:
        """Who signed it."""
        return self.item.verified.signer.principal

    @property
    def content_sha256(self) -> str:
        """Hex SHA-256 of the signed content; a store's own word was held against it."""
        return self.item.stored.content_sha256

    @property
    def address(self) -> str:
        """What `kiwi show` finds it by."""
        return f"{self.item.verified.statement.ref}@{self.tier}"


class Verifier:
    """Verifies what tiers gave, each item once a search, and remembers what it had to refuse.

    Parameters
    ----------
    asked
        The tiers, their answers and what is left of their time; failures are noted there.
    trust, audience
        What every hit is verified against.
    model
        The fingerprint of the model that the query was embedded with.
    """

    def __init__(self, asked: Sequence[TierQuery], trust: TrustPolicy, audience: str, model: str) -> None:
        self._asked = {a.tier.name: a for a in asked}
        self._trust = trust
        self._audience = audience
        self._model = model
        self._items: dict[tuple[str, ItemRef], VerifiedItem | KiwiError] = {}
        self._held: dict[tuple[str, Key], bool] = {}
        self.refused: list[RefusedHit] = []

    async def fetch(self, groups: Sequence[Group]) -> None:
        """Fetch and verify what these groups will need, of all tiers at once: one after the other they would wait."""
        await asyncio.gather(*(self._fetch(group.winner) for group in groups))

    async def _fetch(self, winner: Scored) -> None:
        asked = self._asked[winner.found.tier]
        with suppress(KiwiError):  # told where the hit is taken
            if not await self._is_shadowed(winner, asked):
                await self._item(winner.found.candidate.ref, asked)

    async def hit(self, group: Group) -> VerifiedHit | None:
        """Return the group's hit, or None where there is none to show.

        None: it does not verify, its tier fell silent, or a tier that was asked holds an item that shadows it unseen.
        """
        winner = group.winner
        asked = self._asked[winner.found.tier]
        try:
            if await self._is_shadowed(winner, asked):
                return None
            item = await self._item(winner.found.candidate.ref, asked)
            return VerifiedHit(group, item, verified_passage(item, winner.found.candidate))
        except TierTimedOut:
            asked.unverified.add(winner.found.candidate.ref.key)
        except KiwiError as error:
            self._refuse(winner, error, asked)
        return None

    async def result(self, hit: VerifiedHit, duplicates: Sequence[str], state: ItemState) -> SearchResult:
        """Return a hit as it is shown, with the tiers that hold the same, and those that it shadows."""
        winner, stored, signed = hit.group.winner, hit.item.stored, hit.item.verified.statement
        root = self._asked[hit.tier].tier.root
        same, shadows = await self._others(hit)
        return SearchResult(
            ref=signed.ref,
            tier=hit.tier,
            tiers=(hit.tier, *same),
            shadows=shadows,
            passage=hit.passage,
            metadata=signed.metadata,
            score=winner.score,
            parts=winner.parts,
            digest=stored.digest,
            key_id=hit.item.verified.signer.key_id,
            principal=hit.principal,
            signed_at=signed.signed_at,
            path=str(path_of(root, signed.ref)) if root else "",  # the index's own word is not signed
            private=stored.private,
            duplicates=tuple(duplicates[:MAX_NAMED]),
            more_duplicates=max(len(duplicates) - MAX_NAMED, 0),
            state=state,
            conflict=await self._conflict(hit),
        )

    def failures(self) -> int:
        """Return how many items turned out not to be any, so far."""
        return sum(len(a.refused) + len(a.unverified) for a in self._asked.values())

    async def _item(self, ref: ItemRef, asked: TierQuery) -> VerifiedItem:
        """Return an item, verified, within what is left of its tier's time.

        Raises
        ------
        FellSilent
            When the tier stopped answering, now or before.
        KiwiError
            When the item does not verify.
        """
        key = asked.tier.name, ref
        if key not in self._items:
            try:
                self._items[key] = await asked.in_time(self._verified(ref, asked))
            except TierTimedOut:
                raise  # of the tier, not of the item
            except KiwiError as error:
                self._items[key] = error
        known = self._items[key]
        if isinstance(known, KiwiError):
            raise known
        return known

    async def _verified(self, ref: ItemRef, asked: TierQuery) -> VerifiedItem:
        tier = asked.tier
        stored = await _get(asked, ref)
        if stored is None:
            raise Refused(f"{ref} left the {tier.name} tier while it was being searched")
        item = verify_stored(stored, ref, self._trust, self._audience, tier.policy)
        if asked.look:
            await asked.look.check_consistency(stored, item.verified.signer.key_id, newest=True, found_by=self._model)
        return item

    async def _is_shadowed(self, entry: Scored, asked: TierQuery) -> bool:
        """Whether a tier before this one holds a verified item of the id, which did not match the query itself."""
        ref = replace(entry.found.candidate.ref, version=None)
        before = [a for a in self._asked.values() if a.tier.rank < asked.tier.rank and ref.key not in a.refused]
        for higher in before:
            with suppress(TierTimedOut):  # as if it had not answered from the start
                if await self._holds(higher, ref):
                    return True
        return False

    async def _holds(self, asked: TierQuery, ref: ItemRef) -> bool:
        key = asked.tier.name, ref.key
        if key not in self._held:
            stored = await asked.in_time(_get(asked, ref))
            self._held[key] = stored is not None and self._verifies(stored, asked)
        return self._held[key]

    def _verifies(self, stored: StoredItem, asked: TierQuery) -> bool:
        try:
            verify_stored(stored, stored.ref, self._trust, self._audience, asked.tier.policy)
        except Refused:
            return False
        return True

    async def _others(self, hit: VerifiedHit) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the tiers with the same content, and those whose other content this hit shadows."""
        same, shadows = [], []
        for entry in hit.group.entries[1:]:
            name = entry.found.tier
            with suppress(TierTimedOut):
                other = await self._shadowed_item(entry, self._asked[name])
                if other is None:
                    shadows.append(f"{name}!unverified")
                elif other.stored.content_sha256 == hit.content_sha256:
                    same.append(name)
                else:
                    principal = other.verified.signer.principal
                    shadows.append(name if principal == hit.principal else f"{name}!{principal}")
        return tuple(same), tuple(shadows)

    async def _conflict(self, hit: VerifiedHit) -> VersionConflict | None:
        """Return what the hit's version is in the other tiers, if that differs."""
        ref = hit.item.verified.statement.ref
        places = [(self._asked[hit.tier].tier, hit.content_sha256)]
        for asked in self._asked.values():
            if asked.tier.name != hit.tier:
                with suppress(KiwiError):
                    content = await self._content_elsewhere(hit, ref, asked)
                    places += [(asked.tier, content)] if content else []
        return conflict_of(ref, places)

    async def _content_elsewhere(self, hit: VerifiedHit, ref: ItemRef, asked: TierQuery) -> str:
        """Return the digest of the same version in another tier, where it verifies; empty where there is none.

        A registry is not asked for what the query did not find there: that would be a call for each hit.
        """
        entry = next((e for e in hit.group.entries[1:] if e.found.tier == asked.tier.name), None)
        if entry is None and not (asked.tier.root and asked.answers and await self._differs(hit, ref, asked)):
            return ""
        other = await self._item(entry.found.candidate.ref if entry else ref, asked)
        return other.stored.content_sha256 if other.verified.statement.ref.version == ref.version else ""

    async def _differs(self, hit: VerifiedHit, ref: ItemRef, asked: TierQuery) -> bool:
        """Whether a local tier ever had other content of the version: most have not, and nothing is read then."""
        history = await asked.in_time(asked.tier.store.history(ref))
        return history.get(ref.version or "", hit.content_sha256) != hit.content_sha256

    async def _shadowed_item(self, entry: Scored, asked: TierQuery) -> VerifiedItem | None:
        if not asked.answers:
            raise TierTimedOut
        try:
            return await self._item(entry.found.candidate.ref, asked)
        except TierTimedOut:
            raise
        except KiwiError:
            return None

    def _refuse(self, entry: Scored, error: KiwiError, asked: TierQuery) -> None:
        candidate = entry.found.candidate
        hit = RefusedHit(candidate.ref, asked.tier.name, error.code, error.message)
        if asked.answers:
            asked.state = "refused"
        asked.refused.add(candidate.ref.key)
        asked.record(hit, candidate.digest, candidate.key_id)
        self.refused.append(hit)


async def _get(asked: TierQuery, ref: ItemRef) -> StoredItem | None:
    try:
        async with asked.places:
            return await asked.tier.store.get(ref)
    except (KiwiError, TimeoutError):
        raise
    except Exception as error:  # a stranger's code: it costs this hit, not the reply
        raise StoreError(f"the {asked.tier.name} tier failed: {type(error).__name__}: {error}") from error
