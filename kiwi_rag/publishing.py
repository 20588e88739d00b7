"""Publishing many items: several under way at once, their outcomes in order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from kiwi_rag import ingest
from kiwi_rag.errors import FingerprintMismatch, KiwiError, RegistryRefused, RegistryUnreachable, Rejected
from kiwi_rag.formats import SourceFile
from kiwi_rag.indexer import LANES, in_order, index_admitted
from kiwi_rag.ingest import Writer
from kiwi_rag.model import Admission
from kiwi_rag.refs import ItemRef
from kiwi_rag.stores.base import FileStore, PublishingStore, Receipt
from kiwi_rag.tiers import Tier


@dataclass(frozen=True, slots=True)
class Published:
    """An item that is in the registry: its receipt, and whether it is searchable already."""

    ref: ItemRef
    receipt: Receipt
    searchable: bool


@dataclass(frozen=True, slots=True)
class NotPublished:
    """A file that was refused, by the gate or by the registry, or that could not be handed in."""

    path: str
    error: KiwiError


Outcome = Published | NotPublished


class Publishing:
    """One run of publishing.

    Parameters
    ----------
    place
        The local tier that the files belong to.
    to
        The registry.
    writer
        The gate, and the model that makes items searchable where this role may index.
    private
        Hand items in for their owner alone.

    Attributes
    ----------
    not_indexed
        Why published items were left to the registry's indexer; None as long as this run makes them searchable.
    unreachable
        Why the run stopped before its end; None while the registry can be reached.
    """

    def __init__(
        self, place: Tier[FileStore], to: Tier[PublishingStore], writer: Writer, *, private: bool = False
    ) -> None:
        self.not_indexed: KiwiError | None = None
        self.unreachable: RegistryUnreachable | None = None
        self._place = place
        self._to = to
        self._writer = writer
        self._private = private

    async def publish(self, sources: Sequence[SourceFile], lanes: int = LANES) -> AsyncGenerator[Outcome]:
        """Publish and index files; yield an outcome for each, in their order, as soon as it is durable.

        What one file gets wrong stops no other. Once the registry cannot be reached, having been tried again for
        some seconds, the rest is not tried. May be stopped anywhere and run again: what is there stays as it is.
        """
        async with aclosing(in_order(self._one, sources, lanes)) as outcomes:
            async for outcome in outcomes:
                yield outcome

    async def _one(self, source: SourceFile) -> Outcome:
        if self.unreachable:
            return NotPublished(str(source.path), self.unreachable)
        try:
            candidate = ingest.read(source, self._place, self._writer.gate)
            admission, receipt = await ingest.publish(candidate, self._to, self._writer.gate, private=self._private)
        except (Rejected, RegistryRefused) as refusal:
            return NotPublished(str(source.path), refusal)
        except RegistryUnreachable as error:
            self.unreachable = self.unreachable or error
            return NotPublished(str(source.path), error)
        return Published(admission.ref, receipt, await self._index(admission))

    async def _index(self, admission: Admission) -> bool:
        if self.not_indexed:
            return False
        try:
            return await index_admitted(admission, self._to, self._writer)
        except (RegistryRefused, RegistryUnreachable, FingerprintMismatch) as error:
            self.not_indexed = error
            return False
