"""The registry's `kiwi_rag.stores.base.Claim`: a row lock, held by a transaction until the session ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from kiwi_rag.errors import NotAdmitted
from kiwi_rag.model import EmbeddingRecord
from kiwi_rag.refs import ItemRef
from kiwi_rag.registry import functions, indexing
from kiwi_rag.registry.calls import Caller
from kiwi_rag.registry.indexing import ClaimState
from kiwi_rag.stores.admitted import one_admission


class RegistryClaim:
    """A published item that is the caller's to index until its session ends, or the reason why it is not."""

    def __init__(self, caller: Caller, digest: str, state: ClaimState, received_at: datetime | None) -> None:
        self._caller = caller
        self._digest = digest
        self.state = state
        self.received_at = received_at

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """Return every version of an item ever published."""
        versions = await functions.list_versions(self._caller, ref)
        return {str(row.ref.version): row.content_sha256 for row in versions}

    async def store(self, records: Sequence[EmbeddingRecord]) -> int:
        """Store the item's passages; return how many."""
        if one_admission(records).digest != self._digest:
            raise NotAdmitted("these are the passages of another item than the claimed one")
        return await indexing.store_passages(self._caller, records)

    async def set_back(self, problem: str) -> None:
        """Note why the item could not be indexed."""
        await indexing.set_back_item(self._caller, self._digest, problem)
