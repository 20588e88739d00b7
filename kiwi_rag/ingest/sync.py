"""Bringing a tier's index up to its files: read → admit → split → embed → store, for what changed."""

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
from kiwi_rag.ingest.batches import JOBS, AdmittedFile, encoded, store
from kiwi_rag.ingest.pipeline import IngestContext, admit, digests, read, root_of, rules, stamp
from kiwi_rag.model import Admission
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.stores.base import FileStore, SourceStamp
from kiwi_rag.validation.signature import ItemCandidate

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What an index run did: references in order, rejections with their findings, and passages stored."""

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
    """Bring a tier's index up to its files: only what changed is judged and embedded again.

    A file that is refused keeps what was last admitted of it; a file that is gone takes its item with it; one that
    cannot be read is reported and changes nothing. May be interrupted anywhere and run again.

    Parameters
    ----------
    planned
        Called once with the number of files that changed; returns what to call as they are stored or refused.
    stored
        Called with each item as soon as it is durable.
    jobs
        Groups of passages that are encoded at once; see `kiwi_rag.ingest.batches`.
    """
    root = root_of(to)
    async with to.store.writing():
        await _clear_other_model(to.store, writer)
        known = await to.store.sources()
        sources = await asyncio.to_thread(lambda: list(walk(root)))
        removed = await _remove_vanished(to, known, sources)
        run = _Run(to, writer, rules(to, writer))
        changed = [pair for source in sources if (pair := run.look(source, known))]
        run.progress = planned(len(changed))
        admitted, passages = [], 0
        async with aclosing(encoded(run.admitted(changed), writer.embed, jobs)) as ready:
            async for group in ready:
                await store(group, to)
                for one in group:
                    admitted.append(one.work.admission.ref)
                    passages += len(one.records)
                    stored(one.work.admission)
                run.progress(len(group))
    return IndexReport(tuple(admitted), run.unchanged, removed, tuple(run.rejected), passages)


@dataclass(slots=True)
class _Run:
    """One pass over a tier's files, and what it met."""

    to: Tier[FileStore]
    writer: IngestContext
    gate_stamp: str
    rejected: list[Rejected] = field(default_factory=list)
    unchanged: int = 0
    progress: Progress = lambda _: None

    def look(self, source: SourceFile, known: Mapping[str, SourceStamp]) -> tuple[SourceFile, ItemCandidate] | None:
        """Read a file; return None when it is as it was, or cannot be read."""
        try:
            candidate = read(source, self.to, self.writer.gate)
        except Rejected as rejection:
            self.rejected.append(rejection)
            return None
        if _is_unchanged(known.get(str(source.path)), candidate, self.gate_stamp):
            self.unchanged += 1
            return None
        return source, candidate

    async def admitted(self, changed: Sequence[tuple[SourceFile, ItemCandidate]]) -> AsyncGenerator[AdmittedFile]:
        """Yield what the gate admits, split; keep what it refuses."""
        for source, candidate in changed:
            try:
                admission = await admit(candidate, self.to, self.writer.gate)
            except Rejected as rejection:
                self.rejected.append(rejection)
                self.progress(1)
            else:
                passages = await asyncio.to_thread(split, admission.item)
                yield AdmittedFile(admission, passages, stamp(source, candidate, admission, self.gate_stamp))


def _is_unchanged(before: SourceStamp | None, candidate: ItemCandidate, gate_stamp: str) -> bool:
    if before is None or before.gate_stamp != gate_stamp:
        return False
    return (before.sha256, before.sig_sha256) == digests(candidate.data, candidate.side)


async def _remove_vanished(
    to: Tier[FileStore], known: Mapping[str, SourceStamp], sources: Sequence[SourceFile]
) -> tuple[ItemRef, ...]:
    there = {str(source.path) for source in sources}
    vanished = [s for path, s in known.items() if path not in there and _is_gone(Path(path))]
    for gone in vanished:
        await to.store.delete(ItemRef(gone.item_type, gone.item_id))
        await to.store.delete_source(gone.path)
        to.audit.append("removed", f"{gone.item_type}:{gone.item_id}", gone.digest, "", {"path": gone.path})
    return tuple(ItemRef(gone.item_type, gone.item_id) for gone in vanished)


def _is_gone(path: Path) -> bool:
    """Whether a file is really not there; one that cannot be looked at is not gone."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


async def _clear_other_model(store: FileStore, writer: IngestContext) -> None:
    held = (await store.status()).fingerprint
    if held and held != str(writer.embed.fingerprint):
        await store.clear()
