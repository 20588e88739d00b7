"""The exchanges of a memory as a source of documents: each is one, with the path that its ids give it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kiwi_rag.model import Exchange, ItemRef, sha256_hex
from kiwi_rag.sources.memory.exchanges import ExchangeTable
from kiwi_rag.sources.source import FoundFile, Source, SourceContent, SyncReport, named_paths
from kiwi_rag.validation.document_gate import DocumentFile


@dataclass(frozen=True)
class MemorySource(Source):
    """The exchanges of one memory."""

    table: ExchangeTable

    def find(self, paths: Sequence[str] | None, indexed: Sequence[str], report: SyncReport) -> Iterator[FoundFile]:
        """Yield the exchanges, of all or of those at `paths` and below them."""
        found = {path: FoundFile(path, size, version) for path, size, version in self.table.versions()}
        for path in found if paths is None else named_paths(paths, list(found)):
            yield found[path]

    def path_of(self, ref: ItemRef) -> str:
        """Return the path of an exchange."""
        return ref.item_id

    def read(self, path: str) -> SourceContent:
        """Read one exchange; raises as `Source.read`."""
        data, version = self.table.get(path)
        file = DocumentFile(path, data, {"last_modified": Exchange.of(data).timestamp.isoformat()})
        # The number of the version stands for the time of change: it is another one after each.
        return SourceContent(file, sha256_hex(data), "", len(data), version)
