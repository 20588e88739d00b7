"""Qdrant's REST interface on loopback, over Qdrant's own engine, or failing as it is told to.

A Qdrant server cannot be had on every machine; its engine can, as a package (`tests.qdrant_engine`). This one speaks
the requests and answers of the server's OpenAPI description (https://api.qdrant.tech/), with the client's own models
for both, and is as strict as a server in strict mode: it refuses conditions and facets on fields without an index of
the right type.
"""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from qdrant_client import models
from qdrant_client.embed import type_inspector

from tests.qdrant_engine import Shard

API_KEY = "a-key-of-the-tests"
# Qdrant's client copies the schemas of its own models whenever one is made, which takes 50 ms.
type_inspector.ModelSchemaParser = cache(type_inspector.ModelSchemaParser)  # type: ignore[assignment, misc]


@dataclass
class Failure:
    """An answer given in place of the right one; without a status the connection is cut."""

    status: int = 0
    body: bytes = b'{"status": {"error": "told to fail"}}'
    headers: dict[str, str] = field(default_factory=dict)
    after: bool = False
    """Whether the request is carried out all the same."""


@dataclass
class Seen:
    """A request that arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class Refusal(Exception):
    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


class QdrantServer:
    """Context manager. `failures` are answered first, one a request; `before` is called with every request."""

    def __init__(self, version: str = "1.20.0", api_key: str = "") -> None:
        self.version, self.api_key = version, api_key
        self.collections: dict[str, Shard] = {}
        self.failures: deque[Failure] = deque()
        self.before: Callable[[Seen], None] = lambda seen: None
        self.seen: list[Seen] = []
        self._turn = threading.RLock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> QdrantServer:
        # The engine flushes each new index to the disk; where there is a folder in memory, that costs nothing.
        memory = Path("/dev/shm")
        self._folder = Path(tempfile.mkdtemp(prefix="qdrant-", dir=memory if memory.is_dir() else None))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for shard in self.collections.values():
            shard.close()
        shutil.rmtree(self._folder)

    def answer(self, seen: Seen) -> Any:
        """Return the result of a request."""
        if seen.path == "/":
            return None
        if self.api_key and seen.headers.get("api-key") != self.api_key:
            raise Refusal(401, "Must provide an API key or an Authorization bearer token")
        _, _, name, *rest = seen.path.split("/")
        call = getattr(self, f"{seen.method.lower()}_{'_'.join(rest)}".rstrip("_"))
        with self._turn:
            return call(name, seen.body)

    def get_exists(self, name: str, _: Any) -> Any:
        return {"exists": name in self.collections}

    def get(self, name: str, _: Any) -> Any:
        return self._shard(name).info()

    def put(self, name: str, body: Any) -> Any:
        if name in self.collections:
            raise Refusal(409, f"Wrong input: Collection `{name}` already exists!")
        self.collections[name] = Shard(self._folder / name, models.CreateCollection(**body))
        return True

    def put_index(self, name: str, body: Any) -> Any:
        self._shard(name).index(body["field_name"], body["field_schema"])
        return {"operation_id": 1, "status": "completed"}

    def post_points(self, name: str, body: Any) -> Any:
        return self._shard(name).retrieve(models.PointRequest(**body))

    def post_points_scroll(self, name: str, body: Any) -> Any:
        wanted = models.ScrollRequest(**body)
        self._check(name, wanted.filter)
        found, following = self._shard(name).scroll(wanted)
        return {"points": found, "next_page_offset": following}

    def post_points_count(self, name: str, body: Any) -> Any:
        wanted = models.CountRequest(**body)
        self._check(name, wanted.filter)
        return {"count": self._shard(name).count(wanted)}

    def post_facet(self, name: str, body: Any) -> Any:
        wanted = models.FacetRequest(**body)
        self._check(name, wanted.filter)
        if self._shard(name).indexes.get(wanted.key) not in {"keyword", "integer"}:
            raise Refusal(400, f"Bad request: no index for facet key {wanted.key}")
        return {"hits": self._shard(name).facet(wanted)}

    def post_points_query_batch(self, name: str, body: Any) -> Any:
        wanted = models.QueryRequestBatch(**body).searches
        for one in wanted:
            self._check(name, one.filter)
        return [{"points": self._shard(name).query(one)} for one in wanted]

    def post_points_batch(self, name: str, body: Any) -> Any:
        wanted = models.UpdateOperations(**body).operations
        for one in wanted:
            for condition in _filters(one):
                self._check(name, condition)
            self._shard(name).update(one)
        return [{"operation_id": 1, "status": "completed"} for _ in wanted]

    def _shard(self, name: str) -> Shard:
        if name not in self.collections:
            raise Refusal(404, f"Not found: Collection `{name}` doesn't exist!")
        return self.collections[name]

    def _check(self, name: str, condition: Any) -> None:
        for one in _conditions(condition):
            wanted = {"keyword", "integer"} if one.match else {"integer"}
            if isinstance(one.range, models.DatetimeRange):
                wanted = {"datetime"}
            if self._shard(name).indexes.get(one.key) not in wanted:
                raise Refusal(400, f'Bad request: Index required but not found for "{one.key}"')


def _conditions(condition: Any) -> Iterator[models.FieldCondition]:
    if isinstance(condition, models.FieldCondition):
        yield condition
    elif isinstance(condition, models.Filter):
        for clause in (condition.must, condition.should, condition.must_not):
            for inner in clause if isinstance(clause, list) else [clause]:
                yield from _conditions(inner)


def _filters(operation: Any) -> list[Any]:
    if isinstance(operation, models.UpsertOperation):
        return [operation.upsert.update_filter]
    if isinstance(operation, models.DeleteOperation):
        return [operation.delete.filter]
    return [operation.set_payload.filter]


def _handler(server: QdrantServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve()

        def do_PUT(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def log_message(self, *_: object) -> None:
            pass

        def _serve(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen = Seen(self.command, unquote(urlsplit(self.path).path), headers, body)
            server.seen.append(seen)
            server.before(seen)
            failure = server.failures.popleft() if server.failures else None
            if failure is None or failure.after:
                answered = self._result(seen)
            if failure is not None and not failure.status:
                self.connection.shutdown(socket.SHUT_RDWR)
            elif failure is not None:
                self._send(failure.status, failure.body, failure.headers)
            else:
                self._send(*answered)

        def _result(self, seen: Seen) -> tuple[int, bytes]:
            if seen.path == "/":
                return 200, json.dumps({"title": "qdrant", "version": server.version}).encode()
            try:
                answered = {"result": server.answer(seen), "status": "ok", "time": 0.0}
                return 200, json.dumps(answered).encode()
            except Refusal as error:
                return error.status, json.dumps({"status": {"error": str(error)}, "time": 0.0}).encode()
            except Exception as error:  # noqa: BLE001  # whatever the engine refuses
                return 400, json.dumps({"status": {"error": str(error)[:300]}, "time": 0.0}).encode()

        def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"content-type": "application/json", **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
