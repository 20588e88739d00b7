"""Single steps at a registry that are, in Kiwi itself, parts of longer ones."""

from __future__ import annotations

from collections.abc import Sequence

from kiwi_rag.model import EmbeddingRecord
from kiwi_rag.signing.trust import Signer
from kiwi_rag.stores.postgres import RegistryVectorStore


async def store_passages(store: RegistryVectorStore, records: Sequence[EmbeddingRecord]) -> None:
    """Store the passages of a published item as the indexer, whether it waits for any or not."""
    await store.client.store_passages(records)


async def enrol(store: RegistryVectorStore, signer: Signer) -> str:
    """Let a signer publish."""
    return await store.client.enrol_signer(signer)


async def signers(store: RegistryVectorStore) -> Sequence[Signer]:
    """Who may publish."""
    return await store.client.list_signers()
