"""What every `VectorStore` promises, asked of each one alike, of items, skills and documents."""

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
from tests.conformance.conftest import Place
from tests.conformance.contents import SKILL_FILES, number_of
from tests.conformance.items import query, unit_vector

Filled = tuple[Place, dict[str, list[str]]]
ONE_LOOP = pytest.mark.asyncio(loop_scope="module")  # that of the store, which the module's tests share


async def test_what_was_stored_comes_back_as_it_was_signed(place: Place) -> None:
    store, kind = place
    entry = kind.entry("acme/deploy", ["first", "second"])
    one = entry[0].admission
    await store.put([entry])
    stored = await store.get(kind.ref("acme/deploy"))
    assert stored is not None
    assert (stored.ref, stored.envelope, stored.digest) == (one.ref, one.envelope, one.digest)
    assert (stored.content_sha256, stored.passages) == (one.item.content_sha256, 2)
    if store.capabilities.kind != "postgres":
        assert stored.policy == one.policy
    elif not kind.is_document:
        assert stored.policy == "registry"
    assert stored.files == ({} if kind.is_document else one.item.files)


async def test_the_files_of_an_item_are_returned_as_requested_byte_for_byte(place: Place) -> None:
    store, kind = place
    entry = kind.entry("acme/deploy", ["first", "second"])
    item = entry[0].admission.item
    await store.put([entry])
    kept = {} if kind.is_document else item.files
    assert len(kept) == {ItemType.SKILL: 12, ItemType.DOCUMENT: 0}.get(kind.item_type, 1)
    for names in ([], [item.main], ["no/such/file", item.main], sorted(SKILL_FILES)):
        stored = await store.get(entry[0].admission.ref, names)
        assert stored is not None
        assert stored.files == {name: kept[name] for name in names if name in kept}
    assert [one.files for one in await store.list(Filters())] == [{}]


async def test_what_is_not_there_is_nothing(place: Place) -> None:
    store, kind = place
    await store.put([kind.entry("acme/deploy", ["first"])])
    assert await store.get(kind.ref("acme/other")) is None
    assert await store.get(ItemRef(ItemType.SCRIPT, "acme/deploy")) is None
    assert not await store.delete(kind.ref("acme/other"))


async def test_get_and_delete_know_versions(versioned: Place) -> None:
    store, kind = versioned
    await store.put([kind.entry("acme/deploy", ["first"], version="1.2.0")])
    newest = await store.get(kind.ref("acme/deploy"))
    assert newest is not None
    assert newest.ref.version == "1.2.0"
    assert await store.get(kind.ref("acme/deploy", "9.9.9")) is None
    assert not await store.delete(kind.ref("acme/deploy", "9.9.9"))
    assert await store.get(kind.ref("acme/deploy")) is not None


async def test_writing_the_same_twice_changes_nothing(place: Place) -> None:
    store, kind = place
    entry = kind.entry("acme/deploy", ["alpha beta", "gamma"])
    await store.put([entry])
    before = await store.statistics(["alpha", "gamma"]), await store.get(entry[0].admission.ref)
    await store.put([entry, entry])
    assert (await store.statistics(["alpha", "gamma"]), await store.get(entry[0].admission.ref)) == before
    assert (await store.status()).passages == 2


async def test_several_entries_are_stored_in_their_order(place: Place) -> None:
    store, kind = place
    entries = [
        kind.entry("acme/one", ["zebra"]),
        kind.entry("acme/two", ["giraffe", "giraffe again"], seed=10),
        kind.entry("acme/one", ["tiger"], seed=20, version="1.1.0"),
    ]
    await store.put(entries)
    await store.put([])
    statistics = await store.statistics(query_terms("zebra giraffe tiger"))
    (giraffe,), (tiger,) = query_terms("giraffe"), query_terms("tiger")
    assert statistics.document_frequency == {giraffe: 2, tiger: 1}
    assert (statistics.items, statistics.passages) == (2, 3)
    wanted = {
        kind.ref("acme/one"): entries[2][0].admission.digest,
        kind.ref("acme/two"): entries[1][0].admission.digest,
    }
    listed = {dataclasses.replace(one.ref, version=None): one.digest for one in await store.list(Filters())}
    assert listed == wanted


async def test_an_entry_that_is_refused_is_not_stored_in_part(place: Place) -> None:
    store, kind = place
    bad = kind.entry("acme/two", ["giraffe", "giraffe again"])
    bad[1] = dataclasses.replace(bad[1], vector=bad[1].vector * np.float32(2))
    with pytest.raises(EmbeddingError):
        await store.put([bad])
    assert (await store.status()).items == 0
    assert await store.get(kind.ref("acme/two")) is None


async def test_what_is_stored_again_is_replaced_wholly(place: Place) -> None:
    store, kind = place
    await store.put([kind.entry("acme/deploy", ["zebra", "zebra again", "three"], version="1.0.0")])
    await store.put([kind.entry("acme/deploy", ["giraffe"], seed=50, version="1.1.0")])
    assert (await store.status()).passages == 1
    statistics = await store.statistics(query_terms("zebra giraffe"))
    assert statistics.document_frequency == {query_terms("giraffe")[0]: 1}
    for seed in (0, 50):
        found = await store.search(query("zebra giraffe", statistics, seed=seed))
        assert [c.passage.text for c in found.items] == ["giraffe"]


async def test_delete_leaves_history_and_nothing_else(place: Place) -> None:
    store, kind = place
    entry = kind.entry("acme/deploy", ["zebra"])
    one = entry[0].admission
    await store.put([entry])
    assert await store.delete(kind.ref("acme/deploy"))
    assert not await store.delete(kind.ref("acme/deploy"))
    if store.capabilities.kind != "postgres" or kind.is_document:
        assert await store.get(one.ref) is None
    assert await store.get(kind.ref("acme/deploy")) is None
    assert await store.list(Filters()) == []
    assert await store.statistics(query_terms("zebra")) == CollectionStatistics()
    assert await store.history(one.ref) == ({} if kind.is_document else {"1.0.0": one.item.content_sha256})
    assert (await store.search(query("zebra", CollectionStatistics(1, 1, {"zebra": 1})))).items == ()


async def test_history_keeps_every_version(place: Place) -> None:
    store, kind = place
    entries = {v: kind.entry("acme/deploy", [text], version=v) for v, text in (("1.0.0", "one"), ("1.1.0", "two"))}
    for entry in entries.values():
        await store.put([entry])
    wanted = {version: entry[0].admission.item.content_sha256 for version, entry in entries.items()}
    assert await store.history(kind.ref("acme/deploy")) == ({} if kind.is_document else wanted)


@ONE_LOOP
async def test_list_is_filtered_and_ordered(filled: Filled) -> None:
    (store, kind), texts = filled
    everything = await store.list(Filters())
    assert [i.ref for i in everything] == sorted(i.ref for i in everything)
    assert {dataclasses.replace(i.ref, version=None) for i in everything} == {kind.ref(name) for name in texts}
    some = await store.list(Filters(path="beta") if kind.is_document else Filters(namespace="beta"))
    assert {dataclasses.replace(i.ref, version=None) for i in some} == {
        kind.ref(name) for name in texts if name.startswith("beta/")
    }


@ONE_LOOP
async def test_both_scores_are_true_for_every_candidate(filled: Filled) -> None:
    (store, _), _ = filled
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
        vector = unit_vector(1000 + 2 * number_of(candidate.ref) + candidate.passage.ordinal)
        assert candidate.cosine == pytest.approx(float(vector @ asked.vector), abs=1e-5)
    assert number_of(max(found, key=lambda c: c.cosine).ref) == 2


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
        vector = unit_vector(1000 + 2 * number_of(candidate.ref) + candidate.passage.ordinal)
        assert candidate.cosine == pytest.approx(float(vector @ asked.vector), abs=1e-5)
    assert all(set(asked.terms) & set(term_frequencies(c.passage.indexed_text)) for c in by_words)
    assert number_of(max(found, key=lambda c: c.cosine).ref) == 2
    for candidate in found:
        fellows = [c for c in found if c.ref == candidate.ref]
        best, words = max(c.cosine for c in fellows), max(c.bm25 for c in fellows)
        assert candidate.item == (best, best, best, words, words)


async def test_items_are_scored_by_all_their_passages(place: Place) -> None:
    """The scores of an item as a whole, by what the passages of each hold, found by a leg or not."""
    texts = ["canary restore restore", "pager latency", "database canary deploy queue", "retry"]
    store, kind = place
    sizes = (4, 1, 3)
    await store.put([kind.entry(f"acme/item-{n:02d}", texts[:m], seed=100 * (n + 1)) for n, m in enumerate(sizes)])
    own = await store.statistics(query_terms("canary database restore"))
    assert (own.items, own.passages) == (3, 8)
    merged = own + CollectionStatistics(1000, 9000, {"databas": 400, "canari": 3}, 90)
    asked = query("canary database restore", merged, seed=101, depth=3 if store.capabilities.scores else 10)
    weights = bm25_weights(merged, asked.terms)
    found = (await store.search(asked)).items
    assert {c.ref.item_id for c in found} == {kind.ref(f"acme/item-{n:02d}").item_id for n in range(3)}
    for candidate in found:
        number = number_of(candidate.ref)
        vectors = [unit_vector(100 * (number + 1) + i) for i in range(sizes[number])]
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
    (store, _), texts = filled
    statistics = await store.statistics(query_terms("pager latency"))
    asked = query("pager latency", statistics, seed=3, depth=7)
    everything = (await store.search(dataclasses.replace(asked, depth=1000))).items
    assert len(everything) == 2 * len(texts)
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
async def test_filters_narrow_before_ranking(
    filled_items: tuple[VectorStore, dict[str, list[str]]], filters: Filters, passes
) -> None:
    store, held = filled_items
    asked = query("deploy token", await store.statistics(query_terms("deploy token")), filters=filters, depth=4)
    wide = dataclasses.replace(asked, depth=100)
    expected = {n for n in range(len(held)) if passes(n)}
    assert {number_of(c.ref) for c in (await store.search(wide)).items} == expected
    assert len((await store.search(asked)).items) >= min(4, 2 * len(expected))
    assert {number_of(i.ref) for i in await store.list(filters)} == expected


async def test_a_key_id_is_a_signer_too(place: Place) -> None:
    store, kind = place
    entry = kind.entry("acme/deploy", ["first"])
    await store.put([entry])
    one = entry[0].admission
    assert [i.ref for i in await store.list(Filters(signer=one.key_id))] == [one.ref]
    assert await store.list(Filters(signer="mallory")) == []


async def test_an_unsealed_admission_is_refused(place: Place) -> None:
    store, kind = place
    for changes in ({"seal": b""}, {"principal": "mallory"}):
        forged = [
            dataclasses.replace(r, admission=dataclasses.replace(r.admission, **changes))
            for r in kind.entry("acme/deploy", ["first"])
        ]
        with pytest.raises(NotAdmitted):
            await store.put([forged])
    assert await store.list(Filters()) == []


async def test_files_and_metadata_that_were_not_admitted_are_refused(place: Place) -> None:
    store, kind = place
    (record,) = kind.entry("acme/deploy", ["first"])
    item = record.admission.item
    files = {**item.files, item.main: b"something else"}
    for altered in (
        dataclasses.replace(item, files=files),
        dataclasses.replace(item, files={**item.files, "more.md": b"more"}),
        dataclasses.replace(item, metadata={**item.metadata, "service": "svc-other"}),
    ):
        forged = dataclasses.replace(record, admission=dataclasses.replace(record.admission, item=altered))
        with pytest.raises(NotAdmitted):
            await store.put([[forged]])
    assert (await store.status()).items == 0


async def test_records_of_two_items_are_refused(place: Place) -> None:
    store, kind = place
    with pytest.raises(NotAdmitted):
        await store.put([[*kind.entry("acme/one", ["first"]), *kind.entry("acme/two", ["second"])]])
    with pytest.raises(UsageError):
        await store.put([[]])
    assert (await store.status()).items == 0


async def test_vectors_of_two_models_never_meet(place: Place) -> None:
    store, kind = place
    await store.put([kind.entry("acme/one", ["first"])])
    with pytest.raises(FingerprintMismatch):
        await store.put([kind.entry("acme/two", ["second"], fingerprint="other/1/384/mean/256")])
    with pytest.raises(FingerprintMismatch):
        await store.search(query("x", CollectionStatistics(), fingerprint="other/1/384/mean/256"))
    assert (await store.status()).items == 1


async def test_a_vector_that_is_not_a_unit_vector_is_refused(place: Place) -> None:
    store, kind = place
    for factor in (0.0, 2.0, float("nan")):
        entry = kind.entry("acme/one", ["first"])
        bad = [dataclasses.replace(r, vector=r.vector * np.float32(factor)) for r in entry]
        with pytest.raises(EmbeddingError):
            await store.put([bad])


async def test_an_empty_store_answers(place: Place) -> None:
    store, kind = place
    assert (await store.search(query("anything", CollectionStatistics()))).items == ()
    assert await store.statistics(["anything"]) == CollectionStatistics()
    assert (await store.status()).passages == 0
    assert (await store.list(Filters()), await store.get(kind.ref("acme/one"))) == ([], None)
    assert await store.history(kind.ref("acme/one")) == {}


async def test_a_hit_says_who_signed_it_and_when_and_where_it_is(place: Place) -> None:
    store, kind = place
    entry = kind.entry("acme/one", ["hello", "tiger", "zebra"])
    await store.put([entry])
    one = entry[0].admission
    found = (await store.search(query("hello", await store.statistics(("hello",))))).items
    assert {(c.ref, c.digest, c.content_sha256, c.key_id, c.signed_at) for c in found} == {
        (one.ref, one.digest, one.item.content_sha256, one.key_id, one.signed_at)
    }
    assert all(c.metadata == one.item.metadata for c in found)
    assert sorted((c.passage for c in found), key=lambda p: p.ordinal) == [r.passage for r in entry]
    assert {c.passage.file != "" for c in found} == ({True, False} if kind.item_type is ItemType.SKILL else {False})
