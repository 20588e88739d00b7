"""What BM25 needs to know of a collection, and its vocabulary: told by the server's payload indexes, exactly."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from kiwi_rag.errors import StoreCorrupt
from kiwi_rag.lexical import MAX_TERMS, max_edits, near
from kiwi_rag.model import CollectionStatistics
from kiwi_rag.stores.qdrant.layout import bucket
from kiwi_rag.stores.qdrant.narrowing import equals, unsettled

if TYPE_CHECKING:
    from qdrant_client import models

    from kiwi_rag.stores.qdrant.collection import Collection

_MAX_VOCABULARY = 20_000


async def statistics(collection: Collection, terms: Sequence[str]) -> CollectionStatistics:
    """Return passages, their total length, each term's document frequency, and items."""
    pending = await unsettled(collection)
    distinct = list(dict.fromkeys(term for term in terms if term))
    counting = asyncio.gather(*(_frequency(collection, term, pending) for term in distinct))
    (passages, length), items, counts = await asyncio.gather(
        _lengths(collection, pending), count_items(collection), counting
    )
    occurring = {term: count for term, count in zip(distinct, counts, strict=True) if count}
    return CollectionStatistics(passages, length, occurring, items)


async def count_items(collection: Collection) -> int:
    """Return how many items there are."""
    from qdrant_client import models

    return await collection.count(models.Filter(must=[equals("kind", "head")]))


async def count_writes(collection: Collection, before: datetime) -> int:
    """Return how many writes began before a time and have not ended."""
    from qdrant_client import models

    old = models.FieldCondition(key="at", range=models.DatetimeRange(lt=before))
    return await collection.count(models.Filter(must=[equals("kind", "writing"), old]))


async def count_passages(collection: Collection) -> tuple[int, int]:
    """Return how many passages there are, and how many the heads say there should be."""
    from qdrant_client import models

    pending = await unsettled(collection)
    heads = models.Filter(must=[equals("kind", "head")])
    there, promised = await asyncio.gather(_lengths(collection, pending), collection.facet("of", heads))
    return there[0], _sum(promised)[1]


async def similar_terms(collection: Collection, terms: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return what those terms that can be slips may be slips for, the most frequent first."""
    slips = [term for term in dict.fromkeys(terms) if max_edits(term)][:MAX_TERMS]
    pending = await unsettled(collection)
    buckets = sorted({bucket(term) for term in slips})
    told = await asyncio.gather(*(_vocabulary(collection, key, pending) for key in buckets))
    known = dict(zip(buckets, told, strict=True))
    return {term: tuple(near(term, known[bucket(term)])) for term in slips}


async def _vocabulary(collection: Collection, key: str, pending: Sequence[models.Filter]) -> list[str]:
    hits = await collection.facet(key, _but(pending), _MAX_VOCABULARY)
    return [str(hit.value) for hit in hits]


async def _lengths(collection: Collection, pending: Sequence[models.Filter]) -> tuple[int, int]:
    return _sum(await collection.facet("length", _but(pending)))


async def _frequency(collection: Collection, term: str, pending: Sequence[models.Filter]) -> int:
    from qdrant_client import models

    condition = models.Filter(must=[equals(bucket(term), term)], must_not=list(pending) or None)
    return await collection.count(condition)


def _but(pending: Sequence[models.Filter]) -> models.Filter | None:
    from qdrant_client import models

    return models.Filter(must_not=list(pending)) if pending else None


def _sum(hits: Sequence[models.FacetValueHit]) -> tuple[int, int]:
    """Return how many points have one of a number's values, and what the values add up to."""
    counts: Mapping[int, int] = {hit.value: hit.count for hit in hits if isinstance(hit.value, int)}
    if any(value < 0 or count < 0 for value, count in counts.items()):
        raise StoreCorrupt("Qdrant gave a negative count", hint="did something else write to this collection?")
    return sum(counts.values()), sum(value * count for value, count in counts.items())
