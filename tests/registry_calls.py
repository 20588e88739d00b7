"""Single steps at a registry that are, in Kiwi itself, parts of longer ones."""

from __future__ import annotations

from collections.abc import Sequence

from kiwi_rag.model import EmbeddingRecord
from kiwi_rag.registry import client, queue
from kiwi_rag.registry.client import EnrolledSigner
from kiwi_rag.signing.trust import Signer
from kiwi_rag.stores.postgres import INDEXER, RegistryVectorStore


async def store_passages(store: RegistryVectorStore, records: Sequence[EmbeddingRecord]) -> None:
    """Store the passages of a published item as the indexer, whether it waits for any or not."""
    async with store.transport.session(role=INDEXER) as caller:
        await queue.store_passages(caller, records)


async def enrol(store: RegistryVectorStore, signer: Signer) -> str:
    """Let a signer publish."""
    async with store.transport.session() as caller:
        return await client.enrol_signer(caller, signer)


async def signers(store: RegistryVectorStore) -> Sequence[EnrolledSigner]:
    """Who may publish."""
    async with store.transport.session() as caller:
        return await client.list_signers(caller)
