"""Which verified hits are shown: the best, each content once, and no signer more often than it may."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from kiwi_rag.search.hits import MAX_NAMED, VerifiedHit, Verifier
from kiwi_rag.search.ranking import Group, order
from kiwi_rag.search.tier_query import FETCHED_AT_ONCE

SIGNERS_FOR_A_CAP = 3
"""From so many signers on, one alone may not fill the answer, unless the query says otherwise."""

NEAR = 0.8
"""What share of an item's score another needs to be nearly as good.

Only one that is may take the place of an item that the cap keeps out, and only signers of items nearly as good as the
best count towards a cap: variety is not worth an answer of what matches far worse.
"""


@dataclass(slots=True)
class Chosen:
    """The hits that were chosen, in no order yet.

    ``cap`` is how many of one signer there may be (None: any number), ``duplicates`` holds by content what a hit
    stands for beside itself, ``said`` the addresses of more that are said to be the same and were not looked at;
    ``suppressed`` counts better items that the cap kept out.
    """

    cap: int | None
    hits: list[VerifiedHit] = field(default_factory=list)
    duplicates: dict[str, list[VerifiedHit]] = field(default_factory=dict)
    said: dict[str, list[str]] = field(default_factory=dict)
    suppressed: int = 0

    def is_full(self, principal: str) -> bool:
        """Whether this signer has as many hits as it may have."""
        return self.cap is not None and sum(hit.principal == principal for hit in self.hits) >= self.cap

    def is_one_more(self, group: Group) -> bool:
        """Whether a tier says that it holds here what a hit of its own stands for `MAX_NAMED` times already.

        Of its own: no tier's word may keep out what another holds.
        """
        found = group.winner.found
        content = found.candidate.content_sha256
        if len(self.duplicates.get(content, ())) < MAX_NAMED:
            return False
        return any(hit.content_sha256 == content and hit.tier == found.tier for hit in self.hits)

    def take(self, hit: VerifiedHit, *, capped: bool = True) -> bool:
        """Take a hit, or add it to the one with the same content; return False where its signer has its share."""
        same = next((i for i, other in enumerate(self.hits) if other.content_sha256 == hit.content_sha256), None)
        if same is None:
            if capped and self.is_full(hit.principal):
                return False
            self.hits.append(hit)
            return True
        first, second = sorted((self.hits[same], hit), key=_place)
        self.hits[same] = _as_good(first, second)
        self.duplicates.setdefault(hit.content_sha256, []).append(second)
        return True

    def addresses(self, hit: VerifiedHit) -> list[str]:
        """Return the addresses of the items that a hit stands for, in the order of the tiers, unverified ones last."""
        others = self.duplicates.get(hit.content_sha256, ())
        verified = sorted(others, key=lambda one: (one.group.winner.found.rank, one.address))
        return [*(other.address for other in verified), *self.said.get(hit.content_sha256, ())]


def _place(hit: VerifiedHit) -> tuple[int, datetime, str, str]:
    """Return what decides which of two items with the same content is shown: the tier, then who signed it first.

    Not the score: a copy under a better name would else take the place of what it copies.
    """
    ref = hit.group.winner.found.candidate.ref
    return hit.group.winner.found.rank, hit.item.verified.statement.signed_at, ref.item_type.value, ref.item_id


def _as_good(first: VerifiedHit, second: VerifiedHit) -> VerifiedHit:
    """Return the first with the score, and its parts, of a copy that its own tier ranked higher: the place stays."""
    winner, other = first.group.winner, second.group.winner
    if first.tier != second.tier or other.score <= winner.score:
        return first
    ranked = replace(winner, score=other.score, parts=other.parts)
    return replace(first, group=Group((ranked, *first.group.entries[1:])))


def near_signers(ranked: Sequence[Group], principals: Mapping[str, str]) -> int:
    """Return how many signers there are among the items that are nearly as good as the best one."""
    least = NEAR * max((group.winner.score for group in ranked), default=0.0)
    near = (group.winner.found.candidate.key_id for group in ranked if group.winner.score >= least)
    return len({principals.get(key_id) for key_id in near} - {None})


def cap_of(wanted: int | None, limit: int, signers: int) -> int | None:
    """Return how many hits one signer may have; None for any number.

    Without a wish: half of the hits, once there are `SIGNERS_FOR_A_CAP` signers. 0 asks for no cap.
    """
    if wanted is None:
        return (limit + 1) // 2 if signers >= SIGNERS_FOR_A_CAP else None
    return wanted or None


async def diversify(
    ranked: Sequence[Group], limit: int, cap: int | None, verifier: Verifier, principals: Mapping[str, str]
) -> Chosen:
    """Choose up to `limit` hits, best first, each with a place that no much worse one has because of the cap.

    Parameters
    ----------
    principals
        Key id → who signs with it. Who signed an item is known once it is verified; until then its tier's word decides
        only whether it is looked at now or later.
    """
    choice = _Choice(limit, verifier, principals, Chosen(cap))
    unseen = await choice.look_through(sorted(ranked, key=lambda group: order(group.winner)))
    chosen = choice.chosen
    last = max((order(hit.group.winner) for hit in chosen.hits), default=None)
    chosen.suppressed = sum(last is not None and order(group.winner) < last for group in choice.later)
    await _name_duplicates(chosen, [*choice.later, *choice.copies, *unseen], verifier)
    return chosen


@dataclass(slots=True)
class _Choice:
    """A choice under way: ``later`` is what the cap keeps out, best first, ``copies`` what is said to be one more."""

    limit: int
    verifier: Verifier
    principals: Mapping[str, str]
    chosen: Chosen
    later: list[Group] = field(default_factory=list)
    copies: list[Group] = field(default_factory=list)

    @property
    def missing(self) -> int:
        return self.limit - len(self.chosen.hits)

    async def look_through(self, best_first: Sequence[Group]) -> Sequence[Group]:
        """Take what may be shown, best first; return what was not looked at."""
        position = fetched = 0
        while self.missing and position < len(best_first):
            if position == fetched:
                fetched += max(self.missing, FETCHED_AT_ONCE)
                await self.verifier.fetch([g for g in best_first[position:fetched] if self._is_next(g)])
            await self._take_later(best_first[position].winner.score)
            if self.missing:
                await self._look_at(best_first[position])
                position += 1
        await self._take_later(-math.inf)
        await self._take_copies()
        return best_first[position:]

    def _is_next(self, group: Group) -> bool:
        principal = self.principals.get(group.winner.found.candidate.key_id, "")
        return not self.chosen.is_full(principal) and not self.chosen.is_one_more(group)

    async def _look_at(self, group: Group) -> None:
        if self.chosen.is_one_more(group):
            self.copies.append(group)
            return
        hit = await self.verifier.hit(group) if (is_next := self._is_next(group)) else None
        if not is_next or (hit and not self.chosen.take(hit)):
            self.later.append(group)

    async def _take_later(self, score: float) -> None:
        """Take what the cap kept out so far, and what an item of this score is not nearly as good as."""
        while self.missing and self.later and score < NEAR * self.later[0].winner.score:
            if hit := await self.verifier.hit(self.later.pop(0)):
                self.chosen.take(hit, capped=False)

    async def _take_copies(self) -> None:
        """Look at what is said to be a copy, where hits are missing: it may be something else after all."""
        if self.missing:
            await self.verifier.fetch(self.copies)
        while self.missing and self.copies:
            if hit := await self.verifier.hit(self.copies.pop(0)):
                self.chosen.take(hit, capped=False)


async def _name_duplicates(chosen: Chosen, rest: Sequence[Group], verifier: Verifier) -> None:
    """Look among the rest for items that are said to have a hit's content, those signed first; at most `MAX_NAMED`."""
    shown = {hit.content_sha256 for hit in chosen.hits}
    alike = [group for group in rest if group.winner.found.candidate.content_sha256 in shown]
    alike.sort(key=lambda group: (group.winner.found.rank, group.winner.found.candidate.signed_at))
    await verifier.fetch(alike[:MAX_NAMED])
    for group in alike[:MAX_NAMED]:
        hit = await verifier.hit(group)
        if hit and hit.content_sha256 in shown:
            chosen.take(hit)
    for group in alike[MAX_NAMED:]:
        found = group.winner.found
        chosen.said.setdefault(found.candidate.content_sha256, []).append(f"{found.candidate.ref}@{found.tier}")
