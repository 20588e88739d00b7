"""Calls to a Qdrant server by URL, or a folder that qdrant-client keeps by itself; errors become Kiwi's here.

`qdrant_client.AsyncQdrantClient` and not the blocking one in worker threads: a search that has reached its tier's
deadline is cancelled with its requests, and local mode, which is not safe for threads, stays on one.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from pydantic import BaseModel
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from kiwi_rag.consent import is_loopback
from kiwi_rag.endpoint import quoted, trusted_certificates
from kiwi_rag.errors import StoreBusy, StoreCorrupt, StoreError, StoreFull
from kiwi_rag.retry import READING, WRITING
from kiwi_rag.storage.sqlite import is_disk_full
from kiwi_rag.stores import server
from kiwi_rag.stores.payload import SCHEMA, Point
from kiwi_rag.stores.qdrant_payload import DENSE, WORDS, equals, points_of

MEMORY = ":memory:"
MIN_SERVER = (1, 16)
"""Conditional updates and a collection's own metadata came with Qdrant 1.16; without the first, writers would race."""
PARTITION = "partition"
_KEYWORDS = (
    "kind", "generation", "item_type", "item_id", "folders", "namespace", "category", "author", "tags", "principal",
    "key_id", "file_type", "service", "domain", "terms",
)  # fmt: skip
INDEXES: Mapping[str, str] = {
    **dict.fromkeys(_KEYWORDS, "keyword"),
    **dict.fromkeys(("turn", "length", "of"), "integer"),
    **dict.fromkeys(("signed_at", "at"), "datetime"),
}
"""Payload key → type of its index; every key that is filtered, counted or ordered by has one."""
_ANSWER_SECONDS = 30
_MAX_FACETS = 100_000
_PAGE = 500
_QDRANT = server.ServerProduct("Qdrant", "KIWI_QDRANT_URL", "KIWI_QDRANT_API_KEY", "https://<host>:6333")


class QdrantConnection(server.ServerConnection[AsyncQdrantClient]):
    """The connection to Qdrant, opened at its first use; several stores may share one.

    Parameters
    ----------
    location
        ``https://host:6333``, a folder for local mode, or ``:memory:``.
    api_key
        The server's key; only sent over TLS, or to this machine.
    seconds
        How long one request may take.

    Raises
    ------
    ConfigError
        When the location is no URL that a key may be sent to.
    """

    def __init__(self, location: str, api_key: str = "", *, seconds: int = _ANSWER_SECONDS) -> None:
        self.local = not location.startswith(("http:", "https:"))
        self._location = str(Path(location).expanduser()) if self.local else location
        if not self.local:
            _QDRANT.check_url(location, api_key)
        self._key = _QDRANT.check_key(api_key)
        self._seconds = seconds
        super().__init__()

    async def call(self, method: str, *arguments: Any, pauses: Sequence[float] = READING, **options: Any) -> Any:
        """Return what a method of the client returns; see `attempt`."""
        return await self.attempt(lambda client: getattr(client, method)(*arguments, **options), pauses)

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Translate what qdrant-client raises inside the block, which must hold only calls of it.

        Raises
        ------
        StoreUnreachable
            When no server answers, or none in time; ``transient`` says that it may in a moment.
        StoreRefused
            When the server does not accept the key.
        StoreFull
            When the disk is full.
        StoreError
            When the server rejects the call, or what answers is not a Qdrant server.
        """
        try:
            yield
        except UnexpectedResponse as error:
            raise _of_response(error, self._key) from None  # the cause quotes the whole answer
        except ResponseHandlingException as error:
            raise _of_transport(error, self._key) from None
        except QdrantException as error:  # 429 with a time to wait
            raise _QDRANT.unreachable(f"has too much to do: {quoted(str(error), self._key)}") from None
        except (OSError, sqlite3.Error) as error:
            if is_disk_full(error):
                raise StoreFull(hint="free some space and run it again") from error
            raise StoreError(f"Qdrant's folder cannot be used: {quoted(str(error))}") from error
        except json.JSONDecodeError:
            raise _QDRANT.unknown() from None
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
            # Local mode raises these where a server would reject the call; parsing another server's answer does too.
            raise StoreError(f"Qdrant failed: {quoted(str(error), self._key) or type(error).__name__}") from None

    async def _connect(self) -> AsyncQdrantClient:
        if self._location == MEMORY:
            return AsyncQdrantClient(MEMORY)
        if self.local:
            try:
                return AsyncQdrantClient(path=self._location)
            except RuntimeError as error:  # the folder is locked
                hint = "only one process at a time may open the folder; a server lets several in: KIWI_QDRANT_URL"
                raise StoreBusy("another process has this folder of Qdrant's open", hint=hint) from error
        # The key goes as the header that it is: as `api_key` the client would warn of http on this machine.
        headers = {"api-key": self._key} if self._key else None
        options: dict[str, Any] = {"timeout": self._seconds, "verify": trusted_certificates()}
        # A proxy would get what needs no consent.
        options["trust_env"] = not is_loopback(httpx.URL(self._location).host)
        return AsyncQdrantClient(url=self._location, headers=headers, check_compatibility=False, **options)

    async def _check(self, client: AsyncQdrantClient) -> None:
        if not self.local:
            self.version = quoted(str((await client.info()).version), self._key)
            _QDRANT.check_version(self.version, MIN_SERVER, "for conditional updates")


class QdrantCollection(server.ServerCollection[QdrantConnection]):
    """A collection, or one of several partitions of it.

    With a `partition` every request is limited to its points: all data passes through the methods of this class.
    """

    of = staticmethod(points_of)

    def __init__(self, connection: QdrantConnection, name: str, partition: str = "") -> None:
        self.connection = connection
        self.name, self.label, self.partition = name, f"collection {name!r}", partition
        self.is_local = connection.local
        self._indexes = {**INDEXES, **({PARTITION: "keyword"} if partition else {})}

    async def ensure_created(self, fingerprint: str, dimension: int) -> server.CollectionModel:
        """Create the collection and its indexes where they are missing; `FingerprintMismatch` if its model differs."""
        model = await super().ensure_created(fingerprint, dimension)
        for key in model.missing_indexes:
            schema: Any = models.PayloadSchemaType(self._indexes[key])
            if key == PARTITION:  # its points are stored together
                schema = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
            await self._call("create_payload_index", key, schema, wait=True)
        return model

    async def _check_exists(self, pauses: Sequence[float]) -> bool:
        return bool(await self._call("collection_exists", pauses=pauses))

    async def _create(self, fingerprint: str, dimension: int) -> None:
        # Qdrant's IDF is that of the whole collection; one that holds partitions gets each one's own with the query.
        modifier = None if self.partition else models.Modifier.IDF
        await self._call(
            "create_collection",
            vectors_config={DENSE: models.VectorParams(size=dimension, distance=models.Distance.COSINE)},
            sparse_vectors_config={WORDS: models.SparseVectorParams(modifier=modifier)},
            metadata={"kiwi": {"schema": SCHEMA, "fingerprint": fingerprint, "partitions": bool(self.partition)}},
        )

    async def _drop(self) -> None:
        if self.partition:
            await self.update(models.DeleteOperation(delete=models.FilterSelector(filter=models.Filter())))
        else:
            await self._call("delete_collection")

    async def retrieve(self, ids: Sequence[str]) -> Sequence[Point]:
        """Return the points of some ids that exist."""
        found = await self._call("retrieve", ids, with_payload=True) if ids else []
        return [point for point in map(_point, found) if point.payload.get(PARTITION, "") == self.partition]

    async def search(self, requests: Sequence[models.QueryRequest]) -> Sequence[Sequence[Point]]:
        """Return what each of the requests finds, best first."""
        legs = await self._call("query_batch_points", list(requests))
        if len(legs) != len(requests):
            raise StoreError(f"Qdrant answered {len(legs)} of {len(requests)} queries")
        return [list(map(_point, leg.points)) for leg in legs]

    async def scroll(self, condition: models.Filter, fields: bool | Sequence[str]) -> Sequence[Point]:
        """Return all points that match, page by page, with all or some fields of their payloads."""
        found: list[Point] = []
        offset: Any = None
        while True:
            page, following = await self._call("scroll", condition, _PAGE, offset=offset, with_payload=fields)
            found += map(_point, page)
            if following is None or following == offset or not page:
                return found
            offset = following

    async def count(self, condition: models.Filter) -> int:
        """Return how many points match, exactly."""
        return int((await self._call("count", condition, exact=True)).count)

    async def facet(self, key: str, condition: models.Filter, limit: int = _MAX_FACETS) -> Mapping[Any, int]:
        """Return the most frequent values of a field among the points that match, with how many have each."""
        facet = await self._call("facet", key, condition, limit, exact=True)
        return {hit.value: hit.count for hit in facet.hits}

    async def sum(self, key: str, condition: models.Filter) -> tuple[int, int]:
        """Return how many of the points that match have a number, and the sum of the numbers."""
        found = (await self.facet(key, condition)).items()
        counts = {value: count for value, count in found if isinstance(value, int)}
        if any(value < 0 or count < 0 for value, count in counts.items()):
            raise StoreCorrupt("Qdrant returned a negative count", hint="did another program write to this collection?")
        return sum(counts.values()), sum(value * count for value, count in counts.items())

    async def update(self, *operations: models.UpdateOperation) -> None:
        """Apply operations in their order; every one of them may be applied twice, should an answer be lost."""
        strong = models.WriteOrdering.STRONG
        await self._call("batch_update_points", list(operations), wait=True, ordering=strong, pauses=WRITING)

    async def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Return what a method of the client returns for this collection, or partition; see `QdrantConnection.call`."""
        scoped = map(self._scoped, arguments) if self.partition else arguments
        return await self.connection.call(method, self.name, *scoped, **options)

    def _scoped(self, value: Any) -> Any:
        """Limit conditions, and whatever holds one, to the partition; points that are added belong to it."""
        if isinstance(value, models.Filter):
            return models.Filter(must=[equals(PARTITION, self.partition), value])
        if isinstance(value, models.PointStruct):
            return value.model_copy(update={"payload": {**(value.payload or {}), PARTITION: self.partition}})
        if isinstance(value, BaseModel):
            return value.model_copy(update={name: self._scoped(part) for name, part in value})
        return [self._scoped(one) for one in value] if isinstance(value, list) else value

    async def _read_model(self) -> server.CollectionModel:
        info = await self._call("get_collection")
        ours = (info.config.metadata or {}).get("kiwi")
        dense = info.config.params.vectors
        params = dense.get(DENSE) if isinstance(dense, Mapping) else None
        if not isinstance(ours, Mapping) or params is None or not isinstance(ours.get("fingerprint"), str):
            raise StoreCorrupt(f"Kiwi did not make the collection {self.name!r}", hint=server.OTHER_NAME)
        if bool(ours.get("partitions")) != bool(self.partition):
            kind = "one index alone" if self.partition else "the partitions of KIWI_QDRANT_COLLECTION"
            raise StoreCorrupt(f"the collection {self.name!r} holds {kind}", hint="name another one")
        if ours.get("schema") != SCHEMA:
            raise StoreCorrupt(f"another version of Kiwi made the collection {self.name!r}", hint=server.OTHER_NAME)
        # Local mode compares every point and has no indexes.
        missing = () if self.is_local else tuple(key for key in self._indexes if key not in info.payload_schema)
        problems = [f"payload indexes are missing: {', '.join(missing)}"] if missing else []
        if (state := str(info.status.value)) in {"red", "grey"}:
            problems.append(f"Qdrant reports the collection as {state}")
        plan = "hnsw" if info.indexed_vectors_count else "exact"
        return server.CollectionModel(ours["fingerprint"], params.size, plan, missing, tuple(problems))


def _point(found: Any) -> Point:
    return Point(str(found.id), found.payload or {}, float(getattr(found, "score", math.nan)))


def _of_response(error: UnexpectedResponse, secret: str) -> StoreError:
    reason = error.reason_phrase
    with suppress(ValueError, LookupError, TypeError):
        reason = str(error.structured()["status"]["error"])
    return _QDRANT.of_status(error.status_code or 0, f"HTTP {error.status_code}, {quoted(reason, secret)}")


def _of_transport(error: ResponseHandlingException, secret: str) -> StoreError:
    if not isinstance(error.source, httpx.TransportError):
        return _QDRANT.unknown()
    late = isinstance(error.source, httpx.TimeoutException)
    reason = quoted(str(error.source), secret) or type(error.source).__name__
    return _QDRANT.unreachable(f"{'took too long to answer' if late else 'cannot be reached'}: {reason}")
