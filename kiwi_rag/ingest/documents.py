"""Bringing an index up to a workspace's files: walk → read → inspect → split → sign → admit → embed → store.

A file whose size and times are those of the last run is not opened; one whose bytes are the same is not embedded; a
passage whose text is known is not encoded. What was stored is durable, so a run that is killed goes on where it was.
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
from kiwi_rag.ingest.batches import AdmittedFile, encoded, store
from kiwi_rag.model import Document, sha256_hex
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.signing.document_statement import Indexer
from kiwi_rag.sources.workspace.config import WorkspaceConfig, head_commit
from kiwi_rag.sources.workspace.report import BEGUN, COMPLETE, PARTLY, RUN, WorkspaceReport
from kiwi_rag.sources.workspace.walk import FoundFile, NotWalked, find_file, is_path_ignored, walk, walk_below
from kiwi_rag.stores.base import FileStore, SourceStamp
from kiwi_rag.stores.shared import RULES
from kiwi_rag.validation.audit import AuditSink, gathered
from kiwi_rag.validation.document_gate import DocumentFile, cleaned
from kiwi_rag.validation.manager import ValidationManager

FORMATS_VERSION = 2
"""Raise it when a format, the splitter or the gate makes other passages of a file: every file is then read again."""


TICK_NS = 2_000_000_000
"""A file that changed within so many nanoseconds before it was read may change again without its times telling: some
file systems count in steps of two seconds. It is read once more by the next run (git calls such entries racy)."""

TOGETHER_BYTES = 32 << 10
"""Bytes of files that are judged in one go of a thread, with one commit of the audit log."""

_NO_DOCUMENT = ("bounds.binary", "bounds.empty", "bounds.size")


@dataclass(frozen=True, slots=True)
class DocumentIngestContext:
    """What writing documents needs beside a tier: the gate, the model, and who answers for the index."""

    gate: ValidationManager
    embed: EmbeddingProvider
    indexer: Indexer


@dataclass(frozen=True, slots=True)
class ProgressCallbacks:
    """Who is told how a run goes on.

    ``planned`` hears once how many files are new or changed, and returns what to call as they are done; ``stored``
    hears each path as soon as its document is durable.
    """

    planned: Callable[[int], Callable[[int], None]] = lambda _: lambda _: None
    stored: Callable[[str], None] = lambda _: None


NO_CALLBACKS = ProgressCallbacks()


async def index(  # noqa: PLR0913  # what a run depends on
    place: WorkspaceConfig,
    to: Tier[FileStore],
    writer: DocumentIngestContext,
    paths: Sequence[str] | None = None,
    listener: ProgressCallbacks = NO_CALLBACKS,
    *,
    prune: bool = True,
) -> WorkspaceReport:
    """Bring the index up to the workspace, or to its files at `paths` alone; return what was done.

    A file that cannot be read or is refused keeps what was last admitted of it, and is reported. May be stopped
    anywhere and run again. Without `prune` documents stay whose files are not here: a shared index has others' too.

    Raises
    ------
    NotFound
        When the root is not there.
    FingerprintMismatch
        When a shared index holds another model's vectors.
    StoreError
        When the index cannot be read or written; nothing is half-written.
    """
    if not await asyncio.to_thread(place.root.is_dir):  # before the index, which may stand in it, is made anew
        raise NotFound(f"{place.root} is no folder", hint="name the workspace's root: kiwi workspace index ROOT")
    async with to.store.writing():
        await _clear_other_model(to, writer)
        run = _Run(place, to, writer, rules(place, to, writer), await to.store.sources(), listener)
        changed = await asyncio.to_thread(run.survey, paths)
        whole = paths is None
        if whole and (changed or run.gone):
            await to.store.note(RUN, BEGUN)
        run.progress = listener.planned(len(changed))
        await run.store(changed)
        await run.finish(whole=whole, prune=prune)
    return run.report


def rules(place: WorkspaceConfig, to: Tier[FileStore], writer: DocumentIngestContext) -> str:
    """Return a name for the rules that files are judged, split, signed and embedded by; another name, another run."""
    indexer = writer.indexer
    parts = (
        FORMATS_VERSION,
        "" if to.policy.received_now else indexer.key.key_id,  # of a shared index any key's that is trusted will do
        indexer.registry,
        indexer.workspace,
        to.policy,
        sorted(place.domains.items()),
        sorted(place.services.items()),
        writer.embed.fingerprint,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@dataclass(slots=True)
class _Run:
    """One pass over a workspace, and what it met. ``fresh`` is digest → new paths of files that were stored."""

    place: WorkspaceConfig
    to: Tier[FileStore]
    writer: DocumentIngestContext
    rules: str
    known: Mapping[str, SourceStamp]
    listener: ProgressCallbacks
    report: WorkspaceReport = field(default_factory=WorkspaceReport)
    touched: list[SourceStamp] = field(default_factory=list)
    gone: dict[str, SourceStamp] = field(default_factory=dict)
    fresh: dict[str, list[str]] = field(default_factory=dict)
    progress: Callable[[int], None] = lambda _: None

    def survey(self, paths: Sequence[str] | None) -> list[FoundFile]:
        """Return the files that are new or may have changed, by their size and times; note those that are gone."""
        found = list(walk(self.place.root) if paths is None else self._named(paths))
        for refused in (entry for entry in found if isinstance(entry, NotWalked)):
            self.report.failed[refused.path] = refused.error
        files = [entry for entry in found if isinstance(entry, FoundFile)]
        there = {file.path for file in files}
        meant = self.known if paths is None else self._known_at(paths)
        self.gone = {path: self.known[path] for path in meant if path not in there and not self._may_be_there(path)}
        return [file for file in files if not self._is_settled(file)]

    def _named(self, paths: Sequence[str]) -> Iterable[FoundFile | NotWalked]:
        """Yield the files at some paths and below them; tell of each path why it gives none."""
        for path in dict.fromkeys(paths):
            if is_path_ignored(self.place.root, path):
                self.report.skipped[path] = "left out, by .kiwiignore, .gitignore or its name"
            elif (self.place.root / path).is_dir():
                yield from walk_below(self.place.root, path)
            elif entry := find_file(self.place.root, path):
                yield entry
            elif not self._known_at([path]):
                self.report.skipped[path] = "there is no such file that is text"

    def _known_at(self, paths: Sequence[str]) -> Sequence[str]:
        """Return the indexed files at some paths, and below them: they are folders, or may have been."""
        lost = tuple(f"{path}/" for path in paths if not (self.place.root / path).is_file())
        named = set(paths)
        return [path for path in self.known if path in named or path.startswith(lost)]

    def _may_be_there(self, path: str) -> bool:
        """Whether a file stands in a place that could not be looked at."""
        return any(failed in (".", path) or path.startswith(f"{failed}/") for failed in self.report.failed)

    def _is_settled(self, file: FoundFile) -> bool:
        """Whether a file is as it was, or its size alone says that it is no document."""
        before = self.known.get(file.path)
        limit = self.to.policy.max_bytes
        if not 0 < file.size <= limit:
            self.report.skipped[file.path] = f"over {limit >> 20} MiB" if file.size else "empty"
            if before:
                self.gone[file.path] = before
            return True
        seen = (file.size, file.changed_ns, self.rules)
        if before is None or (before.size, before.mtime_ns, before.gate_stamp) != seen:
            return False
        self.report.unchanged += 1
        return True

    async def store(self, changed: Sequence[FoundFile]) -> None:
        """Read, admit, embed and store what changed; a model that fails ends it, and every file left over says so.

        A server that refuses a text costs the file that holds it alone: those that are left then go one by one.
        """
        commit = await asyncio.to_thread(head_commit, self.place.root) if changed else ""
        left = {file.path: file for file in changed}
        try:
            try:
                await self._store(changed, commit, left)
            except TextsRefused:
                for file in list(left.values()):
                    await self._store_alone(file, commit, left)
        except EmbeddingError as error:
            self.report.failed.update(dict.fromkeys(left, error))

    async def _store(self, files: Sequence[FoundFile], commit: str, left: dict[str, FoundFile]) -> None:
        async with aclosing(encoded(self._works(files, commit, left), self.writer.embed)) as ready:
            async for group in ready:
                await store(group, self.to)
                for one in group:
                    left.pop(one.work.stamp.path, None)
                    self._stored(one.work)

    async def _store_alone(self, file: FoundFile, commit: str, left: dict[str, FoundFile]) -> None:
        try:
            await self._store([file], commit, left)
        except TextsRefused as error:
            self.report.failed[file.path] = error
            left.pop(file.path, None)

    def _stored(self, work: AdmittedFile) -> None:
        path = work.stamp.path
        self.report.indexed.append(path)
        self.report.passages += len(work.passages)
        if path not in self.known:
            self.fresh.setdefault(work.stamp.sha256, []).append(path)
        self.listener.stored(path)
        self.progress(1)

    async def _works(
        self, files: Sequence[FoundFile], commit: str, left: dict[str, FoundFile]
    ) -> AsyncGenerator[AdmittedFile]:
        for some in _by_size(files):
            for path, work in await asyncio.to_thread(self._judged, some, commit):
                if work is None:
                    left.pop(path, None)
                    self.progress(1)
                else:
                    yield work

    def _judged(self, files: Sequence[FoundFile], commit: str) -> list[tuple[str, AdmittedFile | None]]:
        """Return files that are read together, admitted and split; their records in the audit log are durable then."""
        with gathered(self.to.audit) as audit:
            return [(file.path, self._work(file.path, commit, audit)) for file in files]

    def _work(self, path: str, commit: str, audit: AuditSink) -> AdmittedFile | None:
        """Return one file, admitted and split; None where nothing is to be stored of it, which the report tells.

        Parsers are strangers' code: whatever they raise is this file's failure, and no other's.
        """
        try:
            read = self._read(path, commit)
            return self._admitted(*read, audit) if read else None
        except FileNotFoundError:  # deleted between listing and reading
            self._lose(path)
        except Rejected as error:
            self._refused(path, error)
        except KiwiError as error:
            self.report.failed[path] = error
        except Exception as error:  # noqa: BLE001  # see above
            self.report.failed[path] = SourceUnreadable(f"cannot be read: {type(error).__name__}: {str(error)[:200]}")
        return None

    def _read(self, path: str, commit: str) -> tuple[DocumentFile, SourceStamp] | None:
        """Return a file's bytes and its stamp; None where the bytes are those of the last run."""
        data, entry = self.place.read(path, self.to.policy.max_bytes)
        digest, changed_ns = sha256_hex(data), max(entry.st_mtime_ns, entry.st_ctime_ns)
        seen = changed_ns if time.time_ns() - changed_ns > TICK_NS else 0
        stamp = SourceStamp(path, entry.st_size, seen, digest, "", self.rules, ItemType.DOCUMENT, path, digest)
        before = self.known.get(path)
        if before and (before.sha256, before.gate_stamp) == (digest, self.rules):
            self.report.unchanged += 1
            self.touched.append(stamp)
            return None
        modified = datetime.fromtimestamp(int(entry.st_mtime), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        service = self.place.service_of(path)
        labels = {"last_modified": modified, "git_commit": commit, "service": service, RULES: self.rules}
        return DocumentFile(path, data, labels), stamp

    def _admitted(self, file: DocumentFile, stamp: SourceStamp, audit: AuditSink) -> AdmittedFile:
        gate, policy = self.writer.gate, self.to.policy
        document = self._with_domain(gate.inspect_document(file, policy, audit))
        passages = split_document(document)
        envelope = self.writer.indexer.sign(document, passages, datetime.now(UTC))
        admission = gate.admit_document(document, passages, envelope, policy, audit)
        self.report.warnings += document.findings
        return AdmittedFile(admission, passages, stamp)

    def _with_domain(self, document: Document) -> Document:
        """Return a document with the domain that the settings name for its service, where it names none itself."""
        domain = self.place.domains.get(str(document.metadata["service"]), "")
        if document.metadata["domain"] or not domain:
            return document
        return replace(document, metadata={**document.metadata, "domain": cleaned([domain])[domain]})

    def _refused(self, path: str, error: Rejected) -> None:
        """Note a file that the gate keeps nothing of: it is no document, or it is refused."""
        reasons = [finding.message for finding in error.findings if finding.code in _NO_DOCUMENT]
        if not reasons:
            self.report.failed[path] = error
            return
        self.report.skipped[path] = reasons[0]
        self._lose(path)

    def _lose(self, path: str) -> None:
        if path in self.known:
            self.gone[path] = self.known[path]

    async def finish(self, *, whole: bool, prune: bool) -> None:
        """Remove what is gone, now that what moved is there under its new name; keep the stamps of what was touched."""
        for stamp in self.touched:
            await self.to.store.put_source(stamp)
        for path, stamp in self.gone.items() if prune else ():
            await self._remove(path, stamp)
        self.report.complete = not self.report.failed
        if whole:
            state = COMPLETE if self.report.complete else PARTLY
            if await self.to.store.noted(RUN) != state:
                await self.to.store.note(RUN, state)

    async def _remove(self, path: str, stamp: SourceStamp) -> None:
        await self.to.store.delete(ItemRef(ItemType.DOCUMENT, path))
        await self.to.store.delete_source(path)
        self.to.audit.append("removed", f"{ItemType.DOCUMENT}:{path}", stamp.digest, "", {"path": path})
        new = self.fresh.get(stamp.sha256)
        if new:
            self.report.moved[new.pop(0)] = path
        else:
            self.report.removed.append(path)


def _by_size(files: Iterable[FoundFile]) -> Iterator[list[FoundFile]]:
    """Yield files in their order, some together: up to `TOGETHER_BYTES`, or one that is larger."""
    some: list[FoundFile] = []
    size = 0
    for file in files:
        size += file.size
        if some and size > TOGETHER_BYTES:
            yield some
            some, size = [], file.size
        some.append(file)
    if some:
        yield some


async def _clear_other_model(to: Tier[FileStore], writer: DocumentIngestContext) -> None:
    held, own = (await to.store.status()).fingerprint, str(writer.embed.fingerprint)
    if not held or held == own:
        return
    if to.policy.received_now:
        hint = (
            "use that model; or, in a registry, kiwi workspace index --rebuild; in Qdrant another KIWI_WORKSPACE_NAME"
        )
        raise FingerprintMismatch(f"the shared index holds vectors of {held}, not of {own}", hint=hint)
    await to.store.clear()
