"""`WeaviateVectorStore`: a class of a Weaviate server as a `VectorStore`.

Weaviate ranks: the dense leg by cosine, the words leg by its own BM25 over Kiwi's terms. A passage that one leg found
has no score in the other, and BM25 has the statistics of this class alone, so the scores are only an order, which a
search fuses by ranks with `alpha` as the weight. Weaviate's own hybrid query would do the same and not return the
scores of the legs, which an explanation shows.

Weaviate has no transactions and no conditional update. Documents are replaced like this, so that readers find the whole
old one or the whole new one, and of several writers the one whose head was stored last has replaced the document:

1. Read the documents' heads.
2. Store a note for each that a new generation of it is being written. No two writes share a generation.
3. Store the passages of the new generations.
4. Replace the heads, each in one step. From here on readers see the new documents.
5. Remove the passages of these documents that belong to no head and, by the notes, to no other writer; then the notes.
6. Read the heads again. A document whose passages are incomplete, because this writer was so slow that another one took
   it for broken off (`DocumentStore.broken_off_seconds`) and removed them, is written again.

A reader drops every passage whose generation is not the one that its document's head names, and searches again without
the generations that it dropped.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from weaviate import WeaviateAsyncClient
from weaviate.classes.aggregate import GroupByAggregate, Metrics
from weaviate.classes.query import Filter, MetadataQuery, Sort

from kiwi_rag.errors import StoreBusy, StoreCorrupt, StoreError
from kiwi_rag.lexical import SYMBOL, split_halves, swap_middle
from kiwi_rag.model import Filters, ItemRef, StoreQuery
from kiwi_rag.retry import READING, WRITING
from kiwi_rag.stores import weaviate_schema as schema
from kiwi_rag.stores.base import Capabilities
from kiwi_rag.stores.document_store import LATER, OTHER_NAME, CollectionModel, DocumentStore, DocumentWrite
from kiwi_rag.stores.payload import SCHEMA, DocumentHead, Point, head_id
from kiwi_rag.stores.weaviate_connection import WeaviateConnection

AT_ONCE = 10_000
"""What a server finds or deletes at once unless configured otherwise (``QUERY_MAXIMUM_RESULTS``)."""
_WORD_SAMPLE = 500
__all__ = ["WeaviateConnection", "WeaviateVectorStore"]


class WeaviateVectorStore(DocumentStore[WeaviateConnection]):
    """One class as an index of documents.

    Parameters
    ----------
    connection
        The connection to Weaviate; several stores may share one, and each closes it.
    collection
        The name of the collection, from which that of the class is derived.
    """

    capabilities = Capabilities("weaviate", scores=False)
    starting = (*WRITING, 4.0, 8.0)  # a start takes the server some seconds
    _of = staticmethod(schema.objects_of)

    def __init__(self, connection: WeaviateConnection, collection: str) -> None:
        name = schema.class_name(collection)
        super().__init__(connection, name, f"class {name}")
        self._project = collection

    async def delete(self, ref: ItemRef) -> bool:
        """Remove a document; return whether it was there."""
        path = ref.item_id
        if not await self._has(ref) or not (await self._read_heads([path]))[path].generation:
            return False
        await self._remove(schema.objects_of("head", docId=head_id(path)))
        await self._sweep([path])
        return True

    async def _write(self, writes: Sequence[DocumentWrite]) -> None:
        """Take the steps until every document is as written, or another writer has replaced it."""
        writes = list({one.path: one for one in writes}.values())
        own: dict[str, DocumentHead] = {}
        replaced: set[str] = set()
        for _ in range(self.tries):
            now = await self._read_heads([one.path for one in writes])
            # Done is a document that another writer replaced after this one, or that is as written with all passages.
            counts = await self._generations(now)
            replaced |= {path for path, head in now.items() if path in own and head.generation != own[path].generation}
            whole = {path for path, head in now.items() if counts.get(head.generation, 0) == head.of}
            same = {one.path for one in writes if one.state == now[one.path].state}
            writes = [one for one in writes if one.path not in replaced | (whole & same)]
            if not writes:
                broken = {str(note.payload.get("item_id")) for note in await self._notes() if not self._is_live(note)}
                # The other writer may have taken the passages here for those of a write under way.
                await self._sweep(sorted(broken | replaced))
                return
            own = {one.path: _next_head(now[one.path], one) for one in writes}
            await self._replace(writes, own)
            await self._sweep(sorted(own), {head.generation for head in own.values()})
        raise StoreBusy(f"others keep removing what is written of {writes[0].path}", hint=LATER)

    async def _replace(self, writes: Sequence[DocumentWrite], heads: Mapping[str, DocumentHead]) -> None:
        """Take the steps 2 to 4."""
        await self._upsert([schema.write_object(head) for head in heads.values()])
        passages = [o for one in writes for o in schema.passage_objects(one.records, heads[one.path], self._project)]
        for start in range(0, len(passages), self.passages_at_once):
            await self._upsert(passages[start : start + self.passages_at_once])
        await self._upsert([schema.head_object(heads[one.path], one.fields, self._project) for one in writes])

    async def _sweep(self, paths: Sequence[str], own: Collection[str] = ()) -> None:
        """Take step 5; `own` are the generations whose writes end here.

        Passages are read first, then notes, then heads: a generation without a note by then either has its head or
        never will.
        """
        if not paths:
            return
        there, notes = await self._generations(paths), await self._notes()
        live = {str(note.payload.get("generation")) for note in notes if self._is_live(note)} - set(own)
        kept = live | {head.generation for head in (await self._read_heads(paths)).values()}
        ended = {str(note.payload.get("generation")) for note in notes} - live
        documents = schema.one_of("docId", list(map(head_id, paths)))
        for kind, generations in (("passage", set(there) - kept), ("write", ended)):
            if generations:
                condition = schema.objects_of(kind, None, documents, schema.one_of("generation", sorted(generations)))
                await self._remove(condition)

    async def _generations(self, paths: Collection[str]) -> Mapping[str, int]:
        """Return the generations of some documents, with the number of their passages."""
        documents = schema.one_of("docId", list(map(head_id, paths)))
        by_generation = GroupByAggregate(prop="generation", limit=AT_ONCE)
        found = await self._aggregate(schema.objects_of("passage", None, documents), group_by=by_generation)
        return {str(group.grouped_by.value): int(group.total_count or 0) for group in found.groups}

    async def _notes(self) -> Sequence[Point]:
        return await self._find("fetch_objects", filters=schema.objects_of("write"), limit=AT_ONCE)

    def _is_live(self, note: Point) -> bool:
        at = note.payload.get("at")
        return isinstance(at, datetime) and at > datetime.now(UTC) - timedelta(seconds=self.broken_off_seconds)

    async def _unfinished(self) -> tuple[Sequence[str], bool]:
        notes = await self._notes()
        broken = sum(not self._is_live(note) for note in notes)
        problem = f"{broken} writes broke off: the next write removes what they left"
        return [problem] if broken else [], bool(notes)

    async def _heads(self, filters: Filters) -> Sequence[Point]:
        found: list[Point] = []
        order, last = Sort.by_property("position"), -1
        while True:
            condition = schema.objects_of("head", filters, Filter.by_property("position").greater_than(last))
            page = await self._find("fetch_objects", filters=condition, sort=order, limit=self.page)
            found += page
            if len(page) < self.page:
                return found
            last = page[-1].payload["position"]

    async def _terms_near(self, slips: Sequence[str]) -> Sequence[Sequence[str]]:
        """Return terms of some passages that have one which shares a half with a slip: Weaviate lists no vocabulary."""
        return await asyncio.gather(*map(self._terms_like, slips))

    async def _terms_like(self, slip: str) -> Sequence[str]:
        (begin, end), terms = split_halves(slip), Filter.by_property("terms")
        halves = Filter.any_of([terms.like(f"{begin}*"), terms.like(f"*{end}"), terms.equal(swap_middle(slip))])
        options = {"filters": schema.objects_of("passage", None, halves), "return_properties": ["terms"]}
        found = await self._find("fetch_objects", limit=_WORD_SAMPLE, **options)
        counts = Counter(str(term) for passage in found for term in passage.payload.get("terms") or ())
        return [term for term, _ in counts.most_common()]

    async def _search_legs(self, query: StoreQuery, stale: frozenset[str]) -> Sequence[Sequence[Point]]:
        fresh = [Filter.by_property("generation").not_equal(generation) for generation in sorted(stale)[: self.page]]
        shared = {"filters": schema.objects_of("passage", query.filters, *fresh), "limit": max(1, query.depth)}
        shared |= {"return_properties": ["item_id", "generation", "passage"]}
        dense = {"target_vector": schema.DENSE, "return_metadata": MetadataQuery(distance=True)}
        legs = [self._find("near_vector", query.vector.tolist(), **dense, **shared)]
        if query.terms:
            # As in `kiwi_rag.lexical.bm25_weights`: a symbol weighs as much as all words. Weaviate multiplies the
            # weight of a word by how often the query has it.
            terms = [t for t in query.terms for _ in range(len(query.terms) if t.startswith(SYMBOL) else 1)]
            words = {"query_properties": [schema.SEARCHED], "return_metadata": MetadataQuery(score=True)}
            legs.append(self._find("bm25", " ".join(terms), **words, **shared))
        return await asyncio.gather(*legs)

    async def _upsert(self, objects: Sequence[Any]) -> None:
        """Store objects, replacing those of the same ids; `StoreError` if the server does not take one of them."""
        done = await self._call(lambda c: c.data.insert_many(objects), WRITING)
        for error in done.errors.values():
            why = self._connection.quoted(error.message)
            raise StoreError(f"Weaviate did not store {len(done.errors)} objects: {why}")

    async def _remove(self, condition: Any) -> None:
        """Delete all objects that match."""
        matches = AT_ONCE
        while matches >= AT_ONCE:
            done = await self._call(lambda c: c.data.delete_many(where=condition), WRITING)
            if done.failed:
                raise StoreError(f"Weaviate did not delete {done.failed} of {done.matches} objects")
            matches = done.matches

    async def _count(self, condition: Any) -> int:
        """Return how many objects match."""
        return int((await self._aggregate(condition)).total_count or 0)

    async def _sum(self, field: str, condition: Any) -> tuple[int, int]:
        """Return how many objects match, and the sum of a number that they have."""
        found = await self._aggregate(condition, return_metrics=Metrics(field).integer(sum_=True))
        total = int(getattr(found.properties.get(field), "sum_", None) or 0)
        if total < 0:
            raise StoreCorrupt("Weaviate returned a negative sum", hint="did another program write to this class?")
        return int(found.total_count or 0), total

    async def _retrieve(self, ids: Sequence[str]) -> Sequence[Point]:
        """Return the objects of some ids that exist."""
        return await self._find("fetch_objects_by_ids", list(ids), limit=len(ids)) if ids else []

    async def _find(self, method: str, *arguments: Any, **options: Any) -> Sequence[Point]:
        """Return the objects that a query of the client finds."""
        found = await self._call(lambda c: getattr(c.query, method)(*arguments, **options))
        return list(map(schema.read_point, found.objects))

    async def _aggregate(self, condition: Any, **options: Any) -> Any:
        return await self._call(lambda c: c.aggregate.over_all(filters=condition, **options))

    async def _call(self, request: Callable[[Any], Awaitable[Any]], pauses: Sequence[float] = READING) -> Any:
        async def timed(client: WeaviateAsyncClient) -> Any:
            async with asyncio.timeout(self._connection.seconds):  # the client itself tries for a minute
                return await request(client.collections.use(self._name))

        return await self._connection.attempt(timed, pauses)

    async def _check_exists(self, pauses: Sequence[float]) -> bool:
        return await self._connection.attempt(lambda c: c.collections.exists(self._name), pauses)

    async def _create(self, fingerprint: str, dimension: int) -> None:
        ours = {"schema": SCHEMA, "collection": self._project, "fingerprint": fingerprint, "dimension": dimension}
        options = schema.class_options({"kiwi": ours})
        await self._connection.attempt(lambda c: c.collections.create(self._name, **options))

    async def _drop(self) -> None:
        await self._connection.attempt(lambda c: c.collections.delete(self._name))

    async def _read_model(self) -> CollectionModel:
        config = await self._call(lambda c: c.config.get())
        try:
            ours = json.loads(config.description)["kiwi"]
            about = ours["schema"], ours["collection"], str(ours["fingerprint"]), int(ours["dimension"])
        except (ValueError, LookupError, TypeError, RecursionError):
            about = None, "", "", 0
        if about[:2] != (SCHEMA, self._project):
            raise StoreCorrupt(f"Kiwi did not make the {self._label}, or another version did", hint=OTHER_NAME)
        if wrong := schema.find_differences(config):
            shown = "; ".join(wrong[:3]) + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else "")
            raise StoreCorrupt(f"the {self._label} was changed: {shown}", hint=OTHER_NAME)
        return CollectionModel(about[2], about[3], "hnsw")


def _next_head(now: DocumentHead, write: DocumentWrite) -> DocumentHead:
    generation = f"{now.turn + 1}.{uuid4().hex}-{write.state}"
    return DocumentHead(write.path, now.turn + 1, generation, len(write.records))
