"""Verification of ranked hits: each is fetched, verified, and compared with the other tiers before it is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from kiwi_rag.collection import Collection
from kiwi_rag.errors import KiwiError, Refused, StoreError, TierTimedOut
from kiwi_rag.formats.source import path_of
from kiwi_rag.model import (
    ItemRef,
    ItemState,
    ItemType,
    Passage,
    RefusedHit,
    SearchQuery,
    SearchResult,
    StoredItem,
    VersionConflict,
)
from kiwi_rag.search.ranking import RankedHit
from kiwi_rag.search.state import find_conflict
from kiwi_rag.search.tier_query import Key, TierQuery
from kiwi_rag.search.verify import VerifiedItem, verify_passage, verify_stored
from kiwi_rag.signing.trust import TrustPolicy

MAX_NAMED = 20
"""Duplicates of a hit that are named, and verified if the choice of hits did not reach them; the others are counted."""


MEASURED_MODEL = "all-MiniLM-L6-v2"
"""The model that the floors were measured with, in both of its profiles (docs/search.md has the figures)."""


class Verifier:
    """Verifies hits, each item once a search, and collects what it refuses.

    Parameters
    ----------
    tier_queries
        The tiers, their answers and what is left of their time; failures are recorded there.
    trusts
        Tier → whose statements are accepted.
    model
        The fingerprint of the model that the query was embedded with.
    """

    def __init__(self, tier_queries: Sequence[TierQuery], trusts: Mapping[str, TrustPolicy], model: str) -> None:
        self._tier_queries = {tq.tier.name: tq for tq in sorted(tier_queries, key=lambda tq: tq.tier.rank)}
        self._trusts = trusts
        self._model = model
        self._items: dict[tuple[str, ItemRef, str], asyncio.Task[VerifiedItem]] = {}
        self._found: dict[tuple[str, Key], tuple[RankedHit, VerifiedItem]] = {}
        self.refused: list[RefusedHit] = []

    @cached_property
    def principals(self) -> Mapping[str, str]:
        """Key id → principal, of all signers that a tier accepts."""
        return {key: signer.principal for trust in self._trusts.values() for key, signer in trust.by_key.items()}

    async def fetch(self, hits: Sequence[RankedHit]) -> None:
        """Fetch and verify several items at once; `verify` then finds them done."""
        # `verify` meets the same exceptions, and reports them.
        await asyncio.gather(*(self._unshadowed_item(hit) for hit in hits), return_exceptions=True)

    async def verify(self, hit: RankedHit) -> SearchResult | None:
        """Return the hit, verified, or None where there is none to show.

        None: it does not verify, its tier stopped answering, or a nearer tier has an item that shadows it and that did
        not match the query.
        """
        tier_query = self._tier_queries[hit.tier]
        try:
            if item := await self._unshadowed_item(hit):
                self._found[hit.tier, hit.candidate.ref.key] = hit, item
                return _result(hit, item, verify_passage(item, hit.candidate), tier_query.tier.root)
        except TierTimedOut:
            tier_query.unverified.add(hit.candidate.ref.key)
        except KiwiError as error:
            self._refuse(hit, error, tier_query)
        return None

    def found(self, hit: SearchResult) -> tuple[VerifiedItem, Collection]:
        """Return the verified item or document of a hit that `verify` returned, and its tier."""
        return self._found[hit.tier, hit.ref.key][1], self._tier_queries[hit.tier].tier

    async def complete(self, hit: SearchResult, duplicates: Sequence[str], state: ItemState) -> SearchResult:
        """Return a hit as it is shown, with the tiers that have the same content, and those that it shadows."""
        same, shadows, conflict = await self._compare(hit)
        return replace(
            hit,
            tiers=(hit.tier, *same),
            shadows=tuple(shadows),
            duplicates=tuple(duplicates[:MAX_NAMED]),
            more_duplicates=max(len(duplicates) - MAX_NAMED, 0),
            state=state,
            conflict=conflict,
        )

    def failures(self) -> int:
        """Return how many items failed verification so far."""
        return sum(len(tq.refused) + len(tq.unverified) for tq in self._tier_queries.values())

    async def _item(self, ref: ItemRef, tier_query: TierQuery, file: str = "") -> VerifiedItem:
        """Return an item, verified, within what is left of its tier's time.

        Raises
        ------
        TierTimedOut
            When the tier stopped answering, now or before.
        KiwiError
            When the item does not verify.
        """
        key = tier_query.tier.name, ref, file
        if key not in self._items:
            self._items[key] = asyncio.create_task(tier_query.in_time(self._get_verified(ref, tier_query, file)))
        return await self._items[key]

    async def _get_verified(self, ref: ItemRef, tier_query: TierQuery, file: str) -> VerifiedItem:
        tier = tier_query.tier
        is_document = ref.item_type is ItemType.DOCUMENT
        stored = await _get(tier_query, ref, () if is_document else (ref.main_file, *([file] if file else [])))
        if stored is None:
            raise Refused(f"{ref} was removed from the {tier.name} tier during the search")
        item = verify_stored(stored, ref, self._trusts[tier.name], tier)
        if tier_query.consistency:
            key_id = item.signer.key_id
            await tier_query.consistency.check_consistency(stored, key_id, newest=True, found_by=self._model)
        return item

    async def _unshadowed_item(self, hit: RankedHit) -> VerifiedItem | None:
        """Return a hit's item, verified; None where a nearer tier has one of the id, which did not match the query."""
        ref = replace(hit.candidate.ref, version=None)
        for nearer in self._tier_queries.values():
            if nearer.tier.rank < hit.rank and ref.key not in nearer.refused:
                with suppress(TierTimedOut, Refused):  # a tier without an answer or a verified item shadows nothing
                    await self._item(ref, nearer)
                    return None
        return await self._item(hit.candidate.ref, self._tier_queries[hit.tier], hit.candidate.passage.file)

    async def _compare(self, hit: SearchResult) -> tuple[list[str], list[str], VersionConflict | None]:
        """Compare a hit with the other tiers.

        Returns the tiers that have the same content, those whose other content under the id it shadows, and the
        conflict of its version where that has other content in another tier.
        """
        shadowed = {other.tier: other.candidate.ref for other in self._found[hit.tier, hit.ref.key][0].shadowed}
        same, shadows = list[str](), list[str]()
        contents = [(self._tier_queries[hit.tier].tier, hit.content_sha256)]
        for name, tier_query in self._tier_queries.items():
            try:
                item = await self._item_of(hit, tier_query, shadowed.get(name)) if name != hit.tier else None
            except TierTimedOut:
                continue
            except KiwiError:
                shadows += [f"{name}!unverified"] if name in shadowed else []
                continue
            if item is None:
                continue
            if item.signed.ref.version == hit.ref.version:
                contents.append((tier_query.tier, item.stored.content_sha256))
            if name in shadowed and item.stored.content_sha256 == hit.content_sha256:
                same.append(name)
            elif name in shadowed:
                principal = item.signer.principal
                shadows.append(name if principal == hit.principal else f"{name}!{principal}")
        return same, shadows, find_conflict(hit.ref, contents) if len(contents) > 1 else None

    async def _item_of(self, hit: SearchResult, tier_query: TierQuery, found: ItemRef | None) -> VerifiedItem | None:
        """Return the item of a hit's id that another tier has, verified: the one `found`, or one of a local tier.

        A registry is not queried for what it did not report as a candidate: that would be a call for each hit.
        """
        if not tier_query.answers:
            return None
        if found is None and (tier_query.tier.root is None or not await self._differs(hit, tier_query)):
            return None
        return await self._item(found or hit.ref, tier_query)

    async def _differs(self, hit: SearchResult, tier_query: TierQuery) -> bool:
        """Whether a local tier ever had other content of the version; if not, which is usual, no item is read."""
        history = await tier_query.in_time(tier_query.tier.store.history(hit.ref))
        return history.get(hit.ref.version or "", hit.content_sha256) != hit.content_sha256

    def _refuse(self, hit: RankedHit, error: KiwiError, tier_query: TierQuery) -> None:
        candidate = hit.candidate
        refused = RefusedHit(candidate.ref, hit.tier, error.code, error.message)
        if refused in self.refused:  # another passage of the same document
            return
        if tier_query.answers:
            tier_query.state = "refused"
        tier_query.refused.add(candidate.ref.key)
        tier_query.record(refused, candidate.digest, candidate.key_id)
        self.refused.append(refused)


def _result(hit: RankedHit, item: VerifiedItem, passage: Passage, root: Path | None) -> SearchResult:
    """Return a verified hit, without what depends on other hits and tiers."""
    stored, signed, signer = item.stored, item.signed, item.signer
    is_document = hit.candidate.ref.item_type is ItemType.DOCUMENT
    ref = hit.candidate.ref if is_document else signed.ref
    main = path_of(root, ref) if root and not is_document else None  # made from what was verified
    own = passage.file or ref.item_id if is_document else ""  # of a document, it may be a file that it includes
    path = str(main.parent / passage.file if passage.file else main) if main else own
    return SearchResult(
        ref=ref, tier=hit.tier, tiers=(hit.tier,), shadows=(), passage=passage, metadata=signed.metadata,
        score=hit.score, parts=hit.parts, digest=stored.digest, key_id=signer.key_id, principal=signer.principal,
        signed_at=signed.signed_at, path=path, private=stored.private, content_sha256=stored.content_sha256,
        content_key=signed.content_key, passages=len(signed.passages) if is_document else stored.passages,
        included=tuple(sorted(signed.digests.keys() - {ref.item_id})) if is_document else (),
    )  # fmt: skip


async def _get(tier_query: TierQuery, ref: ItemRef, files: Sequence[str]) -> StoredItem | None:
    try:
        async with tier_query.fetch_slots:
            return await tier_query.tier.store.get(ref, files)
    except (KiwiError, TimeoutError):
        raise
    except Exception as error:  # a store may be foreign code: its failure costs this hit, not the reply
        name = tier_query.tier.name
        raise StoreError(f"the {name} tier failed: {type(error).__name__}: {error}") from error


@dataclass
class Choice:
    """The choice of a search among the candidates of its tiers; a subclass ranks and chooses.

    ``hits`` are those of the last round, unordered. ``kind`` is the recognised intent of the query. ``gone`` are paths
    of documents whose file no longer exists. ``seconds`` is what ranking took. ``signers`` counts those of the best
    items, ``cap`` is how many hits one may have (None: any number), and ``suppressed`` counts the better hits that were
    left out for it. ``floor`` is the score below which the best hit is not close to the query.
    """

    floor: ClassVar[float]
    query: SearchQuery
    tier_queries: Sequence[TierQuery]
    verifier: Verifier
    hits: list[SearchResult] = field(default_factory=list)
    kind: str = ""
    gone: list[str] = field(default_factory=list)
    seconds: float = 0.0
    signers: int = 0
    cap: int | None = None
    suppressed: int = 0

    def is_close(self, model: str) -> bool | None:
        """Return whether the best hit reaches the floor.

        None with another model, other weights, an age prior, or passages without a vector.
        """
        query = self.query
        if any(tq.statistics.unembedded for tq in self.tier_queries):
            return None
        is_measured = model.startswith(MEASURED_MODEL) and self.is_comparable and query.fusion == "convex"
        if not self.hits or not is_measured or query.alpha is not None or query.weights or query.half_life_days:
            return None
        return max(hit.score for hit in self.hits) >= self.floor

    @property
    def is_comparable(self) -> bool:
        """Whether the scores of all tiers are more than an order, and can be compared with each other."""
        return all(tq.tier.store.capabilities.scores for tq in self.tier_queries)
