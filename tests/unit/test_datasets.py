"""Judged queries from files: what is read, and what is said of a line that cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.beir import converted
from kiwi_rag.errors import SourceUnreadable, UsageError
from kiwi_rag.evaluation.judgements import item_key, load, ref_of
from kiwi_rag.model.refs import ItemRef, ItemType

GOOD = '{"query": "roll back", "kind": "task", "relevant": {"directive:acme/roll_back": 2, "knowledge:acme/x": 0}}'


def own(folder: Path, *lines: str) -> Path:
    path = folder / "queries.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_json_lines(tmp_path: Path) -> None:
    dataset = load(own(tmp_path, GOOD, "", '{"id": "mine", "query": "x", "relevant": {"script:acme/y": 1}}'))
    first, second = dataset.queries
    assert (first.query, first.kind) == ("roll back", "task")
    assert first.relevant == {"directive:acme/roll-back": 2, "knowledge:acme/x": 0}
    assert (second.id, second.kind) == ("mine", "")
    assert len(first.id) == 12 and len(dataset.sha256) == 64


def test_any_spelling_of_an_id_is_the_same_item() -> None:
    assert item_key(ItemRef(ItemType.DIRECTIVE, "acme/roll-back", "1.0.0")) == item_key(
        ref_of("directive:acme/roll_back")
    )
    assert item_key(ref_of("knowledge:papers/README")) == item_key(ref_of("papers/readme"))


def test_a_digest_changes_with_the_judgements(tmp_path: Path) -> None:
    first = load(own(tmp_path, GOOD)).sha256
    assert load(own(tmp_path, GOOD)).sha256 == first
    assert load(own(tmp_path, GOOD.replace(": 2", ": 1"))).sha256 != first


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "Invalid JSON"),
        ("[" * 100_000, "Invalid JSON"),
        ("[]", "object"),
        ('{"relevant": {}}', "query: "),
        ('{"query": "  ", "relevant": {}}', "query: "),
        ('{"query": 3, "relevant": {}}', "query: "),
        ('{"query": "x"}', "relevant: "),
        ('{"query": "x", "relevant": ["knowledge:a"]}', "relevant: "),
        ('{"query": "x", "relevant": {"recipe:a": 1}}', "names no item"),
        ('{"query": "x", "relevant": {"knowledge:": 1}}', "names no item"),
        ('{"query": "x", "relevant": {"knowledge:a": "high"}}', "valid integer"),
        ('{"query": "x", "relevant": {"knowledge:a": 1.5}}', "relevant.knowledge:a: "),
        ('{"query": "x", "relevant": {"knowledge:a": true}}', "relevant.knowledge:a: "),
        ('{"query": "x", "relevant": {"knowledge:a": null}}', "relevant.knowledge:a: "),
        ('{"query": "x", "relevant": {"knowledge:a": 1001}}', "less than or equal to 1000"),
        ('{"query": "x", "relevant": {"knowledge:a": 1' + "0" * 400 + "}}", "less than or equal to 1000"),
        ('{"query": "x", "relevant": {"knowledge:a": [[[1]]]}}', "relevant.knowledge:a: "),
        (r'{"query": "x \ud800", "relevant": {"knowledge:a": 1}}', "Invalid JSON"),
        (r'{"query": "x", "id": "\ud800", "relevant": {"knowledge:a": 1}}', "Invalid JSON"),
        ('{"query": "x", "id": ["a"], "relevant": {"knowledge:a": 1}}', "id: "),
        ('{"query": "x", "kind": {}, "relevant": {"knowledge:a": 1}}', "kind: "),
        (GOOD, "repeats the query of"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = own(tmp_path, GOOD, line)
    with pytest.raises(UsageError) as raised:
        load(path)
    assert f"{path}:2" in raised.value.message and said in raised.value.message
    assert raised.value.hint


def test_files_that_are_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(SourceUnreadable, match="cannot read"):
        load(tmp_path / "missing.jsonl")
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    with pytest.raises(SourceUnreadable, match="cannot read"):
        load(tmp_path / "latin")
    with pytest.raises(UsageError, match="no judged queries"):
        load(own(tmp_path, json.dumps({"query": "x", "relevant": {"knowledge:a": 0}})))


def test_queries_of_beir_and_trec_are_converted(tmp_path: Path) -> None:
    queries = own(tmp_path, *(json.dumps({"_id": f"q{n}", "text": f"text {n}"}) for n in (1, 2, 3)))
    (tmp_path / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tMED-10\t2\nq1\tdirective:acme/x\t1\n")
    (tmp_path / "judged.qrels").write_text("q1 0 a 1\nq1 0 b -1\n\nq2 0 c 3\n")
    found = {}
    for name in ("test.tsv", "judged.qrels"):
        (tmp_path / "converted.jsonl").write_text("\n".join(converted(queries, tmp_path / name)))
        found[name] = {one.id: one.relevant for one in load(tmp_path / "converted.jsonl").queries}
    assert found["test.tsv"] == {"q1": {"knowledge:med-10": 2, "directive:acme/x": 1}}
    assert found["judged.qrels"] == {"q1": {"knowledge:a": 1, "knowledge:b": 0}, "q2": {"knowledge:c": 3}}
