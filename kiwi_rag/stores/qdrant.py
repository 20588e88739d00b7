"""`QdrantVectorStore`: a Qdrant collection as a `VectorStore`, a server's or a folder's, by the same code.

Qdrant ranks: the dense leg by cosine, the words leg by its sparse vectors with its own IDF. So the store's scores are
only an order (`Capabilities.scores`), and a search fuses them by ranks.

Qdrant has no transactions. One item is replaced like this, so that readers find the whole old one or the whole new one:

1. Read the item's head: its turn, and the generation that counts.
2. Upsert the passages of the next generation as ``staged``, which nobody searches.
3. In one request: upsert the last of them, replace the head *if its turn is still the one that was read*, turn the
   staged passages into passages that are searched, and remove those of earlier turns, and what any writer staged long
   ago and never finished.
4. Read the head again. If another writer took the turn, remove the own passages and begin again; so if some of them are
   missing, because this writer was so slow that another one removed what it had staged.

A reader drops every passage whose generation is not the one that its item's head names, and searches again when it met
one: a writer is between two steps. Points that others wrote are not trusted: payloads are read strictly, and each hit
is verified against its signed statement by whoever shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from kiwi_rag.errors import StoreBusy, StoreCorrupt, StoreError
from kiwi_rag.lexical import MAX_TERMS, find_similar, max_edits
from kiwi_rag.model import Candidates, CollectionStatistics, ItemScores, RefusedHit
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.stores import qdrant_payload as payload
from kiwi_rag.stores.base import Capabilities, StoreStatus, one_admission
from kiwi_rag.stores.qdrant_connection import DENSE, WORDS, QdrantCollection, QdrantConnection, models
from kiwi_rag.stores.qdrant_payload import FoundPassage, ItemHead, equals, matches_path, one_of, points_of

if TYPE_CHECKING:
    from kiwi_rag.model import Admission, Candidate, EmbeddingRecord, Filters, StoredItem, StoreQuery

STAGED_SECONDS = 120.0
"""A write whose passages have been staged for so long was broken off; a later write of any item removes them."""
_MAX_VOCABULARY = 20_000
_TRIES = 12
_ROUNDS = 3
_EXPLORE = 128
_PASSAGES_AT_ONCE = 100  # some MB as JSON; a server takes 32 MB at once unless configured otherwise
_LATER = "let one machine index a file"
__all__ = ["QdrantConnection", "QdrantVectorStore"]


class QdrantVectorStore:
    """One collection as an index that several machines may write to and search.

    Nothing is contacted before the first use, and reading creates no collection.

    Parameters
    ----------
    connection
        The connection to Qdrant; several stores may share one, and each closes it.
    collection
        The collection's name.
    staged_seconds
        See `STAGED_SECONDS`.

    Raises
    ------
    ConfigError
        When no collection can have this name.
    """

    capabilities = Capabilities("qdrant", scores=False)
    """It keeps the newest version of an item."""

    def __init__(
        self, connection: QdrantConnection, collection: str, *, staged_seconds: float = STAGED_SECONDS
    ) -> None:
        self._collection = QdrantCollection(connection, collection)
        self._staged = timedelta(seconds=staged_seconds)

    async def put(self, entries: Sequence[Sequence[EmbeddingRecord]]) -> None:
        """Store admitted items and documents one after another, replacing what was there; nothing if it is the same.

        Raises
        ------
        NotAdmitted, UsageError, EmbeddingError, FingerprintMismatch
            When the records of an entry are not those of one admission in this collection's model.
        StoreBusy
            When others keep writing the same item at the same time.
        StoreUnreachable, StoreRefused, StoreError
            When the server does not take them; readers still find what was there before.
        """
        for admission, records in [(one_admission(records), records) for records in entries]:
            await self._put(admission, records)

    async def delete(self, ref: ItemRef) -> bool:
        """Remove an item; its versions stay on record. Return whether it was there in that version."""
        if await self._collection.model() is None:
            return False
        item = payload.item_key(ref)
        for _ in range(_TRIES):
            before = await self._head(item)
            if not before.generation or ref.version not in (None, before.version):
                return False
            gone = ItemHead(item, before.turn + 1, versions=before.versions)
            if await self._replace(gone, [], {"kind": "gone"}):
                return True
        raise StoreBusy(f"others keep writing {ref} at the same time", hint=_LATER)

    async def get(self, ref: ItemRef, files: Sequence[str] | None = None) -> StoredItem | None:
        """Return an item with all or some of its files; None when it is not there in that version.

        Raises
        ------
        StoreCorrupt
            When its points are malformed.
        """
        item = payload.item_key(ref)
        heads = await self._retrieve([item], with_payload=True) if await self._collection.model() else []
        if not heads or not payload.read_head(heads[0].payload, item).generation:
            return None
        stored = payload.read_item(heads[0].payload, files)
        return stored if ref.version in (None, stored.ref.version) else None

    async def list(self, filters: Filters) -> Sequence[StoredItem]:
        """Return the items that match, ordered by type and id; a malformed one has a ``problem``."""
        heads = await self._heads(filters, payload.HEAD_FIELDS)
        items = [payload.read_item_or_problem(head.payload) for head in heads]
        matching = [item for item in items if item.problem or matches_path(filters, item.ref.item_id)]
        return sorted(matching, key=lambda item: (item.ref.item_type.value, item.ref.item_id))

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """Return every version ever admitted here as version → content sha256 (hex)."""
        return (await self._head(payload.item_key(ref))).versions if await self._collection.model() else {}

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
        facet = await self._collection.call("facet", "terms", points_of("passage"), _MAX_VOCABULARY, exact=True)
        vocabulary = [str(hit.value) for hit in facet.hits]
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
            refused: list[RefusedHit] = []
            legs = await self._collection.call("query_batch_points", requests)
            if len(legs) != len(requests):
                raise StoreError(f"Qdrant answered {len(legs)} of {len(requests)} queries")
            found = _read_legs(legs, refused)
            heads = await self._retrieve(sorted({one.item for one in found}), payload.HEAD_FIELDS)
            candidates, is_complete = _candidates(found, heads, refused)
            if is_complete:
                break
        return Candidates(tuple(candidates), "hnsw" if model.indexed else "exact", tuple(dict.fromkeys(refused)))

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
            f"{passages - expected} passages belong to no item: index it again": passages > expected,
            f"{staged} passages are left of writes that broke off: the next write removes them": staged,
            f"payload indexes are missing: {', '.join(model.missing_indexes)}": model.missing_indexes,
            f"Qdrant reports the collection as {model.state}": model.state in {"red", "grey"},
        }
        problems = tuple(problem for problem, is_there in found.items() if is_there)
        details = {"collection": self._collection.name, "server": self._collection.connection.version}
        return StoreStatus(items, passages, model.fingerprint, problems, details | {"indexed": model.indexed})

    async def close(self) -> None:
        """Close the connection."""
        await self._collection.connection.close()

    async def _put(self, admission: Admission, records: Sequence[EmbeddingRecord]) -> None:
        await self._collection.create(records[0].fingerprint, len(records[0].vector))
        item, state = payload.item_key(admission.ref), payload.state_of(admission, records)
        fields = payload.head_payload(admission)
        for _ in range(_TRIES):
            before = await self._head(item)
            if before.generation.partition("-")[2] == state and await self._is_complete(before):
                return
            turn, version = before.turn + 1, admission.ref.version or ""
            # A document has no version. The first content of a version stays on record, whatever comes later.
            versions = {**({version: admission.item.content_sha256} if version else {}), **before.versions}
            generation = f"{turn}-{state}"
            head = ItemHead(item, turn, generation, len(records), version, versions)
            if await self._replace(head, payload.passage_points(records, turn, generation), fields):
                return
        raise StoreBusy(f"others keep writing {admission.ref} at the same time", hint=_LATER)

    async def _retrieve(self, items: Sequence[str], with_payload: bool | Sequence[str]) -> Sequence[models.Record]:
        """Return the heads of some items that exist."""
        ids = [payload.head_id(item) for item in items]
        return await self._collection.call("retrieve", ids, with_payload=with_payload) if ids else []

    async def _head(self, item: str) -> ItemHead:
        points = await self._retrieve([item], payload.HEAD_FIELDS)
        return payload.read_head(points[0].payload, item) if points else ItemHead(item)

    async def _heads(self, filters: Filters, fields: Sequence[str]) -> Sequence[models.Record]:
        there = await self._collection.model()
        return await self._collection.scroll(points_of("head", filters), fields) if there else []

    async def _is_complete(self, head: ItemHead) -> bool:
        return await self._collection.count(points_of("passage", generation=head.generation, item=head.item)) == head.of

    async def _replace(self, new: ItemHead, points: Sequence[models.PointStruct], fields: Mapping[str, Any]) -> bool:
        """Take steps 2 to 4; return whether the new head is the one that counts, and is complete."""
        batches = [points[start : start + _PASSAGES_AT_ONCE] for start in range(0, len(points), _PASSAGES_AT_ONCE)]
        for batch in batches[:-1]:
            await self._collection.update(_stage(batch))
        earlier = models.FieldCondition(key="turn", range=models.Range(lt=new.turn))
        remove = _delete(_passages(new.item, earlier)), _delete(self._abandoned())
        await self._collection.update(*map(_stage, batches[-1:]), _put_head(new, fields), _publish(new), *remove)
        now = await self._head(new.item)
        if (now.turn, now.generation) == (new.turn, new.generation):
            return await self._is_complete(new)
        if now.turn >= new.turn:  # else a replica lags behind, and the same is written again
            await self._collection.update(_delete(_passages(new.item, equals("generation", new.generation))))
        return False

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
        shared: dict[str, Any] = {"filter": condition, "limit": limit, "with_payload": list(payload.PASSAGE_FIELDS)}
        # Local mode is always exact, and warns when it gets parameters of an index.
        params = None if self._collection.connection.local else models.SearchParams(hnsw_ef=max(_EXPLORE, 2 * limit))
        requests = [models.QueryRequest(query=query.vector.tolist(), using=DENSE, params=params, **shared)]
        if indices := list(dict.fromkeys(payload.sparse_index(term) for term in query.terms)):
            words = models.SparseVector(indices=indices, values=[1.0] * len(indices))
            requests.append(models.QueryRequest(query=words, using=WORDS, **shared))
        return requests


def _read_legs(legs: Sequence[models.QueryResponse], refused: list[RefusedHit]) -> Collection[FoundPassage]:
    """Return what the vector leg and the words leg found; a malformed point is refused."""
    found: dict[str, FoundPassage] = {}
    for number, leg in enumerate(legs):
        for point in leg.points:
            try:
                one, score = payload.read_passage(point)
            except StoreCorrupt as error:
                refused.append(payload.refused(point.payload, error))
                continue
            one = found.setdefault(str(point.id), one)
            if number == 0:
                one.cosine = min(1.0, max(-1.0, score))
            else:
                one.words = max(0.0, score)
    return found.values()


def _candidates(
    found: Collection[FoundPassage], heads: Sequence[models.Record], refused: list[RefusedHit]
) -> tuple[list[Candidate], bool]:
    """Return the passages of the generations that count, and whether there were no others."""
    of_items: dict[str, list[FoundPassage]] = {}
    for one in found:
        of_items.setdefault(one.item, []).append(one)
    items = {payload.head_id(item): item for item in of_items}
    candidates: list[Candidate] = []
    judged = 0
    for point in heads:
        own = of_items.get(item := items.get(str(point.id), ""), [])
        try:
            generation = payload.read_head(point.payload, item).generation
            own = [one for one in own if one.generation == generation]
            # The best scores among the passages that were found are the item's: those of its others are not known.
            cosine, words = max((one.cosine for one in own), default=0.0), max((one.words for one in own), default=0.0)
            scores = ItemScores(cosine, cosine, cosine, words, words)
            candidates += [payload.read_candidate(point.payload, o.passage, o.cosine, o.words, scores) for o in own]
        except StoreCorrupt as error:
            refused.append(payload.refused(point.payload, error))
        judged += len(own)
    return candidates, judged == len(found)


def _stage(points: Sequence[models.PointStruct]) -> models.UpdateOperation:
    """Upsert staged passages, but never over one that is searched already: a writer of the same content was faster."""
    return models.UpsertOperation(upsert=models.PointsList(points=list(points), update_filter=points_of("staged")))


def _put_head(new: ItemHead, fields: Mapping[str, Any]) -> models.UpdateOperation:
    """Replace an item's head if its turn is the one before; where there is none, create it."""
    point = models.PointStruct(id=payload.head_id(new.item), vector={}, payload={**fields, **asdict(new)})
    unchanged = models.Filter(must=[equals("turn", new.turn - 1)])
    return models.UpsertOperation(upsert=models.PointsList(points=[point], update_filter=unchanged))


def _publish(new: ItemHead) -> models.UpdateOperation:
    staged = points_of("staged", item=new.item, generation=new.generation)
    return models.SetPayloadOperation(set_payload=models.SetPayload(payload={"kind": "passage"}, filter=staged))


def _delete(condition: models.Filter) -> models.UpdateOperation:
    return models.DeleteOperation(delete=models.FilterSelector(filter=condition))


def _passages(item: str, *others: Any) -> models.Filter:
    """Return the condition for an item's passages, searched or staged."""
    return models.Filter(must=[equals("item", item), one_of("kind", ("passage", "staged")), *others])
