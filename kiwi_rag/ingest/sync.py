"""The update of a collection from a source, of any kind: find → read → gate → chunk → (sign) → embed → store.

Documents in a local index are stored for the search by words first, all of them, and then embedded (`vectors`).

A file that has the size and times of the last run is not opened, one with the same bytes is not embedded, and a passage
with a cached text is not encoded. What is stored is durable, so the run after a kill continues where that stopped.
While one group of passages is encoded, the files of the group before are stored and those of the next pass the gate.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kiwi_rag.chunking import split
from kiwi_rag.collection import Collection
from kiwi_rag.embedding import batches
from kiwi_rag.errors import EmbeddingError, FingerprintMismatch, KiwiError, Rejected, SourceUnreadable, TextsRefused
from kiwi_rag.ingest import (
    BATCH_BYTES,
    JOBS,
    RULES,
    WORDS_BATCH_BYTES,
    WORDS_GROUP,
    AdmittedFile,
    IngestContext,
    batch_by_passages,
    bounded_map,
    encode_files,
    fingerprint_rules,
    states_of,
)
from kiwi_rag.ingest.vectors import embed_missing
from kiwi_rag.model import Admission, Filters, ItemType, StoredItem
from kiwi_rag.signing import statement
from kiwi_rag.sources.file_states import FileStates, RunState
from kiwi_rag.sources.source import FoundFile, Source, SourceContent, SyncReport, named_paths
from kiwi_rag.stores.base import SourceStamp
from kiwi_rag.telemetry import span
from kiwi_rag.validation.audit import AuditEvent, AuditSink
from kiwi_rag.validation.document_gate import DocumentFile

if TYPE_CHECKING:
    from kiwi_rag.stores.local import LocalVectorStore

_NO_DOCUMENT = ("bounds.binary", "bounds.empty", "bounds.generated", "bounds.size")
_UNREAD = -1
"""The size in the stamp of what is stored without a state on this machine; no file has it."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The callbacks of a run.

    ``planned`` is called once with the number of new or changed files, and returns the callback for finished files;
    ``embedding`` the same for passages, where files are stored before they are embedded. ``stored`` is called with each
    admission as soon as it is durable. ``report`` makes the report, which the run fills.
    """

    planned: Callable[[int], Callable[[int], None]] = lambda _: lambda _: None
    stored: Callable[[Admission], None] = lambda _: None
    embedding: Callable[[int], Callable[[int], None]] = lambda _: lambda _: None
    report: Callable[[], SyncReport] = SyncReport


async def sync(  # noqa: PLR0913  # what a run depends on
    source: Source,
    to: Collection,
    writer: IngestContext,
    callbacks: Callbacks = Callbacks(),
    *,
    paths: Sequence[str] | None = None,
    prune: bool = True,
    embed: bool = True,
    jobs: int = JOBS,
) -> SyncReport:
    """Update a collection from its source, or from the files at `paths` alone; return what was done.

    The collection keeps the last admitted content of a file that is rejected now or cannot be read; the report names
    it. A run may be stopped anywhere and repeated. Without `prune` content without a file here is kept: a shared index
    contains documents of other checkouts. Up to `jobs` groups of passages are encoded concurrently. Without `embed`
    what is stored for the search by words first is not embedded.

    Raises
    ------
    NotFound
        When the source does not exist.
    FingerprintMismatch
        When a shared index holds another model's vectors.
    StoreError
        When the index cannot be read or written; nothing is half-written.
    """
    await asyncio.to_thread(source.check)  # before the index, which may be inside of it, is created
    async with to.writing():
        await _clear_other_model(to, writer)
        rules = fingerprint_rules(to, writer, source.rules)
        known, report = await _known_files(source, to), callbacks.report()
        run = _Run(source, to, writer, rules, known, states_of(to), callbacks, jobs, report)
        await asyncio.to_thread(run.find_changed, paths)
        if paths is None and (run.remaining or run.removed):
            run.states.set_run_state(RunState.BEGUN)
        run.progress = callbacks.planned(len(run.remaining))
        await run.store()
        await run.finish(whole=paths is None, prune=prune)
    if embed:  # without the writer's lock: others may write meanwhile
        await embed_missing(to, writer.embed, run.report, paths, callbacks.embedding)
        if paths is None:
            run.save_state()
    return run.report


@dataclass(slots=True)
class _Run:
    """One pass over a source.

    ``stamps`` is path → what is known of its file, ``touched`` the new stamps of files with unchanged bytes,
    ``removed`` path → stamp of files that are no longer there. ``remaining`` are the changed files by path that were
    neither stored nor given up. ``new_paths`` is digest → stored paths that are new, by which a moved file is
    recognised.
    """

    source: Source
    to: Collection
    writer: IngestContext
    rules: str
    stamps: Mapping[str, SourceStamp]
    states: FileStates
    callbacks: Callbacks
    jobs: int
    report: SyncReport = field(default_factory=SyncReport)
    touched: list[SourceStamp] = field(default_factory=list)
    removed: dict[str, SourceStamp] = field(default_factory=dict)
    remaining: dict[str, FoundFile] = field(default_factory=dict)
    new_paths: dict[str, list[str]] = field(default_factory=dict)
    progress: Callable[[int], None] = lambda _: None

    def find_changed(self, paths: Sequence[str] | None) -> None:
        """Collect the files that are new or may have changed, and those that were removed."""
        indexed = list(self.stamps)
        missing = dict.fromkeys(indexed if paths is None else named_paths(paths, indexed))
        for file in self.source.find(paths, indexed, self.report):
            missing.pop(file.path, None)
            if not self._needs_no_read(file):
                self.remaining[file.path] = replace(file, content=None) if file.content else file
        self.removed |= {path: self.stamps[path] for path in missing if self._is_gone(path)}

    def _is_gone(self, path: str) -> bool:
        """Whether a file does not exist; one below a folder that could not be listed may."""
        failed = self.report.failed
        hidden = any(one in (".", path) or path.startswith(f"{one}/") for one in failed)
        return not hidden and not self.source.may_exist(path)

    def _needs_no_read(self, file: FoundFile) -> bool:
        """Whether a file is unchanged, or cannot be indexed because of its size."""
        before = self.stamps.get(file.path)
        limit = self.to.policy.max_bytes
        if file.content is not None:
            same = self._is_same(before, file.content)
        elif 0 < file.size <= limit:
            present = (file.size, file.changed_ns, self.rules)
            same = before is not None and (before.size, before.mtime_ns, before.gate_stamp) == present
        else:
            self._skip(file.path, f"over {limit >> 20} MiB" if file.size else "empty")
            return True
        self.report.unchanged += same
        return same

    def _is_same(self, before: SourceStamp | None, content: SourceContent) -> bool:
        """Whether the bytes are those of the last run, under the same rules."""
        present = (content.sha256, content.sig_sha256, self.rules)
        return before is not None and (before.sha256, before.sig_sha256, before.gate_stamp) == present

    async def store(self) -> None:
        """Read, admit, embed and store changed files; if the model fails, all remaining files are reported as failed.

        If a server refuses a text, the remaining files are embedded one by one, so that only the file with the text
        fails.
        """
        try:
            try:
                await self._store(self.remaining[path] for path in list(self.remaining))  # each is let go when stored
            except TextsRefused:
                for file in list(self.remaining.values()):
                    await self._store_alone(file)
        except EmbeddingError as error:
            self.report.failed.update(dict.fromkeys(self.remaining, error))

    async def _store(self, files: Iterable[FoundFile]) -> None:
        """Store files in groups, then their states: after a kill between both the files are only read once more."""
        admitted = self._admitted_files(files)
        index = self.to.words_first
        stored = self._put_words(index, admitted) if index else self._put_with_vectors(admitted)
        async with aclosing(stored) as groups:
            async for group in groups:
                self.states.put(file.stamp for file in group)
                for file in group:
                    self._record_stored(file)

    async def _put_with_vectors(self, files: AsyncIterable[AdmittedFile]) -> AsyncGenerator[Sequence[AdmittedFile]]:
        async with aclosing(encode_files(files, self.writer.embed, self.jobs)) as ready:
            async for group in ready:
                with self._storing([file for file, _ in group]):
                    await self.to.store.put([records for _, records in group])
                yield [file for file, _ in group]

    async def _put_words(
        self, index: LocalVectorStore, files: AsyncIterable[AdmittedFile]
    ) -> AsyncGenerator[Sequence[AdmittedFile]]:
        """Store files without vectors; while one group is written, the files of the next pass the gate."""
        fingerprint = str(self.writer.embed.fingerprint)

        async def put(group: Sequence[AdmittedFile]) -> Sequence[AdmittedFile]:
            with self._storing(group):
                await index.put_words([(file.admission, file.passages) for file in group], fingerprint)
            return group

        async with aclosing(bounded_map(put, batch_by_passages(files, WORDS_GROUP), 1)) as groups:
            async for group in groups:
                yield group

    def _storing(self, files: Sequence[AdmittedFile]) -> AbstractContextManager[object]:
        return span("kiwi.store", tier=self.to.name, step="upsert", passages=sum(len(file.passages) for file in files))

    async def _store_alone(self, file: FoundFile) -> None:
        try:
            await self._store([file])
        except TextsRefused as error:
            self.report.failed[file.path] = error
            self.remaining.pop(file.path, None)

    def _record_stored(self, file: AdmittedFile) -> None:
        path = file.stamp.path
        self.remaining.pop(path, None)
        self.report.admitted.append(file.admission.ref)
        self.report.passages += len(file.passages)
        if self.removed and path not in self.stamps:
            self.new_paths.setdefault(file.stamp.sha256, []).append(path)
        self.callbacks.stored(file.admission)
        self.progress(1)

    async def _admitted_files(self, files: Iterable[FoundFile]) -> AsyncGenerator[AdmittedFile]:
        most = WORDS_BATCH_BYTES if self.to.words_first else BATCH_BYTES
        for batch in batches(files, WORDS_GROUP, lambda file: file.size, most):
            refs = [self.source.ref_of(file.path) for file in batch]
            histories = [{} if ref.item_type is ItemType.DOCUMENT else await self.to.store.history(ref) for ref in refs]
            for path, admitted in await asyncio.to_thread(self._admit_batch, batch, histories):
                if admitted is None:
                    self.remaining.pop(path, None)
                    self.progress(1)
                else:
                    yield admitted

    def _admit_batch(
        self, files: Sequence[FoundFile], histories: Sequence[Mapping[str, str]]
    ) -> list[tuple[str, AdmittedFile | None]]:
        """Read, admit and split several files; on return their records in the audit log are durable."""
        with self.to.audit.together() as audit:
            pairs = zip(files, histories, strict=True)
            return [(file.path, self._admit_file(file, history, audit)) for file, history in pairs]

    def _admit_file(self, file: FoundFile, history: Mapping[str, str], audit: AuditSink) -> AdmittedFile | None:
        """Return one file, admitted and split; None where nothing is to be stored, for the reason in the report.

        Parsers are foreign code: whatever they raise fails this file alone.
        """
        path = file.path
        try:
            content = self.source.read(path)
            before = self.stamps.get(path)
            if before and self._is_same(before, content):  # only its size or its times differ
                self._keep_unchanged(path, content, before.digest)
                return None
            return self._admit(path, content, history, audit)
        except FileNotFoundError:  # deleted between listing and reading
            self._remove_later(path)
        except Rejected as error:
            self._record_rejection(path, error)
        except KiwiError as error:
            self.report.failed[path] = error
        except Exception as error:  # noqa: BLE001  # see above
            self.report.failed[path] = SourceUnreadable(f"cannot be read: {type(error).__name__}: {str(error)[:200]}")
        return None

    def _keep_unchanged(self, path: str, content: SourceContent, digest: str) -> None:
        self.report.unchanged += 1
        self.touched.append(content.stamp(path, digest, self.rules))

    def _admit(
        self, path: str, content: SourceContent, history: Mapping[str, str], audit: AuditSink
    ) -> AdmittedFile | None:
        policy = self.to.policy
        if isinstance(content.candidate, DocumentFile):
            document, passages = self.writer.read_document(content.candidate, self.rules, policy, audit)
            before, present = self.stamps.get(path), (_UNREAD, document.content_sha256, self.rules)
            if before and (before.size, before.sha256, before.gate_stamp) == present:
                # Another user of a shared index stored this content, by the same rules.
                self._keep_unchanged(path, content, before.digest)
                return None
            admission = self.writer.admit_document(document, passages, policy, audit)
            self.report.warnings += document.findings
        else:
            admission = self.writer.gate.admit(content.candidate, policy, history, audit)
            passages = split(admission.item)
        return AdmittedFile(admission, passages, content.stamp(path, admission.digest, self.rules))

    def _record_rejection(self, path: str, error: Rejected) -> None:
        """Report a rejected file: as skipped, and to be removed, where it is no document, else as failed."""
        reason = next((finding.message for finding in error.findings if finding.code in _NO_DOCUMENT), "")
        if reason and self.to.workspace:
            self._skip(path, reason)
        else:
            self.report.failed[path] = error

    def _skip(self, path: str, reason: str) -> None:
        self.report.skipped[path] = reason
        self._remove_later(path)

    def _remove_later(self, path: str) -> None:
        if path in self.stamps:
            self.removed[path] = self.stamps[path]

    async def finish(self, *, whole: bool, prune: bool) -> None:
        """Save the stamps of touched files, and remove the content of removed files; let go what is kept of each file.

        Last, so that a moved file is found under its new path before the old one disappears.
        """
        self.states.put(self.touched)
        for path, stamp in self.removed.items() if prune else ():
            await self._remove(path, stamp)
        self.stamps, self.remaining = {}, {}
        if whole:
            self.save_state()

    def save_state(self) -> None:
        """Save whether all files were stored, and of which commit they are."""
        present = RunState.COMPLETE if self.report.complete else RunState.PARTLY, self.source.commit
        if (self.states.run_state(), self.states.run_commit()) != present:
            self.states.set_run_state(*present)

    async def _remove(self, path: str, stamp: SourceStamp) -> None:
        ref = stamp.ref
        if all(ref.key != admitted.key for admitted in self.report.admitted):  # the same id may have another path now
            await self.to.store.delete(ref)
        self.states.delete(path)
        self.to.audit.append(AuditEvent("removed", f"{ref.item_type}:{ref.item_id}", stamp.digest, "", {"path": path}))
        if ref.item_type is ItemType.DOCUMENT and (new_paths := self.new_paths.get(stamp.sha256)):
            self.report.moved[new_paths.pop(0)] = path
        else:
            self.report.deleted.append(ref)


async def _known_files(source: Source, to: Collection) -> dict[str, SourceStamp]:
    """Return path → what is known of its file, of all that is stored.

    A stamp counts only while the store has its statement: a store may have been repaired, dropped, or written by
    another machine. What is stored without such a stamp gets one that equals no file, so that its file is read.
    """
    local = None if to.policy.received_now else to.local_index
    shared = () if local else await to.store.list(Filters())
    digests = await local.digests() if local else {one.ref: one.digest for one in shared}
    stamps = await asyncio.to_thread(states_of(to).all)
    known = {path: stamp for path, stamp in stamps.items() if digests.get(stamp.ref) == stamp.digest}
    missing = digests.keys() - {stamp.ref for stamp in known.values()}
    contents = {one.ref: (one.content_sha256, _rules_of(one)) for one in shared if one.ref in missing}
    for ref in missing:
        path, (content, rules) = source.path_of(ref), contents.get(ref, ("", ""))
        known[path] = SourceStamp(path, _UNREAD, 0, content, "", rules, ref.item_type, ref.item_id, digests[ref])
    return known


def _rules_of(stored: StoredItem) -> str:
    """Return the rules that a stored document was indexed by; empty where it cannot be read: it is indexed again."""
    try:
        return "" if stored.problem else statement.parse_index(stored.envelope.payload).metadata.get(RULES, "")
    except KiwiError:
        return ""


async def _clear_other_model(to: Collection, writer: IngestContext) -> None:
    stored, model = (await to.store.status()).fingerprint, str(writer.embed.fingerprint)
    if not stored or stored == model:
        return
    if to.policy.received_now:
        hint = "use that model, or empty the index: kiwi workspace index --rebuild"
        raise FingerprintMismatch(f"the shared index holds vectors of {stored}, not of {model}", hint=hint)
    await to.clear()
