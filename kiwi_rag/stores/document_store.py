"""The base of `VectorStore`s that keep documents alone, on a server that ranks by itself.

The server's scores are only an order (`Capabilities.scores`), and a search fuses its legs by ranks. Points that others
wrote are not trusted: they are read strictly, and each hit is verified against its signed statement by whoever shows
it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kiwi_rag.errors import StoreCorrupt, StoreError
from kiwi_rag.lexical import MAX_TERMS, find_similar, max_edits
from kiwi_rag.model.items import EmbeddingRecord, StoredItem
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.model.search import Candidate, Candidates, CollectionStatistics, Filters, RefusedHit, StoreQuery
from kiwi_rag.retry import READING
from kiwi_rag.stores import payload
from kiwi_rag.stores.base import Capabilities, StoreStatus, one_admission, require_document, require_model
from kiwi_rag.stores.payload import FoundPassage, Point
from kiwi_rag.stores.server import ServerConnection

_ROUNDS = 3
LATER = "let one machine index a file"
OTHER_NAME = "index it under another workspace's name, which is another collection: KIWI_WORKSPACE_NAME"
OTHER_MODEL = "use that model, or empty the index: kiwi workspace index --rebuild"
_Found = list[FoundPassage]
_Hits = list[Candidate]
_Refused = list[RefusedHit]
ConnectionT = TypeVar("ConnectionT", bound=ServerConnection[Any])


@dataclass(frozen=True, slots=True)
class CollectionModel:
    """What a collection's configuration says: its embedding model, how vectors are searched, and what is wrong."""

    fingerprint: str
    dimension: int
    plan: str
    missing_indexes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def require(self, fingerprint: str, dimension: int) -> None:
        """Return if vectors of this model belong here, otherwise raise `FingerprintMismatch`."""
        require_model((self.fingerprint, self.dimension), (fingerprint, dimension), OTHER_MODEL)


@dataclass(frozen=True, slots=True)
class DocumentWrite:
    """What is written of a document: its passages, what its head says, and ``state``, a digest of all of it."""

    path: str
    state: str = ""
    records: Sequence[EmbeddingRecord] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Sequence[EmbeddingRecord]) -> DocumentWrite:
        """Return what is written of an admitted document."""
        admission = require_document(one_admission(records))
        state, fields = payload.state_of(admission, records), payload.head_payload(admission)
        return cls(admission.ref.item_id, state, records, fields)


class DocumentStore(ABC, Generic[ConnectionT]):
    """One collection as an index of documents that several machines may write to and search.

    Nothing is contacted before the first use, and reading creates no collection. It keeps a document as it was written
    last, and no items. Conditions are those of the server.
    """

    capabilities: Capabilities
    starting: Sequence[float] = READING
    """Pauses of a write as long as the server starts."""
    broken_off_seconds = 120.0
    """A write that began so long ago was broken off; the next write of any document removes what it left."""
    tries = 12
    """How often a document is written while others write it, too."""
    passages_at_once = 100
    """Some MB as JSON; a server takes 32 MB at once unless configured otherwise."""
    page = 500
    _exists = False

    def __init__(self, connection: ConnectionT, name: str, label: str, partition: str = "") -> None:
        self._connection, self._name, self._label, self._partition = connection, name, label, partition

    async def ensure_created(self, fingerprint: str, dimension: int) -> CollectionModel:
        """Create the collection for an embedding model where it is missing, or check the one that is there.

        Raises
        ------
        StoreCorrupt
            When Kiwi did not make it like this; the message says what differs.
        FingerprintMismatch
            When it was made for another model or dimension.
        StoreUnreachable, StoreRefused, StoreError
            When the server does not become ready, or does not do it.
        """
        model = await self._model(self.starting)
        if model is None:
            try:
                await self._create(fingerprint, dimension)
            except StoreError:  # another writer may have created it between the check and the call
                if not await self._check_exists(READING):
                    raise
            model = await self._model()
        if model is None:
            raise StoreError(f"there is no {self._label}, though it was created just now")
        model.require(fingerprint, dimension)
        return model

    async def put(self, entries: Sequence[Sequence[EmbeddingRecord]]) -> None:
        """Store admitted documents, replacing what was there; nothing if it is the same.

        Raises
        ------
        NotAdmitted, UsageError, EmbeddingError, FingerprintMismatch
            When the records of an entry are not those of one admitted document in this collection's model.
        StoreBusy
            When others keep writing the same document at the same time.
        StoreUnreachable, StoreRefused, StoreError
            When the server does not take them; readers still find what was there before.
        """
        writes = [DocumentWrite.of(records) for records in entries]
        for model in dict.fromkeys((records[0].fingerprint, len(records[0].vector)) for records in entries):
            await self.ensure_created(*model)
        if writes:
            await self._write(writes)

    async def get(self, ref: ItemRef, files: Sequence[str] | None = None) -> StoredItem | None:
        """Return a document; None when it is not there. A document has no files.

        Raises
        ------
        StoreCorrupt
            When its points are malformed.
        """
        heads = await self._retrieve([self._head_id(ref.item_id)]) if await self._has(ref) else []
        if not heads or not payload.read_head(heads[0].payload, ref.item_id).generation:
            return None
        return payload.read_document(heads[0].payload)

    async def list(self, filters: Filters) -> Sequence[StoredItem]:
        """Return the documents that match, ordered by path; a malformed one has a ``problem``."""
        heads = await self._heads(filters) if await self._model() else []
        found = [payload.read_document_or_problem(head.payload) for head in heads]
        matching = [one for one in found if one.problem or payload.matches_path(filters, one.ref.item_id)]
        return sorted(matching, key=lambda one: one.ref.item_id)

    async def history(self, ref: ItemRef) -> Mapping[str, str]:
        """Return nothing: documents have no versions."""
        return {}

    async def statistics(self, terms: Sequence[str]) -> CollectionStatistics:
        """Return counts: passages, their total length in terms, each term's document frequency, and items."""
        if await self._model() is None:
            return CollectionStatistics()
        distinct = list(dict.fromkeys(term for term in terms if term))
        (passages, length), items, counts = await asyncio.gather(
            self._sum("length", self._of("passage")),
            self._count(self._of("head")),
            asyncio.gather(*(self._count(self._of("passage", terms=term)) for term in distinct)),
        )
        occurring = {term: count for term, count in zip(distinct, counts, strict=True) if count}
        return CollectionStatistics(passages, length, occurring, items)

    async def similar_terms(self, terms: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Return what each of up to `kiwi_rag.lexical.MAX_TERMS` terms may be a slip for, the most frequent first."""
        slips = [term for term in dict.fromkeys(terms) if max_edits(term)][:MAX_TERMS]
        if not slips or await self._model() is None:
            return {}
        near = await self._terms_near(slips)
        return {slip: tuple(find_similar(slip, found)) for slip, found in zip(slips, near, strict=True)}

    async def search(self, query: StoreQuery) -> Candidates:
        """Return the union of both legs' best `query.depth` passages; the scores of a leg are only an order.

        Raises
        ------
        FingerprintMismatch
            When the collection holds vectors of another model.
        StoreUnreachable, StoreError
            When the server gives no answer: never an empty one in its place.
        """
        model = await self._model()
        if model is None:
            return Candidates((), "exact")
        model.require(query.fingerprint, len(query.vector))
        stale: frozenset[str] = frozenset()
        for _ in range(_ROUNDS):
            refused: list[RefusedHit] = []
            found = self._read_legs(await self._search_legs(query, stale), refused)
            found = [one for one in found if payload.matches_path(query.filters, one.path)]
            heads = await self._retrieve([self._head_id(path) for path in sorted({one.path for one in found})])
            candidates, stale = self._candidates(found, heads, refused)
            if not stale:  # else a writer is between two steps
                break
        return Candidates(tuple(candidates), model.plan, tuple(dict.fromkeys(refused)))

    async def status(self) -> StoreStatus:
        """Return counts and health."""
        model = await self._model()
        if model is None:
            return StoreStatus(0, 0, "", (f"there is no {self._label} yet: index into it",))
        (items, expected), (passages, _), (others, is_written) = await asyncio.gather(
            self._sum("of", self._of("head")), self._sum("length", self._of("passage")), self._unfinished()
        )
        found = {
            f"{expected - passages} passages are missing: index it again": passages < expected,
            f"{passages - expected} passages belong to no document: index it again": passages > expected,
        }
        problems = [problem for problem, is_there in found.items() if is_there and not is_written]
        details = {"collection": self._label, "server": self._connection.version, "plan": model.plan}
        return StoreStatus(items, passages, model.fingerprint, (*problems, *others, *model.problems), details)

    async def clear(self) -> None:
        """Remove everything; another model may be used afterwards where no other partition is in the collection."""
        if await self._model() is not None:
            await self._drop()
            self._exists = False

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    @abstractmethod
    async def delete(self, ref: ItemRef) -> bool:
        """Remove a document; return whether it was there."""

    @abstractmethod
    async def _write(self, writes: Sequence[DocumentWrite]) -> None:
        """Replace documents in their order, those that are not as written already."""

    @abstractmethod
    async def _heads(self, filters: Filters) -> Sequence[Point]:
        """Return the heads that match, but for wildcards in a path."""

    @abstractmethod
    async def _search_legs(self, query: StoreQuery, stale: frozenset[str]) -> Sequence[Sequence[Point]]:
        """Return what the vector leg and the words leg find; the round before found `stale` generations."""

    @abstractmethod
    async def _terms_near(self, slips: Sequence[str]) -> Sequence[Sequence[str]]:
        """Return for each slip terms that it may be a slip for, the most frequent first."""

    @abstractmethod
    async def _unfinished(self) -> tuple[Sequence[str], bool]:
        """Return what is left of writes that broke off, as problems, and whether others may be under way."""

    @abstractmethod
    async def _check_exists(self, pauses: Sequence[float]) -> bool:
        """Whether there is a collection of this name."""

    @abstractmethod
    async def _read_model(self) -> CollectionModel:
        """Return what the collection's configuration says; `StoreCorrupt` when Kiwi did not make it like this."""

    @abstractmethod
    async def _create(self, fingerprint: str, dimension: int) -> None:
        """Create the collection for an embedding model."""

    @abstractmethod
    async def _drop(self) -> None:
        """Remove everything of this collection."""

    @abstractmethod
    def _of(self, kind: str, filters: Filters | None = None, *others: Any, **values: str) -> Any:
        """Return the condition for points of a kind that pass filters and other conditions, and have some values."""

    @abstractmethod
    async def _count(self, condition: Any) -> int:
        """Return how many points match."""

    @abstractmethod
    async def _sum(self, field: str, condition: Any) -> tuple[int, int]:
        """Return how many of the points that match have a number, and the sum of the numbers."""

    @abstractmethod
    async def _retrieve(self, ids: Sequence[str]) -> Sequence[Point]:
        """Return the points of some ids that exist."""

    async def _model(self, pauses: Sequence[float] = READING) -> CollectionModel | None:
        """Return what the collection's configuration says; None when there is no collection of this name."""
        self._exists = self._exists or await self._check_exists(pauses)
        if not self._exists:
            return None
        try:
            return await self._read_model()
        except StoreError:
            self._exists = False  # it may have been dropped: the next use checks again
            raise

    async def _has(self, ref: ItemRef) -> bool:
        """Whether such a document may be stored."""
        return ref.item_type is ItemType.DOCUMENT and await self._model() is not None

    def _head_id(self, path: str) -> str:
        return payload.head_id(path, self._partition)

    @contextmanager
    def _refusing(self, point: Point, refused: _Refused) -> Iterator[None]:
        """Add a point that is malformed to the refused ones."""
        try:
            yield
        except StoreCorrupt as error:
            refused.append(RefusedHit(payload.ref_of(point.payload), self.capabilities.kind, error.code, error.message))

    def _read_legs(self, legs: Sequence[Sequence[Point]], refused: _Refused) -> Iterable[FoundPassage]:
        """Return the passages that the vector leg and the words leg found."""
        found: dict[str, FoundPassage] = {}
        for number, leg in enumerate(legs):
            for point in leg:
                with self._refusing(point, refused):
                    one = found.setdefault(point.id, payload.read_passage(point, self._partition))
                    if number == 0:
                        one.cosine = min(1.0, max(-1.0, point.score))
                    else:
                        one.words = max(0.0, point.score)
        return found.values()

    def _candidates(self, found: _Found, heads: Sequence[Point], refused: _Refused) -> tuple[_Hits, frozenset[str]]:
        """Return the passages of the generations that count, and the generations of the others."""
        by_head: dict[str, _Found] = {}
        for one in found:
            by_head.setdefault(self._head_id(one.path), []).append(one)
        candidates: _Hits = []
        judged: set[str] = set()
        for point in heads:
            own = by_head.get(point.id, [])
            with self._refusing(point, refused):
                generation = payload.read_head(point.payload, own[0].path if own else "").generation
                own = [one for one in own if one.generation == generation]
                # Nothing is left of a document that was deleted or replaced meanwhile.
                candidates += payload.read_candidates(point.payload, own) if own else []
            judged |= {one.generation for one in own}
        return candidates, frozenset(one.generation for one in found) - judged

    async def _read_heads(self, paths: Collection[str]) -> Mapping[str, payload.DocumentHead]:
        """Return the heads of some documents, those that were never written too."""
        points = {point.id: point for point in await self._retrieve(list(map(self._head_id, paths)))}
        found = {path: points.get(self._head_id(path)) for path in paths}
        empty = payload.DocumentHead
        return {path: payload.read_head(p.payload, path) if p else empty(path) for path, p in found.items()}
