"""One collection, spoken to in the few calls that the store needs. Every one of them goes through the door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kiwi_rag.errors import FingerprintMismatch, StoreCorrupt, StoreError
from kiwi_rag.retry import WRITING
from kiwi_rag.stores.qdrant import layout

if TYPE_CHECKING:
    from qdrant_client import AsyncQdrantClient, models

    from kiwi_rag.stores.qdrant.connection import Connection

_PAGE = 500
MAX_FACETS = 100_000
_OTHER_NAME = "index it under another workspace's name, which is another collection: KIWI_WORKSPACE_NAME"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a collection says of itself. ``fingerprint`` and ``dimension`` are those of its one model."""

    fingerprint: str
    dimension: int
    indexed: int
    state: str
    missing_indexes: tuple[str, ...]

    def require_model(self, fingerprint: str, dimension: int) -> None:
        """Return if vectors of this model belong here.

        Raises
        ------
        FingerprintMismatch
            When they do not.
        """
        if (self.fingerprint, self.dimension) != (fingerprint, dimension):
            told = f"the collection holds vectors of {self.fingerprint}, not of {fingerprint}"
            raise FingerprintMismatch(told, hint=_OTHER_NAME)


class Collection:
    """A collection by name; it need not exist yet."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection = connection
        self.name = name
        self._seen = False

    async def facts(self) -> Facts | None:
        """Return what the collection says of itself; None when there is none of this name.

        Raises
        ------
        StoreCorrupt
            When Kiwi did not make it, or a newer one did.
        """
        if not self._seen:
            self._seen = await self.connection.ask(lambda client: client.collection_exists(self.name))
        if not self._seen:
            return None
        try:
            info = await self.connection.ask(lambda client: client.get_collection(self.name))
        except StoreError:
            self._seen = False  # it may have been dropped since: the next use asks anew
            raise
        return _facts(info, self.name, self.connection.local)

    async def create(self, fingerprint: str, dimension: int) -> Facts:
        """Make the collection and its indexes, where it is not there yet, or not whole; return its facts."""
        found = await self.facts()
        if found is None:
            await self._make(fingerprint, dimension)
            found = await self.facts()
        if found is None:
            raise StoreError(f"Qdrant has no collection {self.name!r}, though it has just been made")
        await self._make_indexes(found.missing_indexes)
        return found

    async def retrieve(self, ids: Sequence[str], fields: Sequence[str] | bool = True) -> list[models.Record]:
        """Return the points with these ids that are there, with some fields of their payloads, or all."""
        if not ids:
            return []
        wanted = _selected(fields)
        return await self.connection.ask(lambda client: client.retrieve(self.name, list(ids), with_payload=wanted))

    async def scroll(self, condition: models.Filter, fields: Sequence[str] | bool = True) -> list[models.Record]:
        """Return all points that match, page by page."""
        found: list[models.Record] = []
        offset: Any = None
        while True:
            page, following = await self._page(condition, fields, offset)
            found += page
            if following is None or following == offset or not page:
                return found
            offset = following

    async def count(self, condition: models.Filter | None) -> int:
        """Return how many points match, exactly."""
        told = await self.connection.ask(lambda client: client.count(self.name, condition, exact=True))
        return told.count

    async def facet(
        self, key: str, condition: models.Filter | None, limit: int = MAX_FACETS
    ) -> list[models.FacetValueHit]:
        """Return a key's values with how many matching points have each, the most frequent first."""
        told = await self.connection.ask(lambda client: client.facet(self.name, key, condition, limit, exact=True))
        return told.hits

    async def query(self, requests: Sequence[models.QueryRequest]) -> list[list[models.ScoredPoint]]:
        """Return what each of some queries finds, best first."""
        if not requests:
            return []
        told = await self.connection.ask(lambda client: client.query_batch_points(self.name, list(requests)))
        if len(told) != len(requests):
            raise StoreError(f"Qdrant answered {len(told)} of {len(requests)} queries")
        return [answer.points for answer in told]

    async def update(self, operations: Sequence[models.UpdateOperation]) -> None:
        """Apply operations in order, each durable before the next; all may be applied twice."""
        from qdrant_client import models

        def call(client: AsyncQdrantClient) -> Any:
            return client.batch_update_points(
                self.name, list(operations), wait=True, ordering=models.WriteOrdering.STRONG
            )

        await self.connection.ask(call, WRITING)

    async def _page(
        self, condition: models.Filter, fields: Sequence[str] | bool, offset: Any
    ) -> tuple[list[models.Record], Any]:
        wanted = _selected(fields)
        return await self.connection.ask(
            lambda client: client.scroll(self.name, condition, _PAGE, offset=offset, with_payload=wanted)
        )

    async def _make(self, fingerprint: str, dimension: int) -> None:
        from qdrant_client import models

        dense = models.VectorParams(size=dimension, distance=models.Distance.COSINE)
        ours = {"schema": layout.SCHEMA, "fingerprint": fingerprint, "reference_length": layout.REFERENCE_LENGTH}

        async def call(client: AsyncQdrantClient) -> None:
            if await client.collection_exists(self.name):
                return
            await client.create_collection(
                self.name,
                vectors_config={layout.DENSE: dense},
                sparse_vectors_config={layout.WORDS: models.SparseVectorParams()},
                metadata={"kiwi": ours},
            )

        try:
            await self.connection.ask(call)
        except StoreError:
            # Another writer may have made it between the question and the call.
            if not await self.connection.ask(lambda client: client.collection_exists(self.name)):
                raise

    async def _make_indexes(self, keys: Sequence[str]) -> None:
        from qdrant_client import models

        for key in keys:
            schema = models.PayloadSchemaType(layout.indexes()[key])
            await self.connection.ask(partial(self._make_index, key, schema))

    async def _make_index(self, key: str, schema: models.PayloadSchemaType, client: AsyncQdrantClient) -> None:
        await client.create_payload_index(self.name, key, schema, wait=True)


def _selected(fields: Sequence[str] | bool) -> bool | list[str]:
    return fields if isinstance(fields, bool) else list(fields)


def _facts(info: models.CollectionInfo, name: str, local: bool) -> Facts:
    ours = (info.config.metadata or {}).get("kiwi")
    dense = info.config.params.vectors
    params = dense.get(layout.DENSE) if isinstance(dense, Mapping) else None
    if not isinstance(ours, Mapping) or params is None or not isinstance(ours.get("fingerprint"), str):
        raise StoreCorrupt(f"Kiwi did not make the collection {name!r}", hint=_OTHER_NAME)
    if (ours.get("schema"), ours.get("reference_length")) != (layout.SCHEMA, layout.REFERENCE_LENGTH):
        raise StoreCorrupt(f"another version of Kiwi made the collection {name!r}", hint="upgrade kiwi-rag")
    # Local mode looks at every point and has no indexes.
    missing = () if local else tuple(key for key in layout.indexes() if key not in info.payload_schema)
    return Facts(ours["fingerprint"], params.size, info.indexed_vectors_count or 0, str(info.status.value), missing)
