"""`QdrantVectorStore`: a Qdrant collection as a `VectorStore`, a server's or a folder's, by the same code.

Qdrant ranks: the dense leg by cosine, the words leg by its sparse vectors with its own IDF.

Qdrant has no transactions. One document is replaced like this, so that readers find the whole old one or the whole new
one:

1. Read the document's head: its turn, and the generation that counts.
2. Upsert the passages of the next generation as ``staged``, which nobody searches.
3. In one request: upsert the last of them, replace the head *if its turn is still the one that was read*, turn the
   staged passages into passages that are searched, and remove those of earlier turns, and what any writer staged long
   ago and never finished.
4. Read the head again. If another writer took the turn, remove the own passages and begin again; so if some of them are
   missing, because this writer was so slow that another one removed what it had staged.

A reader drops every passage whose generation is not the one that its document's head names, and searches again when it
met one: a writer is between two steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from qdrant_client import models

from kiwi_rag.errors import StoreBusy
from kiwi_rag.lexical import SYMBOL, bm25_weights
from kiwi_rag.model import Filters, ItemRef, StoreQuery
from kiwi_rag.stores.base import Capabilities
from kiwi_rag.stores.document_store import LATER, DocumentStore, DocumentWrite
from kiwi_rag.stores.payload import DocumentHead, Point, head_id, matches_path, path_pattern
from kiwi_rag.stores.qdrant_connection import QdrantCollection, QdrantConnection
from kiwi_rag.stores.qdrant_payload import DENSE, WORDS, equals, one_of, passage_points, points_of, sparse_index

STAGED_SECONDS = 120.0
"""A write whose passages have been staged for so long was broken off; a later write of any document removes them."""
_MAX_VOCABULARY = 20_000
_TRIES = 12
_EXPLORE = 128
_PASSAGES_AT_ONCE = 100  # some MB as JSON; a server takes 32 MB at once unless configured otherwise
__all__ = ["QdrantConnection", "QdrantVectorStore"]


class QdrantVectorStore(DocumentStore[QdrantCollection]):
    """One collection, or one of several partitions of it, as an index of documents.

    Parameters
    ----------
    connection
        The connection to Qdrant; several stores may share one, and each closes it.
    collection
        The collection's name.
    partition
        Which part of the collection this is, where one holds several: for a key that may not create others.
    staged_seconds
        See `STAGED_SECONDS`.
    """

    def __init__(
        self,
        connection: QdrantConnection,
        collection: str,
        *,
        partition: str = "",
        staged_seconds: float = STAGED_SECONDS,
    ) -> None:
        self.capabilities = Capabilities("qdrant", scores=False, collections=not partition)
        self._collection = QdrantCollection(connection, collection, partition)
        self._staged = timedelta(seconds=staged_seconds)

    async def delete(self, ref: ItemRef) -> bool:
        """Remove a document; return whether it was there."""
        return await self._has(ref) and await self._replace_document(
            DocumentWrite(ref.item_id, fields={"kind": "gone"})
        )

    async def _write(self, writes: Sequence[DocumentWrite]) -> None:
        for write in writes:
            await self._replace_document(write)

    async def _replace_document(self, write: DocumentWrite) -> bool:
        """Replace what is stored of a document, unless it is as written already; return whether this writer did."""
        path, own = write.path, None
        now = await self._head(path)
        for _ in range(_TRIES):
            if now.state == write.state and await self._is_complete(now):
                return now == own
            turn = now.turn + 1
            own = DocumentHead(path, turn, f"{turn}-{write.state}" if write.state else "", len(write.records))
            points = passage_points(write.records, turn, own.generation, self._collection.partition)
            await self._replace(own, points, write.fields)
            now = await self._head(path)
            if now != own and now.turn >= own.turn:  # else a replica lags behind, and the same is written again
                await self._collection.update(_delete(_passages(path, equals("generation", own.generation))))
        raise StoreBusy(f"others keep writing {path} at the same time", hint=LATER)

    async def _head(self, path: str) -> DocumentHead:
        return (await self._read_heads([path]))[path]

    async def _heads(self, filters: Filters, fields: bool | Sequence[str] = True) -> Sequence[Point]:
        return await self._collection.scroll(points_of("head", filters), fields)

    async def _is_complete(self, head: DocumentHead) -> bool:
        condition = points_of("passage", item_id=head.item_id, generation=head.generation)
        return await self._collection.count(condition) == head.of

    async def _replace(
        self, new: DocumentHead, points: Sequence[models.PointStruct], fields: Mapping[str, Any]
    ) -> None:
        """Take steps 2 and 3."""
        batches = [points[start : start + _PASSAGES_AT_ONCE] for start in range(0, len(points), _PASSAGES_AT_ONCE)]
        for batch in batches[:-1]:
            await self._collection.update(_stage(batch))
        earlier = models.FieldCondition(key="turn", range=models.Range(lt=new.turn))
        remove = _delete(_passages(new.item_id, earlier)), _delete(self._abandoned())
        await self._collection.update(*map(_stage, batches[-1:]), self._put_head(new, fields), _publish(new), *remove)

    def _put_head(self, new: DocumentHead, fields: Mapping[str, Any]) -> models.UpdateOperation:
        """Replace a document's head if its turn is the one before; where there is none, create it."""
        id_ = head_id(new.item_id, self._collection.partition)
        point = models.PointStruct(id=id_, vector={}, payload={**fields, **asdict(new)})
        unchanged = models.Filter(must=[equals("turn", new.turn - 1)])
        return models.UpsertOperation(upsert=models.PointsList(points=[point], update_filter=unchanged))

    async def _passages_of(self, filters: Filters) -> models.Filter:
        """Return the condition for the passages that pass the filters; Qdrant has none for a path with wildcards."""
        if not path_pattern(filters):
            return points_of("passage", filters)
        heads = await self._heads(filters, ("item_id", "partition"))
        paths = [str(head.payload.get("item_id")) for head in heads]
        return points_of("passage", filters, one_of("item_id", [path for path in paths if matches_path(filters, path)]))

    def _abandoned(self) -> models.Filter:
        """Return the condition for passages that were staged so long ago that their writer broke off."""
        before = models.DatetimeRange(lt=datetime.now(UTC) - self._staged)
        return points_of("staged", None, models.FieldCondition(key="at", range=before))

    async def _unfinished(self) -> tuple[Sequence[str], bool]:
        staged = await self._collection.count(self._abandoned())
        problem = f"{staged} passages are left of writes that broke off: the next write removes them"
        return [problem] if staged else [], False

    async def _terms_near(self, slips: Sequence[str]) -> Sequence[Sequence[str]]:
        vocabulary = await self._collection.facet("terms", points_of("passage"), _MAX_VOCABULARY)
        return [list(map(str, vocabulary))] * len(slips)

    async def _search_legs(self, query: StoreQuery, stale: frozenset[str]) -> Sequence[Sequence[Point]]:
        limit = max(1, query.depth)
        shared: dict[str, Any] = {"filter": await self._passages_of(query.filters), "limit": limit}
        shared["with_payload"] = ["item_id", "generation", "passage"]
        # Local mode is always exact, and warns when it gets parameters of an index.
        params = None if self._collection.is_local else models.SearchParams(hnsw_ef=max(_EXPLORE, 2 * limit))
        requests = [models.QueryRequest(query=query.vector.tolist(), using=DENSE, params=params, **shared)]
        # As in `kiwi_rag.lexical.bm25_weights`: a symbol weighs as much as all words.
        terms = {t: float(len(query.terms) if t.startswith(SYMBOL) else 1) for t in query.terms}
        if self._collection.partition:  # with the IDF that Qdrant applies elsewhere
            terms = bm25_weights(query.statistics, query.terms)
        if weights := {sparse_index(term): weight for term, weight in terms.items()}:
            words = models.SparseVector(indices=list(weights), values=list(weights.values()))
            requests.append(models.QueryRequest(query=words, using=WORDS, **shared))
        return await self._collection.search(requests)


def _stage(points: Sequence[models.PointStruct]) -> models.UpdateOperation:
    """Upsert staged passages, but never over one that is searched already: a writer of the same content was faster."""
    return models.UpsertOperation(upsert=models.PointsList(points=list(points), update_filter=points_of("staged")))


def _publish(new: DocumentHead) -> models.UpdateOperation:
    staged = points_of("staged", item_id=new.item_id, generation=new.generation)
    return models.SetPayloadOperation(set_payload=models.SetPayload(payload={"kind": "passage"}, filter=staged))


def _delete(condition: models.Filter) -> models.UpdateOperation:
    return models.DeleteOperation(delete=models.FilterSelector(filter=condition))


def _passages(path: str, *others: Any) -> models.Filter:
    """Return the condition for a document's passages, searched or staged."""
    return models.Filter(must=[equals("item_id", path), one_of("kind", ("passage", "staged")), *others])
