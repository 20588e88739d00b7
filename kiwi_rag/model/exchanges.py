"""The record of a conversation memory: one question and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote

from kiwi_rag.errors import UsageError

SUFFIX = ".exchange"
"""The suffix of an exchange's path, by which its format is recognised."""
NO_THREAD = "-"
RECALLED_OPEN, RECALLED_CLOSE = "<recalled-memory>", "</recalled-memory>"
"""What stands before and after memory that an agent was given, so that it is not remembered again as new."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A message of a user and the answer to it, verbatim.

    ``timestamp`` is aware; a naive one counts as UTC. ``thread_session_id`` is the session in which the thread began,
    and ``thread_continuation_seq`` counts the sessions that continued it. ``metadata`` is JSON: ``user_name`` and
    ``assistant_name`` in it are the names of the speakers.
    """

    id: str
    session_id: str
    user_message: str
    assistant_message: str
    timestamp: datetime
    thread_id: str | None = None
    prior_exchange_ids: tuple[str, ...] = ()
    thread_session_id: str = ""
    thread_continuation_seq: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        moment = self.timestamp if self.timestamp.tzinfo else self.timestamp.replace(tzinfo=UTC)
        object.__setattr__(self, "timestamp", moment.astimezone(UTC))
        object.__setattr__(self, "prior_exchange_ids", tuple(self.prior_exchange_ids))

    @property
    def path(self) -> str:
        """Its path in the collection: session, thread and id."""
        return f"{session_path(self.session_id)}/{_step(self.thread_id or NO_THREAD)}/{_step(self.id)}{SUFFIX}"

    @property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """Speaker and message of the user and of the assistant, without empty ones."""
        named = (("user_name", "User", self.user_message), ("assistant_name", "Assistant", self.assistant_message))
        return tuple((str(self.metadata.get(key) or name), text) for key, name, text in named if text)

    @property
    def text(self) -> str:
        """Both messages, each after the name of its speaker."""
        return "\n\n".join(f"{speaker}: {message}" for speaker, message in self.messages)

    def as_dict(self) -> dict[str, Any]:
        """Return it JSON-ready; `of` reads it."""
        prior = list(self.prior_exchange_ids)
        return asdict(self) | {"timestamp": self.timestamp.isoformat(), "prior_exchange_ids": prior}

    @property
    def canonical(self) -> bytes:
        """The canonical JSON (RFC 8785) that is signed.

        Raises
        ------
        UsageError
            When the metadata has a value that JSON cannot hold exactly, or a text is not valid Unicode.
        """
        import rfc8785

        try:
            return rfc8785.dumps(self.as_dict())
        except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
            raise UsageError(f"exchange {self.id[:80]!r} cannot be written as JSON: {error}") from error

    @classmethod
    def of(cls, data: object) -> Exchange:
        """Return the exchange that `data` describes, of the form that `as_dict` returns.

        Raises
        ------
        UsageError
            When a field is missing, unknown or of another type.
        """
        if not isinstance(data, Mapping):
            raise UsageError("an exchange is a JSON object", hint=_EXAMPLE)
        values = {"thread_id": None, **data}
        for name, kind in _TYPES.items():
            if name in values and not isinstance(values[name], kind):
                raise UsageError(f"{name} of the exchange has another type than it must have", hint=_EXAMPLE)
        if not all(isinstance(one, str) for one in values.get("prior_exchange_ids", ())):
            raise UsageError("prior_exchange_ids of the exchange are not all texts", hint=_EXAMPLE)
        try:
            return cls(**values | {"timestamp": datetime.fromisoformat(str(values["timestamp"]))})
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            raise UsageError(f"the exchange cannot be read: {error}", hint=_EXAMPLE) from error


_TYPES: Mapping[str, Any] = {
    **dict.fromkeys(("id", "session_id", "user_message", "assistant_message", "timestamp", "thread_session_id"), str),
    "thread_id": str | None, "prior_exchange_ids": list | tuple, "thread_continuation_seq": int, "metadata": Mapping,
}  # fmt: skip
_EXAMPLE = (
    '{"id": "e1", "session_id": "s1", "user_message": "…", "assistant_message": "…", "timestamp": "2026-11-02T10:00Z"}'
)


def without_recalled(text: str) -> str:
    """Return `text` without the blocks of recalled memory in it; one that is not closed ends with the text."""
    kept, at = [], 0
    while (begin := text.find(RECALLED_OPEN, at)) >= 0:
        kept.append(text[at:begin])
        end = text.find(RECALLED_CLOSE, begin)
        at = end + len(RECALLED_CLOSE) if end >= 0 else len(text)
    return "".join(kept) + text[at:]


def session_path(session_id: str) -> str:
    """Return the path below which a session's exchanges are."""
    return _step(session_id)


def _step(name: str) -> str:
    """Return an id as one step of a path; two ids never have the same."""
    return quote(name, safe="").replace(".", "%2E") or "%"


def id_of(path: str) -> str:
    """Return the id of the exchange at a path."""
    return unquote(path.rpartition("/")[2].removesuffix(SUFFIX))
