"""A registry as a tier: items really signed, admitted by the real gate; only the model is small."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from kiwi_rag import ingest
from kiwi_rag.collection import RANKS, Collection
from kiwi_rag.embedding import EmbeddingProvider, unit_vectors
from kiwi_rag.formats import parse_item
from kiwi_rag.formats.source import ItemCandidate
from kiwi_rag.ingest import IngestContext
from kiwi_rag.ingest.registry_indexer import Outcome, index_pending
from kiwi_rag.model import Admission
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.registry.pool import Connections
from kiwi_rag.signing import keys
from kiwi_rag.signing.trust import Signer, TrustPolicy
from kiwi_rag.stores.local import LocalVectorStore
from kiwi_rag.stores.postgres import RegistryVectorStore
from kiwi_rag.validation.admission import policy_of
from kiwi_rag.validation.manager import ValidationManager
from tests.conformance.items import KEY, REGISTRY
from tests.search_tiers import WordsProvider, note
from tests.sql.databases import ADA

SIGNED = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)


class SmallModel(WordsProvider):
    """A bag of hashed words, of length 1; remembers what it encoded."""

    def __init__(self, model: str = "words") -> None:
        super().__init__(model)
        self.texts: list[str] = []

    def encode(self, texts: Sequence[str]) -> Sequence[np.ndarray]:
        self.texts += texts
        return unit_vectors(super().encode(texts), 384)


def writer(*signers: Signer, model: EmbeddingProvider | None = None) -> IngestContext:
    """A gate that trusts `signers` (`ADA` when there are none), and a small model."""
    return IngestContext(ValidationManager(TrustPolicy(signers or (ADA,)), REGISTRY), model or SmallModel())


@asynccontextmanager
async def tier(url: str, folder: Path, limit: int = 8) -> AsyncIterator[Collection[RegistryVectorStore]]:
    """The registry at `url` as a process of its own would have it, with its audit log in `folder`."""
    store = RegistryVectorStore(Connections(url, limit=limit))
    local = LocalVectorStore(folder, "owner")
    trust = TrustPolicy((ADA,))
    yield Collection("registry", RANKS["registry"], store, policy_of("registry"), lambda: trust, REGISTRY, local.audit)
    await store.close()
    await local.close()


def candidate(item_id: str, body: str = "", *, version: str = "1.0.0", key: keys.SigningKey = KEY) -> ItemCandidate:
    """A signed knowledge entry that the gate admits."""
    content = note(f"About {item_id}", body or f"The pump of {item_id} feeds the basin.", version)
    item = parse_item(ItemType.KNOWLEDGE, item_id, content).item
    assert item is not None
    envelope = key.sign(item, REGISTRY, SIGNED)
    return ItemCandidate(ItemType.KNOWLEDGE, item_id, item.files, item.main, envelope=envelope)


async def publish(
    to: Collection[RegistryVectorStore], *candidates: ItemCandidate, by: IngestContext | None = None
) -> list[Admission]:
    """Publish, without indexing."""
    return [(await ingest.publish(one, to, (by or writer()).gate))[0] for one in candidates]


async def index(to: Collection[RegistryVectorStore], by: IngestContext | None = None, **options: bool) -> list[Outcome]:
    """Index what waits; return the outcomes."""
    return [outcome async for outcome in index_pending(to, by or writer(), **options)]


def refs(outcomes: list[Outcome]) -> list[str]:
    """The ids of what was indexed."""
    return [outcome.item_id for outcome in outcomes if isinstance(outcome, ItemRef)]
