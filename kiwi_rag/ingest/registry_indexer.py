"""The registry's indexer and the audit of its index: published items are admitted again, embedded and made searchable.

Several indexers may work concurrently, in one process or many. Each claims an item for the transaction in which it
stores it. So no work is done twice, no indexer waits for another, and the claim of a killed indexer is released. The
audit admits and embeds items again and compares them with what is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kiwi_rag.chunking import split
from kiwi_rag.collection import Collection
from kiwi_rag.embedding.weights import INT8_MODEL
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
from kiwi_rag.ingest import CONCURRENCY, IngestContext, bounded_map, embed
from kiwi_rag.model import Admission, EmbeddingRecord, Envelope, ItemRef
from kiwi_rag.registry.calls import ANSWER_SECONDS, time_limit
from kiwi_rag.registry.rows import IndexedItem, StoredPassage
from kiwi_rag.retry import attempts
from kiwi_rag.signing import statement
from kiwi_rag.sources.source import describe_error
from kiwi_rag.symbols import passage_terms
from kiwi_rag.telemetry import span
from kiwi_rag.validation.manager import ValidationManager, candidate_of

if TYPE_CHECKING:
    from kiwi_rag.stores.postgres import RegistryClaim, RegistryVectorStore

EMBEDDING_SECONDS = 540.0
"""How long the model may take for one item: less than the ten minutes after which the server releases an idle claim."""
_BUSY_SECONDS = 0.2
_LONGEST_PAUSE = 30.0
_UNUSABLE_PASSAGES = "KW017"  # the registry's SQLSTATE for passages that it cannot store


@dataclass(frozen=True, slots=True)
class Failed:
    """An item that could not be made searchable, and why; the registry records it, and it is tried again later."""

    ref: str
    error: KiwiError


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The registry cannot be reached; the indexer tries again after `pause` seconds."""

    error: RegistryUnreachable
    pause: float


Outcome = ItemRef | Failed


async def index_pending(
    to: Collection[RegistryVectorStore], writer: IngestContext, *, patient: bool = False, concurrency: int = CONCURRENCY
) -> AsyncGenerator[Outcome]:
    """Make a registry's waiting items searchable, oldest first; yield each outcome as soon as it is durable.

    Unless `patient`, it returns once every waiting item was indexed or tried, by this indexer or another.

    Parameters
    ----------
    patient
        Skip items that failed until they are due again, and items that another indexer has claimed.

    Raises
    ------
    FingerprintMismatch
        When the registry's vectors are those of another model.
    RegistryRefused
        When the connection's role may not act as ``kiwi_indexer``.
    RegistryUnreachable
        When it cannot be reached; the next run continues where this one stopped.
    """
    run, after = _Run(to, writer, patient), 0
    while True:
        if batch := await to.store.client.pending_items(str(writer.embed.fingerprint), after=after):
            after, envelopes = batch[-1][0], [envelope for _, envelope in batch]
        elif run.busy and not patient:  # claimed by others: wait until those have indexed them, or failed
            await asyncio.sleep(_BUSY_SECONDS)
            envelopes, run.busy = run.busy, []
        else:
            return
        async with aclosing(bounded_map(run.index, envelopes, concurrency)) as outcomes:
            async for outcome in outcomes:
                if outcome is not None:
                    yield outcome


async def watch(
    to: Collection[RegistryVectorStore], writer: Callable[[], IngestContext], *, every: float = 30.0
) -> AsyncGenerator[Outcome | Unreachable]:
    """Index waiting items, then every published item, until it is closed or cancelled; this releases all claims.

    `writer` is called before each pass, so that signers who were trusted meanwhile count.

    A listening connection reports a publication at once. Items without such a notice (one due for another try, one
    that a yank or a killed indexer left, or any behind a pooler that forwards no notices) are found every `every`
    seconds. A registry that cannot be reached is tried again after a second, then after growing pauses.
    """
    pause = 1.0
    while True:
        try:
            async with to.store.listen() as wait_for_notice:
                while True:
                    async with aclosing(index_pending(to, writer(), patient=True)) as outcomes:
                        async for outcome in outcomes:
                            yield outcome
                    pause = 1.0
                    await wait_for_notice(every)
        except RegistryUnreachable as error:
            yield Unreachable(error, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


async def index_admitted(admission: Admission, to: Collection[RegistryVectorStore], writer: IngestContext) -> bool:
    """Make an item searchable that this process just admitted and published, unless it has vectors or needs none.

    Returns False if another indexer has claimed it.
    """
    indexed, model = False, str(writer.embed.fingerprint)
    for attempt in attempts():
        async with attempt, time_limit(_item_seconds()), to.store.claim(admission.digest, model) as claim:
            if claim.state == "claimed":
                await _embed(admission, claim, writer)
            indexed = claim.state != "busy"
    return indexed


async def _admit_again(
    envelope: Envelope,
    stored: IndexedItem | RegistryClaim,
    history: Callable[[ItemRef], Awaitable[Mapping[str, str]]],
    to: Collection[RegistryVectorStore],
    gate: ValidationManager,
) -> Admission:
    """Run the gate over an item of the registry, as at its arrival: its signature may have expired since."""
    candidate, received_at = candidate_of(envelope, stored.files), stored.received_at or datetime.now(UTC)
    # Only the item's own version counts: the highest may be newer, but the same one must not have other content.
    versions = await history(candidate.ref)
    same_version = {version: digest for version, digest in versions.items() if candidate.path.endswith(f"@{version}")}
    gate = ValidationManager(gate.trust, gate.audience, lambda: received_at)
    return await asyncio.to_thread(gate.admit, candidate, to.policy, same_version, to.audit)


@dataclass(slots=True)
class _Run:
    """One pass over the waiting items; ``busy`` collects those that another indexer had claimed."""

    to: Collection[RegistryVectorStore]
    writer: IngestContext
    patient: bool
    busy: list[Envelope] = field(default_factory=list)

    async def index(self, envelope: Envelope) -> Outcome | None:
        if not envelope.payload:
            return Failed("an item", MalformedEnvelope("a waiting item of the registry is not a valid envelope"))
        digest, model = statement.digest_of(envelope), str(self.writer.embed.fingerprint)
        outcome: Outcome | None = None
        try:
            for attempt in attempts():
                claiming = self.to.store.claim(digest, model, patient=self.patient)
                async with attempt, time_limit(_item_seconds()), claiming as claim:
                    if claim.state == "busy":
                        self.busy.append(envelope)
                    elif claim.state == "claimed":
                        outcome = await self._index_claimed(envelope, claim)
        except RegistryError as error:
            if not concerns_one_item(error):
                raise
            outcome = Failed(name_of(envelope), error)
            for attempt in attempts():  # in a new transaction: the registry's error rolled back that of the claim
                async with attempt, time_limit(ANSWER_SECONDS), self.to.store.claim(digest, model) as claim:
                    if claim.state == "claimed":
                        await claim.requeue(_problem(error))
        return outcome

    async def _index_claimed(self, envelope: Envelope, claim: RegistryClaim) -> Outcome:
        try:
            admission = await _admit_again(envelope, claim, claim.history, self.to, self.writer.gate)
            await _embed(admission, claim, self.writer)
        except (Refused, EmbeddingError) as error:
            if not concerns_one_item(error):
                raise
            await claim.requeue(_problem(error))
            return Failed(name_of(envelope), error)
        return admission.ref


def concerns_one_item(error: KiwiError) -> bool:
    """Whether an error concerns this item alone, so that the others can still be indexed."""
    if isinstance(error, RegistryRefused):
        return error.state == _UNUSABLE_PASSAGES
    if isinstance(error, RegistryError):
        return not error.transient and not isinstance(error, RegistryUnreachable | RegistryOutdated)
    return not isinstance(error, FingerprintMismatch | ModelUnavailable)


def _item_seconds() -> float:
    return EMBEDDING_SECONDS + ANSWER_SECONDS


def name_of(envelope: Envelope) -> str:
    """Return the item that an envelope claims to be of, or its digest where that cannot be read."""
    try:
        return str(statement.parse_item(envelope.payload).ref)
    except Refused:
        return statement.digest_of(envelope)


def _problem(error: KiwiError) -> str:
    if isinstance(error, Rejected):
        return "; ".join(f"{f.code}: {f.message}" for f in error.findings if f.is_error)
    return f"{error.code}: {error.message}"


async def _embed(admission: Admission, claim: RegistryClaim, writer: IngestContext) -> None:
    try:
        async with asyncio.timeout(EMBEDDING_SECONDS):
            records = await embed(admission, split(admission.item), writer)
    except TimeoutError as error:
        hint = "use a shorter item, a smaller model or a faster machine"
        raise EmbeddingError(f"the model took over {EMBEDDING_SECONDS:g} s for one item", hint=hint) from error
    with span("kiwi.store", tier="registry", step="upsert", passages=len(records)):
        await claim.store(records)


LEAST_COSINE = 0.999
"""The lowest cosine between the stored vector of a passage and the one computed here.

Vectors of a float32 model agree within 1e-5 on any machine and in any batch. This allows an angle of 2.6 degrees, which
changes no score by more than 0.05: a vector forged within it cannot make an item match queries foreign to its text.
"""
LEAST_COSINE_INT8 = 0.99
"""The same for the model in int8, where one activation that another processor rounds the other way changes those after
it (docs/decisions/0025-int8-by-default.md): 8 degrees, and 0.15 of a score."""

PAGE = 100
"""Items that are listed at once."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One difference between an item and its index: passage (``-`` for the whole item), and what differs."""

    passage: str
    what: str


async def audit_index(
    to: Collection[RegistryVectorStore], writer: IngestContext, sample: int | None
) -> AsyncIterator[tuple[str, Sequence[Mismatch]]]:
    """Check items drawn at random, all of them when `sample` is None; yield each with what does not match.

    Raises
    ------
    RegistryRefused
        When the connection's role may read no vectors.
    """
    writer = IngestContext(writer.gate, writer.embed.uncached)  # the stored vectors may come from its cache
    fingerprint = str(writer.embed.fingerprint)
    async for indexed in _sample(to.store, fingerprint, sample):
        stored = await to.store.client.read_passages(indexed.digest, fingerprint)
        yield await _compare(indexed, stored, to, writer)


async def _sample(store: RegistryVectorStore, fingerprint: str, sample: int | None) -> AsyncIterator[IndexedItem]:
    """Yield a sample, or all items page by page, because those of a whole registry may not fit into memory."""
    after = None if sample else ""
    while page := await store.client.indexed_items(fingerprint, sample or PAGE, after):
        for one in page:
            yield one
        if after is None:
            return
        after = page[-1].digest


async def _compare(
    indexed: IndexedItem, stored: Sequence[StoredPassage], to: Collection[RegistryVectorStore], writer: IngestContext
) -> tuple[str, Sequence[Mismatch]]:
    if statement.digest_of(indexed.envelope) != indexed.digest:
        return indexed.digest, [Mismatch("-", "the payload does not have the digest it is stored under")]
    ref = name_of(indexed.envelope)
    try:
        admission = await _admit_again(indexed.envelope, indexed, to.store.history, to, writer.gate)
    except Refused as refusal:
        return ref, [Mismatch("-", f"the gate rejects it: {describe_error(refusal)}")]
    expected = await embed(admission, split(admission.item), writer)
    return ref, list(_differences(expected, stored))


def _differences(expected: Sequence[EmbeddingRecord], stored: Sequence[StoredPassage]) -> Iterator[Mismatch]:
    by_ordinal = {one.passage.ordinal: one for one in stored}
    for record in expected:
        found = by_ordinal.pop(record.passage.ordinal, None)
        name = f"passage {record.passage.ordinal}"
        if found is None:
            yield Mismatch(name, "is missing")
        else:
            yield from (Mismatch(name, what) for what in _compare_passage(record, found))
    yield from (Mismatch(f"passage {ordinal}", "is not of this item") for ordinal in by_ordinal)


def _compare_passage(record: EmbeddingRecord, found: StoredPassage) -> Iterator[str]:
    for name in ("text", "context", "heading", "file", "start_line", "end_line"):
        if getattr(record.passage, name) != getattr(found.passage, name):
            yield f"has another {name.replace('_', ' ')} than the signed item"
    frequencies, length = passage_terms(record.admission.ref, record.passage)
    if dict(frequencies) != found.terms or length != found.length:
        yield "has other terms than its text"
    cosine = float(record.vector @ found.vector) if record.vector.shape == found.vector.shape else 0.0
    if not cosine >= (LEAST_COSINE_INT8 if record.fingerprint.startswith(INT8_MODEL) else LEAST_COSINE):
        yield f"has another vector than the model computes (cosine {cosine:.4f})"
