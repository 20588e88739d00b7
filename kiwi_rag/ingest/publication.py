"""The publication of many items: several concurrently, their outcomes in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kiwi_rag import ingest
from kiwi_rag.collection import Collection
from kiwi_rag.errors import KiwiError, RefusedTooOften, RegistryUnreachable, UsageError
from kiwi_rag.formats.source import SourceFile
from kiwi_rag.ingest import CONCURRENCY, IngestContext, bounded_map
from kiwi_rag.model import Admission, ItemRef, Visibility
from kiwi_rag.sources.source import read

if TYPE_CHECKING:
    from kiwi_rag.formats.source import ItemCandidate
    from kiwi_rag.registry.client import Receipt
    from kiwi_rag.stores.postgres import RegistryVectorStore

_MINUTES = 3
"""How often a file waits for the next minute: further refusals are then those of other users of this login."""


@dataclass(frozen=True, slots=True)
class Published:
    """A published item: its receipt, and whether it still waits for an indexer.

    Searches find one that does not wait, unless it was yanked or has a newer version.
    """

    ref: ItemRef
    receipt: Receipt
    waits: bool


@dataclass(frozen=True, slots=True)
class NotPublished:
    """A file that the gate or the registry rejected, or that could not be sent."""

    path: str
    error: KiwiError


Outcome = Published | NotPublished


@dataclass(slots=True)
class PublishRun:
    """One run of publishing.

    Parameters
    ----------
    local
        The tier that the files belong to.
    to
        The registry.
    writer
        The gate, and the model that makes items searchable where this role may index.
    visibility
        Who sees the items; None: everybody sees new items, and published ones keep their visibility.
    report
        Called with a notice before the run waits because too many files were refused; without it those files fail.

    Attributes
    ----------
    not_indexed
        Why published items wait for the registry's indexer; None as long as none does.
    unreachable
        Why the run stopped early; None while the registry can be reached.
    """

    local: Collection
    to: Collection[RegistryVectorStore]
    writer: IngestContext
    visibility: Visibility | None = None
    report: Callable[[str], None] | None = None
    not_indexed: KiwiError | None = field(default=None, init=False)
    unreachable: RegistryUnreachable | None = field(default=None, init=False)
    _may_index: bool = field(default=True, init=False)
    _reported_until: float = field(default=0.0, init=False)

    def publish(self, sources: Sequence[SourceFile], concurrency: int = CONCURRENCY) -> AsyncGenerator[Outcome]:
        """Publish and index files; yield an outcome for each, in their order, as soon as it is durable.

        An error of one file stops no other. Once the registry cannot be reached, after retries for some seconds, no
        further file is tried. A run may be stopped anywhere and repeated: published items stay as they are.
        """
        return bounded_map(self._publish_one, sources, concurrency)

    async def _publish_one(self, source: SourceFile) -> Outcome:
        if self.unreachable:
            return NotPublished(str(source.path), self.unreachable)
        try:
            candidate = read(source, self.local, self.writer.gate)
            admission, receipt = await self._publish_within_limit(candidate)
        except RegistryUnreachable as error:
            self.unreachable = self.unreachable or error
            return NotPublished(str(source.path), error)
        except UsageError:
            raise  # a setting is wrong, not the file
        except KiwiError as error:
            return NotPublished(str(source.path), error)
        return Published(admission.ref, receipt, not await self._index(admission))

    async def _publish_within_limit(self, candidate: ItemCandidate) -> tuple[Admission, Receipt]:
        """Publish a candidate; after too many refusals wait for the next minute, up to `_MINUTES` times."""
        for report in (*[self.report] * _MINUTES, None):
            try:
                return await ingest.publish(candidate, self.to, self.writer.gate, self.visibility)
            except RefusedTooOften as error:
                if report is None:
                    raise
                now = time.monotonic()
                if now >= self._reported_until:  # files are published concurrently: one notice for all that wait
                    self._reported_until = now + error.retry_after
                    report(f"{error.message}; going on in {error.retry_after:g} s")
                await asyncio.sleep(error.retry_after)
        raise AssertionError("the last attempt returns or raises")

    async def _index(self, admission: Admission) -> bool:
        """Make a published item searchable if this role may; return whether it is. The receipt stays valid."""
        if not self._may_index:
            return False
        from kiwi_rag.ingest.registry_indexer import concerns_one_item, index_admitted

        try:
            return await index_admitted(admission, self.to, self.writer)
        except KiwiError as error:
            self.not_indexed = self.not_indexed or error
            self._may_index = self._may_index and concerns_one_item(error)
            return False
