"""What every store promises of names: definitions and files are found by them, and they change nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kiwi_rag.lexical import query_terms, terms
from kiwi_rag.model import Candidate
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.symbols import symbol_terms
from tests.conformance.documents import document, records_of
from tests.conformance.items import query

DEFINED = "export class PipelineManager {}"
REPEATED = "PipelineManager, the pipeline manager: PipelineManager manages pipelines"


async def put(store: VectorStore, path: str, *texts: str, seed: int = 0) -> None:
    await store.put([records_of(document(path, texts, context="", kind="text"), seed)])


async def found(store: VectorStore, text: str, depth: int = 100) -> list[Candidate]:
    """What the words leg finds, best first."""
    sought = (*query_terms(text), *symbol_terms(text))
    asked = replace(query(text, await store.statistics(sought), seed=999, depth=depth), terms=sought)
    return sorted((one for one in (await store.search(asked)).items if one.bm25 > 0), key=lambda one: -one.bm25)


@pytest.mark.parametrize("name", ["PipelineManager", "where is class PipelineManager defined", "pipelinemanager"])
async def test_a_definition_is_among_the_best_however_often_others_repeat_its_name(
    documents: VectorStore, name: str
) -> None:
    await put(documents, "src/pipelines.ts", "import x from './y'", DEFINED)
    for number in range(8):
        await put(documents, f"src/use{number}.ts", *[REPEATED] * 2, seed=10 + number)
    best, *_ = await found(documents, name, depth=2)
    assert (best.ref.item_id, best.passage.text) == ("src/pipelines.ts", DEFINED)


async def test_a_file_is_found_by_its_path_its_name_and_as_a_module(documents: VectorStore) -> None:
    await put(documents, "kiwi/search/ranking.py", "import os", "x = os.sep")
    await put(documents, "kiwi/ranking.md", "the file kiwi/search/ranking.py", "search ranking py: ranking.py", seed=5)
    for name in ("ranking.py", "search/ranking.py", "kiwi/search/ranking.py", "kiwi.search.ranking", "search.ranking"):
        best, *_ = await found(documents, name)
        assert (best.ref.item_id, best.passage.ordinal) == ("kiwi/search/ranking.py", 0), name


async def test_names_count_in_the_statistics_and_not_in_the_lengths(documents: VectorStore) -> None:
    await put(documents, "src/pipelines.ts", "import x from './y'", DEFINED)
    statistics = await documents.statistics(("pipelinemanag", "·pipelinemanager", "·pipelines·ts", "·src"))
    occurring = {"pipelinemanag": 1, "·pipelinemanager": 1, "·pipelines·ts": 1}
    assert (statistics.document_frequency, statistics.passages) == (occurring, 2)
    assert statistics.total_length == len(terms(f"import x from './y' {DEFINED}"))


async def test_names_are_no_corrections(documents: VectorStore) -> None:
    await put(documents, "src/pipelines.ts", "import x from './y'", "export class Pagination {}")
    similar = await documents.similar_terms(["paginatiom", "·paginatiom", "pipelinez"])
    assert {word for words in similar.values() for word in words} <= {"pagin"}


async def test_a_deleted_definition_is_not_found(documents: VectorStore) -> None:
    admitted = document("src/a.ts", [DEFINED], context="", kind="text")
    await documents.put([records_of(admitted)])
    assert await documents.delete(admitted[0].ref)
    assert (await documents.statistics(("·pipelinemanager",))).document_frequency == {}
