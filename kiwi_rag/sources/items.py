"""Item files below a ``.ai`` folder as a source, and the reading of one with its signature."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kiwi_rag.collection import Collection
from kiwi_rag.errors import Rejected, SourceUnreadable
from kiwi_rag.formats.source import SourceFile, path_of, walk
from kiwi_rag.model import content_digest, sha256_hex
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.sources.source import FoundFile, NotWalked, SourceContent
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.validation.manager import ValidationManager
from kiwi_rag.validation.signature import ItemCandidate


@dataclass(frozen=True, slots=True)
class ItemSource:
    """The items of a collection's root. Each file is read when it is found; the gate records those that cannot be."""

    to: Collection[VectorStore]
    gate: ValidationManager

    @property
    def rules(self) -> Sequence[object]:
        """Nothing: what decides is in the gate."""
        return ()

    def check(self) -> None:
        """Do nothing: a tier without a folder has no items."""

    def find(self, paths: Sequence[str] | None, indexed: Sequence[str]) -> Iterator[FoundFile | NotWalked]:
        """Yield the item files below the root, with their content, by type and path."""
        for source in walk(root_of(self.to)):
            path = str(source.path)
            if paths is not None and not self.named(paths, [path]):
                continue
            try:
                content = content_of(read(source, self.to, self.gate))
            except Rejected as rejection:
                yield NotWalked(path, rejection)
            else:
                yield FoundFile(path, content.size, 0, content)

    def named(self, paths: Sequence[str], indexed: Sequence[str]) -> Sequence[str]:
        """Return those of the indexed files that are one of `paths` or below one."""
        return [path for path in indexed if any(path == one or path.startswith(f"{one}/") for one in paths)]

    def path_of(self, ref: ItemRef) -> str:
        """Return the path of an item's file."""
        return str(path_of(root_of(self.to), ref))

    def may_exist(self, path: str) -> bool:
        """Whether a file exists; one that cannot be inspected counts as existing."""
        try:
            Path(path).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return True

    def read(self, path: str) -> SourceContent:
        """Raise `FileNotFoundError`: each file was read when it was found."""
        raise FileNotFoundError(path)


def read(source: SourceFile, to: Collection[VectorStore], gate: ValidationManager) -> ItemCandidate:
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


def root_of(to: Collection[VectorStore]) -> Path:
    """Return the folder that contains a collection's files.

    Raises
    ------
    SourceUnreadable
        When it is a collection without files.
    """
    if to.root is None:
        raise SourceUnreadable(f"the {to.name} tier has no files")
    return to.root
