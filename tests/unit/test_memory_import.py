"""Importing transcripts: nothing lost and nothing doubled, whatever happens between two imports."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kiwi_rag.errors import StoreFull, UsageError
from kiwi_rag.model.exchanges import Exchange
from kiwi_rag.render.memory import import_problems
from kiwi_rag.services.memory import AddedExchanges
from kiwi_rag.sources.memory import transcripts
from kiwi_rag.sources.memory.transcripts import Transcript, find_transcripts
from kiwi_rag.usecases.memory_import import ImportReport, hook_output, import_transcripts, parse_hook_call
from tests.transcripts import ClaudeTranscript, FakeMemory


@pytest.fixture
def claude(tmp_path: Path) -> ClaudeTranscript:
    return ClaudeTranscript(tmp_path)


def run(memory: FakeMemory, *found: Transcript, **options: Any) -> ImportReport:
    return asyncio.run(import_transcripts(memory.add_all, memory, found, **options))


def turn(one: ClaudeTranscript, number: int) -> tuple[dict[str, Any], ...]:
    return one.user(f"Q{number}"), one.assistant(f"A{number}")


def test_what_is_new_is_imported_and_the_last_exchange_is_replaced_as_it_grows(claude: ClaudeTranscript) -> None:
    memory = FakeMemory()
    claude.write(*turn(claude, 1), *turn(claude, 2))
    assert run(memory, claude.transcript).exchanges == 1
    assert run(memory, claude.transcript, finished=True).exchanges == 1
    assert run(memory, claude.transcript, finished=True).as_dict() == ImportReport().as_dict()
    claude.write(claude.assistant("more"), *turn(claude, 3))
    assert run(memory, claude.transcript).exchanges == 1
    assert memory.said == [("Q1", "A1"), ("Q2", "A2\n\nmore")]


def test_a_transcript_that_rests_is_finished(claude: ClaudeTranscript) -> None:
    memory = FakeMemory()
    claude.write(*turn(claude, 1))
    assert run(memory, claude.transcript).exchanges == 0
    os.utime(claude.path, (time.time() - 700, time.time() - 700))
    assert run(memory, claude.transcript).as_dict() | {"skipped": []} == ImportReport(1, 1, 1).as_dict()
    assert run(memory, claude.transcript).exchanges == 0


class Stops(FakeMemory):
    """A memory whose process ends after it stored exchanges, before the position is."""

    def set_position(self, key: str, value: Mapping[str, Any]) -> None:
        raise KeyboardInterrupt


class Full(FakeMemory):
    """A memory on a full disk."""

    async def add_all(self, exchanges: Sequence[Exchange], *, replace: bool) -> AddedExchanges:
        raise StoreFull


def test_an_end_between_storing_and_the_position_loses_and_doubles_nothing(
    claude: ClaudeTranscript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "BATCH_EXCHANGES", 2)
    memory, stopped = FakeMemory(), Stops()
    for number in range(5):
        claude.write(*turn(claude, number))
    with pytest.raises(KeyboardInterrupt):
        run(stopped, claude.transcript, finished=True)
    memory.exchanges = stopped.exchanges
    assert (memory.said, stopped.positions) == ([("Q0", "A0"), ("Q1", "A1")], {})
    assert run(memory, claude.transcript, finished=True).exchanges == 5
    assert memory.said == [(f"Q{number}", f"A{number}") for number in range(5)]
    assert memory.calls == 3


def test_a_position_does_not_move_when_nothing_was_stored(claude: ClaudeTranscript) -> None:
    full = Full()
    claude.write(*turn(claude, 1))
    with pytest.raises(StoreFull):
        run(full, claude.transcript, finished=True)
    assert full.positions == {}


@pytest.mark.parametrize("first", ["original", "copy"])
def test_a_resumed_session_that_copies_entries_doubles_nothing(
    claude: ClaudeTranscript, tmp_path: Path, first: str
) -> None:
    memory = FakeMemory()
    entries = turn(claude, 1)
    claude.write(*entries)
    resumed = ClaudeTranscript(tmp_path, "s2")
    resumed.write(*({**entry, "sessionId": "s2"} for entry in entries), *turn(resumed, 2))
    both = [claude.transcript, resumed.transcript]
    run(memory, *(both if first == "original" else reversed(both)), finished=True)
    assert sorted(memory.said) == [("Q1", "A1"), ("Q2", "A2")]


def test_a_replaced_or_truncated_file_is_imported_again_under_the_same_ids(claude: ClaudeTranscript) -> None:
    memory = FakeMemory()
    first, second = turn(claude, 1), turn(claude, 2)
    claude.write(*first, *second)
    run(memory, claude.transcript, finished=True)
    claude.write(*first, mode="wb")
    assert run(memory, claude.transcript, finished=True).exchanges == 1
    claude.write(*second)
    run(memory, claude.transcript, finished=True)
    assert memory.said == [("Q1", "A1"), ("Q2", "A2")]


def test_two_imports_at_once_double_nothing(claude: ClaudeTranscript, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "BATCH_EXCHANGES", 2)
    for number in range(9):
        claude.write(*turn(claude, number))
    memory = FakeMemory()

    async def both() -> None:
        one = import_transcripts(memory.add_all, memory, [claude.transcript], finished=True)
        await asyncio.gather(one, import_transcripts(memory.add_all, memory, [claude.transcript], finished=True))

    asyncio.run(both())
    assert memory.said == [(f"Q{number}", f"A{number}") for number in range(9)]
    assert run(memory, claude.transcript, finished=True).exchanges == 0


def test_a_file_that_cannot_be_read_and_a_broken_line_are_reported_and_the_rest_is_imported(
    claude: ClaudeTranscript, tmp_path: Path
) -> None:
    memory = FakeMemory()
    claude.write(*turn(claude, 1), b"{broken\n")
    (claude.root / "x").mkdir()
    (claude.root / "x/link.jsonl").symlink_to(claude.path)
    report = run(memory, *find_transcripts("claude", tmp_path), finished=True)
    assert memory.said == [("Q1", "A1")]
    assert list(report.unreadable) == [str(claude.root / "x/link.jsonl")]
    assert report.as_dict()["skipped"] == [f"{claude.path}:3: the line is not JSON"]
    assert json.dumps(report.as_dict())


def test_a_message_that_was_cut_is_stored_and_named_as_cut(
    claude: ClaudeTranscript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "MESSAGE_CHARS", 10)
    memory = FakeMemory()
    claude.write(claude.user("Q" * 20), claude.assistant("A"))
    report = run(memory, claude.transcript, finished=True)
    assert memory.said == [("Q" * 10, "A")] and report.is_complete
    assert import_problems(report.as_dict()) == [
        f"cut: {claude.path}:2: exchange s1-1 has a message of over 10 characters"
    ]


def test_a_hook_is_told_the_transcript_and_the_last_answer(claude: ClaudeTranscript, tmp_path: Path) -> None:
    claude.write(claude.user("Q"))
    told = {"session_id": "s1", "transcript_path": str(claude.path), "last_assistant_message": "A", "prompt": 7}
    told["cwd"] = str(tmp_path)
    call = parse_hook_call(json.dumps(told).encode(), tmp_path)
    assert (call.session_id, call.prompt, call.last_answer) == ("s1", "", "A")
    memory = FakeMemory()
    run(memory, call.transcript, finished=True, last_answer=call.last_answer)
    assert memory.said == [("Q", "A")]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b"[" * 100_000, b"\xff", b'{"transcript_path": 7}'])
def test_a_hook_that_is_told_something_else_is_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        parse_hook_call(data, tmp_path)


@pytest.mark.parametrize("cwd", ["", ".", "/none/such", "/\0", 7])
def test_a_hook_without_a_folder_that_exists_is_refused(claude: ClaudeTranscript, tmp_path: Path, cwd: object) -> None:
    claude.write(claude.user("Q"))
    with pytest.raises(UsageError, match="the session's folder"):
        parse_hook_call(json.dumps({"transcript_path": str(claude.path), "cwd": cwd}), tmp_path)


def test_a_hook_of_a_cloned_repository_cannot_name_another_file(tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    planted = tmp_path / "repository/session.jsonl"
    planted.write_text("{}")
    for path in (planted, tmp_path / "claude/projects/../../repository/session.jsonl"):
        with pytest.raises(UsageError, match="no transcript of Claude Code"):
            parse_hook_call(json.dumps({"transcript_path": str(path)}), tmp_path / "claude")


def test_what_a_hook_prints_is_added_to_the_prompt() -> None:
    assert json.loads(hook_output("ä"))["hookSpecificOutput"] == {
        "hookEventName": "UserPromptSubmit", "additionalContext": "ä",
    }  # fmt: skip
