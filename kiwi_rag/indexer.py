"""The registry's trusted side: what was published is admitted again, embedded, and made searchable.

Several indexers may work at once, in one process or many: each claims an item for the transaction in which it stores
it, so that none does what another does, none waits for another, and what a killed one had claimed is free again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeVar

from kiwi_rag import ingest
from kiwi_rag.errors import (
    EmbeddingError,
    FingerprintMismatch,
    KiwiError,
    MalformedEnvelope,
    ModelUnavailable,
    Refused,
    RegistryUnreachable,
    Rejected,
)
from kiwi_rag.ingest import Writer
from kiwi_rag.model import Admission, Envelope
from kiwi_rag.passages import split
from kiwi_rag.refs import ItemRef
from kiwi_rag.registry.retry import persistently
from kiwi_rag.signing import statement
from kiwi_rag.stores.base import PublishingStore
from kiwi_rag.stores.claim import Claim
from kiwi_rag.tiers import Tier
from kiwi_rag.validation.manager import ValidationManager, candidate_of

_In = TypeVar("_In")
_Out = TypeVar("_Out")
LANES = 3
"""Items under way at once: while one is embedded, another is stored and a third is judged."""
_BUSY_SECONDS = 0.2
_LONGEST_PAUSE = 30.0
_ITEM_SECONDS = 600.0  # embedding included; the server frees a claim after as long


@dataclass(frozen=True, slots=True)
class Failed:
    """An item that could not be made searchable, and why; noted in the registry, and tried again later."""

    ref: str
    error: KiwiError


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The registry went away; the indexer tries again after `pause` seconds."""

    error: RegistryUnreachable
    pause: float


Outcome = ItemRef | Failed


async def index_pending(
    to: Tier[PublishingStore], writer: Writer, *, patient: bool = False, lanes: int = LANES
) -> AsyncGenerator[Outcome]:
    """Make what waits in a registry searchable, oldest first; yield each outcome as soon as it is durable.

    Unless it is patient, it returns once everything that waited is indexed or was tried, by this indexer or another.

    Parameters
    ----------
    patient
        Leave what failed before until its time has come, and what another indexer has to that one.

    Raises
    ------
    FingerprintMismatch
        When the registry wants no vectors of this model.
    RegistryRefused
        When the connection's role may not act as ``kiwi_indexer``.
    RegistryUnreachable
        When it cannot be reached; running it again goes on where it stopped.
    """
    run, after = _Run(to, writer, patient), 0
    while batch := await to.store.pending(str(writer.embed.fingerprint), after=after):
        after = batch[-1][0]
        async with aclosing(run.index([envelope for _, envelope in batch], lanes)) as outcomes:
            async for outcome in outcomes:
                yield outcome
    while run.busy and not patient:
        await asyncio.sleep(_BUSY_SECONDS)
        again, run.busy = run.busy, []
        async with aclosing(run.index(again, lanes)) as outcomes:
            async for outcome in outcomes:
                yield outcome


async def watch(
    to: Tier[PublishingStore], writer: Writer, stop: asyncio.Event, *, every: float = 30.0
) -> AsyncIterator[Outcome | Unreachable]:
    """Index what waits, then whatever is published, until `stop` is set.

    Word of a publication comes at once over a connection that listens. What that misses (an item whose time to be
    tried again has come, one that a yank brought back or a killed indexer left, a pooler that passes nothing on) is
    found every `every` seconds. A registry that goes away is tried again after a second, then ever less often.
    """
    pause = 1.0
    while not stop.is_set():
        try:
            async with to.store.listening() as heard:
                while not stop.is_set():
                    async for outcome in _until(stop, index_pending(to, writer, patient=True)):
                        yield outcome
                    pause = 1.0
                    await _first(stop.wait(), heard(every))
        except RegistryUnreachable as error:
            yield Unreachable(error, pause)
            await _first(stop.wait(), asyncio.sleep(pause))
            pause = min(2 * pause, _LONGEST_PAUSE)


async def index_admitted(admission: Admission, to: Tier[PublishingStore], writer: Writer) -> bool:
    """Make an item searchable that this process just admitted and published; False if another indexer has it."""

    async def once() -> bool:
        async with to.store.claim(admission.digest, str(writer.embed.fingerprint)) as claim:
            if claim.state == "claimed":
                await _embed(admission, claim, writer)
            return claim.state != "busy"

    return await persistently(once, seconds=_ITEM_SECONDS)


async def in_order(work: Callable[[_In], Awaitable[_Out]], items: Iterable[_In], lanes: int) -> AsyncGenerator[_Out]:
    """Yield ``work(item)`` for each of `items` in their order, up to `lanes` of them under way at once.

    When the caller stops early, or one raises, the others are cancelled and waited for.
    """
    places = asyncio.Semaphore(lanes)
    under_way: deque[asyncio.Task[_Out]] = deque()

    async def placed(item: _In) -> _Out:
        async with places:
            return await work(item)

    try:
        for item in items:
            under_way.append(asyncio.create_task(placed(item)))
            if len(under_way) > 2 * lanes:
                yield await under_way.popleft()
        while under_way:
            yield await under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


def as_of_arrival(gate: ValidationManager, claim: Claim) -> ValidationManager:
    """Return the gate as it judged when the item arrived: a signature does not grow too old by lying in a registry."""
    moment = claim.received_at
    return ValidationManager(gate.trust, gate.audience, lambda: moment) if moment else gate


@dataclass(slots=True)
class _Run:
    """One pass over what waits; ``busy`` collects what others had claimed when it was their turn."""

    to: Tier[PublishingStore]
    writer: Writer
    patient: bool
    busy: list[Envelope] = field(default_factory=list)

    async def index(self, envelopes: Sequence[Envelope], lanes: int) -> AsyncGenerator[Outcome]:
        async with aclosing(in_order(self._persistently, envelopes, lanes)) as outcomes:
            async for outcome in outcomes:
                if outcome is not None:
                    yield outcome

    async def _persistently(self, envelope: Envelope) -> Outcome | None:
        return await persistently(lambda: self._once(envelope), seconds=_ITEM_SECONDS)

    async def _once(self, envelope: Envelope) -> Outcome | None:
        if not envelope.payload:
            return Failed("an item", MalformedEnvelope("what waits in the registry cannot be read as an envelope"))
        digest, model = statement.digest_of(envelope), str(self.writer.embed.fingerprint)
        async with self.to.store.claim(digest, model, patient=self.patient) as claim:
            if claim.state == "busy":
                self.busy.append(envelope)
            return await self._claimed(envelope, claim) if claim.state == "claimed" else None

    async def _claimed(self, envelope: Envelope, claim: Claim) -> Outcome:
        ref = statement.digest_of(envelope)
        try:
            candidate = candidate_of(envelope)
            ref = candidate.path
            admission = await ingest.admit_stored(candidate, self.to, as_of_arrival(self.writer.gate, claim))
            await _embed(admission, claim, self.writer)
        except (FingerprintMismatch, ModelUnavailable):
            raise  # not this item's fault
        except (Refused, EmbeddingError) as error:
            await claim.set_back(_problem(error))
            return Failed(ref, error)
        return admission.ref


def _problem(error: KiwiError) -> str:
    if isinstance(error, Rejected):
        return "; ".join(f"{f.code}: {f.message}" for f in error.findings if f.is_error)
    return f"{error.code}: {error.message}"


async def _embed(admission: Admission, claim: Claim, writer: Writer) -> None:
    await claim.store(await ingest.embed(admission, split(admission.item), writer))


async def _until(stop: asyncio.Event, outcomes: AsyncGenerator[Outcome]) -> AsyncIterator[Outcome]:
    """Yield outcomes until there are no more or `stop` is set; what is under way then is given up, and free again."""
    stopping = asyncio.ensure_future(stop.wait())
    async with aclosing(outcomes):
        try:
            while True:
                step = asyncio.ensure_future(anext(outcomes, None))
                await asyncio.wait((step, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not step.done():
                    step.cancel()
                    await asyncio.gather(step, return_exceptions=True)
                    return
                if (outcome := step.result()) is None:
                    return
                yield outcome
        finally:
            stopping.cancel()


async def _first(*waits: Awaitable[object]) -> None:
    """Wait for the first of several; the others are cancelled; raise what it raises."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
