"""Runs over real tiers: what the rows measure, what is kept of them, and what two of them differ in."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag.errors import MissingExtra, SourceUnreadable, StoreError, UsageError
from kiwi_rag.evaluation import methods, plot, report, runs, tuning
from kiwi_rag.evaluation.compare import compare
from kiwi_rag.evaluation.datasets import Dataset, JudgedQuery
from kiwi_rag.evaluation.runs import Answer, Run
from kiwi_rag.model import FusionWeights, SearchQuery
from kiwi_rag.search.ranking import default_weights, read_weights
from tests.search_tiers import EMBED, Shelf, note

SUBJECTS = ("ledger", "canary", "quota", "mesh", "vault", "replica", "invoice", "probe")


@pytest.fixture
async def shelf(tmp_path: Path) -> AsyncIterator[Shelf]:
    made = Shelf(tmp_path)
    for subject in SUBJECTS:
        await made.put(
            "project", f"acme/{subject}", note(f"The {subject}", f"How the {subject} is kept, and whom to ask.")
        )
    await made.put("registry", "acme/far", note("Far away", "A note on lighthouses."))
    yield made
    await made.close()


def dataset(*queries: JudgedQuery) -> Dataset:
    return Dataset("made up", "0" * 64, queries)


def judged(subject: str, kind: str = "") -> JudgedQuery:
    return JudgedQuery(subject, f"the {subject} please", kind, {f"knowledge:acme/{subject}": 1})


async def run_of(shelf: Shelf, asked: Dataset, *names: str, **query: Any) -> Run:
    tiers = list(shelf.tiers.values())
    rows = await methods.prepare(methods.named(names), shelf.handler(), tiers, SearchQuery("x", **query))
    return await runs.evaluate(asked, rows, 10, {"kiwi": "test"})


async def test_every_row_finds_what_is_plainly_there(shelf: Shelf) -> None:
    run = await run_of(shelf, dataset(*(judged(s) for s in SUBJECTS)))
    assert tuple(run.answers) == methods.METHODS
    for method in methods.METHODS:
        assert run.column(method, "mrr@10") == [1.0] * len(SUBJECTS), method
        assert all(answer.ms > 0 for answer in run.answers[method])
    by_row = {row.method: row for row in runs.rows(run)}
    assert by_row["hybrid"].gain is not None and by_row["hybrid"].gain.mean == 0.0
    assert by_row["bm25"].gain is None


async def test_the_rows_are_the_searchers_own_answers(shelf: Shelf) -> None:
    query = judged("vault")
    run = await run_of(shelf, dataset(query))
    for method, options in {
        "bm25": {"alpha": 0.0}, "vectors": {"alpha": 1.0}, "rrf": {"fusion": "rrf"}, "hybrid": {},
    }.items():  # fmt: skip
        reply = await shelf.search(query.text, **options)
        expected = [(f"{hit.ref.item_type}:{hit.ref.item_id}", hit.score) for hit in reply.hits]
        assert list(run.answers[method][0].ranked) == expected


async def test_grep_ranks_by_words_found_and_leaves_out_what_has_none(shelf: Shelf) -> None:
    run = await run_of(shelf, dataset(JudgedQuery("q", "lighthouses far", "", {"knowledge:acme/far": 1})), "grep")
    assert [ref for ref, _ in run.answers["grep"][0].ranked] == ["knowledge:acme/far"]


async def test_a_hit_that_stands_for_a_judged_copy_counts(shelf: Shelf) -> None:
    await shelf.put("project", "acme/copy-of-vault", note("The vault", "How the vault is kept, and whom to ask."))
    copy = JudgedQuery("q", "the vault please", "", {"knowledge:acme/copy-of-vault": 1})
    run = await run_of(shelf, dataset(copy, judged("vault")), "hybrid")
    assert run.column("hybrid", "hit@3") == [1.0, 1.0]


async def test_what_no_tier_holds_is_told(shelf: Shelf) -> None:
    grades = {"knowledge:acme/far": 1, "knowledge:acme/gone": 1, "knowledge:papers/README!": 2, "script:acme/old": 0}
    asked = dataset(JudgedQuery("q", "x", "", grades))
    tiers = list(shelf.tiers.values())
    assert await runs.not_held(asked, tiers) == ["knowledge:acme/gone", "knowledge:papers/README!"]


async def test_an_answer_that_is_not_whole_is_counted(shelf: Shelf) -> None:
    shelf.edit("project", "UPDATE items SET digest = '0' WHERE item_id = 'acme/vault'")
    tiers = list(shelf.tiers.values())
    asked = await methods.prepare(["hybrid"], shelf.handler(), tiers, SearchQuery("x"))
    await runs.evaluate(dataset(judged("vault"), judged("mesh")), asked, 10, {})
    assert asked["hybrid"].incomplete >= 1


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(UsageError, match="no method 'magic'"):
        methods.named(["magic"])
    assert methods.named(["hybrid", "grep", "grep"]) == ["grep", "hybrid"]


async def test_a_run_is_read_as_it_was_written(shelf: Shelf, tmp_path: Path) -> None:
    run = await run_of(shelf, dataset(judged("vault", "task"), judged("mesh")), "bm25", "hybrid")
    runs.write(runs.document(run), tmp_path / "run.json")
    again = runs.read(tmp_path / "run.json")
    assert again.queries == run.queries and again.about == run.about
    assert [a.ranked for a in again.answers["bm25"]] == [a.ranked for a in run.answers["bm25"]]
    assert [r.metrics for r in runs.rows(again)] == [r.metrics for r in runs.rows(run)]
    assert len(again.of_kind("task").queries) == 1
    with pytest.raises(StoreError, match="cannot write"):
        runs.write({}, tmp_path / "missing" / "run.json")


def told(name: str = '"a"', metrics: str = '{"ndcg@10": 1}', ranked: str = "[]") -> str:
    answers = f'{{"hybrid": {{"ranked": {ranked}, "metrics": {metrics}, "ms": 1}}}}'
    query = f'{{"id": {name}, "query": "x", "kind": "", "relevant": {{}}, "answers": {answers}}}'
    return f'{{"format": 1, "queries": [{query}]}}'


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", "{}", '{"format": 1}', '{"format": 1, "queries": [{"id": 1}]}', '{"format": 9}',
        '{"format": 1, "queries": []}', "[" * 100_000, told('["a"]'), told(r'"\ud800"'),
        told(metrics='{"ndcg@10": NaN}'), told(metrics='{"ndcg@10": Infinity}'), told(metrics='{"ndcg@10": 1e999}'),
        told(metrics='{"ndcg@10": "1"}'), told(ranked="[[3, 1]]"), told(ranked='[["a", 1' + "0" * 400 + "]]"),
    ],
    ids=range(16),
)  # fmt: skip
def test_what_is_no_run_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"run\.json is not a run of"):
        runs.read(path)
    with pytest.raises(SourceUnreadable):
        runs.read(tmp_path / "missing.json")


def test_a_run_as_it_should_be_is_read(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(told())
    assert runs.read(tmp_path / "run.json").column("hybrid", "ndcg@10") == [1.0]


def test_results_are_not_written_over_what_is_read_or_where_no_folder_is(tmp_path: Path) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("{}")
    (tmp_path / "link").symlink_to(few)
    (tmp_path / "queries.jsonl").write_text("{}")
    runs.check_outputs([tmp_path / "run.json", None], [few])
    for outputs in ([few], [tmp_path / "link"], [None, tmp_path], [tmp_path / "run.json"] * 2):
        with pytest.raises(UsageError, match="read, or written to already"):
            runs.check_outputs(outputs, [few])
    with pytest.raises(UsageError, match="read, or written to already"):
        runs.check_outputs([tmp_path / "queries.jsonl"], [tmp_path])
    with pytest.raises(UsageError, match="no folder"):
        runs.check_outputs([tmp_path / "missing/run.json"], [few])


def made(values: dict[str, float], first: str = "knowledge:a", grades: dict[str, int] | None = None) -> Run:
    queries = tuple(JudgedQuery(name, f"query {name}", "", grades or {"knowledge:a": 1}) for name in values)
    answers = tuple(Answer(((first, 1.0),), {"ndcg@10": value}, 1.0) for value in values.values())
    return Run(queries, {"hybrid": answers, "bm25": answers}, {"weights": first, "at": first})


def test_a_comparison_counts_and_orders_by_what_changed_most() -> None:
    before = made({"a": 0.5, "b": 0.5, "c": 0.5, "only here": 0.0})
    after = made({"c": 0.5, "b": 0.1, "a": 0.6}, first="knowledge:b")
    found = compare(before, after, "ndcg@10", ("hybrid", "hybrid"))
    assert (found.wins, found.losses, found.ties, found.unmatched) == (1, 1, 1, 1)
    assert [c.id for c in found.changes] == ["b", "a", "c"]
    assert found.changes[0].by == pytest.approx(-0.4)
    assert found.change.mean == pytest.approx(-0.1)
    assert found.differs == ("weights",)
    text = "\n".join(report.comparison(found, 1))
    assert "1 better, 1 worse, 1 the same, of 3 queries" in text
    assert "-0.400  0.500 → 0.100  query b" in text and "query a" not in text
    assert "before  knowledge:a" in text and "after   knowledge:b" in text


def test_queries_that_were_judged_anew_are_not_compared() -> None:
    other = made({"a": 1.0}, grades={"knowledge:a": 2})
    with pytest.raises(UsageError, match="share no judged query"):
        compare(made({"a": 0.5}), other, "ndcg@10", ("hybrid", "hybrid"))


@pytest.mark.parametrize(("metric", "method"), [("ndcg@10", "magic"), ("f1", "hybrid")])
def test_a_comparison_of_what_was_not_measured_is_refused(metric: str, method: str) -> None:
    with pytest.raises(UsageError, match="the run has no"):
        compare(made({"a": 1.0}), made({"a": 1.0}), metric, (method, method))


async def captured_of(shelf: Shelf, asked: Dataset) -> list[Any]:
    return await tuning.capture(asked, list(shelf.tiers.values()), EMBED, 10.0)


async def test_what_is_captured_ranks_as_a_search_does(shelf: Shelf) -> None:
    await shelf.put("registry", "acme/vault", note("Another vault", "It shadows nothing and is shadowed."))
    for capture in await captured_of(shelf, dataset(*(judged(s) for s in SUBJECTS))):
        for weights in (default_weights(), FusionWeights(0.3, 0.2, 0.1, 0.9)):
            reply = await shelf.search(capture.query.text, weights=weights)
            assert capture.ranked(weights)[:10] == [f"{h.ref.item_type}:{h.ref.item_id}" for h in reply.hits]


async def test_tuning_finds_the_leg_that_is_right_and_reports_on_the_other_half(shelf: Shelf, tmp_path: Path) -> None:
    """Judged by words: each query names one subject, and what is judged is what its words find first."""
    asked = dataset(*(replace(judged(s), id=f"{s}{n}", text=f"{s} number {n}") for s in SUBJECTS for n in range(4)))
    captured = await captured_of(shelf, asked)
    by_words = FusionWeights(0.0)
    wanted = [replace(c, query=replace(c.query, grades={c.ranked(by_words)[0]: 1})) for c in captured]
    found = tuning.tune(wanted, FusionWeights(1.0))
    assert found.chosen_on >= found.chosen_before
    assert found.chosen_on == pytest.approx(1.0)
    odd = [c for c in wanted if not c.query.is_even]
    assert len(found.columns["tuned"]) == len(odd)
    assert found.figures()["bm25"].mean == 1.0
    path = tmp_path / "weights.json"
    runs.write(found.document({"kiwi": "test"}), path)
    assert read_weights(str(path)) == found.weights
    assert json.loads(path.read_text())["obtained"]["reported_on"]["queries"] == len(odd)


async def test_tuning_needs_queries_on_both_sides(shelf: Shelf) -> None:
    captured = await captured_of(shelf, dataset(judged("vault")))
    with pytest.raises(UsageError, match="too few"):
        tuning.tune(captured, FusionWeights(0.5))


async def test_tuning_does_not_go_on_without_a_tier(shelf: Shelf) -> None:
    class Broken:
        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def statistics(self, terms: Any) -> Any:
            raise StoreError("the shelf fell")

    shelf.wrap("registry", Broken(shelf.tier("registry").store))
    with pytest.raises(StoreError, match="the shelf fell"):
        await captured_of(shelf, dataset(judged("vault")))


async def test_a_plot_is_drawn(shelf: Shelf, tmp_path: Path) -> None:
    run = await run_of(shelf, dataset(judged("vault"), judged("mesh")), "grep", "hybrid")
    plot.draw(runs.rows(run), tmp_path / "plot.png", "two queries")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    plot.draw(runs.rows(run), tmp_path / "plot.svg", "two queries")
    assert "hybrid" in (tmp_path / "plot.svg").read_text() or "<svg" in (tmp_path / "plot.svg").read_text()
    with pytest.raises(StoreError, match="cannot write"):
        plot.draw(runs.rows(run), tmp_path / "missing" / "plot.png", "")


def test_a_plot_without_its_extra_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match="extra 'plot'"):
        plot.check(tmp_path / "plot.png")
    with pytest.raises(UsageError, match="no name for a plot"):
        plot.check(tmp_path / "plot.doc")
