"""`QdrantVectorStore`: a collection of a Qdrant server as a `VectorStore`.

A collection holds four kinds of points, by their payload's ``kind``:

``passage``
    One passage of one generation of a document, with two vectors: ``dense``, the model's, and ``words``, its terms.
``staged``
    The same before its generation is complete; no reader looks at it.
``head``
    One a document, without vectors: the generation that counts, and the signed envelope.
``gone``
    The head of a document that was deleted: its turn.

`kiwi_rag.stores.payload` has their fields. Qdrant ranks: the dense leg by cosine, the words leg by its sparse vectors
with its own IDF.

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

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel
from qdrant_client import models

from kiwi_rag.errors import StoreBusy, StoreCorrupt, StoreError
from kiwi_rag.lexical import K1, SYMBOL, B, bm25_weights
from kiwi_rag.model import EmbeddingRecord, Filters, ItemRef, StoreQuery
from kiwi_rag.retry import WRITING
from kiwi_rag.stores import payload
from kiwi_rag.stores.base import Capabilities, timestamp
from kiwi_rag.stores.document_store import LATER, OTHER_NAME, CollectionModel, DocumentStore, DocumentWrite
from kiwi_rag.stores.payload import SCHEMA, DocumentHead, Point, matches_path, path_pattern
from kiwi_rag.stores.qdrant_connection import QdrantConnection

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
_AVERAGE_LENGTH = 100.0
"""The average passage length, in terms, that the ``words`` vectors are computed for: the true one changes with every
write, and Qdrant cannot apply it."""
_MAX_VOCABULARY = 20_000
_MAX_FACETS = 100_000
_EXPLORE = 128
__all__ = ["QdrantConnection", "QdrantVectorStore"]


def sparse_index(term: str) -> int:
    """Return a term's index in sparse vectors, 32 bits of its hash; two terms may share one."""
    return int.from_bytes(hashlib.blake2b(term.encode(), digest_size=4).digest(), "big")


def passage_points(
    records: Sequence[EmbeddingRecord], head: DocumentHead, partition: str = ""
) -> list[models.PointStruct]:
    """Return a document's passages as staged points."""
    state = {"kind": "staged", "turn": head.turn, "at": timestamp(datetime.now(UTC))}
    points = []
    for record, id_, fields, frequencies in payload.passage_payloads(records, head, partition):
        vector: dict[str, Any] = {DENSE: record.vector.tolist()}
        if weights := _term_weights(frequencies, fields["length"]):
            vector[WORDS] = models.SparseVector(indices=list(weights), values=list(weights.values()))
        points.append(models.PointStruct(id=id_, vector=vector, payload=fields | state))
    return points


def _term_weights(frequencies: Mapping[str, int], length: int) -> dict[int, float]:
    """Return index → what a term adds to BM25 per unit of its IDF."""
    norm = K1 * (1 - B + B * length / _AVERAGE_LENGTH)
    return {sparse_index(term): tf * (K1 + 1) / (tf + norm) for term, tf in frequencies.items()}


def matches(field: str, *values: Any) -> models.FieldCondition:
    """Return the condition that a field has, or contains, one of some values; without values, nothing meets it."""
    match = models.MatchValue(value=values[0]) if len(values) == 1 else models.MatchAny(any=list(values) or [""])
    return models.FieldCondition(key=field, match=match)


def points_of(kind: str, filters: Filters | None = None, *others: Any, **values: str) -> models.Filter:
    """Return the condition for points of a kind that pass the filters and other conditions, and have some values.

    Heads and passages are filtered alike. Of a path's pattern only its folder is a condition.
    """
    filters = filters or Filters()
    must = [*others, *(_condition(*one) for one in payload.conditions(kind, filters, values))]
    # The folder that a pattern names before its first wildcard.
    if folder := re.split(r"[*?]", payload.path_pattern(filters))[0].rpartition("/")[0]:
        must.append(matches("folders", folder))
    return models.Filter(must=must)


def _condition(fields: Sequence[str], wanted: Sequence[str] | datetime) -> Any:
    if isinstance(wanted, datetime):
        return models.FieldCondition(key=fields[0], range=models.DatetimeRange(gte=wanted))
    return models.Filter(should=[matches(field, *wanted) for field in fields])


class QdrantVectorStore(DocumentStore[QdrantConnection]):
    """One collection, or one of several partitions of it, as an index of documents.

    With a `partition` every request is limited to its points: all data passes through `_call`.

    Parameters
    ----------
    connection
        The connection to Qdrant; several stores may share one, and each closes it.
    collection
        The collection's name.
    partition
        Which part of the collection this is, where one holds several: for a key that may not create others.
    """

    capabilities = Capabilities("qdrant", scores=False)
    _of = staticmethod(points_of)

    def __init__(self, connection: QdrantConnection, collection: str, *, partition: str = "") -> None:
        super().__init__(connection, collection, f"collection {collection!r}", partition)
        self._indexes = {**INDEXES, **({PARTITION: "keyword"} if partition else {})}

    async def ensure_created(self, fingerprint: str, dimension: int) -> CollectionModel:
        """Create the collection and its indexes where they are missing; raises as `DocumentStore.ensure_created`."""
        model = await super().ensure_created(fingerprint, dimension)
        for key in model.missing_indexes:
            kind: Any = models.PayloadSchemaType(self._indexes[key])
            if key == PARTITION:  # its points are stored together
                kind = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
            await self._call("create_payload_index", key, kind, wait=True)
        return model

    async def delete(self, ref: ItemRef) -> bool:
        """Remove a document; return whether it was there."""
        gone = DocumentWrite(ref.item_id, fields={"kind": "gone"})
        return await self._has(ref) and await self._replace_document(gone)

    async def _write(self, writes: Sequence[DocumentWrite]) -> None:
        for write in writes:
            await self._replace_document(write)

    async def _replace_document(self, write: DocumentWrite) -> bool:
        """Replace what is stored of a document, unless it is as written already; return whether this writer did."""
        path, own = write.path, None
        now = await self._head(path)
        for _ in range(self.tries):
            if now.state == write.state and await self._is_complete(now):
                return now == own
            turn = now.turn + 1
            own = DocumentHead(path, turn, f"{turn}-{write.state}" if write.state else "", len(write.records))
            await self._replace(own, write)
            now = await self._head(path)
            if now != own and now.turn >= own.turn:  # else a replica lags behind, and the same is written again
                await self._update(_delete(_passages(path, matches("generation", own.generation))))
        raise StoreBusy(f"others keep writing {path} at the same time", hint=LATER)

    async def _head(self, path: str) -> DocumentHead:
        return (await self._read_heads([path]))[path]

    async def _heads(self, filters: Filters, fields: bool | Sequence[str] = True) -> Sequence[Point]:
        found: list[Point] = []
        offset: Any = None
        while True:
            condition, options = points_of("head", filters), {"offset": offset, "with_payload": fields}
            page, following = await self._call("scroll", condition, self.page, **options)
            found += map(_point, page)
            if following is None or following == offset or not page:
                return found
            offset = following

    async def _is_complete(self, head: DocumentHead) -> bool:
        condition = points_of("passage", item_id=head.item_id, generation=head.generation)
        return await self._count(condition) == head.of

    async def _replace(self, new: DocumentHead, write: DocumentWrite) -> None:
        """Take steps 2 and 3."""
        points, at_once = passage_points(write.records, new, self._partition), self.passages_at_once
        batches = [points[start : start + at_once] for start in range(0, len(points), at_once)]
        for batch in batches[:-1]:
            await self._update(_stage(batch))
        earlier = models.FieldCondition(key="turn", range=models.Range(lt=new.turn))
        remove = _delete(_passages(new.item_id, earlier)), _delete(self._abandoned())
        await self._update(*map(_stage, batches[-1:]), self._put_head(new, write.fields), _publish(new), *remove)

    def _put_head(self, new: DocumentHead, fields: Mapping[str, Any]) -> models.UpdateOperation:
        """Replace a document's head if its turn is the one before; where there is none, create it."""
        point = models.PointStruct(id=self._head_id(new.item_id), vector={}, payload={**fields, **asdict(new)})
        unchanged = models.Filter(must=[matches("turn", new.turn - 1)])
        return models.UpsertOperation(upsert=models.PointsList(points=[point], update_filter=unchanged))

    async def _passages_of(self, filters: Filters) -> models.Filter:
        """Return the condition for the passages that pass the filters; Qdrant has none for a path with wildcards."""
        if not path_pattern(filters):
            return points_of("passage", filters)
        heads = await self._heads(filters, ("item_id", "partition"))
        paths = [path for head in heads if matches_path(filters, path := str(head.payload.get("item_id")))]
        return points_of("passage", filters, matches("item_id", *paths))

    def _abandoned(self) -> models.Filter:
        """Return the condition for passages that were staged so long ago that their writer broke off."""
        before = models.DatetimeRange(lt=datetime.now(UTC) - timedelta(seconds=self.broken_off_seconds))
        return points_of("staged", None, models.FieldCondition(key="at", range=before))

    async def _unfinished(self) -> tuple[Sequence[str], bool]:
        staged = await self._count(self._abandoned())
        problem = f"{staged} passages are left of writes that broke off: the next write removes them"
        return [problem] if staged else [], False

    async def _terms_near(self, slips: Sequence[str]) -> Sequence[Sequence[str]]:
        vocabulary = await self._facet("terms", points_of("passage"), _MAX_VOCABULARY)
        return [list(map(str, vocabulary))] * len(slips)

    async def _search_legs(self, query: StoreQuery, stale: frozenset[str]) -> Sequence[Sequence[Point]]:
        limit = max(1, query.depth)
        shared: dict[str, Any] = {"filter": await self._passages_of(query.filters), "limit": limit}
        shared["with_payload"] = ["item_id", "generation", "passage"]
        params = models.SearchParams(hnsw_ef=max(_EXPLORE, 2 * limit))
        requests = [models.QueryRequest(query=query.vector.tolist(), using=DENSE, params=params, **shared)]
        # As in `kiwi_rag.lexical.bm25_weights`: a symbol weighs as much as all words.
        terms = {t: float(len(query.terms) if t.startswith(SYMBOL) else 1) for t in query.terms}
        if self._partition:  # with the IDF that Qdrant applies elsewhere
            terms = bm25_weights(query.statistics, query.terms)
        if weights := {sparse_index(term): weight for term, weight in terms.items()}:
            words = models.SparseVector(indices=list(weights), values=list(weights.values()))
            requests.append(models.QueryRequest(query=words, using=WORDS, **shared))
        legs = await self._call("query_batch_points", requests)
        if len(legs) != len(requests):
            raise StoreError(f"Qdrant answered {len(legs)} of {len(requests)} queries")
        return [list(map(_point, leg.points)) for leg in legs]

    async def _check_exists(self, pauses: Sequence[float]) -> bool:
        return bool(await self._call("collection_exists", pauses=pauses))

    async def _create(self, fingerprint: str, dimension: int) -> None:
        # Qdrant's IDF is that of the whole collection; one that holds partitions gets each one's own with the query.
        modifier = None if self._partition else models.Modifier.IDF
        await self._call(
            "create_collection",
            vectors_config={DENSE: models.VectorParams(size=dimension, distance=models.Distance.COSINE)},
            sparse_vectors_config={WORDS: models.SparseVectorParams(modifier=modifier)},
            metadata={"kiwi": {"schema": SCHEMA, "fingerprint": fingerprint, "partitions": bool(self._partition)}},
        )

    async def _drop(self) -> None:
        if self._partition:
            await self._update(_delete(models.Filter()))
        else:
            await self._call("delete_collection")

    async def _retrieve(self, ids: Sequence[str]) -> Sequence[Point]:
        """Return the points of some ids that exist."""
        found = await self._call("retrieve", ids, with_payload=True) if ids else []
        return [point for point in map(_point, found) if point.payload.get(PARTITION, "") == self._partition]

    async def _count(self, condition: models.Filter) -> int:
        """Return how many points match, exactly."""
        return int((await self._call("count", condition, exact=True)).count)

    async def _facet(self, key: str, condition: models.Filter, limit: int = _MAX_FACETS) -> Mapping[Any, int]:
        """Return the most frequent values of a field among the points that match, with how many have each."""
        facet = await self._call("facet", key, condition, limit, exact=True)
        return {hit.value: hit.count for hit in facet.hits}

    async def _sum(self, key: str, condition: models.Filter) -> tuple[int, int]:
        """Return how many of the points that match have a number, and the sum of the numbers."""
        found = (await self._facet(key, condition)).items()
        counts = {value: count for value, count in found if isinstance(value, int)}
        if any(value < 0 or count < 0 for value, count in counts.items()):
            raise StoreCorrupt("Qdrant returned a negative count", hint="did another program write to this collection?")
        return sum(counts.values()), sum(value * count for value, count in counts.items())

    async def _update(self, *operations: models.UpdateOperation) -> None:
        """Apply operations in their order; every one of them may be applied twice, should an answer be lost."""
        strong = models.WriteOrdering.STRONG
        await self._call("batch_update_points", list(operations), wait=True, ordering=strong, pauses=WRITING)

    async def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Return what a method of the client returns for this collection, or partition; see `QdrantConnection.call`."""
        scoped = map(self._scoped, arguments) if self._partition else arguments
        return await self._connection.call(method, self._name, *scoped, **options)

    def _scoped(self, value: Any) -> Any:
        """Limit conditions, and whatever holds one, to the partition; points that are added belong to it."""
        if isinstance(value, models.Filter):
            return models.Filter(must=[matches(PARTITION, self._partition), value])
        if isinstance(value, models.PointStruct):
            return value.model_copy(update={"payload": {**(value.payload or {}), PARTITION: self._partition}})
        if isinstance(value, BaseModel):
            return value.model_copy(update={name: self._scoped(part) for name, part in value})
        return [self._scoped(one) for one in value] if isinstance(value, list) else value

    async def _read_model(self) -> CollectionModel:
        info = await self._call("get_collection")
        ours = (info.config.metadata or {}).get("kiwi")
        dense = info.config.params.vectors
        params = dense.get(DENSE) if isinstance(dense, Mapping) else None
        if not isinstance(ours, Mapping) or params is None or not isinstance(ours.get("fingerprint"), str):
            raise StoreCorrupt(f"Kiwi did not make the collection {self._name!r}", hint=OTHER_NAME)
        if bool(ours.get("partitions")) != bool(self._partition):
            kind = "one index alone" if self._partition else "the partitions of KIWI_QDRANT_COLLECTION"
            raise StoreCorrupt(f"the collection {self._name!r} holds {kind}", hint="name another one")
        if ours.get("schema") != SCHEMA:
            raise StoreCorrupt(f"another version of Kiwi made the collection {self._name!r}", hint=OTHER_NAME)
        missing = tuple(key for key in self._indexes if key not in info.payload_schema)
        problems = [f"payload indexes are missing: {', '.join(missing)}"] if missing else []
        if (state := str(info.status.value)) in {"red", "grey"}:
            problems.append(f"Qdrant reports the collection as {state}")
        plan = "hnsw" if info.indexed_vectors_count else "exact"
        return CollectionModel(ours["fingerprint"], params.size, plan, missing, tuple(problems))


def _point(found: Any) -> Point:
    return Point(str(found.id), found.payload or {}, float(getattr(found, "score", math.nan)))


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
    return models.Filter(must=[matches("item_id", path), matches("kind", "passage", "staged"), *others])
