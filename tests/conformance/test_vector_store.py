"""What every `VectorStore` promises, asked of each one alike."""

from __future__ import annotations

import dataclasses
from collections import Counter
from datetime import UTC, datetime

import numpy as np
import pytest

from kiwi_rag.errors import EmbeddingError, FingerprintMismatch, NotAdmitted, UsageError
from kiwi_rag.lexical import bm25, bm25_weights, query_terms, term_frequencies
from kiwi_rag.model import CollectionStatistics, Filters
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.stores.base import NOT_FOUND_BY_VECTOR, VectorStore
from tests.conformance.items import admission, query, records, unit_vector

Filled = tuple[VectorStore, dict[str, list[str]]]
ONE_LOOP = pytest.mark.asyncio(loop_scope="module")  # that of the store, which the module's tests share


async def test_an_item_comes_back_as_it_was_signed(store: VectorStore) -> None:
    one = admission("acme/deploy", "restart it")
    await store.put([records(one, ["first", "second"])])
    stored = await store.get(one.ref)
    assert stored is not None
    assert (stored.ref, stored.envelope, stored.digest) == (one.ref, one.envelope, one.digest)
    assert (stored.content_sha256, stored.passages) == (one.item.content_sha256, 2)
    assert stored.policy == ("registry" if store.capabilities.kind == "postgres" else one.policy)


async def test_get_knows_versions_and_absence(store: VectorStore) -> None:
    one = admission("acme/deploy", version="1.2.0")
    await store.put([records(one)])
    newest = await store.get(ItemRef(ItemType.DIRECTIVE, "acme/deploy"))
    assert newest is not None
    assert newest.ref.version == "1.2.0"
    assert await store.get(ItemRef(ItemType.DIRECTIVE, "acme/deploy", "9.9.9")) is None
    assert await store.get(ItemRef(ItemType.SCRIPT, "acme/deploy")) is None
    assert await store.get(ItemRef(ItemType.DIRECTIVE, "acme/other")) is None


async def test_writing_the_same_twice_changes_nothing(store: VectorStore) -> None:
    batch = records(admission("acme/deploy"), ["alpha beta", "gamma"])
    await store.put([batch])
    before = await store.statistics(["alpha", "gamma"])
    await store.put([batch])
    assert await store.statistics(["alpha", "gamma"]) == before
    assert (await store.status()).passages == 2


async def test_an_upsert_replaces_the_item_wholly(store: VectorStore) -> None:
    await store.put([records(admission("acme/deploy", "old words", version="1.0.0"), ["zebra", "zebra again"])])
    await store.put([records(admission("acme/deploy", "new words", version="1.1.0"), ["giraffe"], seed=50)])
    statistics = await store.statistics(query_terms("zebra giraffe"))
    assert statistics.document_frequency == {query_terms("giraffe")[0]: 1}
    found = await store.search(query("zebra giraffe", statistics, seed=0))
    assert [c.passage.text for c in found.items] == ["giraffe"]


async def test_delete_leaves_history_and_nothing_else(store: VectorStore) -> None:
    one = admission("acme/deploy")
    await store.put([records(one, ["zebra"])])
    assert await store.delete(ItemRef(one.ref.item_type, one.ref.item_id))
    assert not await store.delete(ItemRef(one.ref.item_type, one.ref.item_id))
    assert await store.get(one.ref) is None
    assert await store.statistics(query_terms("zebra")) == CollectionStatistics()
    assert await store.history(one.ref) == {"1.0.0": one.item.content_sha256}
    assert (await store.search(query("zebra", CollectionStatistics(1, 1, {"zebra": 1})))).items == ()


async def test_history_keeps_every_version(store: VectorStore) -> None:
    texts = {"1.0.0": "one", "1.1.0": "two"}
    for version, text in texts.items():
        await store.put([records(admission("acme/deploy", text, version=version))])
    seen = await store.history(ItemRef(ItemType.DIRECTIVE, "acme/deploy"))
    assert seen == {v: admission("acme/deploy", t, version=v).item.content_sha256 for v, t in texts.items()}


@ONE_LOOP
async def test_list_is_filtered_and_ordered(filled: Filled) -> None:
    store, held = filled
    everything = await store.list(Filters())
    assert [i.ref for i in everything] == sorted(i.ref for i in everything)
    assert {i.ref.item_id for i in everything} == set(held)
    some = await store.list(Filters(namespace="beta"))
    assert {i.ref.item_id for i in some} == {i for i in held if i.startswith("beta/")}


@ONE_LOOP
async def test_both_scores_are_true_for_every_candidate(filled: Filled) -> None:
    store, _ = filled
    if not store.capabilities.scores:
        await scores_are_an_order(store)
        return
    own = await store.statistics(query_terms("canary database restore"))
    merged = own + CollectionStatistics(1000, 9000, {"databas": 400, "canari": 3})
    asked = query("canary database restore", merged, seed=1004, depth=10)
    found = (await store.search(asked)).items
    weights = bm25_weights(merged, asked.terms)
    for candidate in found:
        frequencies = term_frequencies(candidate.passage.indexed_text)
        expected = bm25(frequencies, frequencies.total(), weights, merged.average_length)
        assert candidate.bm25 == pytest.approx(expected, abs=1e-9)
        number = int(candidate.ref.item_id[-2:])
        vector = unit_vector(1000 + 2 * number + candidate.passage.ordinal)
        assert candidate.cosine == pytest.approx(float(vector @ asked.vector), abs=1e-5)
    assert max(found, key=lambda c: c.cosine).ref.item_id == "acme/item-02"


async def scores_are_an_order(store: VectorStore) -> None:
    """What a store promises without comparable scores: true cosines, and words that occur."""
    statistics = await store.statistics(query_terms("canary database restore"))
    asked = query("canary database restore", statistics, seed=1004, depth=10)
    found = (await store.search(asked)).items
    by_vector = [c for c in found if c.cosine > NOT_FOUND_BY_VECTOR]
    by_words = [c for c in found if c.bm25 > 0]
    assert (len(by_vector), len(by_words)) == (10, 10)
    assert len(found) == len({(c.ref, c.passage.ordinal) for c in (*by_vector, *by_words)})
    for candidate in by_vector:
        vector = unit_vector(1000 + 2 * int(candidate.ref.item_id[-2:]) + candidate.passage.ordinal)
        assert candidate.cosine == pytest.approx(float(vector @ asked.vector), abs=1e-5)
    assert all(set(asked.terms) & set(term_frequencies(c.passage.indexed_text)) for c in by_words)
    assert max(found, key=lambda c: c.cosine).ref.item_id == "acme/item-02"
    for candidate in found:
        fellows = [c for c in found if c.ref == candidate.ref]
        best, words = max(c.cosine for c in fellows), max(c.bm25 for c in fellows)
        assert candidate.item == (best, best, best, words, words)


async def test_items_are_scored_by_all_their_passages(store: VectorStore) -> None:
    """The scores of an item as a whole, by what the passages of each hold, found by a leg or not."""
    texts = ["canary restore restore", "pager latency", "database canary deploy queue", "retry"]
    for n, size in enumerate((4, 1, 3)):
        await store.put([records(admission(f"acme/item-{n:02d}", f"item {n}"), texts[:size], seed=100 * (n + 1))])
    own = await store.statistics(query_terms("canary database restore"))
    assert (own.items, own.passages) == (3, 8)
    merged = own + CollectionStatistics(1000, 9000, {"databas": 400, "canari": 3}, 90)
    asked = query("canary database restore", merged, seed=101, depth=3 if store.capabilities.scores else 10)
    weights = bm25_weights(merged, asked.terms)
    found = (await store.search(asked)).items
    assert {c.ref.item_id for c in found} == {f"acme/item-{n:02d}" for n in range(3)}
    for candidate in found:
        number = int(candidate.ref.item_id[-2:])
        vectors = [unit_vector(100 * (number + 1) + i) for i in range((4, 1, 3)[number])]
        counts = [term_frequencies(f"{candidate.passage.context}\n{text}") for text in texts[: len(vectors)]]
        whole = sum(counts, Counter())
        mean = np.mean(vectors, axis=0)
        item = candidate.item
        assert item.best == pytest.approx(max(float(v @ asked.vector) for v in vectors), abs=1e-5)
        if not store.capabilities.scores:
            continue
        assert item.first == pytest.approx(float(vectors[0] @ asked.vector), abs=1e-5)
        assert item.centroid == pytest.approx(float(mean @ asked.vector / np.linalg.norm(mean)), abs=1e-5)
        words = [bm25(c, c.total(), weights, merged.average_length) for c in counts]
        assert item.best_words == pytest.approx(max(words), abs=1e-9)
        assert item.words == pytest.approx(bm25(whole, whole.total(), weights, merged.average_item_length), abs=1e-9)


@ONE_LOOP
async def test_the_union_holds_the_best_of_each_leg(filled: Filled) -> None:
    store, held = filled
    statistics = await store.statistics(query_terms("pager latency"))
    asked = query("pager latency", statistics, seed=3, depth=7)
    everything = (await store.search(dataclasses.replace(asked, depth=1000))).items
    assert len(everything) == 2 * len(held)
    got = {(c.ref, c.passage.ordinal) for c in (await store.search(asked)).items}
    by_cosine = sorted(everything, key=lambda c: -c.cosine)[:7]
    by_words = sorted(everything, key=lambda c: -c.bm25)
    clearly = [c for c in by_words[:7] if c.bm25 > by_words[7].bm25]
    assert {(c.ref, c.passage.ordinal) for c in [*by_cosine, *clearly]} <= got
    assert len(got) <= 14


@ONE_LOOP
@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        (Filters(item_type=ItemType.SCRIPT), lambda n: n % 5 == 0),
        (Filters(category="ops"), lambda n: n % 2 == 1),
        (Filters(author="ada"), lambda n: True),
        (Filters(author="bob"), lambda n: False),
        (Filters(tags=("odd", "prime")), lambda n: n % 2 == 1),
        (Filters(tags=("odd", "even")), lambda n: False),
        (Filters(namespace="beta"), lambda n: n % 3 == 0),
        (Filters(signer="ada@acme", since=datetime(2026, 3, 11, 12, tzinfo=UTC)), lambda n: n >= 10),
        (Filters(signer="mallory"), lambda n: False),
    ],
)
async def test_filters_narrow_before_ranking(filled: Filled, filters: Filters, passes) -> None:
    store, held = filled
    asked = query("deploy token", await store.statistics(query_terms("deploy token")), filters=filters, depth=4)
    wide = dataclasses.replace(asked, depth=100)
    expected = {n for n in range(len(held)) if passes(n)}
    assert {int(c.ref.item_id[-2:]) for c in (await store.search(wide)).items} == expected
    assert len((await store.search(asked)).items) >= min(4, 2 * len(expected))
    assert {int(i.ref.item_id[-2:]) for i in await store.list(filters)} == expected


async def test_a_key_id_is_a_signer_too(store: VectorStore) -> None:
    one = admission("acme/deploy")
    await store.put([records(one)])
    assert [i.ref for i in await store.list(Filters(signer=one.key_id))] == [one.ref]


async def test_an_unsealed_admission_is_refused(store: VectorStore) -> None:
    forged = dataclasses.replace(admission("acme/deploy"), seal=b"")
    with pytest.raises(NotAdmitted):
        await store.put([records(forged)])
    altered = dataclasses.replace(admission("acme/deploy"), principal="mallory")
    with pytest.raises(NotAdmitted):
        await store.put([records(altered)])
    assert await store.list(Filters()) == []


async def test_records_of_two_items_are_refused(store: VectorStore) -> None:
    with pytest.raises(NotAdmitted):
        await store.put([[*records(admission("acme/one")), *records(admission("acme/two"))]])
    with pytest.raises(UsageError):
        await store.put([[]])
    assert (await store.status()).items == 0


async def test_vectors_of_two_models_never_meet(store: VectorStore) -> None:
    await store.put([records(admission("acme/one"))])
    with pytest.raises(FingerprintMismatch):
        await store.put([records(admission("acme/two"), fingerprint="other/1/384/mean/256")])
    with pytest.raises(FingerprintMismatch):
        await store.search(query("x", CollectionStatistics(), fingerprint="other/1/384/mean/256"))
    assert (await store.status()).items == 1


async def test_a_vector_that_is_not_a_unit_vector_is_refused(store: VectorStore) -> None:
    for factor in (0.0, 2.0, float("nan")):
        bad = [dataclasses.replace(r, vector=r.vector * np.float32(factor)) for r in records(admission("acme/one"))]
        with pytest.raises(EmbeddingError):
            await store.put([bad])


async def test_an_empty_store_answers(store: VectorStore) -> None:
    assert (await store.search(query("anything", CollectionStatistics()))).items == ()
    assert await store.statistics(["anything"]) == CollectionStatistics()
    assert (await store.status()).passages == 0


async def test_a_hit_says_who_signed_it_and_when(store: VectorStore) -> None:

    one = admission("acme/one")
    await store.put([records(one, ["hello"])])
    (hit,) = (await store.search(query("hello", await store.statistics(("hello",))))).items
    assert (hit.ref, hit.digest, hit.key_id, hit.signed_at) == (one.ref, one.digest, one.key_id, one.signed_at)
    assert hit.metadata == one.item.metadata
    assert hit.passage == records(one, ["hello"])[0].passage
