"""However a collection is split over tiers, the ranking is that of one index holding everything."""

from __future__ import annotations

import asyncio
import random
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kiwi_rag import ingest
from kiwi_rag.model import EmbeddingRecord, SearchReply
from kiwi_rag.passages import split
from kiwi_rag.stores.local import LocalVectorStore
from kiwi_rag.tiers import Tier
from kiwi_rag.validation.policy import policy_of
from tests.search_tiers import EMBED, GATE, NOW, WRITER, Shelf, candidate, note

WORDS = [
    "deploy", "staging", "cluster", "rollback", "image", "queue", "lag", "alert", "budget", "coffee", "cache", "index",
    "key", "signer", "trust", "ledger", "invoice", "migrate", "backup", "restore", "shard", "replica", "tenant",
    "quota", "deadline", "retry", "canary", "probe", "secret", "vault", "token", "mesh", "gateway",
]  # fmt: skip
TIERS = ("project", "user", "registry")
QUERIES = ["deploy staging cluster", "restore backup", "what is the canary deadline", "coffee", "unheard-of words"]
ITEMS = 110


@lru_cache(maxsize=1)
def collection() -> list[list[EmbeddingRecord]]:
    """More passages than one leg gives, so that the cut at its depth is tested too."""
    return asyncio.run(_collection())


async def _collection() -> list[list[EmbeddingRecord]]:
    generator = random.Random(20)
    with tempfile.TemporaryDirectory() as folder:
        store = LocalVectorStore(Path(folder) / "vectors", "owner")
        tier = Tier("registry", 2, store, policy_of("registry"), store.audit)
        made = []
        for number in range(ITEMS):
            words = " ".join(generator.choices(WORDS, k=generator.randint(6, 60)))
            content = note(f"Note {number} on {generator.choice(WORDS)}", words)
            admission = await ingest.admit(candidate(f"acme/n{number}", content, at=NOW), tier, GATE)
            made.append(await ingest.embed(admission, split(admission.item), WRITER))
        await store.close()
    return made


async def _answers(folder: Path, homes: list[str], queries: list[str], alpha: float | None) -> list[SearchReply]:
    shelf = Shelf(folder)
    for name in TIERS:
        if name in homes:
            async with shelf.tier(name).store.writing():
                for records, home in zip(collection(), homes, strict=True):
                    if home == name:
                        await shelf.store(name, records)
    replies = [await shelf.search(query, limit=20, alpha=alpha, deadline=120.0) for query in queries]
    await shelf.close()
    return replies


def answers(homes: list[str], queries: list[str], alpha: float | None) -> list[SearchReply]:
    collection()  # made before the loop runs: it runs one of its own
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_answers(Path(folder), homes, queries, alpha))


@lru_cache(maxsize=8)
def alone(alpha: float | None) -> list[SearchReply]:
    return answers(["project"] * ITEMS, QUERIES, alpha)


def test_the_collection_is_larger_than_a_legs_depth() -> None:
    assert sum(map(len, collection())) > 200
    assert {r.fingerprint for records in collection() for r in records} == {str(EMBED.fingerprint)}


# One example writes three tiers of signed items to disk and searches them: it is slow for Hypothesis, and worth it.
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.sampled_from([None, 0.5]), st.sampled_from([(1, 1, 1), (8, 1, 1), (0, 1, 3)]))
def test_the_merged_ranking_is_that_of_one_index(seed: int, alpha: float | None, shares: tuple[int, ...]) -> None:
    homes = random.Random(seed).choices(TIERS, shares, k=ITEMS)
    for merged, single in zip(answers(homes, QUERIES, alpha), alone(alpha), strict=True):
        assert merged.complete
        assert len(single.hits) == 20
        assert [h.ref for h in merged.hits] == [h.ref for h in single.hits]
        assert [h.score for h in merged.hits] == pytest.approx([h.score for h in single.hits], abs=1e-9)
        for one, other in zip(merged.hits, single.hits, strict=True):
            assert one.passage == other.passage
            assert one.parts["vector_rank"] == other.parts["vector_rank"]
            assert one.parts["lexical_rank"] == other.parts["lexical_rank"]
            assert one.parts["bm25"] == pytest.approx(other.parts["bm25"], abs=1e-9)
        assert {h.tier for h in merged.hits} <= set(homes)
