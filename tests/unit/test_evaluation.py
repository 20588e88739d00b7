"""Runs over real tiers: what the methods measure, and what a file of a run holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.compare import read
from kiwi_rag.errors import StoreError, UsageError
from kiwi_rag.evaluation import runs
from kiwi_rag.evaluation.judgements import Dataset, JudgedQuery
from kiwi_rag.evaluation.runs import Run
from kiwi_rag.model import SearchQuery
from tests.search_tiers import Shelf, note

SUBJECTS = ("ledger", "canary", "quota", "mesh", "vault", "replica", "invoice", "probe")


async def filled(folder: Path) -> Shelf:
    made = Shelf(folder)
    for subject in SUBJECTS:
        await made.put(
            "project", f"acme/{subject}", note(f"The {subject}", f"How the {subject} is kept, and whom to ask.")
        )
    await made.put("registry", "acme/far", note("Far away", "A note on lighthouses."))
    return made


@pytest.fixture
async def shelf(tmp_path: Path) -> AsyncIterator[Shelf]:
    made = await filled(tmp_path)
    yield made
    await made.close()


def dataset(*queries: JudgedQuery) -> Dataset:
    return Dataset("made up", "0" * 64, queries)


def judged(subject: str, kind: str = "") -> JudgedQuery:
    return JudgedQuery(subject, f"the {subject} please", kind, {f"knowledge:acme/{subject}": 1})


async def run_of(shelf: Shelf, queries: Dataset, *methods: str, **query: Any) -> Run:
    tiers, about = list(shelf.tiers.values()), {"kiwi": "test"}
    names = runs.check_methods(methods)
    return await runs.evaluate(queries, names, shelf.handler(), tiers, SearchQuery("x", **query), about=about)


async def test_every_row_finds_what_is_plainly_there(shelf: Shelf) -> None:
    run = await run_of(shelf, dataset(*(judged(s) for s in SUBJECTS)))
    assert run.methods == list(runs.METHODS) == ["grep", "bm25", "vectors", "rrf", "hybrid"]
    for method in runs.METHODS:
        assert run.column(method, "mrr@10") == [1.0] * len(SUBJECTS), method
        assert all(answer.ms > 0 for answer in run.answers(method))
    rows = runs.summarise(run)
    assert [row["method"] for row in rows] == run.methods
    assert all(row["metrics"]["mrr@10"] == 1.0 for row in rows)
    assert all(0 < row["latency_ms"]["p50"] <= row["latency_ms"]["p95"] for row in rows)


async def test_the_rows_are_the_searchers_own_answers(shelf: Shelf) -> None:
    query = judged("vault")
    run = await run_of(shelf, dataset(query))
    for method, options in {
        "bm25": {"alpha": 0.0}, "vectors": {"alpha": 1.0}, "rrf": {"fusion": "rrf"}, "hybrid": {},
    }.items():  # fmt: skip
        reply = await shelf.search(query.query, **options)
        expected = [(f"{hit.ref.item_type}:{hit.ref.item_id}", hit.score) for hit in reply.hits]
        assert run.answers(method)[0].ranked == expected


async def test_grep_ranks_by_words_found_and_leaves_out_what_has_none(shelf: Shelf) -> None:
    run = await run_of(shelf, dataset(JudgedQuery("q", "lighthouses far", "", {"knowledge:acme/far": 1})), "grep")
    assert [ref for ref, _ in run.answers("grep")[0].ranked] == ["knowledge:acme/far"]


async def test_a_hit_that_stands_for_a_judged_copy_counts(shelf: Shelf) -> None:
    await shelf.put("project", "acme/copy-of-vault", note("The vault", "How the vault is kept, and whom to ask."))
    copy = JudgedQuery("q", "the vault please", "", {"knowledge:acme/copy-of-vault": 1})
    run = await run_of(shelf, dataset(copy, judged("vault")), "hybrid")
    assert run.column("hybrid", "hit@3") == [1.0, 1.0]


async def test_what_no_tier_holds_is_named(shelf: Shelf) -> None:
    grades = {"knowledge:acme/far": 1, "knowledge:acme/gone": 1, "knowledge:papers/README!": 2, "script:acme/old": 0}
    queries = dataset(JudgedQuery("q", "x", "", grades))
    tiers = list(shelf.tiers.values())
    assert await runs.missing_items(queries, tiers) == ["knowledge:acme/gone", "knowledge:papers/README!"]


async def test_an_answer_that_is_not_whole_is_counted(shelf: Shelf) -> None:
    shelf.edit("project", "UPDATE items SET digest = '0' WHERE item_id = 'acme/vault'")
    run = await run_of(shelf, dataset(judged("vault"), judged("mesh")), "hybrid")
    assert not run.answers("hybrid")[0].complete
    whole = await run_of(shelf, dataset(judged("vault")), "grep")
    assert whole.answers("grep")[0].complete


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(UsageError, match="no method 'magic'"):
        runs.check_methods(["magic"])
    assert runs.check_methods(["hybrid", "grep", "grep"]) == ["grep", "hybrid"]


async def test_a_run_is_read_as_it_was_written(shelf: Shelf, tmp_path: Path) -> None:
    run = await run_of(shelf, dataset(judged("vault", "task"), judged("mesh")), "bm25", "hybrid")
    runs.write(run, tmp_path / "run.json")
    again = read(tmp_path / "run.json")
    assert again == run
    assert runs.as_document(again) == runs.as_document(run)
    assert len(again.of_kind("task").queries) == 1
    with pytest.raises(StoreError, match="cannot write"):
        runs.write(run, tmp_path / "missing" / "run.json")


def test_results_are_not_written_over_what_is_read_or_where_no_folder_is(tmp_path: Path) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("{}")
    (tmp_path / "link").symlink_to(few)
    runs.check_output(tmp_path / "run.json", few)
    runs.check_output(None, few)
    for output in (few, tmp_path / "link", tmp_path):
        with pytest.raises(UsageError, match="the file of the dataset"):
            runs.check_output(output, few)
    with pytest.raises(UsageError, match="no folder"):
        runs.check_output(tmp_path / "missing/run.json", few)
