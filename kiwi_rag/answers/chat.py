"""Chat models: one streamed reply to one prompt, of bounded length and time, with its tokens and cost logged.

Formats: ``POST {base}/chat/completions`` with server-sent events,
https://platform.openai.com/docs/api-reference/chat-streaming, which vLLM, llama.cpp, LM Studio and others have, too;
and Ollama's ``POST {base}/api/chat`` with a JSON object a line,
https://github.com/ollama/ollama/blob/main/docs/api.md.

A server that fails before its first line is asked again. What it sent before it broke off is kept, and the reply says
that it is cut.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from kiwi_rag.embedding.remote import estimated_tokens
from kiwi_rag.embedding.usage import RemoteCall, UsageLog
from kiwi_rag.endpoint import Endpoint, stream_lines
from kiwi_rag.errors import AnswerMalformed, ChatError, EmbeddingError, RateLimited

MAX_TOKENS = 1_500
"""Estimated tokens of a reply; what a model writes beyond them is not read."""
SECONDS = 180.0
"""How long a reply may take."""
READ_SECONDS = 60.0
"""How long a server may take to send its first line, and each further one."""
_MAX_BYTES, _MAX_PIECE = 4 << 20, 6_000  # each token comes in some hundred bytes of JSON
_WRONG = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError)
DEFAULT_URLS = {"openai": "https://api.openai.com/v1", "ollama": "http://127.0.0.1:11434"}
_PATHS = {"openai": "/chat/completions", "ollama": "/api/chat"}
Message = Mapping[str, str]
"""``role`` and ``content``."""


@dataclass(slots=True)
class ChatReply:
    """What a model has written so far; ``cut`` says why it ended early, empty if it did not.

    Tokens are those that the server counted, of the prompt and of the reply; None where it did not say.
    """

    text: str = ""
    finished: bool = False
    cut: str = ""
    tokens: int | None = None
    output_tokens: int | None = None

    def end(self, reason: object, *counts: object) -> None:
        """Note why the model stopped, if it did, and the server's two counts, where they are any."""
        self.finished = self.finished or reason is not None
        self.cut = "the model reached its own limit" if reason == "length" else self.cut
        if all(type(count) is int and count >= 0 for count in counts):
            self.tokens, self.output_tokens = counts  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class ChatModel:
    """The model of this name on a server of the kind `provider`: ``openai`` or ``ollama``."""

    provider: str
    model: str
    endpoint: Endpoint
    usage: UsageLog

    async def stream(self, messages: Sequence[Message], passages: int, reply: ChatReply) -> AsyncGenerator[str]:
        """Yield the reply piece by piece, and keep it in `reply`; `passages` is how many the messages have.

        Raises
        ------
        ChatError
            If there is no text at all.
        ConsentRequired
            If the user does not let the messages leave this machine.
        """
        started, outcome = time.perf_counter(), "stopped"
        try:
            async with aclosing(self._pieces(messages, reply)) as pieces:
                async for piece in pieces:
                    yield piece
            outcome = "cut" if reply.cut else "ok"
        except EmbeddingError as error:
            outcome = f"{error.code} {error.status or ''}".strip()
            if not reply.text:
                hint = "wait, or request a higher limit" if isinstance(error, RateLimited) else error.hint
                raise ChatError(error.message, hint=hint) from error
            reply.cut = error.loggable_message
        finally:
            about = self.provider, self.model, passages, reply.tokens, round(time.perf_counter() - started, 4)
            call = RemoteCall(*about, outcome, self.endpoint.server, output_tokens=reply.output_tokens)
            self.usage.record(call)

    async def _pieces(self, messages: Sequence[Message], reply: ChatReply) -> AsyncGenerator[str]:
        read = _read_openai if self.provider == "openai" else _read_ollama
        request, path = self._request(messages), _PATHS[self.provider]
        async with aclosing(stream_lines(self.endpoint, path, request, _MAX_BYTES, SECONDS)) as lines:
            async for line in lines:
                try:
                    piece = (read(line, reply) if line.strip() else "")[:_MAX_PIECE]
                except _WRONG as error:
                    raise self._malformed() from error
                if piece:
                    reply.text += piece
                    yield piece
                if estimated_tokens(reply.text) > MAX_TOKENS:
                    reply.cut = f"it is longer than {MAX_TOKENS:,} tokens"
                    return
        if not reply.text:
            raise self._malformed()
        reply.cut = reply.cut or ("" if reply.finished else "the server ended it in the middle")

    def _request(self, messages: Sequence[Message]) -> Mapping[str, object]:
        request = {"model": self.model, "messages": messages, "stream": True}
        if self.provider == "openai":
            # Nothing else: OpenAI's newer models refuse a temperature, and the name of the limit of tokens differs.
            return request | {"stream_options": {"include_usage": True}}
        # Without a number of its own, Ollama would cut the prompt at its default.
        room = MAX_TOKENS + sum(estimated_tokens(message["content"]) for message in messages)
        return request | {"options": {"temperature": 0, "num_predict": MAX_TOKENS, "num_ctx": -(-room // 1024) * 1024}}

    def _malformed(self) -> AnswerMalformed:
        hint = "check KIWI_CHAT_PROVIDER, KIWI_CHAT_BASE_URL and KIWI_CHAT_MODEL"
        return AnswerMalformed(f"{self.endpoint.server} returned no text in {self.provider}'s format", hint=hint)


def _read_openai(line: bytes, reply: ChatReply) -> Any:
    """Return the text of an event."""
    if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":  # or a comment, or another field
        return ""
    event = json.loads(line[5:])
    choice, usage = (event["choices"] or [{}])[0], event.get("usage") or {}
    reply.end(choice.get("finish_reason"), usage.get("prompt_tokens"), usage.get("completion_tokens"))
    return (choice.get("delta") or {}).get("content") or ""


def _read_ollama(line: bytes, reply: ChatReply) -> Any:
    """Return the text of a line."""
    event = json.loads(line)
    reason = event.get("done_reason", "stop") if event["done"] else None
    reply.end(reason, event.get("prompt_eval_count"), event.get("eval_count"))
    return event["message"]["content"] or ""
