"""Calls to a Qdrant server by URL, or a folder that qdrant-client keeps by itself; errors become Kiwi's here.

`qdrant_client.AsyncQdrantClient` and not the blocking one in worker threads: a search that has reached its tier's
deadline is cancelled with its requests, and local mode, which is not safe for threads, stays on one.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from kiwi_rag.embedding.endpoint import httpx_certificates
from kiwi_rag.errors import (
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnreachable,
)
from kiwi_rag.retry import READING, WRITING, attempts
from kiwi_rag.storage.sqlite import is_disk_full
from kiwi_rag.stores.base import require_model
from kiwi_rag.stores.payload import SCHEMA
from kiwi_rag.stores.server import check_key, check_url, quoted

MEMORY = ":memory:"
MIN_SERVER = (1, 16)
"""Conditional updates and a collection's own metadata came with Qdrant 1.16; without the first, writers would race."""
DENSE = "dense"
WORDS = "words"
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
_OTHER_NAME = "index it under another workspace's name, which is another collection: KIWI_WORKSPACE_NAME"
_ANSWER_SECONDS = 30
_MAX_FACETS = 100_000
_PAGE = 500
_VERSION = re.compile(r"v?(\d+)\.(\d+)")
# A server that asks for patience, or a gateway that does not reach one. 52x are Cloudflare's.
_PASSING = frozenset({408, 425, 429, 502, 503, 504, *range(520, 531)})
_UNREACHABLE = "is the server running? check KIWI_QDRANT_URL"
_KEY = "check KIWI_QDRANT_API_KEY, and what it may do: writing needs a key that may write"
_NO_ANSWER = "what answered is not a Qdrant server"
_NOT_QDRANT = "check KIWI_QDRANT_URL: a Qdrant server's REST port is 6333 unless it was set otherwise"


@dataclass(frozen=True, slots=True)
class CollectionModel:
    """What a collection's configuration says: its embedding model, size and state."""

    fingerprint: str
    dimension: int
    indexed: int
    state: str
    missing_indexes: tuple[str, ...]

    def require(self, fingerprint: str, dimension: int) -> None:
        """Return if vectors of this model belong here, otherwise raise `FingerprintMismatch`."""
        require_model((self.fingerprint, self.dimension), (fingerprint, dimension), _OTHER_NAME)


class QdrantConnection:
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
            check_url("KIWI_QDRANT_URL", location, api_key, "https://<host>:6333")
        self._key = check_key("KIWI_QDRANT_API_KEY", api_key)
        self._seconds = seconds
        self._client: AsyncQdrantClient | None = None
        self._opening = asyncio.Lock()
        self.version = ""

    async def call(self, method: str, *arguments: Any, pauses: Sequence[float] = READING, **options: Any) -> Any:
        """Return what a method of the client returns, retried where another attempt may succeed in a moment.

        It must be safe to run twice: an answer may be lost after the server did the work.

        Raises
        ------
        StoreError
            As `translate_errors` raises it.
        """
        for attempt in attempts(pauses):
            async with attempt:
                with translate_errors(self._key):
                    return await getattr(await self._opened(), method)(*arguments, **options)
        raise StoreError("no attempt was made")

    async def close(self) -> None:
        """Close the client; the next use opens another."""
        client, self._client = self._client, None
        if client is not None:
            with translate_errors(self._key):
                await client.close()

    async def _opened(self) -> AsyncQdrantClient:
        async with self._opening:
            if self._client is None:
                client = self._new_client()
                try:
                    await self._check_version(client)
                except BaseException:
                    await client.close()
                    raise
                self._client = client
            return self._client

    def _new_client(self) -> AsyncQdrantClient:
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
        return AsyncQdrantClient(
            url=self._location,
            headers=headers,
            timeout=self._seconds,
            check_compatibility=False,
            verify=httpx_certificates(),
        )

    async def _check_version(self, client: AsyncQdrantClient) -> None:
        if self.local:
            return
        self.version = quoted(str((await client.info()).version), self._key)
        found = _VERSION.match(self.version)
        if found is None:
            raise StoreError(_NO_ANSWER, hint="check KIWI_QDRANT_URL")
        if (int(found[1]), int(found[2])) < MIN_SERVER:
            needed = ".".join(map(str, MIN_SERVER))
            message = f"the Qdrant server is {self.version}, and Kiwi needs {needed} or newer, for conditional updates"
            raise StoreError(message, hint="upgrade the server, one minor version at a time")


class QdrantCollection:
    """A collection by its name, which need not exist yet, or one of several partitions of it.

    With a `partition` every request is limited to its points: all data passes through the methods of this class.
    """

    def __init__(self, connection: QdrantConnection, name: str, partition: str = "") -> None:
        self.connection = connection
        self.name = name
        self.partition = partition
        self._indexes = {**INDEXES, **({PARTITION: "keyword"} if partition else {})}
        self._exists = False

    async def model(self) -> CollectionModel | None:
        """Return what the collection's configuration says; None when there is no collection of this name.

        Raises
        ------
        StoreCorrupt
            When Kiwi did not make it, or another version did, or it holds partitions and this object names none.
        """
        self._exists = self._exists or await self._call("collection_exists")
        if not self._exists:
            return None
        try:
            return self._read(await self._call("get_collection"))
        except StoreError:
            self._exists = False  # it may have been dropped: the next use checks again
            raise

    async def create(self, fingerprint: str, dimension: int) -> None:
        """Create the collection and its indexes where they are missing; `FingerprintMismatch` if its model differs."""
        model = await self.model()
        if model is None:
            await self._create(fingerprint, dimension)
            model = await self.model()
        if model is None:
            raise StoreError(f"Qdrant has no collection {self.name!r}, though it was created just now")
        model.require(fingerprint, dimension)
        for key in model.missing_indexes:
            schema: Any = models.PayloadSchemaType(self._indexes[key])
            if key == PARTITION:  # its points are stored together
                schema = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
            await self._call("create_payload_index", key, schema, wait=True)

    async def clear(self) -> None:
        """Delete the collection; of one that holds partitions, the points of this one."""
        if await self.model() is None:
            return
        if self.partition:
            await self.update(models.DeleteOperation(delete=models.FilterSelector(filter=self._scoped(None))))
        else:
            await self._call("delete_collection")
            self._exists = False

    async def _create(self, fingerprint: str, dimension: int) -> None:
        # Qdrant's IDF is that of the whole collection; one that holds partitions gets each one's own with the query.
        modifier = None if self.partition else models.Modifier.IDF
        try:
            await self._call(
                "create_collection",
                vectors_config={DENSE: models.VectorParams(size=dimension, distance=models.Distance.COSINE)},
                sparse_vectors_config={WORDS: models.SparseVectorParams(modifier=modifier)},
                metadata={"kiwi": {"schema": SCHEMA, "fingerprint": fingerprint, "partitions": bool(self.partition)}},
            )
        except StoreError:  # another writer may have created it between the check and the call
            if not await self._call("collection_exists"):
                raise

    async def retrieve(self, ids: Sequence[str]) -> Sequence[models.Record]:
        """Return the points of some ids that exist."""
        found = await self._call("retrieve", ids, with_payload=True) if ids else []
        return [point for point in found if (point.payload or {}).get(PARTITION, "") == self.partition]

    async def search(self, requests: Sequence[models.QueryRequest]) -> Sequence[Sequence[models.ScoredPoint]]:
        """Return what each of the requests finds, best first."""
        scoped = [one.model_copy(update={"filter": self._scoped(one.filter)}) for one in requests]
        legs = await self._call("query_batch_points", scoped)
        if len(legs) != len(requests):
            raise StoreError(f"Qdrant answered {len(legs)} of {len(requests)} queries")
        return [leg.points for leg in legs]

    async def scroll(self, condition: models.Filter, fields: bool | Sequence[str]) -> list[models.Record]:
        """Return all points that match, page by page, with all or some fields of their payloads."""
        found: list[models.Record] = []
        offset: Any = None
        condition = self._scoped(condition)
        while True:
            page, following = await self._call("scroll", condition, _PAGE, offset=offset, with_payload=fields)
            found += page
            if following is None or following == offset or not page:
                return found
            offset = following

    async def count(self, condition: models.Filter) -> int:
        """Return how many points match, exactly."""
        return int((await self._call("count", self._scoped(condition), exact=True)).count)

    async def facet(self, key: str, condition: models.Filter, limit: int = _MAX_FACETS) -> Mapping[Any, int]:
        """Return the most frequent values of a field among the points that match, with how many have each."""
        facet = await self._call("facet", key, self._scoped(condition), limit, exact=True)
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
        strong, scoped = models.WriteOrdering.STRONG, [self._scoped_operation(one) for one in operations]
        await self._call("batch_update_points", scoped, wait=True, ordering=strong, pauses=WRITING)

    async def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Return what a method of the client returns for this collection; see `QdrantConnection.call`."""
        return await self.connection.call(method, self.name, *arguments, **options)

    def _scoped(self, condition: Any) -> Any:
        if not self.partition:
            return condition
        return models.Filter(must=[equals(PARTITION, self.partition), *([condition] if condition is not None else [])])

    def _scoped_operation(self, operation: Any) -> Any:
        """Limit an operation to the partition: what it changes, and what it adds."""
        if not self.partition:
            return operation
        if isinstance(operation, models.UpsertOperation):
            added: Any = operation.upsert
            own = [
                p.model_copy(update={"payload": {**(p.payload or {}), PARTITION: self.partition}}) for p in added.points
            ]
            changes = {"points": own, "update_filter": self._scoped(added.update_filter)}
            return models.UpsertOperation(upsert=added.model_copy(update=changes))
        name, selector = next(iter(operation))  # of a condition: set_payload, delete
        scoped = selector.model_copy(update={"filter": self._scoped(selector.filter)})
        return operation.model_copy(update={name: scoped})

    def _read(self, info: models.CollectionInfo) -> CollectionModel:
        ours = (info.config.metadata or {}).get("kiwi")
        dense = info.config.params.vectors
        params = dense.get(DENSE) if isinstance(dense, Mapping) else None
        if not isinstance(ours, Mapping) or params is None or not isinstance(ours.get("fingerprint"), str):
            raise StoreCorrupt(f"Kiwi did not make the collection {self.name!r}", hint=_OTHER_NAME)
        if bool(ours.get("partitions")) != bool(self.partition):
            kind = "one index alone" if self.partition else "the partitions of KIWI_QDRANT_COLLECTION"
            raise StoreCorrupt(f"the collection {self.name!r} holds {kind}", hint="name another one")
        if ours.get("schema") != SCHEMA:
            raise StoreCorrupt(f"another version of Kiwi made the collection {self.name!r}", hint=_OTHER_NAME)
        # Local mode compares every point and has no indexes.
        missing = () if self.connection.local else tuple(key for key in self._indexes if key not in info.payload_schema)
        indexed, state = info.indexed_vectors_count or 0, str(info.status.value)
        return CollectionModel(ours["fingerprint"], params.size, indexed, state, missing)


def equals(key: str, value: str | int) -> models.FieldCondition:
    """Return the condition that a field has a value, or that a list of values contains it."""
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


@contextmanager
def translate_errors(secret: str = "") -> Iterator[None]:
    """Translate what qdrant-client raises inside the block, which must hold only calls of it.

    Parameters
    ----------
    secret
        The API key, removed from messages in case a server echoes it.

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
        raise _of_response(error, secret) from None  # the cause quotes the whole answer
    except ResponseHandlingException as error:
        raise _of_transport(error, secret) from None
    except QdrantException as error:  # 429 with a time to wait
        raise StoreUnreachable(f"Qdrant has too much to do: {quoted(str(error), secret)}", transient=True) from None
    except (OSError, sqlite3.Error) as error:
        if is_disk_full(error):
            raise StoreFull(hint="free some space and run it again") from error
        raise StoreError(f"Qdrant's folder cannot be used: {quoted(str(error))}") from error
    except json.JSONDecodeError:
        raise StoreError(_NO_ANSWER, hint=_NOT_QDRANT) from None
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
        # Local mode raises these where a server would reject the call; parsing another server's answer does too.
        raise StoreError(f"Qdrant failed: {quoted(str(error), secret) or type(error).__name__}") from None


def _of_response(error: UnexpectedResponse, secret: str) -> StoreError:
    status, reason = error.status_code or 0, error.reason_phrase
    with suppress(ValueError, LookupError, TypeError):
        reason = str(error.structured()["status"]["error"])
    said = f"HTTP {status}, {quoted(reason, secret)}"
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return StoreRefused(f"Qdrant did not accept the key: {said}", hint=_KEY)
    if status == HTTPStatus.INSUFFICIENT_STORAGE:
        return StoreFull(f"the disk of the Qdrant server is full: {said}", hint="its operator has to make room")
    if status in _PASSING:
        return StoreUnreachable(f"Qdrant cannot be reached: {said}", hint=_UNREACHABLE, transient=True)
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        message = "the server answered with a redirect, which is not followed because it would get the key"
        return StoreError(message, hint="set KIWI_QDRANT_URL to its target, if that is your server")
    return StoreError(f"Qdrant rejected the call: {said}", hint=_NOT_QDRANT if status == HTTPStatus.NOT_FOUND else "")


def _of_transport(error: ResponseHandlingException, secret: str) -> StoreError:
    if not isinstance(error.source, httpx.TransportError):
        return StoreError(_NO_ANSWER, hint=_NOT_QDRANT)
    late = isinstance(error.source, httpx.TimeoutException)
    reason = quoted(str(error.source), secret) or type(error.source).__name__
    what = "took too long to answer" if late else "cannot be reached"
    return StoreUnreachable(f"Qdrant {what}: {reason}", hint=_UNREACHABLE, transient=True)
