"""However a transcript grows and whenever it is imported, the memory has what one import of the whole has."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_rag.sources.memory import transcripts
from kiwi_rag.sources.memory.transcripts import TranscriptPosition, read_transcript
from kiwi_rag.usecases.memory_import import import_transcripts
from tests.transcripts import ClaudeTranscript, FakeMemory

KINDS = st.lists(st.sampled_from(["user", "assistant", "tool", "meta", "broken", "command"]), max_size=14)
CUTS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=6)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def lines_of(claude: ClaudeTranscript, kinds: list[str]) -> bytes:
    makers: dict[str, Any] = {
        "user": lambda: claude.user(f"Q{claude.count}"),
        "assistant": lambda: claude.assistant(f"A{claude.count}"),
        "tool": lambda: claude.user([{"type": "tool_result", "content": "x"}]),
        "meta": lambda: claude.user("x", isMeta=True),
        "command": lambda: claude.user("<command-name>/x</command-name>"),
    }
    return b"".join(json.dumps(makers[kind]()).encode() + b"\n" if kind in makers else b"{\n" for kind in kinds)


@given(KINDS, CUTS)
def test_importing_piece_by_piece_is_importing_the_whole(
    folder: Path, kinds: list[str], cuts: list[tuple[float, bool]]
) -> None:
    claude = ClaudeTranscript(folder)
    data = lines_of(claude, kinds)
    pieces, whole = FakeMemory(), FakeMemory()
    with mock.patch.object(transcripts, "BATCH_EXCHANGES", 2):
        for share, finished in [*sorted(cuts), (1.0, True)]:
            claude.path.write_bytes(data[: int(share * len(data))])
            asyncio.run(import_transcripts(pieces.add_all, pieces, [claude.transcript], finished=finished))
        asyncio.run(import_transcripts(whole.add_all, whole, [claude.transcript], finished=True))
    assert list(pieces.exchanges.values()) == list(whole.exchanges.values())


ODD = ["", "user", "assistant", "message", "session_meta", "x\0\ud800", None, True, -1, 1e300, [], [7], [[]], {}]
BLOCKS = [[{"type": "text", "text": "said"}, {"type": "text", "text": value}, value] for value in ODD]
VALUES = st.sampled_from(
    [*ODD, *BLOCKS, {"role": "user", "content": "said"}, {"content": BLOCKS[0], "type": "message"}]
)
FIELDS = ["type", "message", "content", "payload", "uuid", "sessionId", "timestamp", "origin", "attachment", "cwd"]
ENTRY = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6)


@given(st.lists(ENTRY | VALUES | st.binary(max_size=40), max_size=8), st.sampled_from(["claude", "codex"]))
def test_no_file_makes_the_reader_fail(folder: Path, entries: list[Any], client: str) -> None:
    claude = ClaudeTranscript(folder)
    claude.write(
        *(entry if isinstance(entry, bytes) else json.dumps(entry).encode() + b"\n" for entry in entries), mode="wb"
    )
    one = transcripts.Transcript(client, claude.root, claude.transcript.path)
    batch = read_transcript(one, TranscriptPosition(), finished=True, last_answer="A")
    assert batch.is_last
    assert all(exchange.canonical for exchange in batch.exchanges)
