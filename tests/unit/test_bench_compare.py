"""Two runs side by side: what is read as a run, what differs, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import compare as script
from benchmarks.compare import compare, comparison_lines, read
from kiwi_rag.errors import SourceUnreadable, UsageError
from kiwi_rag.evaluation import runs
from kiwi_rag.evaluation.judgements import JudgedQuery, RankedAnswer
from kiwi_rag.evaluation.runs import Run


def run_text(name: str = '"a"', metrics: str = '{"ndcg@10": 1}', ranked: str = "[]") -> str:
    answers = f'{{"hybrid": {{"ranked": {ranked}, "metrics": {metrics}, "ms": 1, "complete": true}}}}'
    query = f'{{"id": {name}, "query": "x", "kind": "", "relevant": {{}}, "answers": {answers}}}'
    return f'{{"format": 2, "queries": [{query}]}}'


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", "{}", '{"format": 2}', '{"format": 2, "queries": [{"id": 1}]}', '{"format": 1}',
        '{"format": 2, "queries": []}', "[" * 100_000, run_text('["a"]'), run_text(r'"\ud800"'),
        run_text(metrics='{"ndcg@10": NaN}'), run_text(metrics='{"ndcg@10": Infinity}'),
        run_text(metrics='{"ndcg@10": 1e999}'), run_text(metrics='{"ndcg@10": "1"}'), run_text(ranked="[[3, 1]]"),
        run_text(ranked='[["a", 1' + "0" * 400 + "]]"), run_text().replace('"format": 2', '"format": 1'),
    ],
    ids=range(17),
)  # fmt: skip
def test_what_is_no_run_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"run\.json is not a run of"):
        read(path)
    with pytest.raises(SourceUnreadable):
        read(tmp_path / "missing.json")


def test_a_run_as_it_should_be_is_read(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(run_text())
    assert read(tmp_path / "run.json").column("hybrid", "ndcg@10") == [1.0]


def made(values: dict[str, float], first: str = "knowledge:a", grades: dict[str, int] | None = None) -> Run:
    relevant = grades or {"knowledge:a": 1}
    answers = {name: RankedAnswer([(first, 1.0)], {"ndcg@10": value}, 1.0, True) for name, value in values.items()}
    queries = [
        JudgedQuery(name, f"query {name}", "", relevant, {"hybrid": answer, "bm25": answer})
        for name, answer in answers.items()
    ]
    return Run(queries, {"weights": first, "at": first})


def test_a_comparison_counts_and_orders_by_what_changed_most() -> None:
    before = made({"a": 0.5, "b": 0.5, "c": 0.5, "only here": 0.0})
    after = made({"c": 0.5, "b": 0.1, "a": 0.6}, first="knowledge:b")
    found = compare(before, after, "ndcg@10", ("hybrid", "hybrid"))
    assert (found.wins, found.losses, found.ties, found.unmatched) == (1, 1, 1, 1)
    assert [c.id for c in found.queries] == ["b", "a", "c"]
    assert found.queries[0].difference == pytest.approx(-0.4)
    assert found.after - found.before == pytest.approx(-0.1)
    assert found.differs == ["weights"]
    text = "\n".join(comparison_lines(found, 1))
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


def test_the_script_prints_what_changed_and_where_the_runs_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "before.json", tmp_path / "after.json"]
    for file, run in zip(files, (made({"a": 0.5, "b": 1.0}), made({"a": 0.6}, first="knowledge:b")), strict=True):
        runs.write(run, file)

    def shown(*options: str) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["compare", *map(str, files), *options])
        script.main()
        return tuple(capsys.readouterr())

    printed, noted = shown("--method", "bm25", "--method", "hybrid")
    assert "ndcg@10: bm25 0.500 → hybrid 0.600, difference +0.100" in printed
    assert "the runs also differ in: weights" in noted and "judged differently: 1" in noted
    assert json.loads(shown("--json")[0])["methods"] == ["hybrid", "hybrid"]
    with pytest.raises(SystemExit, match="no method 'magic'"):
        shown("--method", "magic")
    with pytest.raises(SystemExit, match="more than twice"):
        shown(*["--method", "bm25"] * 3)
