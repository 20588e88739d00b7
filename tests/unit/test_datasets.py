"""Judged queries from files: the forms that are read, and what is said of one that cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kiwi_rag.errors import KiwiError, SourceUnreadable, UsageError
from kiwi_rag.evaluation.judgements import item_key, load, ref_of
from kiwi_rag.model.refs import ItemRef, ItemType

GOOD = '{"query": "roll back", "kind": "task", "relevant": {"directive:acme/roll_back": 2, "knowledge:acme/x": 0}}'


def own(folder: Path, *lines: str) -> Path:
    path = folder / "queries.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def beir(folder: Path, qrels: str, *queries: str) -> Path:
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "qrels/test.tsv").write_text(qrels)
    own(folder, *(queries or ('{"_id": "q1", "text": "one"}', '{"_id": "q2", "text": "two"}')))
    return folder


def test_json_lines(tmp_path: Path) -> None:
    dataset = load([own(tmp_path, GOOD, "", '{"id": "mine", "query": "x", "relevant": {"script:acme/y": 1}}')])
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
    first = load([own(tmp_path, GOOD)]).sha256
    assert load([own(tmp_path, GOOD)]).sha256 == first
    assert load([own(tmp_path, GOOD.replace(": 2", ": 1"))]).sha256 != first


def test_a_folder_in_beirs_form(tmp_path: Path) -> None:
    dataset = load([beir(tmp_path, "query-id\tcorpus-id\tscore\nq1\tMED-10\t2\nq1\tdirective:acme/x\t1\n")])
    (only,) = dataset.queries
    assert (only.id, only.query) == ("q1", "one")
    assert only.relevant == {"knowledge:med-10": 2, "directive:acme/x": 1}
    assert dataset.unanswerable == 1  # q2, for which nothing is judged


def test_queries_and_judgements_of_trec_as_two_files(tmp_path: Path) -> None:
    qrels = tmp_path / "judged.qrels"
    qrels.write_text("q1 0 a 1\nq1 0 b -1\nq2 0 c 3\n")
    queries = own(tmp_path, '{"_id": "q1", "text": "one"}', '{"_id": "q2", "text": "two"}')
    assert [q.relevant for q in load([queries, qrels]).queries] == [
        {"knowledge:a": 1, "knowledge:b": 0},
        {"knowledge:c": 3},
    ]


def test_of_several_judgements_the_test_split_is_taken_and_a_choice_is_refused(tmp_path: Path) -> None:
    folder = beir(tmp_path, "q1\ta\t1\n")
    (folder / "qrels/train.tsv").write_text("q2\ta\t1\n")
    assert [q.id for q in load([folder]).queries] == ["q1"]
    (folder / "qrels/test.tsv").rename(folder / "qrels/dev.tsv")
    with pytest.raises(UsageError, match=r"several files of judgements: qrels/dev\.tsv, qrels/train\.tsv"):
        load([folder])


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
        load([path])
    assert f"{path}:2" in raised.value.message and said in raised.value.message
    assert raised.value.hint


@pytest.mark.parametrize(
    ("qrels", "said"),
    [
        ("q1\ta\n", "test.tsv:1 is not a judged query: 2 fields"),
        ("query-id\tcorpus-id\tscore\nq1\ta\tgood\n", "test.tsv:2"),
        ("q1\ta\t1\n\nq9\ta\t1\n", "test.tsv:3 judges query 'q9'"),
        ("q1\trecipe:a\t1\n", "test.tsv:1"),
    ],
)
def test_a_bad_judgement_is_named(tmp_path: Path, qrels: str, said: str) -> None:
    with pytest.raises(UsageError, match=r"test\.tsv:\d") as raised:
        load([beir(tmp_path, qrels)])
    assert said in raised.value.message


def test_files_that_are_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(SourceUnreadable, match="cannot read"):
        load([tmp_path / "missing.jsonl"])
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    with pytest.raises(SourceUnreadable, match="cannot read"):
        load([tmp_path / "latin"])
    with pytest.raises(UsageError, match="no judged queries"):
        load([own(tmp_path, json.dumps({"query": "x", "relevant": {"knowledge:a": 0}}))])
    with pytest.raises(UsageError, match="too many"):
        load([tmp_path] * 3)
    with pytest.raises(KiwiError, match=r"queries\.jsonl"):
        load([_empty(tmp_path)])


def _empty(folder: Path) -> Path:
    (folder / "nothing").mkdir()
    return folder / "nothing"
