"""The registry's trusted side: what was published is admitted again, embedded, and made searchable.

Several indexers may work at once, in one process or many: each claims an item for the transaction in which it stores
it, so that none does what another does, none waits for another, and what a killed one had claimed is free again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from kiwi_rag.chunking import split
from kiwi_rag.collection import Tier
from kiwi_rag.errors import (
    EmbeddingError,
    FingerprintMismatch,
    KiwiError,
    MalformedEnvelope,
    ModelUnavailable,
    Refused,
    RegistryError,
    RegistryOutdated,
    RegistryRefused,
    RegistryUnreachable,
    Rejected,
)
from kiwi_rag.ingest.pipeline import LANES, IngestContext, admit_stored, bounded_map, cancel_all, embed
from kiwi_rag.model import Admission, Envelope
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.registry.calls import ANSWER_SECONDS, with_retries
from kiwi_rag.signing import statement
from kiwi_rag.stores.base import Claim, PublishingStore
from kiwi_rag.telemetry import span
from kiwi_rag.validation.manager import ValidationManager, candidate_of, ref_of

EMBEDDING_SECONDS = 540.0
"""How long the model may take for one item: less than the ten minutes after which the server frees a silent claim."""
_BUSY_SECONDS = 0.2
_LONGEST_PAUSE = 30.0
_UNUSABLE = "KW017"  # the registry's code for passages that it cannot store


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
    to: Tier[PublishingStore], writer: IngestContext, *, patient: bool = False, lanes: int = LANES
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
    to: Tier[PublishingStore], writer: Callable[[], IngestContext], stop: asyncio.Event, *, every: float = 30.0
) -> AsyncGenerator[Outcome | Unreachable]:
    """Index what waits, then whatever is published, until `stop` is set.

    `writer` is asked before each pass, so that a signer who was trusted meanwhile counts.

    Word of a publication comes at once over a connection that listens. What that misses (an item whose time to be
    tried again has come, one that a yank brought back or a killed indexer left, a pooler that passes nothing on) is
    found every `every` seconds. A registry that goes away is tried again after a second, then ever less often.
    """
    pause = 1.0
    while not stop.is_set():
        try:
            async with to.store.listening() as heard:
                while not stop.is_set():
                    async with aclosing(_until(stop, index_pending(to, writer(), patient=True))) as outcomes:
                        async for outcome in outcomes:
                            yield outcome
                    pause = 1.0
                    await _first(stop.wait(), heard(every))
        except RegistryUnreachable as error:
            yield Unreachable(error, pause)
            await _first(stop.wait(), asyncio.sleep(pause))
            pause = min(2 * pause, _LONGEST_PAUSE)


async def index_admitted(admission: Admission, to: Tier[PublishingStore], writer: IngestContext) -> bool:
    """Make an item searchable that this process just admitted and published, unless it has vectors or needs none.

    Returns False if another indexer has it.
    """

    async def once() -> bool:
        async with to.store.claim(admission.digest, str(writer.embed.fingerprint)) as claim:
            if claim.state == "claimed":
                await _embed(admission, claim, writer)
            return claim.state != "busy"

    return await with_retries(once, seconds=_item_seconds())


def as_of_arrival(gate: ValidationManager, claim: Claim) -> ValidationManager:
    """Return the gate as it judged when the item arrived: a signature does not grow too old by lying in a registry."""
    moment = claim.received_at
    return ValidationManager(gate.trust, gate.audience, lambda: moment) if moment else gate


@dataclass(slots=True)
class _Run:
    """One pass over what waits; ``busy`` collects what others had claimed when it was their turn."""

    to: Tier[PublishingStore]
    writer: IngestContext
    patient: bool
    busy: list[Envelope] = field(default_factory=list)

    async def index(self, envelopes: Sequence[Envelope], lanes: int) -> AsyncGenerator[Outcome]:
        async with aclosing(bounded_map(self._persistently, envelopes, lanes)) as outcomes:
            async for outcome in outcomes:
                if outcome is not None:
                    yield outcome

    async def _persistently(self, envelope: Envelope) -> Outcome | None:
        if not envelope.payload:
            return Failed("an item", MalformedEnvelope("what waits in the registry cannot be read as an envelope"))
        try:
            return await with_retries(lambda: self._once(envelope), seconds=_item_seconds())
        except RegistryError as error:
            if not is_of_one_item(error):
                raise
            failed = Failed(_name(envelope), error)
        await with_retries(lambda: self._set_back(envelope, failed.error))
        return failed

    async def _once(self, envelope: Envelope) -> Outcome | None:
        digest, model = statement.digest_of(envelope), str(self.writer.embed.fingerprint)
        async with self.to.store.claim(digest, model, patient=self.patient) as claim:
            if claim.state == "busy":
                self.busy.append(envelope)
            return await self._claimed(envelope, claim) if claim.state == "claimed" else None

    async def _claimed(self, envelope: Envelope, claim: Claim) -> Outcome:
        try:
            candidate = candidate_of(envelope)
            history = await claim.history(ref_of(candidate))
            gate = as_of_arrival(self.writer.gate, claim)
            admission = await admit_stored(candidate, history, self.to, gate)
            await _embed(admission, claim, self.writer)
        except (Refused, EmbeddingError) as error:
            if not is_of_one_item(error):
                raise
            await claim.requeue(_problem(error))
            return Failed(_name(envelope), error)
        return admission.ref

    async def _set_back(self, envelope: Envelope, error: KiwiError) -> None:
        """Set an item back in a transaction of its own: the registry's error undid the claim's."""
        digest, model = statement.digest_of(envelope), str(self.writer.embed.fingerprint)
        async with self.to.store.claim(digest, model) as claim:
            if claim.state == "claimed":
                await claim.requeue(_problem(error))


def is_of_one_item(error: KiwiError) -> bool:
    """Whether an error in making an item searchable is about this item, so that the others can go on."""
    if isinstance(error, RegistryRefused):
        return error.state == _UNUSABLE
    if isinstance(error, RegistryError):
        return not error.transient and not isinstance(error, RegistryUnreachable | RegistryOutdated)
    return not isinstance(error, FingerprintMismatch | ModelUnavailable)


def _item_seconds() -> float:
    return EMBEDDING_SECONDS + ANSWER_SECONDS


def _name(envelope: Envelope) -> str:
    try:
        return candidate_of(envelope).path
    except Refused:
        return statement.digest_of(envelope)


def _problem(error: KiwiError) -> str:
    if isinstance(error, Rejected):
        return "; ".join(f"{f.code}: {f.message}" for f in error.findings if f.is_error)
    return f"{error.code}: {error.message}"


async def _embed(admission: Admission, claim: Claim, writer: IngestContext) -> None:
    try:
        async with asyncio.timeout(EMBEDDING_SECONDS):
            records = await embed(admission, split(admission.item), writer)
    except TimeoutError as error:
        hint = "a shorter item, a smaller model or a faster machine helps"
        raise EmbeddingError(f"the model took over {EMBEDDING_SECONDS:g} s for one item", hint=hint) from error
    with span("kiwi.store", tier="registry", step="upsert", passages=len(records)):
        await claim.store(records)


async def _until(stop: asyncio.Event, outcomes: AsyncGenerator[Outcome]) -> AsyncGenerator[Outcome]:
    """Yield outcomes until there are no more or `stop` is set; what is under way then is given up, and free again."""
    stopping = asyncio.ensure_future(stop.wait())
    under_way: list[asyncio.Future[Any]] = [stopping]
    async with aclosing(outcomes):
        try:
            while True:
                step = asyncio.ensure_future(anext(outcomes, None))
                under_way[1:] = [step]
                await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                if not step.done() or (outcome := step.result()) is None:
                    return
                yield outcome
        finally:  # a generator cannot be closed while a step of it runs
            await cancel_all(under_way)


async def _first(*waits: Awaitable[object]) -> None:
    """Wait for the first of several; the others are cancelled; raise what it raises."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await cancel_all(tasks)
