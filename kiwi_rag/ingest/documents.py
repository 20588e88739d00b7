"""The update of a workspace's index: walk → read → inspect → split → sign → admit → embed → store.

A file with the size and times of the last run is not opened, one with the same bytes is not embedded, and a passage
with a cached text is not encoded. Stored documents are durable, so the run after a kill continues where that stopped.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from kiwi_rag.chunking import split_document
from kiwi_rag.collection import Tier
from kiwi_rag.embedding.base import EmbeddingProvider
from kiwi_rag.errors import (
    EmbeddingError,
    FingerprintMismatch,
    KiwiError,
    NotFound,
    Rejected,
    SourceUnreadable,
    TextsRefused,
)
from kiwi_rag.ingest.batches import AdmittedFile, encode_files, store
from kiwi_rag.model import Document, sha256_hex
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.signing.document_statement import Indexer
from kiwi_rag.sources.workspace.config import WorkspaceConfig, head_commit
from kiwi_rag.sources.workspace.report import BEGUN, COMPLETE, PARTLY, RUN, WorkspaceReport
from kiwi_rag.sources.workspace.walk import FoundFile, NotWalked, find_file, is_path_ignored, walk, walk_below
from kiwi_rag.stores.base import FileStore, SourceStamp
from kiwi_rag.stores.shared import RULES
from kiwi_rag.validation.audit import AuditSink, append_together
from kiwi_rag.validation.document_gate import DocumentFile, clean_labels
from kiwi_rag.validation.manager import ValidationManager

FORMATS_VERSION = 2
"""Raise it when a format, the splitter or the gate makes other passages of a file: every file is then read again."""

TICK_NS = 2_000_000_000
"""A file that changed within so many nanoseconds before it was read may change again with the same times, because some
file systems store times in steps of two seconds. The next run reads it again (git calls such entries racy)."""

BATCH_BYTES = 32 << 10
"""Bytes of files that one call in a thread admits, with one commit of the audit log."""

_NO_DOCUMENT = ("bounds.binary", "bounds.empty", "bounds.size")


@dataclass(frozen=True, slots=True)
class DocumentIngestContext:
    """The gate, the embedding provider, and the indexer whose key signs what is indexed."""

    gate: ValidationManager
    embed: EmbeddingProvider
    indexer: Indexer


@dataclass(frozen=True, slots=True)
class ProgressCallbacks:
    """The callbacks of a run.

    ``planned`` is called once with the number of new or changed files, and returns the callback for finished files.
    ``stored`` is called with each path as soon as its document is durable.
    """

    planned: Callable[[int], Callable[[int], None]] = lambda _: lambda _: None
    stored: Callable[[str], None] = lambda _: None


NO_CALLBACKS = ProgressCallbacks()


async def index(  # noqa: PLR0913  # what a run depends on
    workspace: WorkspaceConfig,
    to: Tier[FileStore],
    writer: DocumentIngestContext,
    paths: Sequence[str] | None = None,
    callbacks: ProgressCallbacks = NO_CALLBACKS,
    *,
    prune: bool = True,
) -> WorkspaceReport:
    """Update the index from the workspace, or from its files at `paths` alone; return what was done.

    The index keeps the last admitted document of a file that is rejected now or cannot be read; the report names it.
    A run may be stopped anywhere and repeated. Without `prune` documents without a file here are kept: a shared index
    contains documents of other checkouts.

    Raises
    ------
    NotFound
        When the root does not exist.
    FingerprintMismatch
        When a shared index holds another model's vectors.
    StoreError
        When the index cannot be read or written; nothing is half-written.
    """
    if not await asyncio.to_thread(workspace.root.is_dir):  # before the index, which may be inside it, is created
        raise NotFound(f"{workspace.root} is no folder", hint="name the workspace's root: kiwi workspace index ROOT")
    async with to.store.writing():
        await _clear_other_model(to, writer)
        rules = fingerprint_rules(workspace, to, writer)
        run = _Run(workspace, to, writer, rules, await to.store.sources(), callbacks)
        changed = await asyncio.to_thread(run.find_changed, paths)
        whole = paths is None
        if whole and (changed or run.removed):
            await to.store.put_note(RUN, BEGUN)
        run.progress = callbacks.planned(len(changed))
        await run.store(changed)
        await run.finish(whole=whole, prune=prune)
    return run.report


def fingerprint_rules(workspace: WorkspaceConfig, to: Tier[FileStore], writer: DocumentIngestContext) -> str:
    """Return a digest of the rules that files are inspected, split, signed and embedded by.

    When it changes, every file is processed again.
    """
    indexer = writer.indexer
    parts = (
        FORMATS_VERSION,
        "" if to.policy.received_now else indexer.key.key_id,  # in a shared index any trusted key may have signed
        indexer.registry,
        indexer.workspace,
        to.policy,
        sorted(workspace.domains.items()),
        sorted(workspace.services.items()),
        writer.embed.fingerprint,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@dataclass(slots=True)
class _Run:
    """One pass over a workspace.

    ``stamps`` is path → what the index knows of its files, ``touched`` the new stamps of files with unchanged bytes,
    ``removed`` path → stamp of files that are no longer there. ``new_paths`` is digest → stored paths that are new, by
    which a moved file is recognised.
    """

    workspace: WorkspaceConfig
    to: Tier[FileStore]
    writer: DocumentIngestContext
    rules: str
    stamps: Mapping[str, SourceStamp]
    callbacks: ProgressCallbacks
    report: WorkspaceReport = field(default_factory=WorkspaceReport)
    touched: list[SourceStamp] = field(default_factory=list)
    removed: dict[str, SourceStamp] = field(default_factory=dict)
    new_paths: dict[str, list[str]] = field(default_factory=dict)
    progress: Callable[[int], None] = lambda _: None

    def find_changed(self, paths: Sequence[str] | None) -> list[FoundFile]:
        """Return the files that are new or may have changed, by size and times; collect those that were removed."""
        found = list(walk(self.workspace.root) if paths is None else self._named(paths))
        self.report.failed.update({entry.path: entry.error for entry in found if isinstance(entry, NotWalked)})
        files = [entry for entry in found if isinstance(entry, FoundFile)]
        existing = {file.path for file in files}
        indexed = self.stamps if paths is None else self._indexed_at(paths)
        self.removed = {
            path: self.stamps[path] for path in indexed if path not in existing and not self._may_exist(path)
        }
        return [file for file in files if not self._needs_no_read(file)]

    def _named(self, paths: Sequence[str]) -> Iterable[FoundFile | NotWalked]:
        """Yield the files at some paths and below them; report why a path gives none."""
        for path in dict.fromkeys(paths):
            if is_path_ignored(self.workspace.root, path):
                self.report.skipped[path] = "left out, by .kiwiignore, .gitignore or its name"
            elif (self.workspace.root / path).is_dir():
                yield from walk_below(self.workspace.root, path)
            elif entry := find_file(self.workspace.root, path):
                yield entry
            elif not self._indexed_at([path]):
                self.report.skipped[path] = "there is no such file that is text"

    def _indexed_at(self, paths: Sequence[str]) -> Sequence[str]:
        """Return the indexed files at some paths, and below those that are folders or may have been."""
        folders = tuple(f"{path}/" for path in paths if not (self.workspace.root / path).is_file())
        named = set(paths)
        return [path for path in self.stamps if path in named or path.startswith(folders)]

    def _may_exist(self, path: str) -> bool:
        """Whether a file is below a folder that could not be listed."""
        return any(failed in (".", path) or path.startswith(f"{failed}/") for failed in self.report.failed)

    def _needs_no_read(self, file: FoundFile) -> bool:
        """Whether a file is unchanged, or cannot be a document because of its size."""
        before = self.stamps.get(file.path)
        limit = self.to.policy.max_bytes
        if not 0 < file.size <= limit:
            self.report.skipped[file.path] = f"over {limit >> 20} MiB" if file.size else "empty"
            if before:
                self.removed[file.path] = before
            return True
        present = (file.size, file.changed_ns, self.rules)
        if before is None or (before.size, before.mtime_ns, before.gate_stamp) != present:
            return False
        self.report.unchanged += 1
        return True

    async def store(self, changed: Sequence[FoundFile]) -> None:
        """Read, admit, embed and store changed files; if the model fails, all remaining files are reported as failed.

        If a server refuses a text, the remaining files are embedded one by one, so that only the file with the text
        fails.
        """
        commit = await asyncio.to_thread(head_commit, self.workspace.root) if changed else ""
        remaining = {file.path: file for file in changed}
        try:
            try:
                await self._store(changed, commit, remaining)
            except TextsRefused:
                for file in list(remaining.values()):
                    await self._store_alone(file, commit, remaining)
        except EmbeddingError as error:
            self.report.failed.update(dict.fromkeys(remaining, error))

    async def _store(self, files: Sequence[FoundFile], commit: str, remaining: dict[str, FoundFile]) -> None:
        async with aclosing(encode_files(self._admitted_files(files, commit, remaining), self.writer.embed)) as ready:
            async for group in ready:
                await store(group, self.to)
                for one in group:
                    remaining.pop(one.file.stamp.path, None)
                    self._record_stored(one.file)

    async def _store_alone(self, file: FoundFile, commit: str, remaining: dict[str, FoundFile]) -> None:
        try:
            await self._store([file], commit, remaining)
        except TextsRefused as error:
            self.report.failed[file.path] = error
            remaining.pop(file.path, None)

    def _record_stored(self, file: AdmittedFile) -> None:
        path = file.stamp.path
        self.report.indexed.append(path)
        self.report.passages += len(file.passages)
        if path not in self.stamps:
            self.new_paths.setdefault(file.stamp.sha256, []).append(path)
        self.callbacks.stored(path)
        self.progress(1)

    async def _admitted_files(
        self, files: Sequence[FoundFile], commit: str, remaining: dict[str, FoundFile]
    ) -> AsyncGenerator[AdmittedFile]:
        for batch in _batch_by_size(files):
            for path, admitted in await asyncio.to_thread(self._admit_batch, batch, commit):
                if admitted is None:
                    remaining.pop(path, None)
                    self.progress(1)
                else:
                    yield admitted

    def _admit_batch(self, files: Sequence[FoundFile], commit: str) -> list[tuple[str, AdmittedFile | None]]:
        """Read, admit and split several files; on return their records in the audit log are durable."""
        with append_together(self.to.audit) as audit:
            return [(file.path, self._admit_path(file.path, commit, audit)) for file in files]

    def _admit_path(self, path: str, commit: str, audit: AuditSink) -> AdmittedFile | None:
        """Return one file, admitted and split; None where nothing is to be stored, for the reason in the report.

        Parsers are foreign code: whatever they raise fails this file alone.
        """
        try:
            read = self._read(path, commit)
            return self._admit(*read, audit) if read else None
        except FileNotFoundError:  # deleted between listing and reading
            self._remove_later(path)
        except Rejected as error:
            self._record_rejection(path, error)
        except KiwiError as error:
            self.report.failed[path] = error
        except Exception as error:  # noqa: BLE001  # see above
            self.report.failed[path] = SourceUnreadable(f"cannot be read: {type(error).__name__}: {str(error)[:200]}")
        return None

    def _read(self, path: str, commit: str) -> tuple[DocumentFile, SourceStamp] | None:
        """Return a file's bytes and its stamp; None where the bytes are unchanged since the last run."""
        data, entry = self.workspace.read(path, self.to.policy.max_bytes)
        digest, changed_ns = sha256_hex(data), max(entry.st_mtime_ns, entry.st_ctime_ns)
        stamped_ns = changed_ns if time.time_ns() - changed_ns > TICK_NS else 0  # 0: the next run reads the file again
        stamp = SourceStamp(path, entry.st_size, stamped_ns, digest, "", self.rules, ItemType.DOCUMENT, path, digest)
        before = self.stamps.get(path)
        if before and (before.sha256, before.gate_stamp) == (digest, self.rules):
            self.report.unchanged += 1
            self.touched.append(stamp)
            return None
        modified = datetime.fromtimestamp(int(entry.st_mtime), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        service = self.workspace.service_of(path)
        labels = {"last_modified": modified, "git_commit": commit, "service": service, RULES: self.rules}
        return DocumentFile(path, data, labels), stamp

    def _admit(self, file: DocumentFile, stamp: SourceStamp, audit: AuditSink) -> AdmittedFile:
        gate, policy = self.writer.gate, self.to.policy
        document = self._with_domain(gate.inspect_document(file, policy, audit))
        passages = split_document(document)
        envelope = self.writer.indexer.sign(document, passages, datetime.now(UTC))
        admission = gate.admit_document(document, passages, envelope, policy, audit)
        self.report.warnings += document.findings
        return AdmittedFile(admission, passages, stamp)

    def _with_domain(self, document: Document) -> Document:
        """Return a document with the domain of its service in the settings, where the document names none."""
        domain = self.workspace.domains.get(str(document.metadata["service"]), "")
        if document.metadata["domain"] or not domain:
            return document
        return replace(document, metadata={**document.metadata, "domain": clean_labels([domain])[domain]})

    def _record_rejection(self, path: str, error: Rejected) -> None:
        """Report a rejected file: as skipped, and to be removed, where it is no document, else as failed."""
        reasons = [finding.message for finding in error.findings if finding.code in _NO_DOCUMENT]
        if not reasons:
            self.report.failed[path] = error
            return
        self.report.skipped[path] = reasons[0]
        self._remove_later(path)

    def _remove_later(self, path: str) -> None:
        if path in self.stamps:
            self.removed[path] = self.stamps[path]

    async def finish(self, *, whole: bool, prune: bool) -> None:
        """Save the stamps of touched files, and remove the documents of removed files.

        Last, so that a moved file is found under its new path before the old one disappears.
        """
        for stamp in self.touched:
            await self.to.store.put_source(stamp)
        for path, stamp in self.removed.items() if prune else ():
            await self._remove(path, stamp)
        self.report.complete = not self.report.failed
        if whole:
            state = COMPLETE if self.report.complete else PARTLY
            if await self.to.store.get_note(RUN) != state:
                await self.to.store.put_note(RUN, state)

    async def _remove(self, path: str, stamp: SourceStamp) -> None:
        await self.to.store.delete(ItemRef(ItemType.DOCUMENT, path))
        await self.to.store.delete_source(path)
        self.to.audit.append("removed", f"{ItemType.DOCUMENT}:{path}", stamp.digest, "", {"path": path})
        if new_paths := self.new_paths.get(stamp.sha256):
            self.report.moved[new_paths.pop(0)] = path
        else:
            self.report.removed.append(path)


def _batch_by_size(files: Iterable[FoundFile]) -> Iterator[list[FoundFile]]:
    """Yield files in their order in batches of up to `BATCH_BYTES`; a larger file is a batch by itself."""
    batch: list[FoundFile] = []
    size = 0
    for file in files:
        size += file.size
        if batch and size > BATCH_BYTES:
            yield batch
            batch, size = [], file.size
        batch.append(file)
    if batch:
        yield batch


async def _clear_other_model(to: Tier[FileStore], writer: DocumentIngestContext) -> None:
    stored, model = (await to.store.status()).fingerprint, str(writer.embed.fingerprint)
    if not stored or stored == model:
        return
    if to.policy.received_now:
        hint = (
            "use that model; or, in a registry, kiwi workspace index --rebuild; in Qdrant another KIWI_WORKSPACE_NAME"
        )
        raise FingerprintMismatch(f"the shared index holds vectors of {stored}, not of {model}", hint=hint)
    await to.store.clear()
