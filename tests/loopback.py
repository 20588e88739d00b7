"""An HTTP server of a test's own on a free port of loopback, while a block runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

Handler = Callable[..., BaseHTTPRequestHandler]


@contextmanager
def serving(handler: Handler) -> Iterator[str]:
    """Answer requests with `handler`; yield the server's address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


class LoopbackServer:
    """Context manager: a server with a state of its own, which its handler reads and writes."""

    url: str
    _serving: AbstractContextManager[str]

    def handler(self) -> Handler:
        """Return the class that answers a request."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._serving = serving(self.handler())
        self.url = self._serving.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._serving.__exit__(None, None, None)
