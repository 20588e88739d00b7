"""A workspace in a folder of a test's own: real files, the real gate and store; only the model is small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kiwi_rag.collection import Collection
from kiwi_rag.embedding import EmbeddingProvider
from kiwi_rag.ingest import IngestContext
from kiwi_rag.ingest.sync import Callbacks, sync
from kiwi_rag.model import Filters, SearchQuery, SearchReply
from kiwi_rag.model.refs import ItemType
from kiwi_rag.search import Searcher
from kiwi_rag.signing import keys
from kiwi_rag.signing.keys import Indexer
from kiwi_rag.signing.trust import Signer, TrustPolicy
from kiwi_rag.sources.file_states import FileStates
from kiwi_rag.sources.source import SyncReport
from kiwi_rag.sources.workspace.config import WorkspaceConfig
from kiwi_rag.sources.workspace.source import WorkspaceSource
from kiwi_rag.stores.local import LocalVectorStore
from kiwi_rag.usecases.items import list_documents
from kiwi_rag.validation.admission import policy_of
from kiwi_rag.validation.manager import ValidationManager
from tests.search_tiers import WordsProvider

AUDIENCE = "kiwi"
KEY = keys.generate("indexing")
TRUST = TrustPolicy((Signer("this user", KEY.public_key, types=(ItemType.DOCUMENT,)),))


class Counting(EmbeddingProvider):
    """Counts what it encodes, and fails where it is told to."""

    def __init__(self) -> None:
        self._inner = WordsProvider()
        self.texts: list[str] = []
        self.fails: Exception | None = None

    @property
    def fingerprint(self) -> Any:
        return self._inner.fingerprint

    def encode(self, texts: Sequence[str]) -> Sequence[np.ndarray]:
        if self.fails:
            raise self.fails
        self.texts += texts
        return self._inner.encode(texts)


@dataclass
class Yard:
    """A workspace, its index, and a model that counts."""

    root: Path
    embed: Counting = field(default_factory=Counting)
    name: str = "yard"
    policy: str = "documents"

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self.store = LocalVectorStore(self.root / ".ai/vectors/documents", "owner")
        self.states = FileStates(self.store.folder, "owner")

    @property
    def place(self) -> WorkspaceConfig:
        return WorkspaceConfig.at(self.root, self.name)

    @property
    def tier(self) -> Collection[Any]:
        return Collection(
            "workspace",
            0,
            self.store,
            policy_of(self.policy),
            lambda: TRUST,
            AUDIENCE,
            self.store.audit,
            self.root,
            self.states,
            workspace=self.name,
        )

    def write(self, path: str, text: str | bytes) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
        return place

    async def index(self, *paths: str, key: keys.SigningKey = KEY, callbacks: Callbacks | None = None) -> SyncReport:
        indexer = Indexer(key, AUDIENCE, self.name)
        writer = IngestContext(ValidationManager(TRUST, AUDIENCE), self.embed, indexer, self.place.domains)
        tier = self.tier
        source = WorkspaceSource(self.place, tier.policy.max_bytes)
        return await sync(source, tier, writer, callbacks or Callbacks(), paths=list(paths) or None)

    async def search(self, text: str, **narrowed: Any) -> SearchReply:
        limit = narrowed.pop("limit", 10)
        return await self.searcher.search(SearchQuery(text, filters=Filters(**narrowed), limit=limit))

    @property
    def searcher(self) -> Searcher:
        return Searcher([self.tier], self.embed)

    async def held(self) -> dict[str, tuple[str, str]]:
        """Path → digests of the file and of its passages, of everything that is indexed."""
        rows, refused = await list_documents(self.tier, Filters())
        assert refused == 0
        return {row["path"]: (row["sha256"], row["passages_sha256"]) for row in rows}
