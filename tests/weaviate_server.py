"""Weaviate's REST and gRPC interfaces on loopback, over `tests.weaviate_engine`, or failing as they are told to.

A Weaviate server cannot be had on every machine. This one speaks what the client sends: gRPC with the client's own
protobufs, and REST as far as Kiwi uses it (readiness, meta, schema). Where ``KIWI_TEST_WEAVIATE_URL`` is set, tests
that need no failures run against that server.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from typing import Any, Self
from uuid import UUID

import grpc
import httpx
import numpy as np
from google.protobuf.json_format import MessageToDict
from weaviate.proto.v1 import (
    aggregate_pb2,
    batch_delete_pb2,
    batch_pb2,
    properties_pb2,
    search_get_pb2,
    weaviate_pb2_grpc,
)

from kiwi_rag.stores.weaviate import WeaviateConnection
from tests.stand_in import API_KEY, Refusal, Seen, StandIn
from tests.weaviate_engine import Stored, WeaviateClass, sorted_by

MAXIMUM_RESULTS = 10_000
# The client makes a context of certificates whenever it connects, which takes 20 ms.
httpx._transports.default.create_ssl_context = cache(httpx.create_ssl_context)
_HNSW = {
    "cleanupIntervalSeconds": 300, "dynamicEfMin": 100, "dynamicEfMax": 500, "dynamicEfFactor": 8, "ef": -1,
    "efConstruction": 128, "filterStrategy": "sweeping", "flatSearchCutoff": 40000, "maxConnections": 32, "skip": False,
    "vectorCacheMaxObjects": 1000000000000, "distance": "cosine",
}  # fmt: skip
_DEFAULTS = {
    "multiTenancyConfig": {"enabled": False, "autoTenantCreation": False, "autoTenantActivation": False},
    "replicationConfig": {"factor": 1, "asyncEnabled": False, "deletionStrategy": "TimeBasedResolution"},
    "shardingConfig": {"virtualPerPhysical": 128, "desiredCount": 1, "actualCount": 1, "desiredVirtualCount": 128,
                       "actualVirtualCount": 128, "key": "_id", "strategy": "hash", "function": "murmur3"},
}  # fmt: skip


class WeaviateServer(StandIn):
    """`grpc_failures` are the statuses with which the next gRPC calls fail, None for one that does not."""

    def __init__(self, version: str = "1.33.0", api_key: str = "") -> None:
        super().__init__()
        self.version, self.api_key = version, api_key
        self.classes: dict[str, WeaviateClass] = {}
        self.grpc_failures: deque[grpc.StatusCode | None] = deque()
        self.grpc_seen: list[tuple[str, Any]] = []
        self.turn = threading.RLock()

    def __enter__(self) -> Self:
        self._grpc = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        weaviate_pb2_grpc.add_WeaviateServicer_to_server(_Servicer(self), self._grpc)
        self.grpc_url = f"http://127.0.0.1:{self._grpc.add_insecure_port('127.0.0.1:0')}"
        self._grpc.start()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._grpc.stop(None)

    def respond(self, seen: Seen) -> tuple[int, bytes]:
        try:
            with self.turn:
                answer = self._answer(seen)
        except Refusal as error:
            return error.status, json.dumps({"error": [{"message": str(error)}]}).encode()
        return 200, json.dumps(answer).encode()

    def _answer(self, seen: Seen) -> Any:
        if seen.path == "/v1/.well-known/ready":
            return None
        if self.api_key and seen.headers.get("authorization") != f"Bearer {self.api_key}":
            raise Refusal(401, "anonymous access not enabled, please provide an auth scheme such as an API key")
        if seen.path == "/v1/meta":
            return {"hostname": "http://[::]:8080", "modules": {}, "version": self.version,
                    "grpcMaxMessageSize": 104858000}  # fmt: skip
        if (seen.method, seen.path) == ("POST", "/v1/schema"):
            return self._create(seen.body)
        name = seen.path.removeprefix("/v1/schema/")
        if name not in self.classes:
            raise Refusal(404 if seen.method == "GET" else 400, f"could not find class {name}")
        return self.classes.pop(name).schema if seen.method == "DELETE" else self.classes[name].schema

    def _create(self, schema: Any) -> Any:
        if schema["class"].lower() in {name.lower() for name in self.classes}:
            raise Refusal(422, f"class name {schema['class']} already exists")
        schema = {**deepcopy(_DEFAULTS), **schema}
        schema["invertedIndexConfig"] = {"cleanupIntervalSeconds": 60, **schema["invertedIndexConfig"]}
        schema["invertedIndexConfig"]["stopwords"] |= {"additions": None, "removals": None}
        for vector in schema["vectorConfig"].values():
            vector["vectorIndexConfig"] = {**_HNSW, **vector["vectorIndexConfig"]}
        self.classes[schema["class"]] = WeaviateClass(schema)
        return schema


class _Servicer(weaviate_pb2_grpc.WeaviateServicer):
    def __init__(self, server: WeaviateServer) -> None:
        self._server = server

    def Search(self, request: Any, context: Any) -> Any:
        return self._run(self._search, request, context)

    def BatchObjects(self, request: Any, context: Any) -> Any:
        return self._run(self._batch_objects, request, context)

    def BatchDelete(self, request: Any, context: Any) -> Any:
        return self._run(self._batch_delete, request, context)

    def Aggregate(self, request: Any, context: Any) -> Any:
        return self._run(self._aggregate, request, context)

    def _run(self, call: Any, request: Any, context: Any) -> Any:
        server = self._server
        server.grpc_seen.append((call.__name__.strip("_"), request))
        server.before(Seen("GRPC", call.__name__.strip("_"), dict(context.invocation_metadata()), request))
        if server.api_key and dict(context.invocation_metadata()).get("authorization") != f"Bearer {server.api_key}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "unauthorized: invalid api key")
        failure = server.grpc_failures.popleft() if server.grpc_failures else None
        if failure is not None:
            context.abort(failure, "told to fail")
        try:
            with server.turn:
                return call(request)
        except Exception as error:  # noqa: BLE001  # whatever the engine refuses
            context.abort(grpc.StatusCode.UNKNOWN, str(error)[:300])

    def _class(self, name: str) -> WeaviateClass:
        if name not in self._server.classes:
            raise ValueError(f"could not find class {name} in schema")
        return self._server.classes[name]

    def _search(self, request: Any) -> Any:
        of, limit = self._class(request.collection), request.limit
        filters = request.filters if request.HasField("filters") else None
        if limit > MAXIMUM_RESULTS:
            raise ValueError("query maximum results exceeded")
        if request.HasField("near_vector"):
            ((name,), (vector,)) = request.near_vector.targets.target_vectors, request.near_vector.vectors
            wanted = np.frombuffer(vector.vector_bytes, "<f4")
            found = [(one, {"distance": d}) for one, d in of.near(name, wanted, filters, limit)]
        elif request.HasField("bm25_search"):
            (name,) = request.bm25_search.properties
            found = [(one, {"score": s}) for one, s in of.bm25(request.bm25_search.query, name, filters, limit)]
        else:
            found = [(one, {}) for one in list(sorted_by(of.matching(filters), request.sort_by))[:limit]]
        return search_get_pb2.SearchReply(results=[_result(of, request, one, scores) for one, scores in found])

    def _batch_objects(self, request: Any) -> Any:
        errors = []
        for index, given in enumerate(request.objects):
            try:
                self._class(given.collection).put(_stored(given))
            except Exception as error:  # noqa: BLE001
                errors.append(batch_pb2.BatchObjectsReply.BatchError(index=index, error=str(error)))
        return batch_pb2.BatchObjectsReply(errors=errors)

    def _batch_delete(self, request: Any) -> Any:
        of = self._class(request.collection)
        found = of.matching(request.filters)[:MAXIMUM_RESULTS]
        for one in found:
            del of.objects[one.id]
        return batch_delete_pb2.BatchDeleteReply(matches=len(found), successful=len(found))

    def _aggregate(self, request: Any) -> Any:
        found = self._class(request.collection).matching(request.filters if request.HasField("filters") else None)
        reply = aggregate_pb2.AggregateReply
        if not request.HasField("group_by"):
            results = [_sum(found, one) for one in request.aggregations]
            single = reply.Single(objects_count=len(found), aggregations=reply.Aggregations(aggregations=results))
            return reply(single_result=single)
        name, groups = request.group_by.property, dict[str, int]()
        for one in found:
            groups[one.properties[name]] = groups.get(one.properties[name], 0) + 1
        grouped = [
            reply.Group(objects_count=count, grouped_by=reply.Group.GroupedBy(path=[name], text=value))
            for value, count in list(groups.items())[: request.limit]
        ]
        return reply(grouped_results=reply.Grouped(groups=grouped))


def _sum(found: Iterable[Stored], wanted: Any) -> Any:
    assert wanted.int.sum
    part = aggregate_pb2.AggregateReply.Aggregations.Aggregation
    total = sum(int(one.properties.get(wanted.property) or 0) for one in found)
    return part(property=wanted.property, int=part.Integer(sum=total))


def _stored(given: Any) -> Stored:
    sent = given.properties
    properties = MessageToDict(sent.non_ref_properties)
    properties |= {one.prop_name: list(one.values) for one in sent.text_array_properties}
    properties |= {name: [] for name in sent.empty_list_props}
    vectors = {one.name: np.frombuffer(one.vector_bytes, "<f4") for one in given.vectors}
    return Stored(str(UUID(given.uuid)), properties, vectors)


def _result(of: WeaviateClass, request: Any, one: Stored, scores: dict[str, float]) -> Any:
    wanted = request.properties
    every = wanted.return_all_nonref_properties or not request.HasField("properties")
    names = of.properties if every else wanted.non_ref_properties
    values = {name: _value(of, name, one.properties[name]) for name in names if one.properties.get(name) is not None}
    metadata = {"id": one.id, "id_as_bytes": UUID(one.id).bytes, **scores}
    metadata |= {f"{name}_present": True for name in scores if getattr(request.metadata, name)}
    properties = search_get_pb2.PropertiesResult(non_ref_props=properties_pb2.Properties(fields=values))
    return search_get_pb2.SearchResult(properties=properties, metadata=search_get_pb2.MetadataResult(**metadata))


def _value(of: WeaviateClass, name: str, value: Any) -> Any:
    kind = of.properties[name]["dataType"][0]
    if kind == "int":
        return properties_pb2.Value(int_value=int(value))
    if kind == "date":
        return properties_pb2.Value(date_value=value)
    if kind == "text[]":
        return properties_pb2.Value(list_value={"text_values": {"values": value}})
    return properties_pb2.Value(text_value=value)


@contextmanager
def weaviate() -> Iterator[Callable[[], WeaviateConnection]]:
    """Yield what connects to the server of ``KIWI_TEST_WEAVIATE_URL``, or to a stand-in that asks for a key."""
    if url := os.environ.get("KIWI_TEST_WEAVIATE_URL"):
        key, grpc_url = (os.environ.get(f"KIWI_TEST_WEAVIATE_{name}", "") for name in ("API_KEY", "GRPC_URL"))
        yield lambda: WeaviateConnection(url, key, grpc_url=grpc_url)
        return
    with WeaviateServer(api_key=API_KEY) as server:
        yield lambda: WeaviateConnection(server.url, API_KEY, grpc_url=server.grpc_url)
