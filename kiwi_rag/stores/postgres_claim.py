"""The registry's `kiwi_rag.stores.base.Claim`: a row lock, held by a transaction until the session ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from kiwi_rag.errors import NotAdmitted, UsageError
from kiwi_rag.model import EmbeddingRecord
from kiwi_rag.refs import ItemRef
from kiwi_rag.registry import functions, indexing
from kiwi_rag.registry.calls import Caller
from kiwi_rag.registry.indexing import ClaimState
from kiwi_rag.validation.seal import require_sealed


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
        require_one_item(records)
        if records[0].admission.digest != self._digest:
            raise NotAdmitted("these are the passages of another item than the claimed one")
        return await indexing.store_passages(self._caller, records)

    async def set_back(self, problem: str) -> None:
        """Note why the item could not be indexed."""
        await indexing.set_back_item(self._caller, self._digest, problem)


def require_one_item(records: Sequence[EmbeddingRecord]) -> None:
    """Raise unless `records` are admitted passages of one item, made by one model.

    Raises
    ------
    UsageError
        When there are none.
    NotAdmitted
        When one was not admitted, or they are mixed.
    """
    if not records:
        raise UsageError("there are no passages to store")
    for record in records:
        require_sealed(record.admission)
    if len({(record.admission.digest, record.fingerprint) for record in records}) > 1:
        raise NotAdmitted("the passages of two items, or of two models, are mixed in one call")
