"""What every store of documents promises, asked of each one alike."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta

import pytest
from kiwi_rag.signing.document_statement import parse, passage_digest

from kiwi_rag.errors import FingerprintMismatch, NotAdmitted
from kiwi_rag.lexical import bm25, bm25_weights, query_terms, term_frequencies
from kiwi_rag.model import Filters
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.stores.base import VectorStore
from tests.conformance.documents import document, fill, records_of
from tests.conformance.items import KEY, SIGNED, query, unit_vector

ONE_LOOP = pytest.mark.asyncio(loop_scope="module")  # that of the store, which the module's tests share


def ref(path: str) -> ItemRef:
    return ItemRef(ItemType.DOCUMENT, path)


async def test_a_document_comes_back_as_it_was_signed(documents: VectorStore) -> None:
    admitted = document("docs/Tide Table.md", ["high water", "low water"])
    await documents.put([records_of(admitted)])
    stored = await documents.get(ref("docs/Tide Table.md"))
    assert stored is not None
    assert (stored.ref, stored.envelope, stored.digest) == (admitted[0].ref, admitted[0].envelope, admitted[0].digest)
    assert (stored.content_sha256, stored.passages) == (admitted[0].item.content_sha256, 2)
    assert await documents.get(ref("docs/tide table.md")) is None


async def test_a_path_is_what_it_is_and_nothing_is_folded(documents: VectorStore) -> None:
    for path in ("a/x_y.md", "a/x-y.md", "A/x-y.md"):
        await documents.put([records_of(document(path, [f"text of {path}"]))])
    assert [stored.ref.item_id for stored in await documents.list(Filters())] == sorted(
        ["A/x-y.md", "a/x-y.md", "a/x_y.md"]
    )


async def test_a_later_statement_replaces_the_document_wholly(documents: VectorStore) -> None:
    await documents.put([records_of(document("a.md", ["one two", "three", "four"]))])
    later = document("a.md", ["five"], at=SIGNED + timedelta(hours=1))
    await documents.put([records_of(later, seed=50)])
    assert (await documents.status()).passages == 1
    statistics = await documents.statistics(query_terms("three five"))
    assert statistics.document_frequency == {"five": 1}
    found = await documents.search(query("three five", statistics, seed=50))
    assert [candidate.passage.text for candidate in found.items] == ["five"]


async def test_a_passage_tells_its_place_and_its_kind(documents: VectorStore) -> None:
    admitted = document("a.md", ["first", "second"], labels={"service": "svc-x"})
    await documents.put([records_of(admitted)])
    found = await documents.search(query("second", await documents.statistics(("second",)), seed=1))
    best = max(found.items, key=lambda candidate: candidate.bm25)
    assert best.passage == admitted[1][1]
    assert best.metadata["service"] == "svc-x"
    assert passage_digest(best.passage) == parse(admitted[0].envelope).passages[1]


@ONE_LOOP
async def test_both_scores_are_true(filled_documents: VectorStore) -> None:
    documents = filled_documents
    words = query_terms("berth tide 7")
    statistics = await documents.statistics(words)
    assert (statistics.items, statistics.passages) == (12, 24)
    found = await documents.search(query("berth tide 7", statistics, seed=105))
    weights = bm25_weights(statistics, words)
    assert len(found.items) == 24
    for candidate in found.items:
        frequencies = term_frequencies(candidate.passage.indexed_text)
        n = int(candidate.ref.item_id[-5:-3])
        vector = unit_vector(100 + 2 * n + candidate.passage.ordinal)
        assert candidate.cosine == pytest.approx(float(vector @ unit_vector(105)), abs=1e-3)
        wanted = bm25(frequencies, frequencies.total(), weights, statistics.average_length)
        if documents.capabilities.scores:
            assert candidate.bm25 == pytest.approx(wanted, abs=1e-4)
        else:
            assert (candidate.bm25 > 0) == (wanted > 0)


@ONE_LOOP
@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        (Filters(service="svc-1"), lambda n: n % 3 == 1),
        (Filters(domain="Quay"), lambda n: n % 2 == 1),
        (Filters(service="svc-0", domain="Deck"), lambda n: n % 3 == 0 and n % 2 == 0),
        (Filters(file_type="markdown"), lambda n: True),
        (Filters(file_type="adr"), lambda n: n in (4, 5)),
        (Filters(file_type="openapi"), lambda n: False),
        (Filters(path="docs/a"), lambda n: n < 6),
        (Filters(path="docs/a/"), lambda n: n < 6),
        (Filters(path="docs/*/File 0?.md"), lambda n: n < 10),
        (Filters(path="*1.md"), lambda n: n % 10 == 1),
        (Filters(path="docs/a/File 03.md"), lambda n: n == 3),
        (Filters(path="docs/[a]/*"), lambda n: False),
        (Filters(path="DOCS/a"), lambda n: False),
    ],
)
async def test_filters_narrow_both_legs(filled_documents: VectorStore, filters: Filters, passes) -> None:
    documents = filled_documents
    words = query_terms("berth tide")
    found = await documents.search(query("berth tide", await documents.statistics(words), filters=filters))
    wanted = {n for n in range(12) if passes(n)}
    assert {int(candidate.ref.item_id[-5:-3]) for candidate in found.items} == wanted
    assert {int(stored.ref.item_id[-5:-3]) for stored in await documents.list(filters)} == wanted


async def test_what_was_deleted_is_gone_from_both_legs(documents: VectorStore) -> None:
    await fill(documents)
    assert await documents.delete(ref("docs/a/File 01.md")) is True
    assert await documents.delete(ref("docs/a/File 01.md")) is False
    statistics = await documents.statistics(("berth",))
    assert (statistics.items, statistics.document_frequency["berth"]) == (11, 11)
    found = await documents.search(query("berth", statistics, seed=102))
    assert "docs/a/File 01.md" not in {candidate.ref.item_id for candidate in found.items}


async def test_two_writers_on_different_files_lose_nothing(documents: VectorStore) -> None:
    one = [records_of(document(f"one/{n}.md", [f"one {n}", "more"]), seed=10 * n) for n in range(8)]
    two = [records_of(document(f"two/{n}.md", [f"two {n}", "more"]), seed=10 * n + 5) for n in range(8)]

    async def write(batch: list) -> None:
        for records in batch:
            await documents.put([records])

    await asyncio.gather(write(one), write(two))
    assert len(await documents.list(Filters())) == 16
    assert (await documents.statistics(("more",))).document_frequency == {"more": 16}


async def test_passages_that_were_not_signed_are_refused(documents: VectorStore) -> None:
    admission, passages = document("a.md", ["first", "second"])
    forged = [dataclasses.replace(passages[0], text="forged"), passages[1]]
    with pytest.raises(NotAdmitted):
        await documents.put([records_of((admission, forged))])
    with pytest.raises(NotAdmitted):
        await documents.put([records_of((admission, passages[:1]))])
    assert (await documents.status()).passages == 0


async def test_an_unsealed_document_is_refused(documents: VectorStore) -> None:
    admission, passages = document("a.md", ["first"])
    item = dataclasses.replace(admission.item, metadata={**admission.item.metadata, "service": "svc-other"})
    with pytest.raises(NotAdmitted):
        await documents.put([records_of((dataclasses.replace(admission, item=item), passages))])


async def test_models_do_not_mix(documents: VectorStore) -> None:
    await documents.put([records_of(document("a.md", ["first"]))])
    with pytest.raises(FingerprintMismatch):
        await documents.put([records_of(document("b.md", ["first"]), fingerprint="other/0/384/mean/256")])


async def test_writing_the_same_twice_changes_nothing(documents: VectorStore) -> None:
    records = records_of(document("a.md", ["first", "second"]))
    await documents.put([records])
    before = await documents.get(ref("a.md"))
    await documents.put([records])
    after = await documents.get(ref("a.md"))
    assert before is not None and after is not None
    assert (before.digest, (await documents.status()).passages) == (after.digest, 2)


async def test_a_hit_says_who_signed_it_and_when(documents: VectorStore) -> None:
    await documents.put([records_of(document("a.md", ["first"]))])
    found = await documents.search(query("first", await documents.statistics(("first",))))
    assert {(candidate.key_id, candidate.signed_at) for candidate in found.items} == {(KEY.key_id, SIGNED)}
