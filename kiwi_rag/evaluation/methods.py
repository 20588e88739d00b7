"""The rows of a table: ways to rank, each asked for one query at a time.

``grep`` stands for having no index at all. The others go through the very searcher that people use, verification
included: ``bm25`` and ``vectors`` are its legs alone, ``rrf`` its fallback fusion, ``hybrid`` what it does by itself.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kiwi_rag.collection import Tier
from kiwi_rag.errors import UsageError
from kiwi_rag.evaluation.datasets import item_key, ref_of
from kiwi_rag.model import Filters, SearchQuery, SearchResult
from kiwi_rag.search.searcher import HybridSearchHandler
from kiwi_rag.signing import statement
from kiwi_rag.stores.base import VectorStore

METHODS = ("grep", "bm25", "vectors", "rrf", "hybrid")
LEGS = ("bm25", "vectors")
_WORD = re.compile(r"[a-z0-9]{3,}")

Ranking = list[tuple[tuple[str, ...], float]]
"""Hits with their scores, best first; each by its `item_key`, then those of the copies it stands for."""


@dataclass(slots=True)
class Method:
    """One way to rank, and how many of its answers were not whole because a tier failed or a hit was refused."""

    rank: Callable[[str], Awaitable[Ranking]]
    incomplete: int = field(default=0)


def named(names: Sequence[str]) -> Sequence[str]:
    """Return the names of methods in the order of `METHODS`; all of them when none is named.

    Raises
    ------
    UsageError
        When there is no method of a name.
    """
    for name in names:
        if name not in METHODS:
            raise UsageError(f"there is no method {name!r}", hint=f"one of {', '.join(METHODS)}")
    return [name for name in METHODS if not names or name in names]


async def prepare(
    names: Sequence[str],
    searcher: HybridSearchHandler,
    tiers: Sequence[Tier[VectorStore]],
    query: SearchQuery,
) -> dict[str, Method]:
    """Return the named methods, ready to be asked; `query` holds limit and weights, its text is of no account."""
    asked = {}
    for name in names:
        is_grep = name == "grep"
        asked[name] = _grep(await _texts(tiers), query.limit) if is_grep else _search(searcher, variant(query, name))
    return asked


def variant(query: SearchQuery, method: str) -> SearchQuery:
    """Return `query` as `method` asks it."""
    if method == "rrf":
        return replace(query, fusion="rrf")
    alone = {"bm25": 0.0, "vectors": 1.0}
    return replace(query, alpha=alone[method]) if method in alone else query


def _search(searcher: HybridSearchHandler, query: SearchQuery) -> Method:
    async def rank(text: str) -> Ranking:
        reply = await searcher.search(replace(query, text=text))
        asked.incomplete += not reply.complete
        return [(_names(hit), hit.score) for hit in reply.hits]

    asked = Method(rank)
    return asked


def _names(hit: SearchResult) -> tuple[str, ...]:
    """Return what a hit is called: its own name, and those of the items with the same content it stands for."""
    copies = [item_key(ref_of(address.partition("@")[0])) for address in hit.duplicates]
    return item_key(hit.ref), *copies


def _grep(texts: Mapping[str, str], limit: int) -> Method:
    """Rank as ``grep -i -c`` for each word would: by distinct words found, then by how often, then by name."""

    async def rank(text: str) -> Ranking:
        words = set(_WORD.findall(text.lower()))
        counts = {ref: [content.count(word) for word in words] for ref, content in texts.items()}
        keyed = [(-sum(n > 0 for n in found), -sum(found), ref) for ref, found in counts.items() if any(found)]
        return [((ref,), float(-distinct)) for distinct, _, ref in sorted(keyed)[:limit]]

    return Method(rank)


async def _texts(tiers: Sequence[Tier[VectorStore]]) -> dict[str, str]:
    stored = [item for tier in tiers for item in await tier.store.list(Filters())]
    return {item_key(item.ref): statement.parse(item.envelope.payload).content.lower() for item in stored}
