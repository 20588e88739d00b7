"""What commands and tools do: functions over `Services` that return records, and never print, prompt or exit.

Here is the search of the tiers: the settings applied to the query, and one page after another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

from kiwi_rag.config import Settings
from kiwi_rag.model import Filters, ItemType, SearchQuery, SearchReply, SearchResult
from kiwi_rag.services import Services

MAX_HITS = 200
_FILTERS = {field.name for field in fields(Filters)}


def filters_of(given: Mapping[str, Any]) -> Filters:
    """Return the filters among the options of a command or the arguments of a tool."""
    found = {name: value for name, value in given.items() if name in _FILTERS and value}
    if "item_type" in found:
        found["item_type"] = ItemType(found["item_type"])
    return Filters(**{**found, "tags": tuple(found.get("tags", ()))})


def apply_settings(query: SearchQuery, settings: Settings) -> SearchQuery:
    """Return a query with the search settings, which include the flags of this call."""
    return replace(
        query,
        source=settings.source,
        limit=settings.limit,
        alpha=query.alpha if query.alpha is not None or settings.alpha < 0 else settings.alpha,
        half_life_days=settings.half_life_days or None,
        per_signer=None if settings.per_signer < 0 else settings.per_signer,
    )


async def search(
    app: Services, query: SearchQuery, *, source: str = "", limit: int | None = None, begin: int = 0
) -> SearchReply:
    """Search the tiers, and return the hits of the page that contains position `begin`.

    One signer may have at most half of the hits, so which hits are shown depends on their number. Every page therefore
    starts from the same first search, and a later one appends the hits of a second search without that limit: none is
    repeated or missing.

    Parameters
    ----------
    source, limit
        Used in place of the settings', if they are given.
    begin
        Below the limit for the first page.
    """
    query = apply_settings(query, app.settings)
    query = replace(query, source=source or query.source, limit=query.limit if limit is None else limit)
    async with app.begin_embedding(query.text) as vector:
        return await search_page(partial(app.searcher(query.source).search, vector=vector), query, begin)


async def search_page(
    search: Callable[[SearchQuery], Awaitable[SearchReply]], query: SearchQuery, begin: int
) -> SearchReply:
    """Return the hits of the page that contains position `begin`, and those before it.

    A later page searches as deep as possible, whatever its number: every page then continues the same list.
    """
    first = await search(query)
    if begin < query.limit:
        return first
    deep = await search(replace(query, limit=MAX_HITS, per_signer=0))
    shown = {_identity(hit) for hit in first.hits}
    return replace(deep, hits=(*first.hits, *(hit for hit in deep.hits if _identity(hit) not in shown)))


def _identity(hit: SearchResult) -> object:
    """Return what a hit is: an item, or a passage of a document."""
    return hit.ref.key, hit.passage.ordinal if hit.ref.item_type is ItemType.DOCUMENT else 0
