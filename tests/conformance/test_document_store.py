"""What every store of documents promises beside what `test_vector_store` asks of all kinds of content."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta

import pytest

from kiwi_rag.errors import NotAdmitted
from kiwi_rag.lexical import bm25, bm25_weights, query_terms, term_frequencies
from kiwi_rag.model import Filters
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.signing.statement import parse_index, passage_digest
from kiwi_rag.stores.base import VectorStore
from tests.conformance.documents import document, fill, records_of
from tests.conformance.items import SIGNED, query, unit_vector

ONE_LOOP = pytest.mark.asyncio(loop_scope="module")  # that of the store, which the module's tests share


def ref(path: str) -> ItemRef:
    return ItemRef(ItemType.DOCUMENT, path)


async def test_a_path_is_what_it_is_and_nothing_is_folded(documents: VectorStore) -> None:
    assert await documents.get(ref("a/x_y.md")) is None
    for path in ("a/x_y.md", "a/x-y.md", "A/x-y.md"):
        await documents.put([records_of(document(path, [f"text of {path}"]))])
    assert [stored.ref.item_id for stored in await documents.list(Filters())] == sorted(
        ["A/x-y.md", "a/x-y.md", "a/x_y.md"]
    )
    assert await documents.get(ref("A/X-y.md")) is None
    assert await documents.delete(ref("a/x_y.md"))
    assert await documents.get(ref("a/x-y.md")) is not None


async def test_a_passage_tells_its_place_and_its_kind(documents: VectorStore) -> None:
    admitted = document("a.md", ["first", "second"], labels={"service": "svc-x"})
    await documents.put([records_of(admitted)])
    found = await documents.search(query("second", await documents.statistics(("second",)), seed=1))
    best = max(found.items, key=lambda candidate: candidate.bm25)
    assert best.passage == admitted[1][1]
    assert best.metadata["service"] == "svc-x"
    assert passage_digest(best.passage) == parse_index(admitted[0].envelope.payload).passages[1]


async def test_a_document_with_an_included_file_is_stored_with_both_digests(documents: VectorStore) -> None:
    admitted = document("a.md", ["first"], included={"src/b.py": b"second = 2"})
    await documents.put([records_of(admitted)])
    stored = await documents.get(ref("a.md"))
    assert stored is not None
    signed = parse_index(stored.envelope.payload)
    assert set(signed.digests) == {"a.md", "src/b.py"}
    assert stored.content_sha256 == signed.content_sha256 == admitted[0].item.content_sha256
    found = await documents.search(query("second", await documents.statistics(("second",)), seed=1))
    best = max(found.items, key=lambda candidate: candidate.bm25)
    assert best.passage == admitted[1][1]
    assert passage_digest(best.passage) == signed.passages[1]


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
        (Filters(item_type=ItemType.DOCUMENT, signer="ada@acme"), lambda n: True),
        (Filters(item_type=ItemType.DIRECTIVE), lambda n: False),
        (Filters(signer="mallory"), lambda n: False),
        (Filters(since=SIGNED), lambda n: True),
        (Filters(since=SIGNED + timedelta(hours=1)), lambda n: False),
        (Filters(category="ops"), lambda n: False),
        (Filters(author="ada"), lambda n: False),
        (Filters(tags=("odd",)), lambda n: False),
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
