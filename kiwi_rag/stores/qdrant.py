"""`QdrantVectorStore`: a Qdrant collection as a `VectorStore`, a server's or a folder's, by the same code.

Qdrant ranks: the dense leg by cosine, the words leg by its sparse vectors with its own IDF. So the store's scores are
only an order (`Capabilities.scores`), and a search fuses them by ranks.

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
met one: a writer is between two steps. Points that others wrote are not trusted: payloads are read strictly, and each
hit is verified against its signed statement by whoever shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from qdrant_client import models

from kiwi_rag.errors import StoreBusy
from kiwi_rag.lexical import MAX_TERMS, SYMBOL, bm25_weights, find_similar, max_edits
from kiwi_rag.model import (
    Candidates,
    CollectionStatistics,
    EmbeddingRecord,
    Filters,
    ItemRef,
    ItemType,
    StoredItem,
    StoreQuery,
)
from kiwi_rag.stores import payload
from kiwi_rag.stores.base import Capabilities, StoreStatus, one_admission, require_document
from kiwi_rag.stores.payload import DocumentHead, LegResults, matches_path
from kiwi_rag.stores.qdrant_connection import DENSE, WORDS, QdrantCollection, QdrantConnection, equals
from kiwi_rag.stores.qdrant_payload import one_of, passage_points, points_of, sparse_index

STAGED_SECONDS = 120.0
"""A write whose passages have been staged for so long was broken off; a later write of any document removes them."""
_MAX_VOCABULARY = 20_000
_TRIES = 12
_ROUNDS = 3
_EXPLORE = 128
_PASSAGES_AT_ONCE = 100  # some MB as JSON; a server takes 32 MB at once unless configured otherwise
_LATER = "let one machine index a file"
__all__ = ["QdrantConnection", "QdrantVectorStore"]


class QdrantVectorStore:
    """One collection as an index of documents that several machines may write to and search.

    Nothing is contacted before the first use, and reading creates no collection.

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
        """It keeps a document as it was written last, and no items."""
        self._collection = QdrantCollection(connection, collection, partition)
        self._staged = timedelta(seconds=staged_seconds)

    async def put(self, entries: Sequence[Sequence[EmbeddingRecord]]) -> None:
        """Store admitted documents one after another, replacing what was there; nothing if it is the same.

        Raises
        ------
        NotAdmitted, UsageError, EmbeddingError, FingerprintMismatch
            When the records of an entry are not those of one admitted document in this collection's model.
        StoreBusy
            When others keep writing the same document at the same time.
        StoreUnreachable, StoreRefused, StoreError
            When the server does not take them; readers still find what was there before.
        """
        for admission, records in [(require_document(one_admission(records)), records) for records in entries]:
            await self._collection.create(records[0].fingerprint, len(records[0].vector))
            state, fields = payload.state_of(admission, records), payload.head_payload(admission)
            await self._write(admission.ref.item_id, state, records, fields)

    async def delete(self, ref: ItemRef) -> bool:
        """Remove a document; return whether it was there."""
        if not await self._has(ref):
            return False
        return await self._write(ref.item_id, "", (), {"kind": "gone"})

    async def get(self, ref: ItemRef, files: Sequence[str] | None = None) -> StoredItem | None:
        """Return a document; None when it is not there. A document has no files.

        Raises
        ------
        StoreCorrupt
            When its points are malformed.
        """
        heads = await self._retrieve([ref.item_id]) if await self._has(ref) else []
        if not heads or not payload.read_head(heads[0].payload, ref.item_id).generation:
            return None
        return payload.read_document(heads[0].payload)

    async def list(self, filters: Filters) -> Sequence[StoredItem]:
        """Return the documents that match, ordered by path; a malformed one has a ``problem``."""
        found = [payload.read_document_or_problem(head.payload) for head in await self._heads(filters)]
        matching = [one for one in found if one.problem or matches_path(filters, one.ref.item_id)]
        return sorted(matching, key=lambda one: one.ref.item_id)

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """Return nothing: documents have no versions."""
        return {}

    async def statistics(self, terms: Sequence[str]) -> CollectionStatistics:
        """Return counts: passages, their total length in terms, each term's document frequency, and items."""
        if await self._collection.model() is None:
            return CollectionStatistics()
        distinct = list(dict.fromkeys(term for term in terms if term))
        (passages, length), items, counts = await asyncio.gather(
            self._collection.sum("length", points_of("passage")),
            self._collection.count(points_of("head")),
            asyncio.gather(*(self._collection.count(points_of("passage", terms=term)) for term in distinct)),
        )
        occurring = {term: count for term, count in zip(distinct, counts, strict=True) if count}
        return CollectionStatistics(passages, length, occurring, items)

    async def similar_terms(self, terms: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return what each of up to `kiwi_rag.lexical.MAX_TERMS` terms may be a slip for, the most frequent first."""
        slips = [term for term in dict.fromkeys(terms) if max_edits(term)][:MAX_TERMS]
        if not slips or await self._collection.model() is None:
            return {}
        vocabulary = list(map(str, await self._collection.facet("terms", points_of("passage"), _MAX_VOCABULARY)))
        return {term: tuple(find_similar(term, vocabulary)) for term in slips}

    async def search(self, query: StoreQuery) -> Candidates:
        """Return the union of both legs' best `query.depth` passages; the scores of a leg are only an order.

        Raises
        ------
        FingerprintMismatch
            When the collection holds vectors of another model.
        StoreUnreachable, StoreError
            When the server gives no answer: never an empty one in its place.
        """
        model = await self._collection.model()
        if model is None:
            return Candidates((), "exact")
        model.require(query.fingerprint, len(query.vector))
        condition = await self._passages_of(query.filters)
        requests = self._leg_requests(query, condition)
        for _ in range(_ROUNDS):
            legs = LegResults.read(await self._collection.search(requests), "qdrant", self._collection.partition)
            candidates, stale = legs.candidates(await self._retrieve(legs.paths))
            if not stale:
                break
        return Candidates(tuple(candidates), "hnsw" if model.indexed else "exact", tuple(dict.fromkeys(legs.refused)))

    async def status(self) -> StoreStatus:
        """Return counts and health."""
        model = await self._collection.model()
        if model is None:
            problem = f"there is no collection {self._collection.name!r} yet: index into it"
            return StoreStatus(0, 0, "", (problem,))
        items, (passages, _), (_, expected), staged = await asyncio.gather(
            self._collection.count(points_of("head")),
            self._collection.sum("length", points_of("passage")),
            self._collection.sum("of", points_of("head")),
            self._collection.count(self._abandoned()),
        )
        found = {
            f"{expected - passages} passages are missing: index it again": passages < expected,
            f"{passages - expected} passages belong to no document: index it again": passages > expected,
            f"{staged} passages are left of writes that broke off: the next write removes them": staged,
            f"payload indexes are missing: {', '.join(model.missing_indexes)}": model.missing_indexes,
            f"Qdrant reports the collection as {model.state}": model.state in {"red", "grey"},
        }
        problems = tuple(problem for problem, is_there in found.items() if is_there)
        details = {"collection": self._collection.name, "server": self._collection.connection.version}
        return StoreStatus(items, passages, model.fingerprint, problems, details | {"indexed": model.indexed})

    async def clear(self) -> None:
        """Delete the collection, after which another model may be used; or this partition of it."""
        await self._collection.clear()

    async def close(self) -> None:
        """Close the connection."""
        await self._collection.connection.close()

    async def _write(
        self, path: str, state: str, records: Sequence[EmbeddingRecord], fields: Mapping[str, Any]
    ) -> bool:
        """Replace what is stored of a document, unless it is in this state already; return whether this writer did."""
        own, now = None, await self._head(path)
        for _ in range(_TRIES):
            if now.state == state and await self._is_complete(now):
                return now == own
            turn = now.turn + 1
            own = DocumentHead(path, turn, f"{turn}-{state}" if state else "", len(records))
            points = passage_points(records, turn, own.generation, self._collection.partition)
            await self._replace(own, points, fields)
            now = await self._head(path)
            if now != own and now.turn >= own.turn:  # else a replica lags behind, and the same is written again
                await self._collection.update(_delete(_passages(path, equals("generation", own.generation))))
        raise StoreBusy(f"others keep writing {path} at the same time", hint=_LATER)

    async def _has(self, ref: ItemRef) -> bool:
        """Whether such a document may be stored."""
        return ref.item_type is ItemType.DOCUMENT and await self._collection.model() is not None

    async def _retrieve(self, paths: Sequence[str]) -> Sequence[models.Record]:
        """Return the heads of some documents that exist."""
        return await self._collection.retrieve([payload.head_id(path, self._collection.partition) for path in paths])

    async def _head(self, path: str) -> DocumentHead:
        points = await self._retrieve([path])
        return payload.read_head(points[0].payload, path) if points else DocumentHead(path)

    async def _heads(self, filters: Filters, fields: bool | Sequence[str] = True) -> Sequence[models.Record]:
        there = await self._collection.model()
        return await self._collection.scroll(points_of("head", filters), fields) if there else []

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
        id_ = payload.head_id(new.item_id, self._collection.partition)
        point = models.PointStruct(id=id_, vector={}, payload={**fields, **asdict(new)})
        unchanged = models.Filter(must=[equals("turn", new.turn - 1)])
        return models.UpsertOperation(upsert=models.PointsList(points=[point], update_filter=unchanged))

    async def _passages_of(self, filters: Filters) -> models.Filter:
        """Return the condition for the passages that pass the filters; Qdrant has none for a path with wildcards."""
        if not payload.path_pattern(filters):
            return points_of("passage", filters)
        heads = await self._heads(filters, ("item_id",))
        paths = [str((head.payload or {}).get("item_id")) for head in heads]
        return points_of("passage", filters, one_of("item_id", [path for path in paths if matches_path(filters, path)]))

    def _abandoned(self) -> models.Filter:
        """Return the condition for passages that were staged so long ago that their writer broke off."""
        before = models.DatetimeRange(lt=datetime.now(UTC) - self._staged)
        return points_of("staged", None, models.FieldCondition(key="at", range=before))

    def _leg_requests(self, query: StoreQuery, condition: models.Filter) -> Sequence[models.QueryRequest]:
        """Return the requests of the vector leg and, where the query has terms, of the words leg."""
        limit = max(1, query.depth)
        shared: dict[str, Any] = {
            "filter": condition,
            "limit": limit,
            "with_payload": ["item_id", "generation", "passage"],
        }
        # Local mode is always exact, and warns when it gets parameters of an index.
        params = None if self._collection.connection.local else models.SearchParams(hnsw_ef=max(_EXPLORE, 2 * limit))
        requests = [models.QueryRequest(query=query.vector.tolist(), using=DENSE, params=params, **shared)]
        # As in `kiwi_rag.lexical.bm25_weights`: a symbol weighs as much as all words.
        terms = {t: float(len(query.terms) if t.startswith(SYMBOL) else 1) for t in query.terms}
        if self._collection.partition:
            terms = bm25_weights(query.statistics, query.terms)
        weights = {sparse_index(term): weight for term, weight in terms.items()}
        if weights:
            words = models.SparseVector(indices=list(weights), values=list(weights.values()))
            requests.append(models.QueryRequest(query=words, using=WORDS, **shared))
        return requests


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
