"""One query over several tiers: the sentence of the reading half of the house, top to bottom."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from kiwi_rag.embedding.base import EmbeddingProvider
from kiwi_rag.errors import (
    FingerprintMismatch,
    KiwiError,
    Refused,
    RegistryContradicted,
    RegistryUnreachable,
    StoreCorrupt,
    StoreError,
    UsageError,
)
from kiwi_rag.formats import path_of
from kiwi_rag.lexical import query_terms
from kiwi_rag.model import (
    Candidates,
    CollectionStatistics,
    RefusedHit,
    SearchQuery,
    SearchReply,
    SearchResult,
    StoredItem,
    StoreQuery,
    TierOutcome,
    TierState,
)
from kiwi_rag.refs import ItemRef, ItemType
from kiwi_rag.search.fuse import DEFAULT_ALPHA, Found, Recency, Scored, fuse
from kiwi_rag.search.plausible import check_candidates, check_statistics
from kiwi_rag.search.rank import Group, groups, order
from kiwi_rag.search.verify import VerifiedItem, verified_passage, verify_stored
from kiwi_rag.signing.trust import TrustPolicy
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.tiers import Look, Tier

_T = TypeVar("_T")
LEG_DEPTH = 100
MAX_LIMIT = 200
MAX_QUERY_CHARACTERS = 10_000


@dataclass(slots=True)
class _Asked:
    """What is known so far of one tier's answer."""

    tier: Tier[VectorStore]
    state: TierState = "ok"
    error: KiwiError | None = None
    statistics: CollectionStatistics = field(default_factory=CollectionStatistics)
    candidates: Candidates = field(default_factory=lambda: Candidates((), ""))
    seconds: float = 0.0
    refused: set[tuple[ItemType, str]] = field(default_factory=set)
    look: Look | None = None
    unverified: int = 0

    @property
    def answers(self) -> bool:
        return self.state in ("ok", "refused")

    def outcome(self) -> TierOutcome:
        error = dict(self.error.as_dict()) if self.error else None
        if error and self.unverified:
            hits = "1 hit was" if self.unverified == 1 else f"{self.unverified} hits were"
            error["message"] = f"{error['message']}; {hits} not verified in time, and left out"
        rows = len(self.candidates.items)
        return TierOutcome(self.tier.name, self.state, self.seconds, rows, self.candidates.plan, error)


class _FellSilent(Exception):
    """A tier stopped answering while its hits were verified; its outcome says so."""


class HybridSearchHandler:
    """Searches tiers by meaning and by words, and shows only what verifies.

    Parameters
    ----------
    tiers
        The tiers to ask.
    embed
        The embedding provider; its fingerprint must be that of the tiers' vectors.
    trust, audience
        What every hit is verified against.
    deadline
        Seconds that a tier may take in all, the verification of its hits included.
    """

    def __init__(
        self,
        tiers: Sequence[Tier[VectorStore]],
        embed: EmbeddingProvider,
        trust: TrustPolicy,
        audience: str,
        deadline: float = 10.0,
    ) -> None:
        self._tiers = tiers
        self._embed = embed
        self._trust = trust
        self._audience = audience
        self._deadline = deadline

    async def search(self, query: SearchQuery) -> SearchReply:
        """Embed the query, ask each tier, fuse, apply precedence, verify, and answer.

        A tier that fails costs at most its deadline, from the first question to the last hit that is verified, and is
        named in the reply; it never makes the reply silently shorter. Raises `UsageError` for a query that makes no
        sense, `EmbeddingError` when the model fails.
        """
        check(query)
        asked = [_Asked(tier) for tier in self._tiers]
        found = await self._ask(query, asked)
        recency = Recency(query.half_life_days, datetime.now(UTC)) if query.half_life_days else None
        alpha = DEFAULT_ALPHA if query.alpha is None else query.alpha
        ranked = groups(fuse(found, alpha, depth_of(query), recency))
        hits, refused = await self._verify(ranked, query.limit, asked)
        refused += [hit for a in asked for hit in self._unreadable(a)]
        await asyncio.gather(*(self._remember(a) for a in asked))
        return SearchReply(query, tuple(hits), tuple(a.outcome() for a in asked), tuple(refused))

    async def _ask(self, query: SearchQuery, asked: Sequence[_Asked]) -> list[Found]:
        terms = query_terms(query.text)
        embedding = asyncio.ensure_future(self._embed.query(query.text))
        await asyncio.gather(*(self._count(a, terms) for a in asked))
        vector = await embedding
        statistics = sum((a.statistics for a in asked if a.state == "ok"), CollectionStatistics())
        question = StoreQuery(vector, terms, statistics, query.filters, str(self._embed.fingerprint), depth_of(query))
        await asyncio.gather(*(self._candidates(a, question) for a in asked if a.state == "ok"))
        return [Found(a.tier.name, a.tier.rank, a.candidates.plan, c) for a in asked for c in a.candidates.items]

    async def _count(self, asked: _Asked, terms: Sequence[str]) -> None:
        async def count() -> CollectionStatistics:
            counting = asyncio.ensure_future(asked.tier.store.statistics(terms))
            try:
                await self._look(asked)  # rides beside the count: no round trip more
                return check_statistics(await counting)
            finally:
                counting.cancel()
                await asyncio.gather(counting, return_exceptions=True)

        asked.statistics = await self._guard(asked, count()) or asked.statistics

    async def _look(self, asked: _Asked) -> None:
        """Hold what a registry says of itself against what is remembered; what it revoked counts nowhere from here."""
        if asked.tier.witness:
            asked.look = await asked.tier.witness.look()
            self._trust = asked.look.narrow(self._trust)

    async def _remember(self, asked: _Asked) -> None:
        if asked.look:
            try:
                await asyncio.to_thread(asked.look.keep)
            except KiwiError as error:
                asked.state, asked.error = "error", error

    async def _candidates(self, asked: _Asked, question: StoreQuery) -> None:
        async def search() -> Candidates:
            return check_candidates(await asked.tier.store.search(question), question)

        asked.candidates = await self._guard(asked, search()) or asked.candidates
        if asked.candidates.refused:
            asked.state = "refused"

    async def _guard(self, asked: _Asked, call: Awaitable[_T]) -> _T | None:
        """Await a store, a stranger's code: whatever it raises becomes the tier's outcome.

        Only a tier's own time counts against it: one that waits for a slower one is not late.
        """
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._left(asked)):
                return await call
        except TimeoutError:
            self._time_out(asked)
        except FingerprintMismatch as error:
            asked.state, asked.error = "stale", error
        except RegistryContradicted as error:
            asked.state, asked.error = "refused", error
        except KiwiError as error:
            asked.state, asked.error = "error", error
        except Exception as error:  # noqa: BLE001  # a store is a stranger's code here; this becomes a typed outcome
            asked.state, asked.error = "error", KiwiError(f"{type(error).__name__}: {error}")
        finally:
            asked.seconds += time.monotonic() - started
        return None

    def _left(self, asked: _Asked) -> float:
        return max(self._deadline - asked.seconds, 0.001)

    def _time_out(self, asked: _Asked) -> None:
        asked.state = "timeout"
        asked.error = KiwiError(f"no answer within {self._deadline:g} s", hint="raise KIWI_DEADLINE")

    async def _verify(
        self, ranked: Sequence[Group], limit: int, asked: Sequence[_Asked]
    ) -> tuple[list[SearchResult], list[RefusedHit]]:
        """Take groups best first; one whose winner does not verify goes back with the next tier's entry in front."""
        by_name = {a.tier.name: a for a in asked}
        queue = [(order(group.winner), group) for group in ranked]
        heapq.heapify(queue)
        hits: list[SearchResult] = []
        refused: list[RefusedHit] = []
        while queue and len(hits) < limit:
            _, group = heapq.heappop(queue)
            try:
                hit = await self._verify_group(group, by_name)
            except _FellSilent:
                by_name[group.winner.found.tier].unverified += 1
            except KiwiError as error:
                refused.append(self._refuse(group.winner, error, by_name))
            else:
                hits.extend([hit] if hit else [])
                continue
            rest = group.without_winner()
            if rest.entries:
                heapq.heappush(queue, (order(rest.winner), rest))
        return hits, refused

    async def _verify_group(self, group: Group, asked: dict[str, _Asked]) -> SearchResult | None:
        """Return the group's hit, or None when a tier that was asked holds an item that shadows it unseen."""
        winner = group.winner
        tier = asked[winner.found.tier].tier
        if await self._shadowed(winner, tier, asked):
            return None
        item = await self._fetch(winner, asked[tier.name])
        passage = verified_passage(item, winner.found.candidate)
        same, shadows = await self._others(group, item, asked)
        signed, signer = item.verified.statement, item.verified.signer
        return SearchResult(
            ref=signed.ref,
            tier=tier.name,
            tiers=(tier.name, *same),
            shadows=shadows,
            passage=passage,
            metadata=signed.metadata,
            score=winner.score,
            parts=winner.parts,
            digest=item.stored.digest,
            key_id=signer.key_id,
            principal=signer.principal,
            signed_at=signed.signed_at,
            path=str(path_of(tier.root, signed.ref)) if tier.root else "",  # the index's own word is not signed
            private=item.stored.private,
        )

    async def _fetch(self, entry: Scored, asked: _Asked) -> VerifiedItem:
        """Return a hit's item, verified, within what is left of its tier's time.

        Raises
        ------
        _FellSilent
            When the tier stopped answering, now or before.
        KiwiError
            When the hit does not verify.
        """
        return await self._in_time(asked, self._verified(entry.found.candidate.ref, asked))

    async def _verified(self, ref: ItemRef, asked: _Asked) -> VerifiedItem:
        tier = asked.tier
        stored = await self._get(tier, ref)
        if stored is None:
            raise Refused(f"{ref} left the {tier.name} tier while it was being searched")
        item = verify_stored(stored, ref, self._trust, self._audience, tier.policy)
        if asked.look:
            signer, model = item.verified.signer, str(self._embed.fingerprint)
            await asked.look.vet(stored, signer.key_id, newest=True, found_by=model)
        return item

    async def _in_time(self, asked: _Asked, call: Coroutine[Any, Any, _T]) -> _T:
        """Await a step of verifying. A tier that does not get through it has not answered: no hit is at fault.

        Raises
        ------
        _FellSilent
            When the tier's time is over, or it cannot be reached any more.
        """
        if not asked.answers:
            call.close()
            raise _FellSilent
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._left(asked)):
                return await call
        except TimeoutError as error:
            self._time_out(asked)
            raise _FellSilent from error
        except RegistryUnreachable as error:
            asked.state, asked.error = "error", error
            raise _FellSilent from error
        finally:
            asked.seconds += time.monotonic() - started

    async def _get(self, tier: Tier[VectorStore], ref: ItemRef) -> StoredItem | None:
        try:
            return await tier.store.get(ref)
        except (KiwiError, TimeoutError):
            raise
        except Exception as error:  # a stranger's code, as in `_guard`: it costs this hit, not the reply
            raise StoreError(f"the {tier.name} tier failed: {type(error).__name__}: {error}") from error

    async def _shadowed(self, entry: Scored, tier: Tier[VectorStore], asked: dict[str, _Asked]) -> bool:
        """Whether a tier before `tier` holds a verified item of this id, which did not match the query itself."""
        ref = replace(entry.found.candidate.ref, version=None)
        before = [a for a in asked.values() if a.tier.rank < tier.rank and ref.key not in a.refused]
        for higher in before:
            with suppress(_FellSilent):  # as if it had not answered from the start
                stored = await self._in_time(higher, self._get(higher.tier, ref))
                if stored is not None and self._verifies(stored, higher.tier):
                    return True
        return False

    def _verifies(self, stored: StoredItem, tier: Tier[VectorStore]) -> bool:
        try:
            verify_stored(stored, stored.ref, self._trust, self._audience, tier.policy)
        except Refused:
            return False
        return True

    async def _others(
        self, group: Group, item: VerifiedItem, asked: dict[str, _Asked]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the tiers with the same content, and those whose other content this hit shadows."""
        same, shadows = [], []
        for entry in group.entries[1:]:
            name = entry.found.tier
            if not asked[name].answers:
                continue
            if entry.found.candidate.content_sha256 == item.stored.content_sha256:
                same.append(name)
                continue
            with suppress(_FellSilent):
                shadows.append(await self._shadow_name(entry, item, asked[name]))
        return tuple(same), tuple(shadows)

    async def _shadow_name(self, entry: Scored, item: VerifiedItem, asked: _Asked) -> str:
        name = asked.tier.name
        try:
            principal = (await self._fetch(entry, asked)).verified.signer.principal
        except KiwiError:
            return f"{name}!unverified"
        return name if principal == item.verified.signer.principal else f"{name}!{principal}"

    def _refuse(self, entry: Scored, error: KiwiError, asked: dict[str, _Asked]) -> RefusedHit:
        candidate, tier = entry.found.candidate, asked[entry.found.tier]
        hit = RefusedHit(candidate.ref, tier.tier.name, error.code, error.message)
        if tier.answers:
            tier.state = "refused"
        tier.refused.add(candidate.ref.key)
        self._record(hit, candidate.digest, candidate.key_id, tier)
        return hit

    def _unreadable(self, asked: _Asked) -> Sequence[RefusedHit]:
        """Return what a store left out because it cannot be read, each written to the audit log."""
        for hit in asked.candidates.refused:
            self._record(hit, "", "", asked)
        return asked.candidates.refused

    def _record(self, hit: RefusedHit, digest: str, key_id: str, asked: _Asked) -> None:
        try:
            details = {"tier": hit.tier, "reason": hit.code}
            asked.tier.audit.append("hit-refused", str(hit.ref), digest, key_id, details)
        except StoreCorrupt as broken:
            asked.error = broken


def check(query: SearchQuery) -> None:
    """Raise `UsageError` when a query makes no sense."""
    if not query.text.strip():
        raise UsageError("the query is empty", hint='kiwi search "roll back a deploy"')
    if len(query.text) > MAX_QUERY_CHARACTERS:
        raise UsageError(f"the query is over {MAX_QUERY_CHARACTERS} characters")
    if not 1 <= query.limit <= MAX_LIMIT:
        raise UsageError(f"limit {query.limit} is not between 1 and {MAX_LIMIT}")
    if query.alpha is not None and not 0 <= query.alpha <= 1:
        raise UsageError(f"alpha {query.alpha:g} is not between 0 (words only) and 1 (vectors only)")
    if query.half_life_days is not None and not query.half_life_days >= 0:
        raise UsageError("half_life_days is not a number from 0 up")


def depth_of(query: SearchQuery) -> int:
    """Return how many passages each leg gives: enough that `limit` items remain after grouping."""
    return max(LEG_DEPTH, query.limit * 10)
