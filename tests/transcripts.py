"""Transcripts as Claude Code and Codex write them, and a memory that keeps what is imported from them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kiwi_rag.model.exchanges import Exchange
from kiwi_rag.services.memory import AddedExchanges
from kiwi_rag.sources.memory.transcripts import Transcript

TIME = "2026-11-02T10:{:02}:00.000Z"


class ClaudeTranscript:
    """A session of Claude Code in a project, and the lines that it writes."""

    def __init__(self, folder: Path, session: str = "s1", project: str = "/work/app", name: str = "") -> None:
        self.session, self.project, self.count = session, project, 0
        self.root = folder / "projects"
        self.path = self.root / (name or project.replace("/", "-")) / f"{session}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)

    @property
    def transcript(self) -> Transcript:
        return Transcript("claude", self.root, self.path.relative_to(self.root).as_posix())

    def entry(self, kind: str, message: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        self.count += 1
        about = {"cwd": self.project, "gitBranch": "main", "sessionId": self.session, "version": "2.1.240"}
        own = {"uuid": f"{self.session}-{self.count}", "timestamp": TIME.format(self.count % 60), "isSidechain": False}
        return {"type": kind, **about, **own, **({"message": message} if message else {}), **fields}

    def user(self, content: str | Sequence[Mapping[str, Any]], **fields: Any) -> dict[str, Any]:
        return self.entry("user", {"role": "user", "content": content}, **fields)

    def assistant(self, *blocks: str | Mapping[str, Any], **fields: Any) -> dict[str, Any]:
        content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
        return self.entry("assistant", {"role": "assistant", "model": "claude-opus-5", "content": content}, **fields)

    def write(self, *entries: Mapping[str, Any] | bytes, mode: str = "ab") -> None:
        write_lines(self.path, *entries, mode=mode)


def write_lines(path: Path, *entries: Mapping[str, Any] | bytes, mode: str = "ab") -> None:
    """Append entries as lines, and bytes as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode) as file:
        for entry in entries:
            file.write(entry if isinstance(entry, bytes) else json.dumps(entry).encode() + b"\n")


def codex_entry(kind: str, minute: int = 0, **payload: Any) -> dict[str, Any]:
    return {"timestamp": TIME.format(minute), "type": kind, "payload": payload}


def codex_message(role: str, *texts: str, minute: int = 0) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text} for text in texts]
    return codex_entry("response_item", minute, type="message", role=role, content=content)


class FakeMemory:
    """A memory as the import needs it: exchanges by id, and positions."""

    def __init__(self) -> None:
        self.exchanges: dict[str, Exchange] = {}
        self.positions: dict[str, str] = {}
        self.calls = 0

    async def add_all(self, exchanges: Sequence[Exchange], *, replace: bool) -> AddedExchanges:
        assert replace
        self.calls += 1
        new = [one.id for one in exchanges if one.id not in self.exchanges]
        for one in exchanges:
            if one.id not in self.exchanges or self.exchanges[one.id].session_id == one.session_id:
                self.exchanges[one.id] = one
        return AddedExchanges(new, len(exchanges) - len(new), {}, [])

    def position(self, key: str) -> object:
        return json.loads(self.positions[key]) if key in self.positions else None

    def set_position(self, key: str, value: Mapping[str, Any]) -> None:
        self.positions[key] = json.dumps(value)

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(one.user_message, one.assistant_message) for one in self.exchanges.values()]
