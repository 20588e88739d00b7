"""PublishRun many items: several under way at once, their outcomes in order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from kiwi_rag.collection import Tier
from kiwi_rag.errors import KiwiError, RegistryUnreachable, UsageError
from kiwi_rag.formats import SourceFile
from kiwi_rag.ingest import pipeline
from kiwi_rag.ingest.pipeline import CONCURRENCY, IngestContext, bounded_map
from kiwi_rag.ingest.registry_indexer import concerns_one_item, index_admitted
from kiwi_rag.model import Admission, Visibility
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.stores.base import FileStore, PublishingStore, Receipt


@dataclass(frozen=True, slots=True)
class Published:
    """An item that is in the registry: its receipt, and whether it still waits for an indexer.

    One that waits for none is found by searches, unless it was yanked or a newer version stands before it.
    """

    ref: ItemRef
    receipt: Receipt
    waits: bool


@dataclass(frozen=True, slots=True)
class NotPublished:
    """A file that was refused, by the gate or by the registry, or that could not be handed in."""

    path: str
    error: KiwiError


Outcome = Published | NotPublished


class PublishRun:
    """One run of publishing.

    Parameters
    ----------
    place
        The local tier that the files belong to.
    to
        The registry.
    writer
        The gate, and the model that makes items searchable where this role may index.
    visibility
        Whom items are handed in for; None for all where they are new, and as they are where they are there.

    Attributes
    ----------
    not_indexed
        Why published items were left to the registry's indexer; None as long as none was.
    unreachable
        Why the run stopped before its end; None while the registry can be reached.
    """

    def __init__(
        self,
        place: Tier[FileStore],
        to: Tier[PublishingStore],
        writer: IngestContext,
        visibility: Visibility | None = None,
    ) -> None:
        self.not_indexed: KiwiError | None = None
        self.unreachable: RegistryUnreachable | None = None
        self._may_index = True
        self._place = place
        self._to = to
        self._writer = writer
        self._visibility = visibility

    async def publish(self, sources: Sequence[SourceFile], concurrency: int = CONCURRENCY) -> AsyncGenerator[Outcome]:
        """Publish and index files; yield an outcome for each, in their order, as soon as it is durable.

        What one file gets wrong stops no other. Once the registry cannot be reached, having been tried again for
        some seconds, the rest is not tried. May be stopped anywhere and run again: what is there stays as it is.
        """
        async with aclosing(bounded_map(self._one, sources, concurrency)) as outcomes:
            async for outcome in outcomes:
                yield outcome

    async def _one(self, source: SourceFile) -> Outcome:
        if self.unreachable:
            return NotPublished(str(source.path), self.unreachable)
        try:
            candidate = pipeline.read(source, self._place, self._writer.gate)
            admission, receipt = await pipeline.publish(candidate, self._to, self._writer.gate, self._visibility)
        except RegistryUnreachable as error:
            self.unreachable = self.unreachable or error
            return NotPublished(str(source.path), error)
        except UsageError:
            raise  # a setting is wrong, and no file
        except KiwiError as error:
            return NotPublished(str(source.path), error)
        return Published(admission.ref, receipt, not await self._index(admission))

    async def _index(self, admission: Admission) -> bool:
        """Make a published item searchable, if it is to be; tell if that is done. If it fails, the receipt stands."""
        if not self._may_index:
            return False
        try:
            return await index_admitted(admission, self._to, self._writer)
        except KiwiError as error:
            self.not_indexed = self.not_indexed or error
            self._may_index = self._may_index and concerns_one_item(error)
            return False
