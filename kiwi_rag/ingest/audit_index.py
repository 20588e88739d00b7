"""The audit of a registry's index: items are admitted and embedded again and compared with what is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kiwi_rag.chunking import split
from kiwi_rag.collection import Collection
from kiwi_rag.embedding.cache import CachedEmbeddingProvider
from kiwi_rag.errors import Refused, Rejected
from kiwi_rag.ingest import IngestContext, admit_stored, embed
from kiwi_rag.lexical import term_frequencies
from kiwi_rag.model import EmbeddingRecord
from kiwi_rag.registry.rows import IndexedItem, StoredPassage
from kiwi_rag.signing import statement
from kiwi_rag.validation.manager import ValidationManager, candidate_of

if TYPE_CHECKING:
    from kiwi_rag.stores.postgres import RegistryVectorStore

LEAST_COSINE = 0.999
"""The lowest cosine between the stored vector of a passage and the one computed here.

One model's vectors agree within 1e-5 on any machine and in any batch. This allows an angle of 2.6 degrees, which
changes no score by more than 0.05: a vector forged within it cannot make an item match queries foreign to its text.
"""

PAGE = 100
"""Items that are listed at once."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One difference between an item and its index: item, passage (``-`` for the whole item), and what differs."""

    ref: str
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
    if isinstance(writer.embed, CachedEmbeddingProvider):  # the stored vectors may come from this cache
        writer = IngestContext(writer.gate, writer.embed.inner)
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
    ref = indexed.digest
    if statement.digest_of(indexed.envelope) != indexed.digest:
        return ref, [Mismatch(ref, "-", "the payload does not have the digest it is stored under")]
    gate = ValidationManager(writer.gate.trust, writer.gate.audience, lambda: indexed.received_at)
    try:
        candidate = candidate_of(indexed.envelope, indexed.files)
        ref = candidate.path
        history = await to.store.history(candidate.ref)
        admission = await admit_stored(candidate, history, to, gate)
    except Refused as refusal:
        reasons = [finding.message for finding in refusal.findings] if isinstance(refusal, Rejected) else []
        return ref, [Mismatch(ref, "-", f"the gate rejects it: {'; '.join(reasons) or refusal.message}")]
    expected = await embed(admission, split(admission.item), writer)
    return ref, [Mismatch(ref, passage, what) for passage, what in _differences(expected, stored)]


def _differences(expected: Sequence[EmbeddingRecord], stored: Sequence[StoredPassage]) -> Iterator[tuple[str, str]]:
    by_ordinal = {one.passage.ordinal: one for one in stored}
    for record in expected:
        found = by_ordinal.pop(record.passage.ordinal, None)
        name = f"passage {record.passage.ordinal}"
        if found is None:
            yield name, "is missing"
        else:
            yield from ((name, what) for what in _compare_passage(record, found))
    yield from ((f"passage {ordinal}", "is not of this item") for ordinal in by_ordinal)


def _compare_passage(record: EmbeddingRecord, found: StoredPassage) -> Iterator[str]:
    for field in ("text", "context", "heading", "file", "start_line", "end_line"):
        if getattr(record.passage, field) != getattr(found.passage, field):
            yield f"has another {field.replace('_', ' ')} than the signed item"
    frequencies = term_frequencies(record.passage.indexed_text)
    if dict(frequencies) != found.terms or frequencies.total() != found.length:
        yield "has other terms than its text"
    cosine = float(record.vector @ found.vector) if record.vector.shape == found.vector.shape else 0.0
    if not cosine >= LEAST_COSINE:
        yield f"has another vector than the model computes (cosine {cosine:.4f})"
