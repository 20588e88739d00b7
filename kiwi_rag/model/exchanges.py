"""The record of a conversation memory: one question and its answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from html import escape
from typing import Any, ClassVar
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

    __pydantic_config__: ClassVar = {"strict": True, "extra": "forbid"}

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
        return f"{_step(self.session_id)}/{_step(self.thread_id or NO_THREAD)}/{_step(self.id)}{SUFFIX}"

    @property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """Speaker and message of the user and of the assistant, without empty ones."""
        named = (("user_name", "User", self.user_message), ("assistant_name", "Assistant", self.assistant_message))
        return tuple((str(self.metadata.get(key) or name), text) for key, name, text in named if text.strip())

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
    def of(cls, data: bytes | str | Mapping[str, Any]) -> Exchange:
        """Return the exchange that JSON describes, of the form that `as_dict` returns.

        Raises
        ------
        UsageError
            When a field is missing, unknown or of another type.
        """
        from pydantic import ValidationError
        from pydantic_core import PydanticSerializationError, to_json

        try:
            found: Exchange = _reader().validate_json(to_json(data) if isinstance(data, Mapping) else data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "it"
            raise UsageError(f"not an exchange: {where}: {first['msg']}", hint=_EXAMPLE) from None
        except (PydanticSerializationError, OverflowError) as error:
            raise UsageError(f"not an exchange: {error}", hint=_EXAMPLE) from error
        return found


_EXAMPLE = (
    '{"id": "e1", "session_id": "s1", "user_message": "…", "assistant_message": "…", "timestamp": "2026-11-02T10:00Z"}'
)


@cache
def _reader() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Exchange)


def path_pattern(session_id: str = "", thread_id: str = "") -> str:
    """Return the pattern (`Filters.path`) of the paths of a session's or a thread's exchanges; empty for all."""
    if thread_id:
        return f"{_step(session_id) if session_id else '*'}/{_step(thread_id)}"
    return _step(session_id) if session_id else ""


def _step(name: str) -> str:
    """Return an id as one step of a path; two ids never have the same."""
    return quote(name, safe="").replace(".", "%2E") or "%"


def id_of(path: str) -> str:
    """Return the id of the exchange at a path."""
    return unquote(path.rpartition("/")[2].removesuffix(SUFFIX))


_RECALLED = re.compile(r"<\s*recalled-memory\b.*?(?:<\s*/\s*recalled-memory\s*>|\Z)", re.DOTALL | re.IGNORECASE)
_MARK = re.compile(r"<(?=\s*/?\s*recalled-memory)", re.IGNORECASE)


def mark_recalled(exchange: Exchange, text: str) -> str:
    """Return the text of an exchange as an agent gets it: between marks, so that it is never remembered again."""
    about = (
        f'id="{escape(exchange.id)}" session="{escape(exchange.session_id)}" at="{exchange.timestamp:%Y-%m-%dT%H:%MZ}"'
    )
    return f"<recalled-memory {about}>\n{_MARK.sub('(', text)}\n{RECALLED_CLOSE}"


def without_recalled(text: str) -> str:
    """Return a message without what was recalled; a mark that is not closed counts to the end, no other stays one."""
    return _MARK.sub("(", _RECALLED.sub("", text)) if "ecalled-" in text.lower() else text
