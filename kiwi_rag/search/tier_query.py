"""The query of one tier, and the requests that a search makes to several of them.

`TierQuery` holds what one tier answered, the time it took, and how it failed. The functions below it query all tiers
concurrently: `prepare_query` (statistics, corrections and the query's vector), `fetch_candidates`, `fetch_deeper`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from kiwi_rag.collection import Collection
from kiwi_rag.embedding import EmbeddingProvider
from kiwi_rag.errors import FingerprintMismatch, KiwiError, RegistryContradicted, RegistryUnreachable, TierTimedOut
from kiwi_rag.lexical import query_terms
from kiwi_rag.model import (
    Candidates,
    CollectionStatistics,
    ItemType,
    RefusedHit,
    SearchQuery,
    StoreQuery,
    TierOutcome,
    Vector,
)
from kiwi_rag.model.search import TierState
from kiwi_rag.retry import CallLimit
from kiwi_rag.search import corrections
from kiwi_rag.search.ranking import RankedHit
from kiwi_rag.search.verify import check_candidates, check_statistics
from kiwi_rag.symbols import symbol_terms
from kiwi_rag.telemetry import span
from kiwi_rag.validation.audit import AuditEvent

if TYPE_CHECKING:
    from kiwi_rag.monitor.monitor import ConsistencyCheck

_T = TypeVar("_T")
Key = tuple[ItemType, str]
Step = Literal["statistics", "candidates", "verification"]

FETCHED_AT_ONCE = 4
"""Items that are fetched from one tier at the same time; a registry needs a connection for each."""
STOPPING_SECONDS = 0.3
"""How long a cancelled call may take to clean up. A driver that asks a silent server to cancel would take ten."""
LEG_DEPTH = 100
"""Passages that each leg of a tier returns at first."""
_STATES: Mapping[type[Exception], TierState] = {
    TimeoutError: "timeout", FingerprintMismatch: "stale", RegistryContradicted: "refused",
}  # fmt: skip


@dataclass(slots=True)
class TierQuery:
    """The query of one tier: its answers so far, and its state.

    ``deadline`` is the seconds that the tier may take in all. Only its own time counts against it, so a tier that waits
    for a slower one is not late. ``seconds`` holds the time of each step. ``consistency`` is the comparison of a
    registry's answers with the pinned state. ``refused`` names items that did not verify, ``unverified`` those that
    were not verified because the tier stopped answering. ``fetch_slots`` bounds how many items are fetched at once.
    """

    tier: Collection
    deadline: float
    state: TierState = "ok"
    error: KiwiError | None = None
    statistics: CollectionStatistics = field(default_factory=CollectionStatistics)
    candidates: Candidates = field(default_factory=lambda: Candidates((), ""))
    seconds: dict[str, float] = field(default_factory=dict)
    consistency: ConsistencyCheck | None = None
    refused: set[Key] = field(default_factory=set)
    unverified: set[Key] = field(default_factory=set)
    fetch_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(FETCHED_AT_ONCE), repr=False)
    _begun: float = field(default_factory=time.monotonic, init=False, repr=False)
    _running: int = field(default=0, init=False, repr=False)
    _since: float = field(default=0.0, init=False, repr=False)

    @property
    def answers(self) -> bool:
        """Whether the tier has answered everything so far; a registry that contradicts itself has not."""
        return self.state in ("ok", "refused") and not isinstance(self.error, RegistryContradicted)

    async def guard(self, step: Step, call: Coroutine[Any, Any, _T]) -> _T | None:
        """Await a call of a store. Whatever it raises becomes the tier's outcome, and None is returned."""
        try:
            return await self._limited(step, call)
        except Exception as error:  # noqa: BLE001  # a store may be foreign code; this becomes a typed outcome
            self.fail(error)
            return None

    async def in_time(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Await a step of verification. If the tier fails in it, the tier has not answered, and no hit is refused.

        Raises
        ------
        TierTimedOut
            When the tier's time is over, or it cannot be reached any more.
        """
        if not self.answers:
            call.close()
            raise TierTimedOut
        try:
            return await self._limited("verification", call)
        except (TimeoutError, RegistryUnreachable) as error:
            self.fail(error)
            raise TierTimedOut from error

    def fail(self, error: Exception) -> None:
        """Record the failure of a call as the tier's outcome."""
        self.state = next((state for kind, state in _STATES.items() if isinstance(error, kind)), "error")
        if isinstance(error, TimeoutError):
            error = KiwiError(f"no answer within {self.deadline:g} s", hint="raise KIWI_DEADLINE")
        self.error = error if isinstance(error, KiwiError) else KiwiError(f"{type(error).__name__}: {error}")

    def record(self, hit: RefusedHit, digest: str = "", key_id: str = "") -> None:
        """Write a refused hit to the audit log of this machine."""
        try:
            details = {"tier": hit.tier, "reason": hit.code}
            self.tier.audit.append(AuditEvent("hit-refused", str(hit.ref), digest, key_id, details))
        except KiwiError as broken:
            self.error = broken

    def outcome(self) -> TierOutcome:
        """Return how the tier answered."""
        error = dict(self.error.as_dict()) if self.error else None
        if error and self.unverified:
            count = len(self.unverified)
            hits = "1 hit was" if count == 1 else f"{count} hits were"
            error["message"] = f"{error['message']}; {hits} not verified in time, and left out"
        rows, plan, seconds = len(self.candidates.items), self.candidates.plan, dict(self.seconds)
        about = self.tier.name, self.state, sum(seconds.values())
        return TierOutcome(*about, rows, plan, error, seconds, self.statistics)

    async def _limited(self, step: Step, call: Coroutine[Any, Any, _T]) -> _T:
        seconds = self._left()
        limit = CallLimit(self._begun, time.monotonic() + seconds)
        task = limit.start(call)
        try:
            with span("kiwi.store", tier=self.tier.name, step=step) as set_attributes, self._clock(step):
                await asyncio.wait({task}, timeout=seconds)
                if not task.done():
                    await _stop(task)
                    raise limit.error()
                if isinstance(result := task.result(), Candidates):  # nothing that quotes the query or its results
                    set_attributes(plan=result.plan, rows=len(result.items))
                return result
        finally:
            task.cancel()

    def _left(self) -> float:
        running = time.monotonic() - self._since if self._running else 0.0
        return max(self.deadline - sum(self.seconds.values()) - running, 0.001)

    @contextmanager
    def _clock(self, step: Step) -> Iterator[None]:
        """Measure the time of a step; calls that run at the same time count once."""
        self._running += 1
        if self._running == 1:
            self._since = time.monotonic()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self.seconds[step] = self.seconds.get(step, 0.0) + time.monotonic() - self._since


async def _stop(task: asyncio.Task[Any]) -> None:
    """Cancel a call, up to three times; one that still cleans up after that is left to end by itself.

    A driver may catch the first cancellation and ask its server to cancel, which a silent server never answers.
    """
    for _ in range(3):
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=STOPPING_SECONDS)
        if done:
            with suppress(asyncio.CancelledError):
                task.exception()  # retrieved, so that asyncio does not log it as never retrieved
            return


async def prepare_query(
    query: SearchQuery,
    tier_queries: Sequence[TierQuery],
    embed: EmbeddingProvider,
    begun: Awaitable[Vector] | None = None,
) -> tuple[StoreQuery, dict[str, str], float]:
    """Embed a query, unless that has `begun`, and fetch every tier's statistics meanwhile.

    Over items words that occur in no tier are corrected. Returns the query for the stores, the corrections
    (word → the word to search for), and the seconds that the embedding took.
    """
    is_workspace = any(tq.tier.workspace for tq in tier_queries)
    symbols = symbol_terms(query.text) if is_workspace else ()
    terms, corrected = (*query_terms(query.text), *symbols), dict[str, str]()
    embedding = asyncio.ensure_future(_embed(tier_queries, lambda: begun or embed.query(query.text)))
    statistics = await fetch_statistics(tier_queries, terms)
    if not is_workspace:  # identifiers of code are not misspelt words
        terms, corrected = await correct_terms(tier_queries, query.text, terms, statistics)
    vector, seconds = await embedding
    depth = max(LEG_DEPTH, query.limit * 10)  # enough passages that `limit` items remain after grouping by item
    about = merge_statistics(tier_queries), query.filters, str(embed.fingerprint)
    return StoreQuery(vector, terms, *about, depth), corrected, seconds


async def fetch_statistics(tier_queries: Sequence[TierQuery], terms: Sequence[str]) -> CollectionStatistics:
    """Fetch every tier's statistics, and begin a registry's consistency check beside them; return their sum."""
    await asyncio.gather(*(_fetch_statistics(tq, terms) for tq in tier_queries))
    return merge_statistics(tier_queries)


async def correct_terms(
    tier_queries: Sequence[TierQuery], text: str, terms: tuple[str, ...], statistics: CollectionStatistics
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Correct the words that occur in no tier; return the terms to search for, and word → its correction.

    Without such words no tier is queried.
    """
    if not (unknown := corrections.find_unknown_terms(text, statistics)):
        return terms, {}
    calls = (tq.guard("statistics", tq.tier.store.similar_terms(tuple(unknown))) for tq in tier_queries if tq.answers)
    options = corrections.collect_options(unknown, filter(None, await asyncio.gather(*calls)))
    answering = [tq for tq in tier_queries if tq.answers]
    frequencies = await fetch_statistics(answering, [*dict.fromkeys((*terms, *chain.from_iterable(options.values())))])
    chosen = corrections.choose_corrections(options, frequencies)
    corrected = corrections.replace_terms(terms, chosen)
    for tq in tier_queries:  # the options that were not chosen must not count as terms of the query
        frequency = {t: df for t, df in tq.statistics.document_frequency.items() if t in corrected}
        tq.statistics = replace(tq.statistics, document_frequency=frequency)
    return corrected, {unknown[term]: option for term, option in chosen.items()}


async def fetch_candidates(tier_queries: Sequence[TierQuery], store_query: StoreQuery) -> StoreQuery:
    """Fetch the candidates of every tier that answers; return the query with the statistics that were used in the end.

    The statistics of a tier that fails now must not influence the others' scores: the candidates are fetched again with
    statistics without it, so that the hits are those of a search that never included it.
    """
    while True:
        answering = [tq for tq in tier_queries if tq.answers]
        store_query = replace(store_query, statistics=merge_statistics(answering))
        await asyncio.gather(*(_fetch_candidates(tq, store_query) for tq in answering))
        if merge_statistics(tier_queries) == store_query.statistics:
            return store_query


async def fetch_deeper(tier_queries: Sequence[TierQuery], store_query: StoreQuery, depth: int) -> StoreQuery:
    """Fetch more candidates of each leg from those tiers that returned as many as they were asked for."""
    deeper, before = replace(store_query, depth=depth), merge_statistics(tier_queries)
    full = [tq for tq in tier_queries if tq.answers and len(tq.candidates.items) >= store_query.depth]
    await asyncio.gather(*(_fetch_candidates(tq, deeper) for tq in full))
    return deeper if merge_statistics(tier_queries) == before else await fetch_candidates(tier_queries, deeper)


def merge_statistics(tier_queries: Sequence[TierQuery]) -> CollectionStatistics:
    """Return the sum of the statistics of the tiers that answer."""
    return sum((tq.statistics for tq in tier_queries if tq.answers), CollectionStatistics())


def collect_candidates(tier_queries: Sequence[TierQuery]) -> list[RankedHit]:
    """Return the candidates of all tiers, without items that failed verification."""
    return [
        RankedHit(tq.tier.name, tq.tier.rank, tq.candidates.plan, c)
        for tq in tier_queries
        for c in tq.candidates.items
        if not (failed := tq.refused | tq.unverified) or c.ref.key not in failed
    ]


async def _embed(tier_queries: Sequence[TierQuery], query: Callable[[], Awaitable[Vector]]) -> tuple[Vector, float]:
    """Return the vector of a query and the seconds that it took; an empty one where there is none to compare with."""
    started = time.monotonic()
    if not any(await asyncio.gather(*map(_may_have_vectors, tier_queries))):
        import numpy as np

        return np.empty(0, np.float32), 0.0
    return await query(), time.monotonic() - started


async def _may_have_vectors(tier_query: TierQuery) -> bool:
    """Whether a tier may have vectors: only local documents are stored without."""
    words_first = tier_query.tier.words_first
    return words_first is None or await tier_query.guard("statistics", words_first.has_vectors()) is not False


async def _fetch_statistics(tier_query: TierQuery, terms: Sequence[str]) -> None:
    async def fetch() -> CollectionStatistics:
        tier = tier_query.tier
        statistics = asyncio.ensure_future(tier.store.statistics(terms))
        try:
            if tier.monitor and tier_query.consistency is None:
                # Concurrent with the statistics, so the check costs no additional round trip.
                tier_query.consistency = await tier.monitor.check()
            return check_statistics(await statistics)
        finally:
            statistics.cancel()
            await asyncio.gather(statistics, return_exceptions=True)

    tier_query.statistics = await tier_query.guard("statistics", fetch()) or tier_query.statistics


async def _fetch_candidates(tier_query: TierQuery, store_query: StoreQuery) -> None:
    async def fetch() -> Candidates:
        store = tier_query.tier.store
        return check_candidates(await store.search(store_query), store_query, comparable=store.capabilities.scores)

    tier_query.candidates = await tier_query.guard("candidates", fetch()) or Candidates((), "")
    if tier_query.candidates.refused and tier_query.answers:
        tier_query.state = "refused"
