"""The judged questions over packages' documentation are whole, and the benchmark counts pages as it says."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from benchmarks.library_quality import METHODS, QUERIES, Question, figures, questions, table
from benchmarks.trees_fetch import _DOCUMENTATION


def test_the_questions_are_as_many_as_the_results_say_and_of_all_three_kinds() -> None:
    asked = questions()
    assert Counter(question.split for question in asked) == {"tune": 36, "more": 88, "report": 24, "third": 42}
    assert len({question.id for question in asked}) == len(asked) == len(QUERIES.read_text().splitlines())
    chosen_on = {question.package for question in asked if question.split in ("tune", "more")}
    assert chosen_on.isdisjoint(question.package for question in asked if question.split in ("report", "third"))
    short = [question for question in asked if question.kind == "short"]
    assert all(len(question.query.split()) <= 3 for question in short)
    assert min(Counter(question.kind for question in asked).values()) > len(asked) / 4
    assert all(_DOCUMENTATION.fullmatch(path) for question in asked for path in question.relevant)


def ranked(kind: str, *pages: str) -> Question:
    return Question("q", "npm:x@1.0.0", "tune", kind, "moor", ["a.md", "b.md"], {name: list(pages) for name in METHODS})


def test_a_page_counts_by_the_rank_of_the_first_that_answers() -> None:
    found = figures([ranked("short", "c.md", "b.md", "a.md"), ranked("full", *"cdefg", "a.md")])
    assert found["hybrid"] == {"mrr": round((1 / 2 + 1 / 6) / 2, 3), "hit@5": 0.5}
    assert found["hybrid / better leg"] == 1.0
    assert found["hybrid's mrr by kind"] == {"full": round(1 / 6, 3), "short": 0.5}


def test_the_table_has_a_line_for_each_method_and_names_what_was_not_fetched() -> None:
    results = {"tune": figures([ranked("short", "a.md")]), "not fetched": {"npm:y@1": "npm is not installed"}}
    lines = table({**json.loads(json.dumps(results)), "script_seconds": 1.0})
    assert [line for line in lines if line.startswith("| tune")] == [
        f"| tune | 1 | {method} | 1.000 | 1.000 |" for method in METHODS
    ]
    assert lines[-1] == "- not fetched: npm:y@1: npm is not installed"


@pytest.mark.parametrize("path", ["docs/a/b.md", "doc/en/a.rst", "README.md", "CHANGES.rst", "Changelog.rst"])
def test_pages_of_documentation_are_kept_of_an_archive(path: str) -> None:
    assert _DOCUMENTATION.fullmatch(path)
    assert not _DOCUMENTATION.fullmatch(f"src/{path}")
    assert not _DOCUMENTATION.fullmatch(f"{path}.py")
