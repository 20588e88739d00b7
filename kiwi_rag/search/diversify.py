"""The choice among items: the best verified ones, each content once, and a bounded number from one signer.

Of documents, passages with nearly the same text are recognised here (`CopyIndex`).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from kiwi_rag.collection import RANKS
from kiwi_rag.lexical import max_term_score
from kiwi_rag.model import FusionMethod, FusionWeights, SearchResult, StoreQuery
from kiwi_rag.search.hits import MAX_NAMED, Choice
from kiwi_rag.search.ranking import Fusion, RankedHit, Recency, apply_shadowing, fuse, sort_key, weights_of
from kiwi_rag.search.state import read_states
from kiwi_rag.search.tier_query import FETCHED_AT_ONCE, collect_candidates

SIGNERS_FOR_A_CAP = 3
"""From so many signers among the best items on, one gets half of the hits at most, unless the query says otherwise."""

NEAR = 0.8
"""The share of an item's score that another one needs to count as nearly as good.

Only such an item may replace one that the cap keeps out, and only signers of items nearly as good as the best count
towards a cap: variety does not justify an answer that matches far worse.
"""


@dataclass
class ItemChoice(Choice):
    """The choice among the items of several tiers, ranked together.

    ``_duplicates`` maps a content key to verified hits with that content which are not shown; ``_named`` to the
    addresses of further items that resemble them. ``_capped`` are the hits kept out by the cap, best first, and
    ``_copies`` are duplicates as the tiers report them. Who signed an item is certain only after verification; the key
    id that its tier reports decides no more than whether it is verified now or later.
    """

    floor = 0.465
    _duplicates: dict[str, list[SearchResult]] = field(init=False)
    _named: dict[str, list[str]] = field(init=False)
    _capped: list[RankedHit] = field(init=False)
    _copies: list[RankedHit] = field(init=False)

    @property
    def weights(self) -> FusionWeights:
        """The query's, or the tuned ones."""
        return weights_of(self.query)

    @property
    def fusion(self) -> FusionMethod:
        """By ranks as soon as the scores of one tier cannot be compared with those of others."""
        return self.query.fusion if self.is_comparable else "rrf"

    async def choose(self, store_query: StoreQuery) -> None:
        """Choose hits, until no further item fails verification: a failed item must not influence others' ranks."""
        failures = -1
        while self.verifier.failures() != failures:
            failures = self.verifier.failures()
            ranked = self._rank(store_query)
            self.signers = count_near_signers(ranked, self.verifier.principals)
            self.cap = resolve_cap(self.query.per_signer, self.query.limit, self.signers)
            self.hits, self._duplicates, self._named, self._capped, self._copies = [], {}, {}, [], []
            await self._fill(ranked)

    async def finish(self) -> tuple[SearchResult, ...]:
        """Return the hits as they are shown, best first."""
        best_first = sorted(self.hits, key=sort_key)
        states = await asyncio.to_thread(read_states, [self.verifier.found(hit) for hit in best_first])
        pairs = zip(best_first, states, strict=True)
        completed = (self.verifier.complete(hit, self._addresses(hit), state) for hit, state in pairs)
        return tuple(await asyncio.gather(*completed))

    def _rank(self, store_query: StoreQuery) -> list[RankedHit]:
        started = time.monotonic()
        half_life = self.query.half_life_days
        recency = Recency(half_life, datetime.now(UTC)) if half_life else None
        rarest = max_term_score(store_query.statistics)
        fusion = Fusion(self.weights, rarest, self.fusion, recency, self.is_comparable)
        ranked = apply_shadowing(fuse(collect_candidates(self.tier_queries), store_query.depth, fusion))
        self.seconds += time.monotonic() - started
        return ranked

    @property
    def _missing(self) -> int:
        """How many hits are missing."""
        return self.query.limit - len(self.hits)

    async def _fill(self, ranked: Sequence[RankedHit]) -> None:
        """Choose hits, best first; no much worse hit replaces a better one because of the cap."""
        unread = await self._select(sorted(ranked, key=sort_key))
        last = max(map(sort_key, self.hits), default=None)
        self.suppressed = sum(last is not None and sort_key(hit) < last for hit in self._capped)
        await self._add_duplicates([*self._capped, *self._copies, *unread])

    def _is_full(self, principal: str) -> bool:
        """Whether this signer has as many hits as it may have."""
        return self.cap is not None and sum(hit.principal == principal for hit in self.hits) >= self.cap

    def _has_enough_duplicates(self, hit: RankedHit) -> bool:
        """Whether a hit resembles a chosen one of its tier that has `MAX_NAMED` duplicates.

        The chosen hit must be of the same tier: no tier's unverified metadata may keep out what another tier has.
        """
        return any(
            chosen.tier == hit.tier
            and len(self._duplicates.get(chosen.content_key, ())) >= MAX_NAMED
            and _likeness(chosen.metadata) == _likeness(hit.candidate.metadata)
            for chosen in self.hits
        )

    def _add(self, hit: SearchResult, *, capped: bool = True) -> bool:
        """Add a hit, or merge it with the one of the same content; return False where its signer reached the cap."""
        same = next((i for i, other in enumerate(self.hits) if other.content_key == hit.content_key), None)
        if same is None:
            if capped and self._is_full(hit.principal):
                return False
            self.hits.append(hit)
            return True
        first, second = sorted((self.hits[same], hit), key=_precedence)
        if first.tier == second.tier and second.score > first.score:  # one tier ranked the copy higher
            first = replace(first, score=second.score, parts=second.parts)
        self.hits[same] = first
        self._duplicates.setdefault(hit.content_key, []).append(second)
        return True

    def _addresses(self, hit: SearchResult) -> list[str]:
        """Return the addresses of a hit's duplicates, in the order of the tiers, unverified ones last."""
        duplicates = self._duplicates.get(hit.content_key, ())
        verified = sorted(duplicates, key=lambda one: (RANKS[one.tier], one.address))
        return [*(one.address for one in verified), *self._named.get(hit.content_key, ())]

    async def _select(self, best_first: Sequence[RankedHit]) -> Sequence[RankedHit]:
        """Verify and add hits, best first, until there are enough; return those that were not needed."""
        position = fetched = 0
        while self._missing and position < len(best_first):
            if position == fetched:  # fetch ahead: one request after another would add up the tiers' latencies
                fetched += max(self._missing, FETCHED_AT_ONCE)
                await self.verifier.fetch([hit for hit in best_first[position:fetched] if self._may_be_added(hit)])
            await self._add_first(self._capped, best_first[position].score)
            if self._missing:
                await self._consider(best_first[position])
                position += 1
        await self._add_first(self._capped)
        if self._missing:  # the content of duplicates may differ from what the tier reported
            await self.verifier.fetch(self._copies)
        await self._add_first(self._copies)
        return best_first[position:]

    def _may_be_added(self, hit: RankedHit) -> bool:
        principal = self.verifier.principals.get(hit.candidate.key_id, "")
        return not self._is_full(principal) and not self._has_enough_duplicates(hit)

    async def _consider(self, hit: RankedHit) -> None:
        if self._has_enough_duplicates(hit):
            self._copies.append(hit)
            return
        verified = await self.verifier.verify(hit) if (may_be_added := self._may_be_added(hit)) else None
        if not may_be_added or (verified and not self._add(verified)):
            self._capped.append(hit)

    async def _add_first(self, hits: list[RankedHit], score: float = -math.inf) -> None:
        """Verify and add the first hits, in comparison with which an item of this score is not nearly as good."""
        while self._missing and hits and score < NEAR * hits[0].score:
            if verified := await self.verifier.verify(hits.pop(0)):
                self._add(verified, capped=False)

    async def _add_duplicates(self, others: Sequence[RankedHit]) -> None:
        """Add those of the other hits that have a chosen hit's content, the oldest first.

        Up to `MAX_NAMED` of those that resemble a chosen hit are verified. Further ones are only named, and not if one
        of the verified ones has other content.
        """
        chosen = {_likeness(hit.metadata): hit.content_key for hit in self.hits}
        alike = [hit for hit in others if _likeness(hit.candidate.metadata) in chosen]
        alike.sort(key=lambda hit: (hit.rank, hit.candidate.signed_at))
        await self.verifier.fetch(alike[:MAX_NAMED])
        verified = [await self.verifier.verify(hit) for hit in alike[:MAX_NAMED]]
        copies = [hit for hit in verified if hit and hit.content_key in chosen.values()]
        for copy in copies:
            self._add(copy)
        for hit in alike[MAX_NAMED:] if len(copies) == len(verified) else ():
            content = chosen[_likeness(hit.candidate.metadata)]
            self._named.setdefault(content, []).append(f"{hit.candidate.ref}@{hit.tier}")


def _precedence(hit: SearchResult) -> tuple[int, datetime, str, str]:
    """Return what decides which of two items with the same content is shown: the tier, then who signed it first.

    Not the score: otherwise a copy under a better name would replace its original.
    """
    return RANKS[hit.tier], hit.signed_at, hit.ref.item_type.value, hit.ref.item_id


def count_near_signers(ranked: Sequence[RankedHit], principals: Mapping[str, str]) -> int:
    """Return how many signers there are among the items that are nearly as good as the best one."""
    least = NEAR * max((hit.score for hit in ranked), default=0.0)
    key_ids = (hit.candidate.key_id for hit in ranked if hit.score >= least)
    return len({principals.get(key_id) for key_id in key_ids} - {None})


def resolve_cap(per_signer: int | None, limit: int, signers: int) -> int | None:
    """Return how many hits one signer may have; None for any number.

    The default (`per_signer` None) is half of the hits once there are `SIGNERS_FOR_A_CAP` signers; 0 means no cap.
    """
    if per_signer is None:
        return (limit + 1) // 2 if signers >= SIGNERS_FOR_A_CAP else None
    return per_signer or None


def _likeness(metadata: Mapping[str, object]) -> str:
    """Return what copies of an item have in common before they are fetched: the signed metadata without the name."""
    return repr([(name, metadata[name]) for name in sorted(metadata) if name != "name"])  # a third of JSON's time


COPY_SHARE = 0.9
"""The share of the words of two passages that both must have, for one to be a copy of the other (Jaccard index)."""


class CopyIndex:
    """The texts of the chosen passages, by which copies of them are found: equal ones, or with a few other words.

    Two sets of that Jaccard index have a word in common among the first few of each, in any order of all words (prefix
    filtering: Bayardo, Ma and Srikant, "Scaling Up All Pairs Similarity Search", 2007). Long words are put first here:
    few texts have them, so that few texts are compared.
    """

    def __init__(self) -> None:
        self._texts: list[frozenset[str]] = []
        self._with_word: dict[str, list[int]] = {}

    def add(self, text: str) -> None:
        """Add the text of the next passage that was chosen."""
        words = frozenset(text.split())
        for word in _first_words(words):
            self._with_word.setdefault(word, []).append(len(self._texts))
        self._texts.append(words)

    def find(self, text: str) -> int | None:
        """Return the number of the first chosen passage of which `text` is a copy, from 0; None if there is none."""
        words = frozenset(text.split())
        possible = {number for word in _first_words(words) for number in self._with_word.get(word, ())}
        return next((number for number in sorted(possible) if _are_copies(words, self._texts[number])), None)


def _are_copies(words: frozenset[str], others: frozenset[str]) -> bool:
    common = len(words & others)
    return common >= COPY_SHARE * (len(words) + len(others) - common)


def _first_words(words: frozenset[str]) -> list[str]:
    needed = len(words) - math.ceil(COPY_SHARE * len(words)) + 1
    return sorted(words, key=lambda word: (-len(word), word))[:needed]
