"""Admitted records for stores: really signed and sealed; vectors from a seeded generator in place of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from kiwi_rag.lexical import query_terms
from kiwi_rag.model import Admission, CollectionStatistics, EmbeddingRecord, Filters, Item, Passage, Section, StoreQuery
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.signing import keys, statement
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.validation.admission import issue

DIMENSION = 384
FINGERPRINT = "test/0000000000000000/384/mean/256"
REGISTRY = "test"
KEY = keys.generate("ada")
SIGNED = datetime(2026, 3, 1, 12, tzinfo=UTC)
WORDS = [
    "deploy", "rollback", "staging", "canary", "database", "restore", "alert", "pager", "latency", "retry", "queue",
]  # fmt: skip


def unit_vector(seed: int, dimension: int = DIMENSION) -> np.ndarray:
    vector = np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)
    return vector / np.linalg.norm(vector)


def admission(item_id: str, text: str = "restart the service", **changes: Any) -> Admission:
    """A signed, sealed admission; `changes`: version, item_type, principal, key, signed_at, metadata, policy, files."""
    ref = ItemRef(changes.pop("item_type", ItemType.DIRECTIVE), item_id, changes.pop("version", "1.0.0"))
    metadata = {"name": item_id.rpartition("/")[2], "category": "ops", "author": "ada", "tags": ["deploy"]}
    metadata |= changes.pop("metadata", {})
    signed_at = changes.pop("signed_at", SIGNED)
    key = changes.pop("key", KEY)
    files = {ref.main_file: text.encode(), **changes.pop("files", {})}
    executables = tuple(name for name in sorted(files) if name.startswith("scripts/"))
    sections = (Section("body", text, 1, 1),)
    item = Item(ref, files, ref.main_file, metadata, sections, executables=executables)
    envelope = key.sign(item, REGISTRY, signed_at)
    unsealed = Admission(
        item=item,
        envelope=envelope,
        digest=statement.digest_of(envelope),
        key_id=key.key_id,
        principal=changes.pop("principal", "ada@acme"),
        policy=changes.pop("policy", "project"),
        signed_at=signed_at,
        admitted_at=datetime(2026, 3, 2, tzinfo=UTC),
    )
    assert not changes, changes
    return issue(unsealed)


def records(
    admitted: Admission, texts: Sequence[str] = (), seed: int = 0, fingerprint: str = FINGERPRINT
) -> list[EmbeddingRecord]:
    """One record a text (the item's content when there are none), in its text files in turn; vectors from `seed` on."""
    item, found = admitted.item, []
    files = ["", *(name for name in sorted(item.files) if name.endswith(".md") and name != item.main)]
    for ordinal, text in enumerate(texts or [admitted.item.content]):
        passage = Passage(ordinal, text, admitted.item.title, ("Top", "Sub"), ordinal + 1, ordinal + 1)
        passage = replace(passage, file=files[ordinal % len(files)])
        found.append(EmbeddingRecord(admitted, passage, unit_vector(seed + ordinal), fingerprint))
    return found


def query(
    text: str,
    statistics: CollectionStatistics,
    seed: int = 0,
    filters: Filters | None = None,
    depth: int = 100,
    fingerprint: str = FINGERPRINT,
) -> StoreQuery:
    """A query whose vector comes from `seed`."""
    return StoreQuery(unit_vector(seed), query_terms(text), statistics, filters or Filters(), fingerprint, depth)


async def fill(store: VectorStore, count: int = 30) -> dict[str, list[str]]:
    """Store `count` items of two passages each; return id → texts."""
    rng = np.random.default_rng(7)
    held: dict[str, list[str]] = {}
    for n in range(count):
        texts = [" ".join(rng.choice(WORDS, size=rng.integers(3, 20))) for _ in range(2)]
        item_id = f"{'acme' if n % 3 else 'beta'}/item-{n:02d}"
        meta = {"category": "ops" if n % 2 else "data", "tags": ["even"] if n % 2 == 0 else ["odd", "prime"]}
        kind = ItemType.SCRIPT if n % 5 == 0 else ItemType.DIRECTIVE
        one = admission(item_id, texts[0], metadata=meta, item_type=kind, signed_at=SIGNED + timedelta(days=n))
        await store.put([records(one, texts, seed=1000 + 2 * n)])
        held[item_id] = texts
    return held
