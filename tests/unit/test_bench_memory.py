"""The benchmark of conversation memories: what MEMORY.md says."""

from __future__ import annotations

from benchmarks.memory_quality import WITHOUT, report
from kiwi_rag.evaluation.memory import METHODS, UNITS, FoundEvidence, Question
from kiwi_rag.search import exchanges


def found(conversation: str, method: str, rank: int | None) -> FoundEvidence:
    question = Question("?", "temporal", (("s1", "e1", "Ada"),))
    return FoundEvidence(conversation, question, method, {unit: [rank] for unit in UNITS}, complete=True)


def test_each_part_that_is_taken_away_is_a_constant_of_the_ranking() -> None:
    for constants in WITHOUT.values():
        assert all(getattr(exchanges, name) != value for name, value in constants.items())


def test_the_tables_are_of_the_conversations_that_nothing_was_chosen_on() -> None:
    methods = [*METHODS, *(f"- {name}" for name in WITHOUT)]
    ranks = {"hybrid": 1, "bm25": None}
    answers = [found(name, m, ranks.get(m, 4) if name == "b" else 9) for name in "ab" for m in methods]
    lines = list(report(answers, "a"))
    assert lines[1].startswith("Chosen on a, reported on b.")
    assert "| turn | all | 1 | hybrid | 1.000 [1.000, 1.000] | 1.000 [1.000, 1.000] | 1.000 [1.000, 1.000] |" in lines
    assert "| session | - neighbours | 1.000 [1.000, 1.000] | 1.000 [1.000, 1.000] | 0.250 [0.250, 0.250] |" in lines
    assert "| exchange | bm25 | +1.000 [+1.000, +1.000] | 0.000 |" in lines
    assert any("basic-memory" in line for line in lines)
