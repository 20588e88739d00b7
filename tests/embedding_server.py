"""A real HTTP server on loopback that embeds like OpenAI and Ollama do, or fails as it is told to."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.loopback import Handler, LoopbackServer

Encode = Callable[[Sequence[str]], Sequence[Any]]


@dataclass
class Failure:
    """An answer given instead of vectors."""

    status: int
    body: bytes = b'{"error": "told to fail"}'
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Seen:
    """A request that arrived."""

    path: str
    body: Any
    authorization: str


def vectors_of(texts: Sequence[str]) -> list[list[int]]:
    """Return vectors of 384 dimensions that only depend on their texts, and say nothing of what these mean."""
    return [[byte + 1 for byte in hashlib.sha384(text.encode()).digest() * 8] for text in texts]


class EmbeddingServer(LoopbackServer):
    """Context manager; `failures` are answered first, one a request, then `always` if set, else `encode` is used."""

    def __init__(self, encode: Encode) -> None:
        self.encode = encode
        self.failures: deque[Failure] = deque()
        self.always: Failure | None = None
        self.seen: list[Seen] = []

    def handler(self) -> Handler:
        return _handler(self)

    def behind(self, path: str) -> str:
        """Return the path that a request for `path` reaches; a gateway's stand-in has others."""
        return path

    def answer(self, path: str, body: Any) -> Any:
        vectors = [[float(number) for number in vector] for vector in self.encode(body["input"])]
        tokens = sum(len(text.split()) for text in body["input"])
        if path == "/api/embed":
            return {"model": body["model"], "embeddings": vectors, "prompt_eval_count": tokens}
        data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
        # The API promises an index, not an order.
        return {"data": data[::-1], "model": body["model"], "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


class HeldServer(EmbeddingServer):
    """Holds a request with a text that says "held" until `released` is set: its caller stops in the middle."""

    def __init__(self, encode: Encode) -> None:
        super().__init__(encode)
        self.released = threading.Event()

    def answer(self, path: str, body: Any) -> Any:
        if any("held" in text for text in body["input"]):
            self.released.wait()
        return super().answer(path, body)


def _handler(server: EmbeddingServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.seen.append(Seen(self.path, body, self.headers.get("Authorization", "")))
            if failure := server.failures.popleft() if server.failures else server.always:
                self._send(failure.status, failure.body, failure.headers)
            elif (path := server.behind(self.path)) in ("/v1/embeddings", "/api/embed"):
                self._send(200, json.dumps(server.answer(path, body)).encode(), {})
            else:
                self._send(404, b'{"error": "no such path"}', {})

        def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep the test run's output clean."""

    return Handler
