"""The write path: read → admit → split → (sign) → embed → store, and admit → publish.

Here are the steps for one file, and those that many files share: the embedding in groups of passages, several groups
concurrently and each text once, and batches for the gate. Files are yielded in their order, so a stop, a kill or a
failing model costs only the groups in progress. `sync` updates a whole collection from its source. A registry has two
halves, which different roles may run: `publication` sends items, `registry_indexer` makes them searchable and compares
the index with the signed items.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from kiwi_rag.chunking import split, split_document
from kiwi_rag.collection import Collection
from kiwi_rag.embedding import EmbeddingProvider
from kiwi_rag.errors import KeyUnavailable, SourceUnreadable, UsageError
from kiwi_rag.formats.source import ItemCandidate, SourceFile, path_of
from kiwi_rag.model import Admission, Document, EmbeddingRecord, Passage, Vector, Visibility
from kiwi_rag.signing.keys import Indexer
from kiwi_rag.sources.file_states import FileStates
from kiwi_rag.sources.source import SourceContent, content_of, read, root_of
from kiwi_rag.stores.base import SourceStamp
from kiwi_rag.telemetry import span
from kiwi_rag.validation.admission import Policy
from kiwi_rag.validation.audit import AuditSink
from kiwi_rag.validation.document_gate import DocumentFile, clean_labels
from kiwi_rag.validation.manager import ValidationManager
from kiwi_rag.wordpieces import embedded_text

if TYPE_CHECKING:
    from kiwi_rag.registry.client import Receipt
    from kiwi_rag.stores.postgres import RegistryVectorStore

GATE_VERSION = 11
"""Raise it when the gate, the parsers or the splitter give other results: every file is then processed again."""

RULES = "rules"
"""The metadata key of the digest of the rules that a document was indexed by."""


@dataclass(frozen=True, slots=True)
class IngestContext:
    """The gate and the embedding provider of the write path.

    Items bring their signatures. Documents are signed by the `indexer`; ``domains`` is service → domain, for documents
    that name none.
    """

    gate: ValidationManager
    embed: EmbeddingProvider
    indexer: Indexer | None = None
    domains: Mapping[str, str] = field(default_factory=dict)

    def rules(self, policy: Policy) -> tuple[object, ...]:
        """Return what decides whether a file is admitted, besides its bytes."""
        if self.indexer is None:
            trust = self.gate.trust
            return GATE_VERSION, sorted(map(repr, trust.signers)), trust.threshold, self.gate.audience
        # In a shared index any trusted key may have signed.
        key_id = "" if policy.received_now else self.indexer.key.key_id
        return GATE_VERSION, key_id, self.indexer.registry, self.indexer.collection

    def read_document(
        self, file: DocumentFile, rules: str, policy: Policy, audit: AuditSink
    ) -> tuple[Document, tuple[Passage, ...]]:
        """Run the steps of the gate that need no signature over a file, and split what is left.

        Raises
        ------
        Rejected
            When nothing of the file can be indexed.
        """
        labelled = replace(file, labels={**file.labels, RULES: rules})
        document = self.gate.inspect_document(labelled, policy, audit)
        domain = self.domains.get(str(document.metadata["service"]), "")
        if domain and not document.metadata["domain"]:
            document = replace(document, metadata={**document.metadata, "domain": clean_labels([domain])[domain]})
        return document, split_document(document)

    def admit_document(
        self, document: Document, passages: Sequence[Passage], policy: Policy, audit: AuditSink
    ) -> Admission:
        """Sign a document with the indexing key, and run the other steps of the gate.

        Raises
        ------
        Rejected
            When the key may not sign it.
        """
        if self.indexer is None:
            raise KeyUnavailable("documents are indexed with a key, and there is none")
        envelope = self.indexer.sign(document, passages, datetime.now(UTC))
        return self.gate.admit_document(document, passages, envelope, policy, audit)


async def ingest(source: SourceFile, to: Collection, writer: IngestContext) -> Admission:
    """Read, admit, split, embed and store one file.

    Raises
    ------
    Rejected
        With every finding.
    """
    candidate = read(source, to, writer.gate)
    admission = await admit(candidate, to, writer.gate)
    await store(candidate, admission, to, writer)
    return admission


async def store(candidate: ItemCandidate, admission: Admission, to: Collection, writer: IngestContext) -> None:
    """Split, embed and store an admitted item, and then the stamp of its file in the collection."""
    records = await embed(admission, split(admission.item), writer)
    with span("kiwi.store", tier=to.name, step="upsert", passages=len(records)):
        await to.store.put([records])
    path = str(path_of(root_of(to), admission.ref))
    states_of(to).put([content_of(candidate).stamp(path, admission.digest, fingerprint_rules(to, writer))])


async def ingest_document(
    path: str, content: SourceContent, to: Collection, writer: IngestContext, of_source: Sequence[object]
) -> Admission:
    """Admit, split, embed and store one document that was read, and then its stamp in the collection.

    Raises
    ------
    Rejected
        With every finding.
    """

    def admit_it(file: DocumentFile) -> tuple[Admission, Sequence[Passage]]:
        document, passages = writer.read_document(file, rules, to.policy, to.audit)
        return writer.admit_document(document, passages, to.policy, to.audit), passages

    rules = fingerprint_rules(to, writer, of_source)
    if not isinstance(content.candidate, DocumentFile):
        raise UsageError(f"{path} is an item, not a document", hint="kiwi add PATH")
    admission, passages = await asyncio.to_thread(admit_it, content.candidate)
    await to.store.put([await embed(admission, passages, writer)])
    await asyncio.to_thread(states_of(to).put, [content.stamp(path, admission.digest, rules)])
    return admission


def states_of(to: Collection) -> FileStates:
    """Return what is known of the files of a collection.

    Raises
    ------
    SourceUnreadable
        When it is a collection without files.
    """
    if to.states is None:
        raise SourceUnreadable(f"the {to.name} tier has no files")
    return to.states


async def publish(
    candidate: ItemCandidate,
    to: Collection[RegistryVectorStore],
    gate: ValidationManager,
    visibility: Visibility | None = None,
) -> tuple[Admission, Receipt]:
    """Admit one candidate under the registry's policy and publish it; a search finds it once it is indexed.

    Without a `visibility` a new item is public, and a published item keeps its visibility.

    Raises
    ------
    Rejected
        When the gate rejects it; nothing is sent then.
    RegistryError
        When the registry cannot be reached, or rejects it; running it again is safe.
    """
    admission = await admit(candidate, to, gate)
    with span("kiwi.store", tier=to.name, step="publish"):
        receipt = await to.store.publish(admission, visibility)
    if to.monitor and not receipt.private:
        to.monitor.add_receipt(admission.ref, admission.digest, admission.key_id, receipt.audit_head)
    return admission, receipt


async def admit(candidate: ItemCandidate, to: Collection, gate: ValidationManager) -> Admission:
    """Run the gate over a candidate, against what its tier has seen."""
    history = await to.store.history(candidate.ref)
    return await asyncio.to_thread(gate.admit, candidate, to.policy, history, to.audit)


async def embed(admission: Admission, passages: Sequence[Passage], writer: IngestContext) -> list[EmbeddingRecord]:
    """Return an admitted item's passages with their vectors."""
    vectors = await writer.embed.documents([embedded_text(passage) for passage in passages])
    return list(_records(admission, passages, vectors, writer.embed))


def _records(
    admission: Admission, passages: Sequence[Passage], vectors: Iterable[Vector], embed: EmbeddingProvider
) -> Iterator[EmbeddingRecord]:
    fingerprint = str(embed.fingerprint)
    for passage, vector in zip(passages, vectors, strict=True):
        yield EmbeddingRecord(admission, passage, vector, fingerprint)


def fingerprint_rules(to: Collection, writer: IngestContext, of_source: Sequence[object] = ()) -> str:
    """Return a digest of the rules that files are admitted, split, signed and embedded by.

    When it changes, every file is processed again.
    """
    parts = (*of_source, *writer.rules(to.policy), to.policy, writer.embed.fingerprint)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


_In = TypeVar("_In")
_Out = TypeVar("_Out")
CONCURRENCY = 3
"""Items in progress at once: while one is embedded, another is stored and a third passes the gate."""


async def bounded_map(
    work: Callable[[_In], Awaitable[_Out]], items: Iterable[_In] | AsyncIterable[_In], concurrency: int
) -> AsyncGenerator[_Out]:
    """Yield ``work(item)`` for each of `items` in their order, up to `concurrency` of them concurrently.

    When the caller stops early, or one raises, the others are cancelled and waited for.
    """
    semaphore = asyncio.Semaphore(concurrency)
    tasks: deque[asyncio.Task[_Out]] = deque()

    async def run(item: _In) -> _Out:
        async with semaphore:
            return await work(item)

    try:
        async for item in _each(items):
            tasks.append(asyncio.create_task(run(item)))
            # Twice as many tasks as may run: a slow first one, whose result is due next, keeps none of the others idle.
            if len(tasks) > 2 * concurrency:
                yield await tasks.popleft()
        while tasks:
            yield await tasks.popleft()
    finally:
        await cancel_all(tasks)


async def _each(items: Iterable[_In] | AsyncIterable[_In]) -> AsyncGenerator[_In]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


async def cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel the tasks that still run, and wait for their end."""
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)


BATCH_BYTES = 32 << 10
"""Bytes of files that one call in a thread admits, with one commit of the audit log."""

GROUP = 64
"""Passages that are encoded together, or more where one file has more: about a second of work, and enough texts to
form batches of similar length."""

WORDS_GROUP = 512
"""Passages that are stored together by their words, with one commit."""
WORDS_BATCH_BYTES = 128 << 10
"""As `BATCH_BYTES`, where no model waits for the first of them."""

KEPT_TEXTS = 2_000
"""Texts whose vectors are kept for repetitions, about 5 MB; for older ones the provider's cache is used."""

JOBS = 2
"""Groups that are encoded concurrently: threads that one no longer needs at its end begin with the next."""


@dataclass(frozen=True, slots=True)
class AdmittedFile:
    """An admitted file with its passages and its stamp."""

    admission: Admission
    passages: Sequence[Passage]
    stamp: SourceStamp


@dataclass(frozen=True, slots=True)
class _Group:
    """Files that are encoded together, each with the texts of its passages.

    ``new`` are the texts that no group before encodes. ``vectors`` is text → vector, shared by many groups.
    """

    files: Sequence[tuple[AdmittedFile, Sequence[str]]]
    new: Sequence[str]
    vectors: dict[str, Vector]


async def encode_files(
    files: AsyncIterable[AdmittedFile], embed: EmbeddingProvider, jobs: int = JOBS
) -> AsyncGenerator[list[tuple[AdmittedFile, list[EmbeddingRecord]]]]:
    """Yield `files` in their order, a group at a time, each with its passages' records.

    Up to `jobs` groups are encoded concurrently.

    Raises
    ------
    EmbeddingError
        When the model fails, after all files of the groups before were yielded.
    """

    async def encode(group: _Group) -> _Group:
        group.vectors.update(zip(group.new, await embed.documents(group.new), strict=True))
        return group

    async with aclosing(bounded_map(encode, _groups(files), jobs)) as groups:
        async for group in groups:  # in their order: the texts that groups before have encoded have vectors now
            vectors = ((file, map(group.vectors.__getitem__, texts)) for file, texts in group.files)
            yield [(file, list(_records(file.admission, file.passages, found, embed))) for file, found in vectors]


async def _groups(files: AsyncIterable[AdmittedFile]) -> AsyncGenerator[_Group]:
    known, vectors = set[str](), dict[str, Vector]()
    async for batch in batch_by_passages(files, GROUP):
        texts = [(file, [embedded_text(passage) for passage in file.passages]) for file in batch]
        new = dict.fromkeys(text for _, of_file in texts for text in of_file if text not in known)
        known.update(new)
        yield _Group(texts, list(new), vectors)
        if len(known) > KEPT_TEXTS:
            known, vectors = set(), {}


async def batch_by_passages(files: AsyncIterable[AdmittedFile], least: int) -> AsyncGenerator[list[AdmittedFile]]:
    """Yield files in their order in batches of at least so many passages; the last may have fewer."""
    batch: list[AdmittedFile] = []
    passages = 0
    async for file in files:
        batch.append(file)
        passages += len(file.passages)
        if passages >= least:
            yield batch
            batch, passages = [], 0
    if batch:
        yield batch
