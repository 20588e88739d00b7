"""The import of AI clients' transcripts into a conversation memory, all at once or by a client's hook."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from kiwi_rag.errors import SourceUnreadable, UsageError
from kiwi_rag.model.exchanges import Exchange
from kiwi_rag.services.memory import AddedExchanges
from kiwi_rag.sources.memory.transcripts import (
    SkippedLine,
    Transcript,
    TranscriptBatch,
    TranscriptPosition,
    read_transcript,
    transcript_at,
)

QUIET_SECONDS = 600
"""After so many seconds without a change, the last exchange of a transcript counts as finished."""


class ExchangeSink(Protocol):
    """What exchanges are added to."""

    async def add_all(self, exchanges: Sequence[Exchange], /, *, replace: bool) -> AddedExchanges:
        """Store exchanges: with `replace`, one replaces a stored one with its id, unless that is of another session.

        A session that was resumed may begin with a copy of an earlier one: the same ids, which stay what they are.
        """


class Positions(Protocol):
    """Where the reading of each transcript goes on."""

    def position(self, key: str, /) -> object:
        """Return what was set for a key, or None."""

    def set_position(self, key: str, value: Mapping[str, Any], /) -> None:
        """Store a JSON-able value."""


@dataclass(slots=True)
class ImportReport:
    """What an import found.

    Parameters
    ----------
    transcripts
        How many transcripts had exchanges to add.
    exchanges
        How many exchanges were handed to the memory; the last one of a transcript is so in each import that finds
        something new in it.
    new
        How many of them were not there before.
    refused
        Exchanges that the memory refused, by their ids, and why.
    redacted
        In how many places something was taken out, as a credential.
    skipped
        Lines that were not read, and why.
    unreadable
        Transcripts that could not be read, and why.
    """

    transcripts: int = 0
    exchanges: int = 0
    new: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    redacted: int = 0
    skipped: list[SkippedLine] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """Return it JSON-ready."""
        skipped = [str(line) for line in self.skipped]
        return {**asdict(self), "skipped": skipped}

    def add(self, added: AddedExchanges) -> None:
        """Count what became of exchanges; what was forgotten, or is in another session, is left as it is."""
        self.new += len(added.new)
        self.redacted += len(added.findings)
        for name, findings in added.refused.items():
            if findings[0].code not in ("exchange.forgotten", "exchange.session"):
                self.refused[name] = findings[0].message


async def import_transcripts(
    memory: ExchangeSink,
    positions: Positions,
    transcripts: Iterable[Transcript],
    *,
    finished: bool = False,
    last_answer: str = "",
) -> ImportReport:
    """Add what is new in transcripts to a memory.

    A position is stored after the exchanges before it: after a crash in between they are added again, with the same
    ids. `finished` and `last_answer` are those of `read_transcript`; a transcript that has not changed for ten minutes
    is finished in any case.

    Raises
    ------
    KiwiError
        When the memory cannot store the exchanges; what was stored before stays.
    """
    report = ImportReport()
    for one in transcripts:
        read = partial(read_transcript, one, finished=finished or _is_quiet(one), last_answer=last_answer)
        try:
            added = await _import_one(memory, positions, one.key, read, report)
        except SourceUnreadable as error:
            report.unreadable[str(one)] = error.message
        else:
            report.transcripts += bool(added)
            report.exchanges += added
    return report


async def _import_one(
    memory: ExchangeSink, positions: Positions, key: str, read: Callable[[TranscriptPosition], TranscriptBatch],
    report: ImportReport,
) -> int:  # fmt: skip
    """Import a transcript batch by batch; return how many exchanges were added."""
    added, position, is_last = 0, TranscriptPosition.of(positions.position(key)), False
    while not is_last:
        batch = await asyncio.to_thread(read, position)
        if batch.exchanges:
            report.add(await memory.add_all(batch.exchanges, replace=True))
        if batch.position != position:
            positions.set_position(key, batch.position.as_dict())
        added, position, is_last = added + len(batch.exchanges), batch.position, batch.is_last
        report.skipped += batch.skipped
    return added


def _is_quiet(transcript: Transcript) -> bool:
    return time.time() - transcript.changed_ns / 1e9 > QUIET_SECONDS


@dataclass(frozen=True, slots=True)
class HookCall:
    """What Claude Code tells a hook: the session, its transcript, and what was said last by either side."""

    transcript: Transcript
    session_id: str
    prompt: str = ""
    last_answer: str = ""


def parse_hook_call(data: bytes | str, claude_folder: Path) -> HookCall:
    """Return what a hook is told on its standard input.

    The fields are those of code.claude.com/docs/en/hooks, and ``last_assistant_message`` of ``Stop``, which is called
    before the transcript has the last answer (anthropics/claude-code, issue 74340).

    Raises
    ------
    UsageError
        When it is not what Claude Code writes, or the transcript is not in `claude_folder`.
    """
    try:
        told = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError("the hook's input is not JSON", hint="Claude Code starts this command as a hook") from error
    fields = told if isinstance(told, Mapping) else {}
    names = ("transcript_path", "session_id", "prompt", "last_assistant_message")
    path, session, prompt, answer = (value if isinstance(value := fields.get(name), str) else "" for name in names)
    return HookCall(transcript_at("claude", claude_folder, path), session, prompt, answer)


def hook_output(context: str) -> str:
    """Return what a hook prints on ``UserPromptSubmit``, so that Claude Code adds `context` to the prompt."""
    return json.dumps({"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": context}})
