"""The steps of the write path: read → admit → split → embed → store for files, admit → publish for a registry."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kiwi_rag.chunking import split
from kiwi_rag.collection import Tier
from kiwi_rag.embedding.base import EmbeddingProvider
from kiwi_rag.errors import SourceUnreadable
from kiwi_rag.formats import SourceFile, read_source
from kiwi_rag.model import Admission, EmbeddingRecord, Finding, Passage, Visibility, sha256_hex
from kiwi_rag.stores.base import FileStore, PublishingStore, Receipt, SourceStamp, VectorStore
from kiwi_rag.telemetry import span
from kiwi_rag.validation.manager import ValidationManager, ref_of
from kiwi_rag.validation.signature import ItemCandidate
from kiwi_rag.wordpieces import embedded_text

GATE_VERSION = 5
"""Raise it when the gate, the parsers or the splitter give other results: every file is then processed again."""

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class IngestContext:
    """The gate and the embedding provider of the write path."""

    gate: ValidationManager
    embed: EmbeddingProvider


async def ingest(source: SourceFile, to: Tier[FileStore], writer: IngestContext) -> Admission:
    """Read, admit, split, embed and store one file.

    Raises
    ------
    Rejected
        With every finding.
    """
    candidate = read(source, to, writer.gate)
    admission = await admit(candidate, to, writer.gate)
    await store(source, candidate, admission, to, writer)
    return admission


async def store(
    source: SourceFile, candidate: ItemCandidate, admission: Admission, to: Tier[FileStore], writer: IngestContext
) -> None:
    """Split, embed and store an admitted item, with the stamp of the file that it was read from."""
    records = await embed(admission, split(admission.item), writer)
    with span("kiwi.store", tier=to.name, step="upsert", passages=len(records)):
        await to.store.upsert(records, make_stamp(source, candidate, admission, fingerprint_rules(to, writer)))


async def publish(
    candidate: ItemCandidate, to: Tier[PublishingStore], gate: ValidationManager, visibility: Visibility | None = None
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


def read(source: SourceFile, to: Tier[VectorStore], gate: ValidationManager) -> ItemCandidate:
    """Read a file and its signature.

    Raises
    ------
    Rejected
        When the file has no legal id or cannot be read; one audit record is written.
    """
    if source.problem is not None or source.item_id is None:
        finding = source.problem or Finding("source.item-id", "the file has no item id", path=str(source.path))
        raise gate.reject(str(source.path), [finding], to.policy, to.audit)
    try:
        data = read_source(source.path, root_of(to))
        side = _side(source.path, root_of(to))
    except SourceUnreadable as error:
        finding = Finding("source.unreadable", error.message, path=str(source.path), hint=error.hint)
        raise gate.reject(f"{source.item_type}:{source.item_id}", [finding], to.policy, to.audit) from error
    return ItemCandidate(source.item_type, source.item_id, data, side, path=display_path(source.path), tier=to.name)


async def admit(candidate: ItemCandidate, to: Tier[VectorStore], gate: ValidationManager) -> Admission:
    """Run the gate over a candidate, against what its tier has seen."""
    history = await to.store.history(ref_of(candidate))
    return await asyncio.to_thread(gate.admit, candidate, to.policy, history, to.audit)


async def admit_stored(
    candidate: ItemCandidate, history: Mapping[str, str], to: Tier[VectorStore], gate: ValidationManager
) -> Admission:
    """Run the gate again over an item that its tier already has.

    Of the tier's `history` only the item's own version counts: the highest may be newer, but the same version must not
    have other content.
    """
    same_version = {version: digest for version, digest in history.items() if candidate.path.endswith(f"@{version}")}
    return await asyncio.to_thread(gate.admit, candidate, to.policy, same_version, to.audit)


async def embed(
    admission: Admission, passages: Sequence[Passage], writer: IngestContext, progress: Progress | None = None
) -> list[EmbeddingRecord]:
    """Return an admitted item's passages with their vectors."""
    vectors = await writer.embed.documents([embedded_text(p) for p in passages], progress)
    fingerprint = str(writer.embed.fingerprint)
    return [
        EmbeddingRecord(admission, passage, vector, fingerprint)
        for passage, vector in zip(passages, vectors, strict=True)
    ]


def make_stamp(source: SourceFile, candidate: ItemCandidate, admission: Admission, gate_stamp: str) -> SourceStamp:
    """Return the state of a file, which the next run compares the file with."""
    size, ref = len(candidate.data), admission.ref
    sha256s = digests(candidate.data, candidate.side)
    return SourceStamp(str(source.path), size, 0, *sha256s, gate_stamp, ref.item_type, ref.item_id, admission.digest)


def fingerprint_rules(to: Tier[VectorStore], writer: IngestContext) -> str:
    """Return a digest of the rules that a tier's files are admitted and embedded by.

    When it changes, every file is processed again.
    """
    trust = sorted(map(repr, writer.gate.trust.signers))
    parts = (
        GATE_VERSION,
        trust,
        writer.gate.trust.threshold,
        to.policy,
        writer.gate.audience,
        writer.embed.fingerprint,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def display_path(path: Path) -> str:
    """Return `path` relative to the working directory where it is below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def digests(data: bytes, side: bytes | None) -> tuple[str, str]:
    """Return the hex SHA-256 of a file and of its signature, which is empty where there is none."""
    return sha256_hex(data), sha256_hex(side) if side is not None else ""


def _side(path: Path, root: Path) -> bytes | None:
    side = side_path(path)
    return read_source(side, root) if side.exists() or side.is_symlink() else None


def side_path(path: Path) -> Path:
    """Return the path of a file's signature: ``<file>.sig`` beside it."""
    return path.with_name(path.name + ".sig")


def root_of(to: Tier[VectorStore]) -> Path:
    """Return the folder that contains a tier's files.

    Raises
    ------
    SourceUnreadable
        When it is a tier without files.
    """
    if to.root is None:
        raise SourceUnreadable(f"the {to.name} tier has no files")
    return to.root


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
