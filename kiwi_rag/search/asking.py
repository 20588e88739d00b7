"""What each tier is asked: first how often the terms occur, then, with the sums of all tiers, its candidates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kiwi_rag.embedding.base import EmbeddingProvider
from kiwi_rag.lexical import query_terms
from kiwi_rag.model import Candidates, CollectionStatistics, SearchQuery, StoreQuery
from kiwi_rag.search import typos
from kiwi_rag.search.asked import Asked
from kiwi_rag.search.fuse import Found
from kiwi_rag.search.plausible import check_candidates, check_statistics

if TYPE_CHECKING:
    from kiwi_rag.model import Vector

LEG_DEPTH = 100


async def ask_first(
    query: SearchQuery, asked: Sequence[Asked], embed: EmbeddingProvider, *, mend: bool = True
) -> tuple[StoreQuery, dict[str, str], float]:
    """Embed a query, and ask every tier for its statistics meanwhile.

    With `mend` words that nobody holds are read as near ones. Returns the question to ask for candidates, word → what
    it is read as, and the seconds that embedding took.
    """
    terms = query_terms(query.text)
    embedding = asyncio.ensure_future(_embedded(query.text, embed))
    statistics = await ask_statistics(asked, terms)
    terms, read_as = await ask_again(asked, query.text, terms, statistics) if mend else (terms, {})
    vector, seconds = await embedding
    question = StoreQuery(vector, terms, merged(asked), query.filters, str(embed.fingerprint), depth_of(query))
    return question, read_as, seconds


async def ask_statistics(asked: Sequence[Asked], terms: Sequence[str]) -> CollectionStatistics:
    """Ask every tier for its statistics, and a registry for what it says of itself beside it; return their sum."""
    await asyncio.gather(*(_count(a, terms) for a in asked))
    return merged(asked)


async def ask_again(
    asked: Sequence[Asked], text: str, terms: tuple[str, ...], statistics: CollectionStatistics
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Ask for what was meant by words that are nowhere; return the terms to search for, and word → what it is read as.

    Nothing is asked when every word is known.
    """
    unknown = typos.unknown_terms(text, statistics)
    if not unknown:
        return terms, {}
    similar = await asyncio.gather(*(_similar(a, tuple(unknown)) for a in asked if a.answers))
    options = typos.options(unknown, similar)
    known = await ask_statistics([a for a in asked if a.answers], [*terms, *typos.asked_for(options)])
    chosen = typos.choose(options, known)
    meant = typos.reread(terms, chosen)
    for a in asked:
        frequency = {t: df for t, df in a.statistics.document_frequency.items() if t in meant}
        a.statistics = replace(a.statistics, document_frequency=frequency)
    return meant, {unknown[term]: option for term, option in chosen.items()}


async def ask_candidates(asked: Sequence[Asked], question: StoreQuery) -> StoreQuery:
    """Ask every tier that answers for its candidates; return the question as it was asked in the end.

    A tier that fails now has no say in the others' scores either: where its statistics counted, they are asked again
    without it, so that their hits are those of a search that never knew of it.
    """
    while True:
        answering = [a for a in asked if a.answers]
        question = replace(question, statistics=merged(answering))
        await asyncio.gather(*(_candidates(a, question) for a in answering))
        if merged(asked) == question.statistics:
            return question


async def ask_deeper(asked: Sequence[Asked], question: StoreQuery, depth: int) -> StoreQuery:
    """Ask for more candidates of each leg those tiers that gave as many as they were asked for."""
    deeper, before = replace(question, depth=depth), merged(asked)
    full = [a for a in asked if a.answers and len(a.candidates.items) >= question.depth]
    await asyncio.gather(*(_candidates(a, deeper) for a in full))
    return deeper if merged(asked) == before else await ask_candidates(asked, deeper)


def merged(asked: Sequence[Asked]) -> CollectionStatistics:
    """Return the sum of the statistics of the tiers that answer."""
    return sum((a.statistics for a in asked if a.answers), CollectionStatistics())


def found(asked: Sequence[Asked]) -> list[Found]:
    """Return every candidate that a tier gave and that did not turn out to be none, with the tier that gave it."""
    return [
        Found(a.tier.name, a.tier.rank, a.candidates.plan, c)
        for a in asked
        for c in a.candidates.items
        if c.ref.key not in a.refused and c.ref.key not in a.unverified
    ]


def depth_of(query: SearchQuery) -> int:
    """Return how many passages each leg gives: enough that `limit` items remain after grouping."""
    return max(LEG_DEPTH, query.limit * 10)


async def _embedded(text: str, embed: EmbeddingProvider) -> tuple[Vector, float]:
    started = time.monotonic()
    return await embed.query(text), time.monotonic() - started


async def _count(asked: Asked, terms: Sequence[str]) -> None:
    async def count() -> CollectionStatistics:
        counting = asyncio.ensure_future(asked.tier.store.statistics(terms))
        try:
            if asked.tier.witness and asked.look is None:
                asked.look = await asked.tier.witness.look()  # rides beside the count: no round trip more
            return check_statistics(await counting)
        finally:
            counting.cancel()
            await asyncio.gather(counting, return_exceptions=True)

    asked.statistics = await asked.guard("statistics", count()) or asked.statistics


async def _similar(asked: Asked, terms: Sequence[str]) -> Mapping[str, Sequence[str]]:
    async def ask() -> Mapping[str, Sequence[str]]:
        return await asked.tier.store.similar_terms(terms)

    return await asked.guard("statistics", ask()) or {}


async def _candidates(asked: Asked, question: StoreQuery) -> None:
    async def search() -> Candidates:
        return check_candidates(await asked.tier.store.search(question), question)

    asked.candidates = await asked.guard("candidates", search()) or Candidates((), "")
    if asked.candidates.refused and asked.answers:
        asked.state = "refused"
