"""Real tiers for searching: items signed, admitted by the real gate, split and stored; only the model is small."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kiwi_rag import ingest
from kiwi_rag.chunking import split
from kiwi_rag.collection import RANKS, Collection
from kiwi_rag.embedding import EmbeddingProvider, Fingerprint
from kiwi_rag.formats import parse_item
from kiwi_rag.formats.source import ItemCandidate
from kiwi_rag.ingest import IngestContext
from kiwi_rag.lexical import terms
from kiwi_rag.model import Admission, EmbeddingRecord, SearchQuery, SearchReply, sha256_hex
from kiwi_rag.model.refs import ItemType
from kiwi_rag.search import Searcher
from kiwi_rag.signing import keys
from kiwi_rag.signing.trust import Signer, TrustPolicy
from kiwi_rag.stores.local import LocalVectorStore
from kiwi_rag.stores.local.ownership import CATALOG_NAME
from kiwi_rag.stores.local.search import EXACT_LIMIT
from kiwi_rag.validation.admission import policy_of
from kiwi_rag.validation.manager import ValidationManager

AUDIENCE = "kiwi"
NOW = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
ADA, BOB, EVE = keys.generate("ada"), keys.generate("bob"), keys.generate("eve")
TRUST = TrustPolicy((Signer("ada@acme", ADA.public_key), Signer("bob@acme", BOB.public_key)))
THREE = TrustPolicy((*TRUST.signers, Signer("eve@acme", EVE.public_key)))
NOTE = """---
title: {title}
description: {title}, in a sentence.
version: "{version}"
category: acme
author: ada
---

# {title}

{body}
"""


class WordsProvider(EmbeddingProvider):
    """A bag of hashed words with a little noise of the text's own, so that no two texts tie.

    Components are multiples of 2^-12: a dot product of two such vectors is exact in float32, in whatever order it is
    summed, so a score does not depend on how many rows a tier has.
    """

    def __init__(self, model: str = "words") -> None:
        self._model = model

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self._model, "0" * 64, 384, "sum", 256)

    def encode(self, texts: Sequence[str]) -> Sequence[np.ndarray]:
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> np.ndarray:
        vector = _normal(text) * 0.02
        for term in terms(text):
            vector += _of_term(term)
        unit = vector / np.linalg.norm(vector)
        return (np.round(unit * 4096) / 4096).astype(np.float32)


def _normal(text: str) -> np.ndarray:
    return np.random.default_rng(int(sha256_hex(text.encode())[:16], 16)).standard_normal(384)


_of_term = cache(_normal)
EMBED = WordsProvider()
GATE = ValidationManager(THREE, AUDIENCE)
WRITER = IngestContext(GATE, EMBED)


def note(title: str, body: str, version: str = "1.0.0") -> str:
    return NOTE.format(title=title, body=body, version=version)


def candidate(item_id: str, content: str, key: keys.SigningKey = ADA, at: datetime = NOW) -> ItemCandidate:
    item = parse_item(ItemType.KNOWLEDGE, item_id, content).item
    assert item is not None
    envelope = key.sign(item, AUDIENCE, at)
    return replace(
        ItemCandidate.of_file(ItemType.KNOWLEDGE, item_id, content.encode(), f"{item_id}.md"), envelope=envelope
    )


@dataclass
class Shelf:
    """Local tiers below one folder, made when they are first named."""

    folder: Path
    exact_limit: int = EXACT_LIMIT
    tiers: dict[str, Collection[Any]] = field(default_factory=dict)
    trust: TrustPolicy = TRUST

    def tier(self, name: str) -> Collection[Any]:
        if name not in self.tiers:
            # Below the limit no search asks Chroma, so its index need not be built when the store is closed.
            limit = self.exact_limit
            store = LocalVectorStore(self.folder / name, "owner", exact_limit=limit)
            self.tiers[name] = Collection(
                name, RANKS[name], store, policy_of(name), lambda: self.trust, AUDIENCE, store.audit
            )
        return self.tiers[name]

    async def put(self, name: str, item_id: str, content: str, **signing: Any) -> Admission:
        tier = self.tier(name)
        admission = await ingest.admit(candidate(item_id, content, **signing), tier, GATE)
        await self.store(name, await ingest.embed(admission, split(admission.item), WRITER))
        return admission

    async def store(self, name: str, records: Sequence[EmbeddingRecord]) -> None:
        await self.tier(name).store.put([records])

    def edit(self, name: str, statement: str, *values: object) -> None:
        """Change a tier's catalog behind the store's back, as another program could."""
        connection = sqlite3.connect(self.folder / name / CATALOG_NAME)
        with connection:
            assert connection.execute(statement, values).rowcount > 0
            connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'generation'")
        connection.close()

    def wrap(self, name: str, store: Any) -> None:
        """Put another store before the tier's own."""
        self.tiers[name] = replace(self.tier(name), store=store)

    def handler(
        self, trust: TrustPolicy | None = None, audience: str = AUDIENCE, embed: Any = EMBED, deadline: float = 10.0
    ) -> Searcher:
        trusted = self.trust if trust is None else trust
        tiers = [replace(tier, trust=lambda: trusted, audience=audience) for tier in self.tiers.values()]
        return Searcher(tiers, embed, deadline)

    async def search(self, text: str, *, limit: int = 10, alpha: float | None = None, **options: Any) -> SearchReply:
        asked = {f.name: options.pop(f.name) for f in fields(SearchQuery) if f.name in options}
        query = SearchQuery(text, "all", limit=limit, alpha=alpha, **asked)
        return await self.handler(**options).search(query)

    async def close(self) -> None:
        for tier in self.tiers.values():
            await tier.store.close()
