"""One tier while it is being searched: what it answered, the time it took, and how it failed if it did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from kiwi_rag.collection import Look, Tier
from kiwi_rag.embedding.base import EmbeddingProvider
from kiwi_rag.errors import (
    FingerprintMismatch,
    KiwiError,
    RegistryContradicted,
    RegistryUnreachable,
    StoreCorrupt,
    TierTimedOut,
)
from kiwi_rag.lexical import query_terms
from kiwi_rag.model import Candidates, CollectionStatistics, RefusedHit, SearchQuery, StoreQuery, TierOutcome, TierState
from kiwi_rag.model.refs import ItemType
from kiwi_rag.search import corrections as typos
from kiwi_rag.search.ranking import TierCandidate
from kiwi_rag.search.verify import check_candidates, check_statistics
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.telemetry import span

if TYPE_CHECKING:
    from kiwi_rag.model import Vector

_T = TypeVar("_T")
Key = tuple[ItemType, str]
Step = Literal["statistics", "candidates", "verification"]


FETCHED_AT_ONCE = 4
"""Items that one tier is asked for at the same time; a registry needs a connection for each."""
STOPPING_SECONDS = 0.3
"""What a call that is stopped may take to clean up; a driver that asks a silent server to stop would take ten."""


@dataclass(slots=True)
class TierQuery:
    """What is known so far of one tier's answer.

    ``deadline`` is the seconds that it may take in all; only its own time counts against it, so one that waits for a
    slower one is not late. ``seconds`` tells where they went. ``refused`` names its items that did not verify,
    ``unverified`` those that it gave, and then fell silent. ``places`` bounds how many items are fetched at once.
    """

    tier: Tier[VectorStore]
    deadline: float
    state: TierState = "ok"
    error: KiwiError | None = None
    statistics: CollectionStatistics = field(default_factory=CollectionStatistics)
    candidates: Candidates = field(default_factory=lambda: Candidates((), ""))
    seconds: dict[str, float] = field(default_factory=dict)
    look: Look | None = None
    refused: set[Key] = field(default_factory=set)
    unverified: set[Key] = field(default_factory=set)
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(FETCHED_AT_ONCE), repr=False)
    _running: int = field(default=0, init=False, repr=False)
    _since: float = field(default=0.0, init=False, repr=False)

    @property
    def answers(self) -> bool:
        """Whether the tier has answered everything so far; a registry that contradicts itself is believed nothing."""
        return self.state in ("ok", "refused") and not isinstance(self.error, RegistryContradicted)

    async def guard(self, step: Step, call: Coroutine[Any, Any, _T]) -> _T | None:
        """Await a store, a stranger's code: whatever it raises becomes the tier's outcome, and None is returned."""
        try:
            return await self._limited(step, call)
        except TimeoutError:
            self._time_out()
        except FingerprintMismatch as error:
            self.state, self.error = "stale", error
        except RegistryContradicted as error:
            self.state, self.error = "refused", error
        except KiwiError as error:
            self.state, self.error = "error", error
        except Exception as error:  # noqa: BLE001  # a store is a stranger's code here; this becomes a typed outcome
            self.state, self.error = "error", KiwiError(f"{type(error).__name__}: {error}")
        return None

    async def in_time(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Await a step of verifying. A tier that does not get through it has not answered: no hit is at fault.

        Raises
        ------
        FellSilent
            When the tier's time is over, or it cannot be reached any more.
        """
        if not self.answers:
            call.close()
            raise TierTimedOut
        try:
            return await self._limited("verification", call)
        except TimeoutError as error:
            self._time_out()
            raise TierTimedOut from error
        except RegistryUnreachable as error:
            self.state, self.error = "error", error
            raise TierTimedOut from error

    def record(self, hit: RefusedHit, digest: str = "", key_id: str = "") -> None:
        """Write a refused hit to the audit log of this machine."""
        try:
            details = {"tier": hit.tier, "reason": hit.code}
            self.tier.audit.append("hit-refused", str(hit.ref), digest, key_id, details)
        except StoreCorrupt as broken:
            self.error = broken

    def outcome(self) -> TierOutcome:
        """Return how the tier answered."""
        error = dict(self.error.as_dict()) if self.error else None
        if error and self.unverified:
            count = len(self.unverified)
            hits = "1 hit was" if count == 1 else f"{count} hits were"
            error["message"] = f"{error['message']}; {hits} not verified in time, and left out"
        told = self.candidates
        timings = dict(self.seconds)
        whole = sum(timings.values())
        return TierOutcome(
            self.tier.name, self.state, whole, len(told.items), told.plan, error, timings, self.statistics
        )

    async def _limited(self, step: Step, call: Coroutine[Any, Any, _T]) -> _T:
        with span("kiwi.store", tier=self.tier.name, step=step) as note:
            task = asyncio.ensure_future(call)
            try:
                with self._clock(step):
                    await asyncio.wait({task}, timeout=self._left())
                    if task.done():
                        result = task.result()
                        note(**_told(result))
                        return result
                    await _stop(task)
            finally:
                task.cancel()
            raise TimeoutError

    def _left(self) -> float:
        running = time.monotonic() - self._since if self._running else 0.0
        return max(self.deadline - sum(self.seconds.values()) - running, 0.001)

    def _time_out(self) -> None:
        self.state = "timeout"
        self.error = KiwiError(f"no answer within {self.deadline:g} s", hint="raise KIWI_DEADLINE")

    @contextmanager
    def _clock(self, step: Step) -> Iterator[None]:
        """Count the time of a step; what runs at the same time counts once."""
        self._running += 1
        if self._running == 1:
            self._since = time.monotonic()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self.seconds[step] = self.seconds.get(step, 0.0) + time.monotonic() - self._since


def _told(result: object) -> dict[str, str | int]:
    """Return what a span may tell of an answer."""
    return {"plan": result.plan, "rows": len(result.items)} if isinstance(result, Candidates) else {}


async def _stop(task: asyncio.Task[Any]) -> None:
    """Stop a call; one that cleans up politely for too long is told again, and left to itself in the end."""
    for _ in range(3):
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=STOPPING_SECONDS)
        if done:
            with suppress(asyncio.CancelledError):
                task.exception()  # looked at: nobody is to be told of it later
            return


LEG_DEPTH = 100


async def ask_first(
    query: SearchQuery, asked: Sequence[TierQuery], embed: EmbeddingProvider, *, mend: bool = True
) -> tuple[StoreQuery, dict[str, str], float]:
    """Embed a query, and ask every tier for its statistics meanwhile.

    With `mend` words that nobody holds are read as near ones. Returns the question to ask for candidates, word → what
    it is read as, and the seconds that embedding took.
    """
    terms = query_terms(query.text)
    embedding = asyncio.ensure_future(_embedded(query.text, embed))
    statistics = await ask_statistics(asked, terms)
    terms, corrections = await ask_again(asked, query.text, terms, statistics) if mend else (terms, {})
    vector, seconds = await embedding
    question = StoreQuery(vector, terms, merged(asked), query.filters, str(embed.fingerprint), depth_of(query))
    return question, corrections, seconds


async def ask_statistics(asked: Sequence[TierQuery], terms: Sequence[str]) -> CollectionStatistics:
    """Ask every tier for its statistics, and a registry for what it says of itself beside it; return their sum."""
    await asyncio.gather(*(_count(a, terms) for a in asked))
    return merged(asked)


async def ask_again(
    asked: Sequence[TierQuery], text: str, terms: tuple[str, ...], statistics: CollectionStatistics
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Ask for what was meant by words that are nowhere; return the terms to search for, and word → what it is read as.

    Nothing is asked when every word is known.
    """
    unknown = typos.unknown_terms(text, statistics)
    if not unknown:
        return terms, {}
    similar = await asyncio.gather(*(_similar(a, tuple(unknown)) for a in asked if a.answers))
    options = typos.options(unknown, similar)
    known = await ask_statistics([a for a in asked if a.answers], [*terms, *typos.asked_for(options)])
    chosen = typos.choose(options, known)
    meant = typos.reread(terms, chosen)
    for a in asked:
        frequency = {t: df for t, df in a.statistics.document_frequency.items() if t in meant}
        a.statistics = replace(a.statistics, document_frequency=frequency)
    return meant, {unknown[term]: option for term, option in chosen.items()}


async def ask_candidates(asked: Sequence[TierQuery], question: StoreQuery) -> StoreQuery:
    """Ask every tier that answers for its candidates; return the question as it was asked in the end.

    A tier that fails now has no say in the others' scores either: where its statistics counted, they are asked again
    without it, so that their hits are those of a search that never knew of it.
    """
    while True:
        answering = [a for a in asked if a.answers]
        question = replace(question, statistics=merged(answering))
        await asyncio.gather(*(_candidates(a, question) for a in answering))
        if merged(asked) == question.statistics:
            return question


async def ask_deeper(asked: Sequence[TierQuery], question: StoreQuery, depth: int) -> StoreQuery:
    """Ask for more candidates of each leg those tiers that gave as many as they were asked for."""
    deeper, before = replace(question, depth=depth), merged(asked)
    full = [a for a in asked if a.answers and len(a.candidates.items) >= question.depth]
    await asyncio.gather(*(_candidates(a, deeper) for a in full))
    return deeper if merged(asked) == before else await ask_candidates(asked, deeper)


def merged(asked: Sequence[TierQuery]) -> CollectionStatistics:
    """Return the sum of the statistics of the tiers that answer."""
    return sum((a.statistics for a in asked if a.answers), CollectionStatistics())


def found(asked: Sequence[TierQuery]) -> list[TierCandidate]:
    """Return every candidate that a tier gave and that did not turn out to be none, with the tier that gave it."""
    return [
        TierCandidate(a.tier.name, a.tier.rank, a.candidates.plan, c)
        for a in asked
        for c in a.candidates.items
        if c.ref.key not in a.refused and c.ref.key not in a.unverified
    ]


def depth_of(query: SearchQuery) -> int:
    """Return how many passages each leg gives: enough that `limit` items remain after grouping."""
    return max(LEG_DEPTH, query.limit * 10)


async def _embedded(text: str, embed: EmbeddingProvider) -> tuple[Vector, float]:
    started = time.monotonic()
    return await embed.query(text), time.monotonic() - started


async def _count(asked: TierQuery, terms: Sequence[str]) -> None:
    async def count() -> CollectionStatistics:
        counting = asyncio.ensure_future(asked.tier.store.statistics(terms))
        try:
            if asked.tier.witness and asked.look is None:
                asked.look = await asked.tier.witness.check()  # rides beside the count: no round trip more
            return check_statistics(await counting)
        finally:
            counting.cancel()
            await asyncio.gather(counting, return_exceptions=True)

    asked.statistics = await asked.guard("statistics", count()) or asked.statistics


async def _similar(asked: TierQuery, terms: Sequence[str]) -> Mapping[str, Sequence[str]]:
    async def ask() -> Mapping[str, Sequence[str]]:
        return await asked.tier.store.similar_terms(terms)

    return await asked.guard("statistics", ask()) or {}


async def _candidates(asked: TierQuery, question: StoreQuery) -> None:
    async def search() -> Candidates:
        store = asked.tier.store
        return check_candidates(await store.search(question), question, comparable=store.capabilities.scores)

    asked.candidates = await asked.guard("candidates", search()) or Candidates((), "")
    if asked.candidates.refused and asked.answers:
        asked.state = "refused"
