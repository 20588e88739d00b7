"""The checks of the benchmark over real trees find what is wrong, and its sample is the same every time."""

from __future__ import annotations

from pathlib import Path

from benchmarks import trees_check, trees_report
from benchmarks.trees import sample, summary
from benchmarks.trees_check import Checked, check, reread
from kiwi_rag.model import Passage
from tests.shared import ROOT

LINES = ["# Berths", "", "One line of several words.", "Last."]


def passage(text: str, first: int, last: int, ordinal: int = 0) -> Passage:
    """Return a passage without context."""
    return Passage(ordinal, text, "", (), first, last)


def test_a_passage_that_is_its_lines_is_true_and_any_other_is_named() -> None:
    good = passage("# Berths\n\nOne line of several words.", 1, 3)
    assert trees_check.untrue([good], LINES) == []
    for wrong in (passage("# Berths\nOne line of several words.", 1, 3), passage("", 4, 4), passage("Last.", 3, 4)):
        assert len(trees_check.untrue([good, wrong], LINES)) == 1


def test_parts_of_a_line_are_found_in_order_and_what_is_between_them_is_counted() -> None:
    parts = [passage("One line", 3, 3), passage("line of", 3, 3, 1), passage("words.", 3, 3, 2)]
    faults, unseen, letters = trees_check.within_lines(parts, LINES)
    assert (faults, unseen, letters) == ([], len("several"), 21)
    faults, unseen, _ = trees_check.within_lines([parts[0], passage("some words", 3, 3, 1)], LINES)
    assert faults == ["line 3 does not hold the text of passage 1"]
    assert unseen == 14


def test_a_repetitive_line_is_read_as_without_gaps_where_it_can_be() -> None:
    parts = [passage("ab" * 20, 1, 1, ordinal) for ordinal in range(3)]
    assert trees_check.within_lines(parts, ["ab" * 60]) == ([], 0, 120)
    assert trees_check.within_lines(parts[:2], ["ab" * 60]) == ([], 40, 120)


def test_a_line_in_no_passage_is_named_unless_it_is_blank() -> None:
    assert trees_check.uncovered([passage("Last.", 4, 4)], LINES) == [
        "line 1 is in no passage",
        "line 3 is in no passage",
    ]
    assert trees_check.uncovered([passage("", 1, 1), passage("", 3, 4)], LINES) == []


def test_every_file_of_the_workspace_and_every_nasty_one_passes_the_checks() -> None:
    for root in (ROOT / "tests/data/workspace", ROOT / "tests/data/workspace-nasty"):
        checked = [check(root, path.relative_to(root).as_posix()) for path in root.rglob("*") if path.is_file()]
        assert [fault for file in checked for fault in file.faults] == []
        assert sum(file.passages for file in checked) > 100
        assert sum(file.unseen for file in checked) == 0


def test_a_file_is_read_again_apart_from_the_gate(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    (tmp_path / "b.txt").write_text("drei\n", encoding="utf-16")
    assert reread(tmp_path / "a.md") == "one\ntwo\n"
    assert reread(tmp_path / "b.txt") == "drei\n"


def test_the_sample_is_the_same_in_any_order_and_within_its_bound() -> None:
    checked = [Checked(f"docs/{number}.md", 10, True, "markdown", 7, 0.1) for number in range(100)]
    chosen = sample(checked, 50)
    assert chosen == sample(list(reversed(checked)), 50)
    assert sum(file.passages for file in chosen) == 49
    assert [file.path for file in chosen] != sorted(file.path for file in chosen)
    assert summary(checked)["passages"] == 700


def test_the_table_has_a_line_for_each_tree_and_says_what_was_not_fetched() -> None:
    indexed = {"embedded_files": 3, "embedded_passages": 21, "encoded": 21, "index_s": 1.5, "index_mb": 0.4}
    checked = [Checked("a.md", 2_000_000, True, "markdown", 7, 0.5)]
    trees = [
        {"tree": "here", "source": "npm here@1", "version": "here@1", **summary(checked), **indexed},
        {"tree": "gone", "source": "Debian gone", "not_fetched": "apt-get is not installed"},
    ]
    lines = trees_report.table({"sample_passages": 2_000, "trees": trees})
    assert "| here | 1 | 0 | 2.0 | 7 | 0.5 | 4.0 | 0 | 21 | 3 | 1.5 | 0.4 |" in lines
    assert next(line for line in lines if line.startswith("| gone")).count("–") == 11
    assert lines[-1].endswith("not fetched: apt-get is not installed")
