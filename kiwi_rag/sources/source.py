"""What a collection's content comes from: the base of sources, what they find, and the report; item files as a source.

The items of a tier are below a ``.ai`` folder, each with its signature.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kiwi_rag.collection import Collection
from kiwi_rag.errors import EmbeddingError, KiwiError, Rejected, SourceUnreadable
from kiwi_rag.formats.source import ItemCandidate, SourceFile, locate, path_of, walk
from kiwi_rag.model import Finding, ItemRef, ItemType, content_digest, sha256_hex
from kiwi_rag.stores.base import SourceStamp
from kiwi_rag.validation.document_gate import DocumentFile
from kiwi_rag.validation.manager import ValidationManager

TICK_NS = 2_000_000_000
"""A file that changed within so many nanoseconds before it was read may change again with the same times, because some
file systems store times in steps of two seconds. The next run reads it again (git calls such entries racy)."""


@dataclass(frozen=True, slots=True)
class SourceContent:
    """A file that was read: what the gate judges, and digests by which its next version is recognised.

    ``sig_sha256`` is of the signature, empty where there is none. ``changed_ns`` is 0 where the times of the file do
    not tell whether it changes again.
    """

    candidate: ItemCandidate | DocumentFile
    sha256: str
    sig_sha256: str = ""
    size: int = 0
    changed_ns: int = 0

    @property
    def ref(self) -> ItemRef:
        """The item or document, without a version."""
        one = self.candidate
        return ItemRef(ItemType.DOCUMENT, one.path) if isinstance(one, DocumentFile) else one.ref

    def stamp(self, path: str, digest: str, rules: str) -> SourceStamp:
        """Return the state of the file at `path`, whose statement has this digest, for the next run to compare with."""
        # 0 equals the times of no file: the next run reads it again.
        changed_ns = self.changed_ns if time.time_ns() - self.changed_ns > TICK_NS else 0
        ref, digests = self.ref, (self.sha256, self.sig_sha256)
        return SourceStamp(path, self.size, changed_ns, *digests, rules, ref.item_type, ref.item_id, digest)


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that is to be indexed: its path in its source, its size in bytes, and when it last changed.

    ``changed_ns`` is the later of modification time and change time, in nanoseconds since 1970: a program can set the
    modification time back, but not the change time. ``content`` is set where these do not tell that it is unchanged:
    a run compares it and lets it go, and reads the file again when its turn comes.
    """

    path: str
    size: int
    changed_ns: int
    content: SourceContent | None = None


class Source(ABC):
    """Where the content of a collection comes from. Its methods block."""

    @property
    def rules(self) -> Sequence[object]:
        """What else than a file's bytes decides what is indexed of it; the same text for the same rules."""
        return ()

    @property
    def commit(self) -> str:
        """The commit that the files are of; empty if they are of none."""
        return ""

    def check(self) -> None:  # noqa: B027  # a tier without a folder has no items
        """Raise `NotFound` when the source does not exist: a missing one must not be taken for an empty one."""

    @abstractmethod
    def find(self, paths: Sequence[str] | None, indexed: Sequence[str], report: SyncReport) -> Iterable[FoundFile]:
        """Yield the files of the source in the order of their paths; at least those at `paths` and below them.

        What cannot be read, listed or followed is put into `report`, and what is not indexed. `indexed` are the paths
        that the collection has.
        """

    @abstractmethod
    def path_of(self, ref: ItemRef) -> str:
        """Return the path of an item or document in this source."""

    def may_exist(self, path: str) -> bool:
        """Whether a file that was not found may exist nevertheless."""
        return False

    def ref_of(self, path: str) -> ItemRef:
        """Return the item or document whose file was found at a path."""
        return ItemRef(ItemType.DOCUMENT, path)

    def read(self, path: str) -> SourceContent:
        """Read a file that was found.

        Raises
        ------
        FileNotFoundError
            When it does not exist any more.
        KiwiError
            When it cannot be read.
        """
        raise FileNotFoundError(path)


def named_paths(paths: Sequence[str], indexed: Sequence[str]) -> Sequence[str]:
    """Return those of the indexed paths that are one of `paths`, or below one that is a folder or may have been."""
    names, folders = set(paths), tuple(f"{path}/" for path in paths)
    return [path for path in indexed if path in names or path.startswith(folders)]


def describe_error(error: KiwiError) -> str:
    """Return why one file failed: of a rejection, the message of each finding."""
    messages = (
        [finding.message for finding in error.findings if finding.is_error] if isinstance(error, Rejected) else []
    )
    return "; ".join(messages) or error.message


@dataclass(slots=True)
class SyncReport:
    """The outcome of one run.

    ``admitted`` holds items and documents in the order in which they were stored, ``deleted`` those without a file,
    ``moved`` new path → old path of
    files with the same bytes. ``skipped`` is path → why it is not indexed (empty, no text, too large), ``failed``
    path → its error; the collection keeps the last content of a failed file. ``warnings`` say what was redacted in a
    file, or why one was read as plain text. ``passages`` counts those that were stored, ``embedded`` those that got
    their vector after that: documents in a local index are found by words first, and a failed one may be, too.
    """

    admitted: list[ItemRef] = field(default_factory=list)
    unchanged: int = 0
    deleted: list[ItemRef] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, KiwiError] = field(default_factory=dict)
    warnings: list[Finding] = field(default_factory=list)
    passages: int = 0
    embedded: int = 0

    @property
    def complete(self) -> bool:
        """Whether no file failed."""
        return not self.failed

    @property
    def indexed(self) -> list[str]:
        """The ids of what was stored; of a document that is its path."""
        return [ref.item_id for ref in self.admitted]

    @property
    def removed(self) -> list[str]:
        """The ids of what was removed; of a document that is its path."""
        return [ref.item_id for ref in self.deleted]

    @property
    def findings(self) -> list[tuple[str, str, str, str]]:
        """What was found in single files: failed, warning or skipped, then path, message and hint."""
        # Copies, because a run in a thread may be filling the report.
        rows = [("failed", path, describe_error(error), error.hint) for path, error in self.failed.copy().items()]
        rows += [("warning", found.where, found.message, found.hint) for found in self.warnings.copy()]
        return rows + [("skipped", path, reason, "") for path, reason in self.skipped.copy().items()]

    @property
    def rejected(self) -> list[Rejected]:
        """The rejections among the failures."""
        return [error for error in self.failed.values() if isinstance(error, Rejected)]

    @property
    def model_failure(self) -> EmbeddingError | None:
        """The failure of the embedding model, if there was one: it concerns more than one file."""
        return next((error for error in self.failed.values() if isinstance(error, EmbeddingError)), None)

    def raise_unless_rejected(self) -> None:
        """Raise the first failure that is no rejection of one file by the gate."""
        for error in self.failed.values():
            if not isinstance(error, Rejected):
                raise error

    def as_dict(self) -> Mapping[str, Any]:
        """Return the report as JSON-ready data."""
        return {
            "indexed": self.indexed,
            "unchanged": self.unchanged,
            "removed": self.removed,
            "moved": [{"path": new, "from": old} for new, old in self.moved.items()],
            "skipped": [{"path": path, "reason": reason} for path, reason in self.skipped.items()],
            "failed": [
                {"path": path, **error.as_dict(), "message": describe_error(error)}
                for path, error in self.failed.items()
            ],
            "warnings": [finding.as_dict() for finding in self.warnings],
            "passages": self.passages,
            "embedded": self.embedded,
            "complete": self.complete,
        }


@dataclass(frozen=True, slots=True)
class ItemSource(Source):
    """The items of a collection's root. Each file is read when it is found, too; the gate records an unreadable one."""

    to: Collection
    gate: ValidationManager

    def find(self, paths: Sequence[str] | None, indexed: Sequence[str], report: SyncReport) -> Iterator[FoundFile]:
        """Yield the item files below the root, with their content, by type and path."""
        for source in walk(root_of(self.to)):
            path = str(source.path)
            if paths is not None and not named_paths(paths, [path]):
                continue
            try:
                content = content_of(read(source, self.to, self.gate))
            except Rejected as rejection:
                report.failed[path] = rejection
            else:
                yield FoundFile(path, content.size, 0, content)

    def path_of(self, ref: ItemRef) -> str:
        """Return the path of an item's file."""
        return str(path_of(root_of(self.to), ref))

    def ref_of(self, path: str) -> ItemRef:
        """Return the item whose main file was found at a path."""
        return ItemRef(*locate(root_of(self.to), Path(path)))

    def read(self, path: str) -> SourceContent:
        """Read an item that was found, and its signature; raises as `Source.read`."""
        if not self.may_exist(path):
            raise FileNotFoundError(path)
        ref = self.ref_of(path)
        return content_of(read(SourceFile(Path(path), ref.item_type, ref.item_id), self.to, self.gate))

    def may_exist(self, path: str) -> bool:
        """Whether a file exists; one that cannot be inspected counts as existing."""
        try:
            Path(path).lstat()
        except OSError as error:
            return not isinstance(error, FileNotFoundError | NotADirectoryError)
        return True


def read(source: SourceFile, to: Collection, gate: ValidationManager) -> ItemCandidate:
    """Read an item of a collection and its signature.

    Raises
    ------
    Rejected
        When it has no legal id or cannot be read; one audit record is written.
    """
    return gate.read(source, root_of(to), to.policy, to.audit, to.name)


def content_of(candidate: ItemCandidate) -> SourceContent:
    """Return an item that was read, with the digests of its files and of its signature."""
    size = sum(map(len, candidate.files.values()))
    content = f"{content_digest(candidate.digests)} {candidate.executables}"  # what may be executed is signed, too
    signature = sha256_hex(candidate.signature) if candidate.signature is not None else ""
    return SourceContent(candidate, sha256_hex(content.encode()), signature, size)


def root_of(to: Collection) -> Path:
    """Return the folder that contains a collection's files.

    Raises
    ------
    SourceUnreadable
        When it is a collection without files.
    """
    if to.root is None:
        raise SourceUnreadable(f"the {to.name} tier has no files")
    return to.root
