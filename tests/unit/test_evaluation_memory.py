"""`kiwi eval memory`: how judged conversations are read, and how the evidence that is found is counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag.errors import SourceUnreadable, UsageError
from kiwi_rag.evaluation.memory import (
    FOUND,
    UNITS,
    FoundEvidence,
    Question,
    evaluate,
    load,
    summarise,
    table,
)
from kiwi_rag.model import Passage, SearchQuery, SearchReply, SearchResult
from kiwi_rag.model.exchanges import Exchange
from kiwi_rag.model.refs import ItemRef, ItemType
from tests.shared import ROOT

DATA = ROOT / "tests/data/conversations.json"


def test_two_turns_are_an_exchange_with_their_speakers_and_times() -> None:
    (conversation,) = load(DATA)
    first, *_, last = conversation.exchanges
    assert (conversation.name, len(conversation.exchanges), conversation.left_out) == ("lighthouse", 11, 2)
    assert first.messages[1] == ("Tomas", "Wow, congratulations! Is the lamp still working?")
    assert first.timestamp.isoformat() == "2025-02-03T09:05:00+00:00"
    assert conversation.exchanges[1].timestamp.isoformat() == "2025-02-03T09:07:00+00:00"
    assert last.messages == (("Ines", "Gladly. I will bring quince jam."),)
    assert conversation.exchanges[4].user_message.endswith("yesterday!\n[photo: a whale tail above grey water]")


def test_evidence_is_the_turns_that_are_there_however_they_are_written() -> None:
    (conversation,) = load(DATA)
    by_text = {question.text: question for question in conversation.questions}
    whale, bench = by_text["When did Ines see a whale?"], by_text["What did Tomas build in his course?"]
    assert whale.evidence == (("session-2", "D2:1", "Ines"), ("session-2", "D2:3", "Ines"))
    assert bench.evidence == (("session-2", "D2:5", "Tomas"), ("session-3", "D3:3", "Tomas"))
    assert (whale.category, bench.category) == ("temporal", "multi-hop")


def sample() -> list[dict[str, Any]]:
    return json.loads(DATA.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def turns(data: list[dict[str, Any]], n: int = 1) -> list[dict[str, Any]]:
    return data[0]["conversation"][f"session_{n}"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("change", "place"), [
    (lambda data: turns(data)[3].pop("speaker"), "[0].conversation.session_1[3].speaker"),
    (lambda data: turns(data, 2)[1].update(text=7), "[0].conversation.session_2[1].text"),
    (lambda data: turns(data)[1].update(dia_id="D1:1"), "[0].conversation.session_1: dia_id 'D1:1' is there twice"),
    (lambda data: data[0]["conversation"].pop("session_3_date_time"), "[0].conversation.session_3_date_time is None"),
    (lambda data: data[0]["conversation"].update(session_1_date_time="May"), "session_1_date_time is 'May'"),
    (lambda data: data[0].pop("conversation"), "[0].conversation"),
    (lambda data: data[0]["qa"][2].update(category=9), "[0].qa[2].category"),
    (lambda data: data[0]["qa"][1].pop("question"), "[0].qa[1].question"),
    (lambda data: data[0].update(qa=[]), "has no question with evidence"),
    (lambda data: data.clear(), "has no question with evidence"),
    (lambda data: data.append(7), "[1]: "),
])  # fmt: skip
def test_what_has_another_form_is_named_by_its_place(
    tmp_path: Path, change: Callable[[list[dict[str, Any]]], object], place: str
) -> None:
    data = sample()
    change(data)
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError) as raised:
        load(path)
    assert place in raised.value.message
    assert "talk.json" in raised.value.message
    assert "LoCoMo" in raised.value.hint


def test_what_cannot_be_read_says_so(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    with pytest.raises(SourceUnreadable, match=r"talk\.json: No such file"):
        load(path)
    for text in (b"[", b"[" * 100_000, b"\xff"):
        path.write_bytes(text)
        with pytest.raises(UsageError, match=r"talk\.json is not JSON"):
            load(path)


def test_one_conversation_needs_no_list(tmp_path: Path) -> None:
    data = sample()[0]
    del data["sample_id"]
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(data))
    assert [one.name for one in load(path)] == ["conversation 1"]


def found(rank: int | None, category: str = "temporal") -> FoundEvidence:
    question = Question("?", category, (("s1", "e1", "Ada"),))
    return FoundEvidence("talk", question, "hybrid", {unit: [rank] for unit in UNITS}, complete=True)


async def test_a_larger_unit_counts_for_the_turns_in_it() -> None:
    (conversation,) = load(DATA)
    asked: list[SearchQuery] = []

    async def search(query: SearchQuery) -> SearchReply:
        asked.append(query)
        return SearchReply(query, tuple(_hit(one, n) for one in conversation.exchanges[:5] for n in (1, 0)), (), ())

    progress: list[int] = []
    answers = await evaluate(conversation, search, progress=progress.append)
    assert len(answers) == 4 * len(conversation.questions) == 4 * sum(progress)
    assert {(query.limit, query.per_file) for query in asked} == {(FOUND, 0), (FOUND, 1)}
    animals = next(one for one in answers if "animals" in one.question.text and one.method == "hybrid")
    assert animals.ranks == {"turn": [8, 10, None], "exchange": [4, 5, None], "session": [1, 2, 2]}
    assert animals.metrics("turn", 10) == {"recall@5": 0.0, "recall@10": pytest.approx(2 / 3), "mrr": 1 / 8}
    assert animals.metrics("exchange", 4)["recall@4"] == pytest.approx(1 / 3)
    assert animals.metrics("session", 10) == {"recall@5": 1.0, "recall@10": 1.0, "mrr": 1.0}


def _hit(exchange: Exchange, n: int) -> SearchResult:
    ref, passage = ItemRef(ItemType.DOCUMENT, exchange.path), Passage(n, "x", "", (exchange.messages[n][0],), 1, 1)
    return SearchResult(ref, "memory", (), (), passage, {}, 0.5, {}, "", "", "", exchange.timestamp)


def test_means_have_intervals_that_the_same_figures_always_give() -> None:
    answers = [found(1 if n % 3 else None, "temporal" if n % 2 else "single-hop") for n in range(30)]
    rows = summarise(answers, 10)
    assert [(row["unit"], row["category"], row["questions"]) for row in rows[:3]] == [
        ("turn", "all", 30), ("turn", "temporal", 15), ("turn", "single-hop", 15),
    ]  # fmt: skip
    mean = rows[0]["metrics"]["recall@10"]
    assert mean["mean"] == pytest.approx(2 / 3)
    assert 0.4 < mean["low"] < mean["mean"] < mean["high"] < 0.9
    assert rows == summarise(answers, 10)
    lines = list(table(rows))
    assert lines[0].split() == ["unit", "category", "questions", "method", "recall@5", "recall@10", "mrr"]
    assert lines[1].split()[:5] == ["turn", "all", "30", "hybrid", "0.667"]
    assert len(lines) == len(rows) + 1


def test_nothing_found_counts_as_nothing() -> None:
    assert found(None).metrics("turn", 10) == {"recall@5": 0.0, "recall@10": 0.0, "mrr": 0.0}
