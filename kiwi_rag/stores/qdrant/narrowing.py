"""What a search is narrowed to, as Qdrant's conditions: filters, and leaving out what is only being written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any

from kiwi_rag.stores.qdrant import layout
from kiwi_rag.stores.qdrant.collection import MAX_FACETS

if TYPE_CHECKING:
    from qdrant_client import models

    from kiwi_rag.model import Filters
    from kiwi_rag.stores.qdrant.collection import Collection

_WILD = "*?"


def equals(key: str, value: str | int) -> models.FieldCondition:
    """Return the condition that a field has a value, or that a list of values holds it."""
    from qdrant_client import models

    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


def one_of(key: str, values: Sequence[str]) -> models.FieldCondition:
    """Return the condition that a field has one of some values; of none, a condition that nothing meets."""
    from qdrant_client import models

    return models.FieldCondition(key=key, match=models.MatchAny(any=list(values) or [""]))


async def unsettled(collection: Collection) -> list[models.Filter]:
    """Return a condition for each item that is being written, or whose writer broke off: what of it does not count.

    There are a few of them at most, so that what counts is told exactly by one more condition on every question.
    """
    from qdrant_client import models

    writings = await collection.scroll(models.Filter(must=[equals("kind", "writing")]), ("item",))
    items = sorted({item for point in writings if isinstance(item := (point.payload or {}).get("item"), str)})
    counting = await generations(collection, items)
    return [
        models.Filter(must=[equals("item", item)], must_not=[equals("generation", counting.get(item, ""))])
        for item in items
    ]


async def generations(collection: Collection, items: Sequence[str]) -> dict[str, str]:
    """Return item → the generation of it that counts, for those that have one."""
    points = await collection.retrieve([layout.head_id(item) for item in items], ("item", "generation"))
    told = ((point.payload or {}) for point in points)
    return {str(head.get("item")): str(head.get("generation") or "") for head in told}


async def passages_of(
    collection: Collection, filters: Filters, pending: Sequence[models.Filter]
) -> models.Filter | None:
    """Return the condition for the passages that count and pass the filters; None when all do."""
    from qdrant_client import models

    must = conditions(filters)
    if _pattern(filters):
        must.append(one_of("item_id", await _paths(collection, must, filters)))
    if not (must or pending):
        return None
    return models.Filter(must=must or None, must_not=list(pending) or None)


def heads_of(filters: Filters) -> models.Filter:
    """Return the condition for the heads of items that are there, as far as Qdrant can tell; see `matches_path`."""
    from qdrant_client import models

    return models.Filter(must=[equals("kind", "head"), *conditions(filters)])


def conditions(filters: Filters) -> list[Any]:
    """Return the conditions that heads and passages alike are narrowed by; a path's pattern only by its folder."""
    texts = {
        "item_type": filters.item_type.value if filters.item_type else "",
        "category": filters.category,
        "author": filters.author,
        "namespace": filters.namespace,
        "service": filters.service,
        "domain": filters.domain,
        "folders": _folder(_pattern(filters)),
    }
    found: list[Any] = [equals(key, value) for key, value in texts.items() if value]
    found += [one_of("file_type", filters.file_types)] if filters.file_types else []
    found += [equals("tags", tag) for tag in sorted(set(filters.tags))]
    return found + _at_path(filters) + _signed(filters)


def matches_path(filters: Filters, item_id: str) -> bool:
    """Whether a path passes the filters: itself, or as one of the folders above."""
    pattern = filters.path.rstrip("/")
    if not pattern:
        return True
    parts = ((".*" if sign == "*" else "." if sign == "?" else re.escape(sign)) for sign in pattern)
    return re.fullmatch(f"(?s:{''.join(parts)})(?:/.*)?", item_id) is not None


def _at_path(filters: Filters) -> list[Any]:
    """Return the condition for a path without wild cards: a file, or a folder and all below it."""
    from qdrant_client import models

    path = filters.path.rstrip("/")
    if not path or _pattern(filters):
        return []
    return [models.Filter(should=[equals("item_id", path), equals("folders", path)])]


def _signed(filters: Filters) -> list[Any]:
    from qdrant_client import models

    found: list[Any] = []
    if filters.signer:
        found.append(models.Filter(should=[equals(key, filters.signer) for key in ("principal", "key_id")]))
    if filters.since:
        since = filters.since if filters.since.tzinfo else filters.since.replace(tzinfo=UTC)
        found.append(models.FieldCondition(key="signed_at", range=models.DatetimeRange(gte=since)))
    return found


def _pattern(filters: Filters) -> str:
    return filters.path.rstrip("/") if any(sign in filters.path for sign in _WILD) else ""


def _folder(pattern: str) -> str:
    """Return the folders that a pattern names before its first wild card."""
    literal = pattern[: min((pattern.index(sign) for sign in _WILD if sign in pattern), default=0)]
    return literal.rpartition("/")[0]


async def _paths(collection: Collection, must: Sequence[Any], filters: Filters) -> list[str]:
    """Return the paths that match a pattern: Qdrant has no such condition, but tells all paths at once."""
    from qdrant_client import models

    heads = models.Filter(must=[*must, equals("kind", "head")])
    told = [str(hit.value) for hit in await collection.facet("item_id", heads)]
    if len(told) >= MAX_FACETS:
        points = await collection.scroll(heads, ("item_id",))
        told = [str((point.payload or {}).get("item_id")) for point in points]
    return [path for path in told if matches_path(filters, path)]
