"""Qdrant's REST interface on loopback, over Qdrant's own engine, or failing as it is told to.

A Qdrant server cannot be had on every machine; its engine can, as a package (`tests.qdrant_engine`). This one speaks
the requests and answers of the server's OpenAPI description (https://api.qdrant.tech/), with the client's own models
for both, and is as strict as a server in strict mode: it refuses conditions and facets on fields without an index of
the right type.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Self

from qdrant_client import AsyncQdrantClient, models
from qdrant_client.embed import type_inspector

from kiwi_rag.stores.qdrant import INDEXES, PARTITION, QdrantConnection
from tests.qdrant_engine import Shard
from tests.stand_in import API_KEY, Failure, Refusal, Seen, StandIn

__all__ = ["API_KEY", "Failure", "LocalQdrant", "QdrantServer", "Seen"]
# Qdrant's client copies the schemas of its own models whenever one is made, which takes 50 ms.
type_inspector.ModelSchemaParser = cache(type_inspector.ModelSchemaParser)  # type: ignore[assignment, misc]


class QdrantServer(StandIn):
    """With `only`, a key's right to a single collection: others are refused."""

    def __init__(self, version: str = "1.20.0", api_key: str = "", only: str = "") -> None:
        super().__init__()
        self.version, self.api_key, self.only = version, api_key, only
        self.collections: dict[str, Shard] = {}
        self._turn = threading.RLock()

    def __enter__(self) -> Self:
        # The engine flushes each new index to the disk; where there is a folder in memory, that costs nothing.
        memory = Path("/dev/shm")
        self._folder = Path(tempfile.mkdtemp(prefix="qdrant-", dir=memory if memory.is_dir() else None))
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for shard in self.collections.values():
            shard.close()
        shutil.rmtree(self._folder)

    def respond(self, seen: Seen) -> tuple[int, bytes]:
        if seen.path == "/":
            return 200, json.dumps({"title": "qdrant", "version": self.version}).encode()
        try:
            answered = {"result": self.answer(seen), "status": "ok", "time": 0.0}
            return 200, json.dumps(answered).encode()
        except Refusal as error:
            return error.status, json.dumps({"status": {"error": str(error)}, "time": 0.0}).encode()
        except Exception as error:  # noqa: BLE001  # whatever the engine refuses
            return 400, json.dumps({"status": {"error": str(error)[:300]}, "time": 0.0}).encode()

    def answer(self, seen: Seen) -> Any:
        """Return the result of a request."""
        if self.api_key and seen.headers.get("api-key") != self.api_key:
            raise Refusal(401, "Must provide an API key or an Authorization bearer token")
        _, _, name, *rest = seen.path.split("/")
        if self.only and (name != self.only or (seen.method in {"PUT", "DELETE"} and not rest)):
            raise Refusal(403, f"Forbidden: access to collection {name} is not granted")
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

    def delete(self, name: str, _: Any) -> Any:
        self._shard(name).close()
        del self.collections[name]
        shutil.rmtree(self._folder / name)
        return True

    def put_index(self, name: str, body: Any) -> Any:
        schema = body["field_schema"]
        self._shard(name).index(body["field_name"], schema["type"] if isinstance(schema, dict) else schema)
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


class LocalQdrant(QdrantConnection):
    """The client's own local mode in place of a server: it has no indexes, and warns when it is asked for one."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:6333")

    async def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        if method == "create_payload_index":
            return None
        if method == "query_batch_points":
            name, requests = arguments
            arguments = name, [one.model_copy(update={"params": None}) for one in requests]
        found = await super().call(method, *arguments, **options)
        if method == "get_collection":
            return found.model_copy(update={"payload_schema": dict.fromkeys([*INDEXES, PARTITION])})
        return found

    async def _connect(self) -> AsyncQdrantClient:
        return AsyncQdrantClient(":memory:")

    async def _check(self, client: AsyncQdrantClient) -> None:
        """Take it as it is."""
