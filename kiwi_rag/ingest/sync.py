"""The update of a tier's index from its files: read → admit → split → embed → store, for files that changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from kiwi_rag.chunking import split
from kiwi_rag.collection import Tier
from kiwi_rag.errors import Rejected
from kiwi_rag.formats import SourceFile, walk
from kiwi_rag.ingest.batches import JOBS, AdmittedFile, encode_files, store
from kiwi_rag.ingest.pipeline import IngestContext, admit, digests, fingerprint_rules, make_stamp, read, root_of
from kiwi_rag.model import Admission
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.stores.base import FileStore, SourceStamp
from kiwi_rag.validation.signature import ItemCandidate

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The outcome of an index run: references in order, rejections with their findings, and the passages stored."""

    admitted: tuple[ItemRef, ...] = ()
    unchanged: int = 0
    removed: tuple[ItemRef, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    passages: int = 0


async def index(
    to: Tier[FileStore],
    writer: IngestContext,
    planned: Callable[[int], Progress] = lambda _: lambda _: None,
    stored: Callable[[Admission], None] = lambda _: None,
    jobs: int = JOBS,
) -> IndexReport:
    """Update a tier's index from its files; only changed files are admitted and embedded again.

    The index keeps the last admitted item of a file that is rejected now or cannot be read, and removes the item of a
    deleted file. A run may be interrupted anywhere and repeated.

    Parameters
    ----------
    planned
        Called once with the number of changed files; returns the callback for files that were stored or rejected.
    stored
        Called with each item as soon as it is durable.
    jobs
        Groups of passages that are encoded concurrently; see `kiwi_rag.ingest.batches`.
    """
    root = root_of(to)
    async with to.store.writing():
        await _clear_other_model(to.store, writer)
        stamps = await to.store.sources()
        sources = await asyncio.to_thread(lambda: list(walk(root)))
        removed = await _remove_deleted(to, stamps, sources)
        run = _Run(to, writer, fingerprint_rules(to, writer))
        changed = [pair for source in sources if (pair := run.read_changed(source, stamps))]
        run.progress = planned(len(changed))
        admitted, passages = [], 0
        async with aclosing(encode_files(run.admitted(changed), writer.embed, jobs)) as ready:
            async for group in ready:
                await store(group, to)
                for one in group:
                    admitted.append(one.file.admission.ref)
                    passages += len(one.records)
                    stored(one.file.admission)
                run.progress(len(group))
    return IndexReport(tuple(admitted), run.unchanged, removed, tuple(run.rejected), passages)


@dataclass(slots=True)
class _Run:
    """One pass over a tier's files, with its rejections and counts."""

    to: Tier[FileStore]
    writer: IngestContext
    gate_stamp: str
    rejected: list[Rejected] = field(default_factory=list)
    unchanged: int = 0
    progress: Progress = lambda _: None

    def read_changed(
        self, source: SourceFile, stamps: Mapping[str, SourceStamp]
    ) -> tuple[SourceFile, ItemCandidate] | None:
        """Read a file; return None when it is unchanged or cannot be read."""
        try:
            candidate = read(source, self.to, self.writer.gate)
        except Rejected as rejection:
            self.rejected.append(rejection)
            return None
        if _is_unchanged(stamps.get(str(source.path)), candidate, self.gate_stamp):
            self.unchanged += 1
            return None
        return source, candidate

    async def admitted(self, changed: Sequence[tuple[SourceFile, ItemCandidate]]) -> AsyncGenerator[AdmittedFile]:
        """Yield the files that the gate admits, with their passages; collect its rejections."""
        for source, candidate in changed:
            try:
                admission = await admit(candidate, self.to, self.writer.gate)
            except Rejected as rejection:
                self.rejected.append(rejection)
                self.progress(1)
            else:
                passages = await asyncio.to_thread(split, admission.item)
                yield AdmittedFile(admission, passages, make_stamp(source, candidate, admission, self.gate_stamp))


def _is_unchanged(before: SourceStamp | None, candidate: ItemCandidate, gate_stamp: str) -> bool:
    if before is None or before.gate_stamp != gate_stamp:
        return False
    return (before.sha256, before.sig_sha256) == digests(candidate.data, candidate.side)


async def _remove_deleted(
    to: Tier[FileStore], stamps: Mapping[str, SourceStamp], sources: Sequence[SourceFile]
) -> tuple[ItemRef, ...]:
    found = {str(source.path) for source in sources}
    deleted = [stamp for path, stamp in stamps.items() if path not in found and _is_deleted(Path(path))]
    for stamp in deleted:
        await to.store.delete(ItemRef(stamp.item_type, stamp.item_id))
        await to.store.delete_source(stamp.path)
        to.audit.append("removed", f"{stamp.item_type}:{stamp.item_id}", stamp.digest, "", {"path": stamp.path})
    return tuple(ItemRef(stamp.item_type, stamp.item_id) for stamp in deleted)


def _is_deleted(path: Path) -> bool:
    """Whether a file does not exist; one that cannot be inspected counts as existing."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


async def _clear_other_model(store: FileStore, writer: IngestContext) -> None:
    stored = (await store.status()).fingerprint
    if stored and stored != str(writer.embed.fingerprint):
        await store.clear()
