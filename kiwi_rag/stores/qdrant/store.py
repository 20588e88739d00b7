"""`QdrantVectorStore`: a Qdrant collection as a `VectorStore`, local or a server's, by the same code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from kiwi_rag.errors import ConfigError
from kiwi_rag.model import Candidates, CollectionStatistics, EmbeddingRecord, Filters, StoredItem, StoreQuery
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.stores.base import Capabilities, StoreStatus, one_admission
from kiwi_rag.stores.qdrant import counting, layout, narrowing, reading, searching, writing
from kiwi_rag.stores.qdrant.collection import Collection, Facts
from kiwi_rag.stores.qdrant.connection import Connection

SETTLE_SECONDS = 120.0
"""A write that began so long ago and never ended was broken off; what it left is swept by the next writer."""
_MAX_NAME = 200
_T = TypeVar("_T")


class QdrantVectorStore:
    """One collection as an index that several machines may write to and search.

    Nothing is contacted before it is first used, and no collection is made by reading. Items are replaced whole, and
    writers of different items never meet (`kiwi_rag.stores.qdrant.writing`). Nothing that a server says is trusted:
    what cannot be read is refused item by item, and every hit is verified by whoever shows it.

    Parameters
    ----------
    connection
        The way to Qdrant; several stores may share one, and each closes it.
    collection
        The collection's name.
    settle_seconds
        See `SETTLE_SECONDS`.

    Raises
    ------
    ConfigError
        When no collection can have this name.
    """

    def __init__(self, connection: Connection, collection: str, *, settle_seconds: float = SETTLE_SECONDS) -> None:
        self._collection = Collection(connection, _checked_name(collection))
        self._settle = settle_seconds
        self._swept: float | None = None

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do: durable, keeps the newest version of an item, true scores."""
        return Capabilities(kind="qdrant", keeps_versions=False, durable=True)

    async def upsert(self, records: Sequence[EmbeddingRecord]) -> None:
        """Store all passages of one admitted item, replacing what the item had; nothing if it is there already.

        Raises
        ------
        NotAdmitted, UsageError, EmbeddingError, FingerprintMismatch
            When the records are not those of one admitted item in this collection's model.
        StoreUnreachable, StoreRefused, StoreError
            When the server does not take them; readers go on finding what was there before.
        """
        admission = one_admission(records)
        fingerprint, dimension = records[0].fingerprint, len(records[0].vector)
        facts = await self._collection.facts()
        if facts is None or facts.missing_indexes:
            facts = await self._collection.create(fingerprint, dimension)
        facts.require_model(fingerprint, dimension)
        await self._sweep()
        await writing.put(self._collection, admission, records)

    async def delete(self, ref: ItemRef) -> bool:
        """Remove an item; its versions stay on record. Return whether it was there."""

        async def remove(_: Facts) -> bool:
            await self._sweep()
            return await writing.remove(self._collection, ref)

        return await self._if_there(remove, False)

    async def get(self, ref: ItemRef) -> StoredItem | None:
        """Return an item, or None when it is not there in that version.

        Raises
        ------
        StoreCorrupt
            When what is there cannot be read.
        """

        async def read(_: Facts) -> StoredItem | None:
            item = layout.item_key(ref)
            heads = await self._collection.retrieve([layout.head_id(item)])
            if not heads or not reading.head(heads[0].payload, item).generation:
                return None
            stored = reading.stored_item(heads[0].payload)
            return stored if ref.version in (None, stored.ref.version) else None

        return await self._if_there(read, None)

    async def list(self, filters: Filters) -> Sequence[StoredItem]:
        """Return the items that match, ordered by type and id; one that cannot be read says so as its ``problem``."""

        async def read(_: Facts) -> Sequence[StoredItem]:
            heads = await self._collection.scroll(narrowing.heads_of(filters), reading.ITEM_FIELDS)
            found = reading.stored_items(heads)
            matching = [item for item in found if item.problem or narrowing.matches_path(filters, item.ref.item_id)]
            return sorted(matching, key=lambda item: (item.ref.item_type.value, item.ref.item_id))

        return await self._if_there(read, [])

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """Return every version ever admitted here as version → content sha256 (hex)."""

        async def read(_: Facts) -> Mapping[str, str]:
            return (await writing.head_of(self._collection, layout.item_key(ref))).versions

        return await self._if_there(read, {})

    async def statistics(self, terms: Sequence[str]) -> CollectionStatistics:
        """Return what BM25 needs to know of this collection for these terms."""
        return await self._if_there(lambda _: counting.statistics(self._collection, terms), CollectionStatistics())

    async def similar_terms(self, terms: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return what each of up to `kiwi_rag.lexical.MAX_TERMS` terms may be a slip for, the most frequent first."""
        nothing: Mapping[str, Sequence[str]] = {}
        return await self._if_there(lambda _: counting.similar_terms(self._collection, terms), nothing)

    async def search(self, query: StoreQuery) -> Candidates:
        """Return the union of both legs' best `query.depth` passages, each with both scores.

        Raises
        ------
        FingerprintMismatch
            When the collection holds vectors of another model.
        StoreUnreachable, StoreError
            When the server gives no answer: never an empty one in its place.
        """
        return await searching.answer(self._collection, query)

    async def status(self) -> StoreStatus:
        """Return counts and health."""
        nothing = StoreStatus(0, 0, "", (f"there is no collection {self._collection.name!r} yet: index into it",))
        return await self._if_there(self._status, nothing)

    async def close(self) -> None:
        """Close the connection."""
        await self._collection.connection.close()

    async def _if_there(self, read: Callable[[Facts], Awaitable[_T]], nothing: _T) -> _T:
        facts = await self._collection.facts()
        return nothing if facts is None else await read(facts)

    async def _status(self, facts: Facts) -> StoreStatus:
        items, (passages, promised), writes = await asyncio.gather(
            counting.count_items(self._collection),
            counting.count_passages(self._collection),
            counting.count_writes(self._collection, self._before()),
        )
        problems = [
            *([f"{promised - passages} passages are missing: index it again"] if passages < promised else []),
            *([f"{passages - promised} passages belong to no item: index it again"] if passages > promised else []),
            *([f"{writes} writes were broken off: the next one sweeps up after them"] if writes else []),
            *([f"payload indexes are missing: {', '.join(facts.missing_indexes)}"] if facts.missing_indexes else []),
            *([f"Qdrant says that the collection is {facts.state}"] if facts.state in {"red", "grey"} else []),
        ]
        details = {"collection": self._collection.name, "server": self._collection.connection.version}
        return StoreStatus(items, passages, facts.fingerprint, tuple(problems), details | {"indexed": facts.indexed})

    def _before(self) -> datetime:
        return datetime.now(UTC) - timedelta(seconds=self._settle)

    async def _sweep(self) -> None:
        """Sweep up after writers that broke off, once in a while."""
        now = time.monotonic()
        if self._swept is None or now - self._swept >= self._settle:
            self._swept = now
            await writing.sweep(self._collection, self._before())


def _checked_name(name: str) -> str:
    legal = len(name) <= _MAX_NAME and all(c.isascii() and (c.isalnum() or c in "-_.") for c in name)
    if not legal or not name.strip("."):
        hint = f"ASCII letters, digits, '-', '_' and '.', not dots alone, {_MAX_NAME} at most"
        raise ConfigError(f"{name[:_MAX_NAME]!r} cannot name a Qdrant collection", hint=hint)
    return name
