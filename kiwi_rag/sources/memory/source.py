"""The exchanges of a memory as a source of documents: each is one, with the path that its ids give it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kiwi_rag.model import Exchange, ItemRef, sha256_hex
from kiwi_rag.sources.memory.exchanges import ExchangeTable
from kiwi_rag.sources.source import FoundFile, Source, SourceContent, SyncReport, named_paths
from kiwi_rag.validation.document_gate import DocumentFile

_NEVER_CHANGED = 1
"""The time of change of every exchange, in nanoseconds: one that is stored is never changed."""


@dataclass(frozen=True)
class MemorySource(Source):
    """The exchanges of one memory."""

    table: ExchangeTable

    def find(self, paths: Sequence[str] | None, indexed: Sequence[str], report: SyncReport) -> Iterator[FoundFile]:
        """Yield the exchanges, of all or of those at `paths` and below them."""
        sizes = dict(self.table.sizes())
        for path in sizes if paths is None else named_paths(paths, list(sizes)):
            yield FoundFile(path, sizes[path], _NEVER_CHANGED)

    def path_of(self, ref: ItemRef) -> str:
        """Return the path of an exchange."""
        return ref.item_id

    def read(self, path: str) -> SourceContent:
        """Read one exchange; raises as `Source.read`."""
        return content_of(path, self.table.get(path))


def content_of(path: str, data: bytes) -> SourceContent:
    """Return an exchange as the gate judges it; `data` is its canonical JSON."""
    file = DocumentFile(path, data, {"last_modified": Exchange.of(data).timestamp.isoformat()})
    return SourceContent(file, sha256_hex(data), "", len(data), _NEVER_CHANGED)
