"""What a line of an AI client's transcript says: a message of the user, text of the assistant, or neither.

Sources, read in November 2026. Claude Code: code.claude.com/docs/en/sessions says where transcripts are, and that their
lines may change with any release; the fields are as ``docs/formats/claude-code.md`` of github.com/skillsynchq/txcript
describes them, ``queued_command`` and ``origin`` as they occur in readers of transcripts on GitHub; issue 89624 of
anthropics/claude-code shows that a resumed session begins with copies that keep their ``uuid``. Codex: ``RolloutLine``
and ``SessionMeta`` in ``codex-rs/protocol/src/protocol.rs`` of github.com/openai/codex, and what it adds in the name of
the user in ``codex-rs/core/src/context/contextual_user_message.rs``; lines have had this form since version 0.32.

What neither side of a conversation wrote is no message: calls of tools and their results, thinking, output of commands,
instructions and reminders that the client adds, summaries of what was compacted, and conversations of sub-agents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kiwi_rag.model import sha256_hex
from kiwi_rag.model.exchanges import Exchange, without_recalled

Entry = Mapping[str, Any]
State = dict[str, Any]
"""What earlier lines hold for later ones: session, thread, folder, branch, model; JSON-able."""

_ID = re.compile(r"[\w.:-]{1,200}", re.ASCII)
_SPACE = re.compile(r"\s*")


class UnusableMessage(Exception):
    """A message cannot be kept; the text says why."""


class TranscriptFormat(NamedTuple):
    """The format of one client's transcripts.

    Parameters
    ----------
    title
        The client's name.
    folders
        Where its transcripts are: folders below the client's own, and what matches files in each.
    read
        Returns what a line says: a message of the user, as an exchange without an answer, text of the assistant, or
        None. It raises `UnusableMessage`.
    """

    title: str
    folders: Mapping[str, str]
    read: Callable[[Entry, State], Exchange | str | None]


class _Blocks(NamedTuple):
    """The content of a message: its texts, and whether it has an image or a document, or results of tools."""

    texts: Sequence[str]
    attached: bool
    is_result: bool

    @classmethod
    def of(cls, content: object) -> _Blocks:
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found = [_mapping(block) for block in blocks] if isinstance(blocks, list) else []
        texts = [_text(block.get("text")) for block in found if block.get("type") in _TEXT_BLOCKS]
        kinds = {kind for block in found if isinstance(kind := block.get("type"), str)}
        return cls(texts, bool(kinds & _ATTACHED), "tool_result" in kinds)


_TEXT_BLOCKS = ("text", "input_text", "output_text")
_ATTACHED = {"image", "document", "input_image"}


def _mapping(value: object) -> Entry:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    """Return a text as valid Unicode; empty for anything else."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _joined(texts: Sequence[str]) -> str:
    """Return the texts as one, without what was recalled."""
    return "\n\n".join(text for text in (without_recalled(text).strip() for text in texts) if text)


def _id(value: object, what: str) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise UnusableMessage(f"the message has no valid {what}")
    return value


def _time(value: object) -> datetime:
    try:
        time = datetime.fromisoformat(value if isinstance(value, str) else "")
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UnusableMessage("the message has no valid timestamp") from None


def _nonempty_texts(values: Mapping[str, object]) -> dict[str, str]:
    """Return those of `values` that are texts and not empty."""
    return {name: _text(value)[:1000] for name, value in values.items() if isinstance(value, str) and value}


def _without_leading(text: str, blocks: Mapping[str, str]) -> str:
    """Return `text` without the blocks at its beginning, given by how they open and close."""
    at = _end_of_space(text, 0)
    while opened := next((opened for opened in blocks if text.startswith(opened, at)), ""):
        end = text.find(blocks[opened], at)
        if end < 0:
            break
        at = _end_of_space(text, end + len(blocks[opened]))
    return text[at:]


def _without(text: str, opened: str, closed: str) -> str:
    """Return `text` without the blocks between two marks; one that is not closed stays."""
    kept, at = [], 0
    while (begin := text.find(opened, at)) >= 0 and (end := text.find(closed, begin)) >= 0:
        kept.append(text[at:begin])
        at = end + len(closed)
    return "".join([*kept, text[at:]])


def _end_of_space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too


def _tags(*names: str) -> dict[str, str]:
    return {f"<{name}>": f"</{name}>" for name in names}


# --- Claude Code ---

_REMINDER = "<system-reminder>", "</system-reminder>"
_CLAUDE_BLOCKS = _tags(
    "local-command-stdout", "local-command-stderr", "local-command-caveat", "bash-input",
    "bash-stdout", "bash-stderr", "task-notification", "user-prompt-submit-hook", "ide_opened_file", "ide_selection",
)  # fmt: skip
_CLAUDE_NOTICES = (
    "[Request interrupted by user",
    "Caveat: The messages below were generated by the user",
    "This session is being continued from a previous conversation",
)
_CLAUDE_FLAGS = ("isSidechain", "isMeta", "isCompactSummary", "isVisibleInTranscriptOnly", "isApiErrorMessage")


def _read_claude(entry: Entry, state: State) -> Exchange | str | None:
    kind, message = entry.get("type"), _mapping(entry.get("message"))
    if any(entry.get(flag) for flag in _CLAUDE_FLAGS):
        return None
    if kind == "assistant" and message.get("model") != "<synthetic>":
        state.update(_nonempty_texts({"model": message.get("model")}))
        return _joined(_Blocks.of(message.get("content")).texts)
    if kind == "user" and _is_of_user(entry):
        return _opened_by_claude(entry, message.get("content"), state)
    queued = _mapping(entry.get("attachment"))  # written while the assistant was at work
    if kind == "attachment" and queued.get("type") == "queued_command" and _is_of_user(queued):
        return _opened_by_claude(entry, queued.get("prompt"), state)
    return None


def _is_of_user(entry: Entry) -> bool:
    """Return whether the user wrote a message, rather than the client or another session in the user's name."""
    kind = _mapping(entry.get("origin")).get("kind", "human")
    return kind == "human" and entry.get("commandMode", "prompt") == "prompt" and not entry.get("isMeta")


def _opened_by_claude(entry: Entry, content: object, state: State) -> Exchange | None:
    blocks = _Blocks.of(content)
    said = [_without_leading(_without(text, *_REMINDER), _CLAUDE_BLOCKS) for text in blocks.texts]
    command = _command(said[0]) if said else ""
    text = _joined([command] if command else [text for text in said if not text.startswith(_CLAUDE_NOTICES)])
    if blocks.is_result or not (text or blocks.attached):
        return None
    session = _id(entry.get("sessionId") or state.get("file"), "session id")
    if origin := _mapping(entry.get("forkedFrom")).get("sessionId"):  # a copy: it is of the session it was copied from
        session = state["thread"] = _id(origin, "session id")
    thread = state.get("thread", session)
    details = {"project": entry.get("cwd"), "branch": entry.get("gitBranch"), "command": command.partition(" ")[0]}
    return Exchange(
        id=_id(entry.get("uuid"), "uuid"), session_id=session, user_message=text, assistant_message="",
        timestamp=_time(entry.get("timestamp")), thread_id=thread, thread_session_id=thread,
        thread_continuation_seq=int(session != thread), metadata={"source": "claude", **_nonempty_texts(details)},
    )  # fmt: skip


def _command(text: str) -> str:
    """Return the command that a user's message calls, as it was typed; empty for any other message."""
    if not text.startswith(("<command-name>", "<command-message>")):
        return ""
    name, arguments = (_between(text, f"<{tag}>", f"</{tag}>") for tag in ("command-name", "command-args"))
    return f"/{name.removeprefix('/')} {arguments}".strip() if name else ""


def _between(text: str, opened: str, closed: str) -> str:
    return text.partition(opened)[2].partition(closed)[0].strip()


# --- Codex ---

_CODEX_BLOCKS = {
    **_tags(
        "environment_context", "user_instructions", "skill", "user_shell_command", "turn_aborted", "goal_context",
        "subagent_notification", "recommended_plugins", "user_action", "agent_message_board_notification",
    ),
    "# AGENTS.md instructions": "</INSTRUCTIONS>",
    "<codex_internal_context": "</codex_internal_context>",
    "<hook_prompt ": "</hook_prompt>",
}  # fmt: skip
_CODEX_IDE, _CODEX_REQUEST = "# Context from my IDE setup:", "## My request for Codex:"


def _read_codex(entry: Entry, state: State) -> Exchange | str | None:
    kind, payload = entry.get("type"), _mapping(entry.get("payload"))
    if kind == "session_meta":
        _note_session(payload, state)
    elif kind == "turn_context":
        state.update(_nonempty_texts({"project": payload.get("cwd"), "model": payload.get("model")}))
    elif kind == "response_item" and payload.get("type") == "message" and not state.get("subagent"):
        if payload.get("role") == "assistant":
            return _joined(_Blocks.of(payload.get("content")).texts)
        if payload.get("role") == "user":
            return _opened_by_codex(entry, _Blocks.of(payload.get("content")), state)
    return None


def _note_session(meta: Entry, state: State) -> None:
    """Note what the head of a session says; a forked one goes on with the heads of those it is a copy of."""
    session = _id(meta.get("id"), "session id")
    if "session" not in state:
        git, source = _mapping(meta.get("git")), _mapping(meta.get("source"))
        state.update({"session": session, **_nonempty_texts({"project": meta.get("cwd"), "branch": git.get("branch")})})
        state["subagent"] = "subagent" in source or meta.get("thread_source") == "subagent"
        session = _id(meta.get("forked_from_id") or session, "session id")
    state["thread"] = session


def _opened_by_codex(entry: Entry, blocks: _Blocks, state: State) -> Exchange | None:
    said = [_without_leading(text, _CODEX_BLOCKS) for text in blocks.texts]
    text = _joined([_request(text) for text in said])
    if not (text or blocks.attached):
        return None
    session = _id(state.get("session") or state.get("file"), "session id")
    thread, number = state.get("thread", session), state.get("messages", 0)
    state["messages"] = number + 1
    return Exchange(
        # Messages have no id, and a fork's copies have new times: what stays is the number in the thread. A digest of
        # the text would be kept when it is forgotten, and confirm a guess.
        id=sha256_hex(f"codex\n{thread}\n{number}".encode())[:32], session_id=session,
        user_message=text, assistant_message="", timestamp=_time(entry.get("timestamp")), thread_id=thread,
        thread_session_id=thread, thread_continuation_seq=int(session != thread),
        metadata={"source": "codex", **_nonempty_texts({name: state.get(name) for name in ("project", "branch")})},
    )  # fmt: skip


def _request(text: str) -> str:
    """Return a message without what an editor put before it."""
    return text.partition(_CODEX_REQUEST)[2] or text if text.startswith(_CODEX_IDE) else text


FORMATS: Mapping[str, TranscriptFormat] = {
    "claude": TranscriptFormat("Claude Code", {"projects": "*/*.jsonl"}, _read_claude),
    "codex": TranscriptFormat(
        "Codex", {"sessions": "*/*/*/rollout-*.jsonl", "archived_sessions": "rollout-*.jsonl"}, _read_codex
    ),
}
"""The formats of transcripts, by the client's name in `kiwi setup`."""
