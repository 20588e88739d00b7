"""`kiwi eval` as a user runs it: over the example items, with their judged queries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag.evaluation.judgements import item_key, ref_of
from tests.interfaces.conftest import Kiwi
from tests.shared import ROOT

ACME = ROOT / "examples/acme"
QUERIES = str(ACME / "queries.jsonl")
TALK = str(ROOT / "tests/data/conversations.json")


@pytest.fixture(scope="module")
def run(acme: Kiwi) -> Path:
    """A run over all of them, written to a file."""
    out = acme.cwd / "run.json"
    done = acme.run("eval", QUERIES, "--source", "project", "--out", str(out))
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["method", "grep", "bm25", "vectors", "rrf", "hybrid"]
    assert "35 queries" in done.stderr and "warning" not in done.stderr
    return out


def test_a_run_carries_all_that_it_depends_on(run: Path) -> None:
    document = json.loads(run.read_text())
    assert document["tiers"]["project"]["items"] == 52
    assert document["model"].startswith("all-MiniLM-L6-v2-int8/")
    assert set(document["weights"]) == {"alpha", "first", "centroid", "whole"}
    assert len(document["dataset"]["sha256"]) == 64 and document["missing"] == []
    assert {row["method"] for row in document["rows"]} == {"grep", "bm25", "vectors", "rrf", "hybrid"}
    hybrid = next(row for row in document["rows"] if row["method"] == "hybrid")
    assert 0.5 < hybrid["metrics"]["ndcg@10"] < 1
    assert hybrid["latency_ms"]["p95"] >= hybrid["latency_ms"]["p50"] > 0
    assert len(document["queries"]) == 35
    assert set(document["kinds"]) == {"paraphrase", "keyword", "question", "task", "broad"}
    assert [row["method"] for row in document["kinds"]["task"]] == [row["method"] for row in document["rows"]]
    answer = document["queries"][0]["answers"]["hybrid"]
    assert len(answer["ranked"]) == 10 and answer["metrics"]["recall@10"] > 0


def test_searching_is_better_than_grep_and_fusing_than_a_leg(run: Path) -> None:
    means = {row["method"]: row["metrics"]["ndcg@10"] for row in json.loads(run.read_text())["rows"]}
    assert means["grep"] < min(means["bm25"], means["vectors"])
    assert means["hybrid"] > max(means["bm25"], means["vectors"])


def test_json_carries_what_the_file_does_and_rows_can_be_chosen(acme: Kiwi, run: Path) -> None:
    few = acme.cwd / "few.jsonl"
    few.write_text("\n".join(Path(QUERIES).read_text().splitlines()[:6]))
    document = acme.json("eval", "run", str(few), "--source", "project", "--method", "bm25", "--k", "50")
    assert [row["method"] for row in document["rows"]] == ["bm25"]
    assert "recall@50" in document["rows"][0]["metrics"] and document["limit"] == 50
    assert set(document) == set(json.loads(run.read_text()))


def names(answer: dict[str, Any]) -> list[str]:
    return [name for name, _ in answer["ranked"]]


def test_hybrid_is_what_search_does_under_the_same_settings(acme: Kiwi) -> None:
    set_so = Kiwi(acme.home, acme.cwd, {"KIWI_ALPHA": "0", "KIWI_HALF_LIFE_DAYS": "900", "KIWI_PER_SIGNER": "3"})
    document = set_so.json("eval", QUERIES, "--source", "project", "--method", "bm25", "--method", "hybrid")
    assert (document["weights"]["alpha"], document["half_life_days"], document["per_signer"]) == (0, 900, 3)
    rankings = [{row: names(answer) for row, answer in query["answers"].items()} for query in document["queries"]]
    assert all(ranking["bm25"] == ranking["hybrid"] for ranking in rankings)
    hits = set_so.json("search", document["queries"][0]["query"], "--source", "project")["hits"]
    assert [item_key(ref_of(f"{hit['item_type']}:{hit['item_id']}")) for hit in hits] == rankings[0]["hybrid"]


def test_a_table_for_each_kind(acme: Kiwi) -> None:
    shown = acme.run("eval", QUERIES, "--source", "project", "--method", "bm25", "--kind").stdout
    assert "all: 35 queries" in shown and "keyword: 7 queries" in shown and "broad: 7 queries" in shown


def test_diff_of_two_runs(acme: Kiwi, run: Path) -> None:
    other = acme.cwd / "words.json"
    acme.run("eval", QUERIES, "--source", "project", "--method", "hybrid", "--weights", "alpha=0", "--out", str(other))
    shown = acme.run("eval", "diff", str(other), str(run), "--limit", "3")
    assert "ndcg@10: hybrid" in shown.stdout and " better, " in shown.stdout and "difference " in shown.stdout
    assert "the runs also differ in: weights" in shown.stderr
    chosen = ["--method", "bm25", "--method", "hybrid", "--metric", "mrr@10"]
    found = acme.json("eval", "diff", str(run), str(run), *chosen)
    assert found["methods"] == ["bm25", "hybrid"]
    assert found["wins"] + found["losses"] + found["ties"] == 35 == len(found["queries"])
    same = acme.json("eval", "diff", str(run), str(run))
    assert (same["wins"], same["losses"], same["ties"], same["before"]) == (0, 0, 35, same["after"])


def choose_weights(acme: Kiwi, *arguments: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the benchmark that chooses weights, in the project of the example items."""
    environment = {**acme.environment(), "PYTHONPATH": os.pathsep.join([str(ROOT), acme.environment()["PYTHONPATH"]])}
    command = [sys.executable, "-m", "benchmarks.weights", *arguments, "--source", "project"]
    done = subprocess.run(command, cwd=acme.cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == expect, done.stderr
    return done


def test_queries_that_are_too_few_to_tune_on_are_refused(acme: Kiwi) -> None:
    (acme.cwd / "one.jsonl").write_text('{"query": "deploy", "relevant": {"directive:acme/deploy/staging": 1}}\n')
    done = choose_weights(acme, "one.jsonl", expect=1)
    assert "1 queries are too few" in done.stderr and "Traceback" not in done.stderr


def test_tune_writes_weights_that_a_search_takes(acme: Kiwi) -> None:
    weights = acme.cwd / "weights.json"
    shown = choose_weights(acme, QUERIES, "--out", str(weights)).stdout
    assert "reported on the odd half, 17 queries" in shown and "weights: alpha=" in shown
    document = json.loads(weights.read_text())
    assert 0 <= document["weights"]["alpha"] <= 1
    assert document["obtained"]["reported_on"]["queries"] == 17
    assert document["obtained"]["chosen_on"]["tuned"] >= document["obtained"]["chosen_on"]["before"]
    found = acme.json("search", "take a bad deploy back", "--source", "project", "--weights", str(weights))
    assert found["hits"][0]["parts"]["alpha"] == document["weights"]["alpha"]


def test_judged_items_that_are_nowhere_are_named(acme: Kiwi) -> None:
    queries = acme.cwd / "gone.jsonl"
    judged = {"directive:acme/deploy/staging": 1, "knowledge:acme/GONE": 2}
    queries.write_text(json.dumps({"query": "deploy", "relevant": judged}))
    done = acme.run("eval", str(queries), "--source", "project", "--method", "bm25")
    assert "warning: not in any searched tier: 1 judged item: knowledge:acme/gone" in done.stderr


def test_a_beir_folder(acme: Kiwi) -> None:
    folder = acme.cwd / "beir"
    (folder / "qrels").mkdir(parents=True)
    queries = [{"_id": "1", "text": "roll back a deploy"}, {"_id": "2", "text": "unjudged"}]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n1\tdirective:acme/deploy/rollback\t1\n")
    done = acme.run("eval", str(folder), "--source", "project", "--method", "hybrid")
    assert "1.000" in done.stdout
    assert "left out: 1 query for which nothing is judged relevant" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["eval", "bad.jsonl"], 2, "bad.jsonl:1 is not a judged query"),
        (["eval", "missing.jsonl"], 1, "cannot read missing.jsonl"),
        (["eval", QUERIES, "--method", "magic"], 2, "there is no method 'magic'"),
        (["eval", QUERIES, "--alpha", "2"], 2, "alpha 2 is not between 0 and 1"),
        (["eval", QUERIES, "--weights", "beta=1"], 2, "there is no weight 'beta'"),
        (["eval", "diff", "bad.jsonl", "bad.jsonl"], 2, "bad.jsonl is not a run"),
        (["eval", QUERIES, "--out", QUERIES], 2, "a file of the dataset"),
    ],
)
def test_what_cannot_be_done_is_said(acme: Kiwi, arguments: list[str], code: int, said: str) -> None:
    (acme.cwd / "bad.jsonl").write_text('{"query": 3}\n')
    done = acme.run(*arguments, expect=code)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_help_has_examples(acme: Kiwi) -> None:
    shown = acme.run("eval", "--help").stdout
    assert "kiwi eval diff yesterday.json today.json" in shown
    assert "kiwi eval beir/scifact" in shown


def test_a_conversation_memory_is_measured_in_a_folder_of_its_own(acme: Kiwi) -> None:
    before = sorted(path.name for path in (acme.cwd / ".ai").iterdir())
    document = acme.json("eval", "memory", TALK, "--k", "3")
    assert document["conversations"] == [{"name": "lighthouse", "exchanges": 11, "questions": 6}]
    means = {(r["unit"], r["method"]): r["metrics"]["recall@3"] for r in document["rows"] if r["category"] == "all"}
    assert set(means) == {(u, m) for u in ("turn", "exchange", "session") for m in ("bm25", "vectors", "rrf", "hybrid")}
    assert means["turn", "hybrid"]["mean"] > 0.5
    assert means["session", "hybrid"]["mean"] == 1
    assert sorted(path.name for path in (acme.cwd / ".ai").iterdir()) == before


def test_a_file_that_is_no_conversation_is_refused_with_its_place(acme: Kiwi) -> None:
    wrong = acme.cwd / "talk.json"
    wrong.write_text('[{"conversation": {"session_1": [{"text": "Hi"}]}, "qa": []}]')
    done = acme.run("eval", "memory", str(wrong), expect=2)
    assert "talk.json[0].conversation.session_1[0].speaker" in done.stderr


def test_a_conversation_that_cannot_be_stored_is_refused_by_the_id_of_its_turn(acme: Kiwi) -> None:
    wrong = acme.cwd / "talk.json"
    wrong.write_text(Path(TALK).read_text().replace('"D1:1"', '"D1:1\\u0007"'))
    done = acme.run("eval", "memory", str(wrong), expect=2)
    assert "'D1:1\\x07' cannot be stored" in done.stderr
