"""One tier while it is being searched: what it answered, the time it took, and how it failed if it did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from kiwi_rag.errors import (
    FellSilent,
    FingerprintMismatch,
    KiwiError,
    RegistryContradicted,
    RegistryUnreachable,
    StoreCorrupt,
)
from kiwi_rag.model import Candidates, CollectionStatistics, RefusedHit, TierOutcome, TierState
from kiwi_rag.refs import ItemType
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.telemetry import span
from kiwi_rag.tiers import Look, Tier

_T = TypeVar("_T")
Key = tuple[ItemType, str]
Step = Literal["statistics", "candidates", "verification"]


FETCHED_AT_ONCE = 4
"""Items that one tier is asked for at the same time; a registry needs a connection for each."""
STOPPING_SECONDS = 0.3
"""What a call that is stopped may take to clean up; a driver that asks a silent server to stop would take ten."""


@dataclass(slots=True)
class Asked:
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
            raise FellSilent
        try:
            return await self._limited("verification", call)
        except TimeoutError as error:
            self._time_out()
            raise FellSilent from error
        except RegistryUnreachable as error:
            self.state, self.error = "error", error
            raise FellSilent from error

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
