"""However a collection is split over tiers, the ranking is that of one index holding everything."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kiwi_rag import ingest
from kiwi_rag.chunking import split
from kiwi_rag.collection import Collection
from kiwi_rag.model import EmbeddingRecord, Filters, SearchReply
from kiwi_rag.stores.local import LocalVectorStore
from kiwi_rag.validation.admission import policy_of
from tests.examples import examples
from tests.registry_shelf import registry, registry_tier
from tests.search_tiers import ADA, AUDIENCE, BOB, EMBED, GATE, NOW, THREE, WRITER, Shelf, candidate, note

pytestmark = pytest.mark.slow

WORDS = [
    "deploy", "staging", "cluster", "rollback", "image", "queue", "lag", "alert", "budget", "coffee", "cache", "index",
    "key", "signer", "trust", "ledger", "invoice", "migrate", "backup", "restore", "shard", "replica", "tenant",
    "quota", "deadline", "retry", "canary", "probe", "secret", "vault", "token", "mesh", "gateway",
]  # fmt: skip
TIERS = ("project", "user", "registry")
QUERIES = ["deploy staging cluster", "restore backup", "what is the canary deadline", "coffee", "unheard-of words"]
ITEMS = 110


@cache
def collection() -> list[list[EmbeddingRecord]]:
    """More passages than one leg gives, so that the cut at its depth is tested too."""
    return asyncio.run(_collection())


async def _collection() -> list[list[EmbeddingRecord]]:
    generator = random.Random(20)
    with tempfile.TemporaryDirectory() as folder:
        store = LocalVectorStore(Path(folder) / "vectors", "owner")
        tier = Collection("registry", 2, store, policy_of("registry"), lambda: THREE, AUDIENCE, store.audit)
        made = []
        for number in range(ITEMS):
            words = " ".join(generator.choices(WORDS, k=generator.randint(6, 60)))
            content = note(f"Note {number} on {generator.choice(WORDS)}", words)
            content = content.replace("category: acme", f"category: c{number % 3}")
            one = candidate(f"acme/n{number}", content, at=NOW, key=BOB if number % 4 == 0 else ADA)
            admission = await ingest.admit(one, tier, GATE)
            made.append(await ingest.embed(admission, split(admission.item), WRITER))
        await store.close()
    return made


ANY = Filters()


@dataclass(frozen=True)
class Asking:
    """How every query is asked."""

    alpha: float | None = None
    limit: int = 20
    filters: Filters = ANY


WAYS = (
    Asking(),
    Asking(alpha=0.5),
    Asking(limit=1),
    Asking(limit=60, filters=Filters(category="c1")),
    Asking(limit=7, filters=Filters(signer="bob@acme")),
    Asking(alpha=0.3, limit=200, filters=Filters(category="c2", signer="ada@acme")),
)
OF_REGISTRY = (Asking(limit=200), WAYS[3])
Answers = dict[Asking, list[SearchReply]]


async def _answers(folder: Path, homes: list[str], ways: Sequence[Asking], url: str = "") -> Answers:
    shelf = Shelf(folder)
    if url:
        shelf.tiers["registry"] = registry_tier(url, folder / "audit")
    for name in TIERS:
        if name in homes:
            writing = getattr(shelf.tier(name).store, "writing", nullcontext)
            async with writing():
                for records, home in zip(collection(), homes, strict=True):
                    if home == name:
                        await shelf.store(name, records)
    replies = {way: [await shelf.search(query, **vars(way), deadline=120.0) for query in QUERIES] for way in ways}
    await shelf.close()
    return replies


def answers(homes: list[str], ways: Sequence[Asking], url: str = "") -> Answers:
    collection()  # made before the loop runs: it runs one of its own
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_answers(Path(folder), homes, ways, url))


@cache
def alone() -> Answers:
    return answers(["project"] * ITEMS, [*WAYS, *OF_REGISTRY])


HOMES = random.Random(7).choices(TIERS, (1, 1, 1), k=ITEMS)


@cache
def with_registry() -> Answers:
    with registry() as url:
        return answers(HOMES, OF_REGISTRY, url)


def matching(filters: Filters) -> int:
    """How many items pass."""
    keys = {"bob@acme": BOB.key_id, "ada@acme": ADA.key_id}
    items = [records[0].admission for records in collection()]
    return sum(
        filters.category in ("", a.item.metadata["category"]) and keys.get(filters.signer, a.key_id) == a.key_id
        for a in items
    )


def test_the_collection_is_larger_than_a_legs_depth() -> None:
    assert sum(map(len, collection())) > 200
    assert {r.fingerprint for records in collection() for r in records} == {str(EMBED.fingerprint)}
    assert {matching(way.filters) for way in WAYS} == {ITEMS, 37, 28, 27}


# One example writes three tiers of signed items to disk and searches them: it is slow for Hypothesis, and worth it.
@settings(examples(4), suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.sampled_from(WAYS), st.sampled_from([(1, 1, 1), (8, 1, 1), (0, 1, 3)]))
def test_the_merged_ranking_is_that_of_one_index(seed: int, way: Asking, shares: tuple[int, ...]) -> None:
    homes = random.Random(seed).choices(TIERS, shares, k=ITEMS)
    for merged, single in zip(answers(homes, [way])[way], alone()[way], strict=True):
        assert merged.complete
        assert len(single.hits) == min(way.limit, matching(way.filters))
        assert [h.ref for h in merged.hits] == [h.ref for h in single.hits]
        assert [h.score for h in merged.hits] == pytest.approx([h.score for h in single.hits], abs=1e-9)
        for one, other in zip(merged.hits, single.hits, strict=True):
            assert one.passage == other.passage
            assert one.parts["vector_rank"] == other.parts["vector_rank"]
            assert one.parts["lexical_rank"] == other.parts["lexical_rank"]
            assert one.parts["bm25"] == pytest.approx(other.parts["bm25"], abs=1e-9)
            assert one.parts["item_bm25"] == pytest.approx(other.parts["item_bm25"], abs=1e-9)
        assert {h.tier for h in merged.hits} <= set(homes)
        assert dict(merged.corrections) == dict(single.corrections)


@pytest.mark.database
@pytest.mark.parametrize("way", OF_REGISTRY, ids=["all", "filtered"])
def test_the_same_with_a_real_registry(way: Asking) -> None:
    """Its vectors are not of length 1 to the last digit, and Postgres divides by the length: hence the tolerance."""
    for merged, single in zip(with_registry()[way], alone()[way], strict=True):
        assert merged.complete
        assert {h.tier for h in merged.hits} == set(HOMES)
        scores = {h.ref: h.score for h in single.hits}
        assert {h.ref: h.score for h in merged.hits} == pytest.approx(scores, abs=5e-4)
        words = {h.ref: h.parts["item_bm25"] for h in single.hits}
        assert {h.ref: h.parts["item_bm25"] for h in merged.hits} == pytest.approx(words, abs=1e-9)
        assert [h.score for h in merged.hits] == sorted((h.score for h in merged.hits), reverse=True)
