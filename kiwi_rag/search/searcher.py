"""One query over several collections: embed it, fetch candidates from each, rank, choose, and verify.

Items of several tiers are ranked together, each as a whole, and diversified (`diversify`). The documents of a workspace
are ranked passage by passage (`passages`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kiwi_rag.collection import MEMORY, Collection
from kiwi_rag.embedding import EmbeddingProvider
from kiwi_rag.errors import KiwiError, UsageError
from kiwi_rag.model import RefusedHit, SearchExplanation, SearchQuery, SearchReply, StoreQuery, Vector
from kiwi_rag.search.corrections import spell_out
from kiwi_rag.search.diversify import ItemChoice
from kiwi_rag.search.hits import Verifier
from kiwi_rag.search.ranking import check_weights, weights_of
from kiwi_rag.search.tier_query import TierQuery, fetch_candidates, fetch_deeper, prepare_query
from kiwi_rag.signing.trust import TrustPolicy
from kiwi_rag.sources.file_states import RunState
from kiwi_rag.telemetry import current_span, span

if TYPE_CHECKING:
    from kiwi_rag.search.passages import PassageChoice

DEEPER = 5
"""By which factor the depth of a leg grows when hits are missing."""
MAX_DEPTH = 2_000
"""The most passages of a leg that a registry returns."""
MAX_LIMIT = 200
MAX_QUERY_CHARACTERS = 10_000


class Searcher:
    """Searches collections by vectors and by words, and returns only hits that verify.

    Parameters
    ----------
    collections
        The tiers whose items are searched, or one workspace.
    embed
        The embedding provider; its fingerprint must be that of the collections' vectors.
    deadline
        Seconds that a collection may take in all, the verification of its hits included.
    """

    def __init__(self, collections: Sequence[Collection], embed: EmbeddingProvider, deadline: float = 10.0) -> None:
        self._collections = collections
        self._embed = embed
        self._deadline = deadline

    async def search(self, query: SearchQuery, vector: Awaitable[Vector] | None = None) -> SearchReply:
        """Embed the query, search each collection, rank, apply shadowing, and verify.

        `vector` is the query's if its embedding has begun already, in the span of this search.

        A tier that fails costs at most its deadline, from its first request to its last verified hit, and the reply
        names it: a failure never makes the reply shorter without a notice. Raises `UsageError` for an invalid query,
        `EmbeddingError` when the model fails.
        """
        check_query(query)
        attributes: dict[str, Any] = {"source": query.source, "limit": query.limit}
        with current_span(**attributes) if vector else span("kiwi.search", **attributes) as set_attributes:
            reply = await self._search(query, vector)
            set_attributes(hits=len(reply.hits), refused=len(reply.refused), complete=reply.complete)
            return reply

    async def _search(self, query: SearchQuery, vector: Awaitable[Vector] | None) -> SearchReply:
        started = time.monotonic()
        tier_queries = [TierQuery(one, self._deadline) for one in self._collections]
        store_query, corrections, embedding = await prepare_query(query, tier_queries, self._embed, vector)
        trusts = await asyncio.to_thread(_read_trusts, tier_queries)
        verifier = Verifier(tier_queries, trusts, store_query.fingerprint)
        workspace = next((tq for tq in tier_queries if tq.tier.workspace), None)
        choice = _choice_type(workspace.tier.name if workspace else "")(query, tier_queries, verifier)
        store_query, rounds = await _choose(choice, store_query, tier_queries, query.limit)
        hits = await choice.finish()
        refused = [*verifier.refused, *(hit for tq in tier_queries for hit in _record_unreadable(tq))]
        await asyncio.gather(*(_save_pinned_state(tq) for tq in tier_queries))
        unfinished = workspace is not None and await _is_unfinished(workspace)
        seconds = {"embedding": embedding, "fusion": choice.seconds, "whole": time.monotonic() - started}
        explanation = SearchExplanation(
            store_query.terms, store_query.statistics, choice.fusion, choice.weights, seconds, rounds,
            store_query.depth, choice.signers, choice.cap, choice.suppressed,
        )  # fmt: skip
        texts = (f"{hit.metadata.get('title', '')} {hit.passage.indexed_text}" for hit in hits)
        corrections = spell_out(corrections, texts) if corrections else {}
        outcomes, gone = tuple(tq.outcome() for tq in tier_queries), tuple(choice.gone)
        close = None if unfinished else choice.is_close(store_query.fingerprint)
        return SearchReply(
            query, hits, outcomes, tuple(refused), explanation, corrections, choice.kind, gone, unfinished, close
        )


def _choice_type(documents: str) -> type[ItemChoice | PassageChoice]:
    """Return the class that chooses the hits, by the name of the tier of documents, empty where items are searched.

    That of documents needs the gate, which a search of items does not.
    """
    if not documents:
        return ItemChoice
    from kiwi_rag.search.exchanges import ExchangeChoice
    from kiwi_rag.search.passages import PassageChoice

    return ExchangeChoice if documents == MEMORY else PassageChoice


async def _choose(
    choice: ItemChoice | PassageChoice, store_query: StoreQuery, tier_queries: Sequence[TierQuery], limit: int
) -> tuple[StoreQuery, int]:
    """Fetch candidates and choose hits, deeper as long as hits are missing and there may be more candidates.

    Without the deeper rounds one item with many passages could displace all others. Returns the last query of the
    stores, and the number of rounds.
    """
    store_query, rounds = await fetch_candidates(tier_queries, store_query), 1
    await choice.choose(store_query)
    while len(choice.hits) < limit and _may_have_more(tier_queries, store_query.depth):
        depth = min(store_query.depth * DEEPER, MAX_DEPTH)
        store_query, rounds = await fetch_deeper(tier_queries, store_query, depth), rounds + 1
        await choice.choose(store_query)
    return store_query, rounds


def _may_have_more(tier_queries: Sequence[TierQuery], depth: int) -> bool:
    """Whether the tiers together returned as many candidates as one leg's depth: then there may be others."""
    count = sum(len(tq.candidates.items) for tq in tier_queries if tq.answers)
    return depth < MAX_DEPTH and count >= depth


def _read_trusts(tier_queries: Sequence[TierQuery]) -> Mapping[str, TrustPolicy]:
    """Return whose statements each tier accepts; what one registry revoked counts in no tier."""
    read = {trust: trust() for trust in {tq.tier.trust for tq in tier_queries}}
    for consistency in [tq.consistency for tq in tier_queries if tq.consistency]:
        read = {trust: consistency.apply_revocations(policy) for trust, policy in read.items()}
    return {tq.tier.name: read[tq.tier.trust] for tq in tier_queries}


async def _is_unfinished(workspace: TierQuery) -> bool:
    """Whether the last index run of a workspace on this machine was interrupted, or is still running."""
    states = workspace.tier.states
    if states is None:
        return False
    return await workspace.guard("statistics", asyncio.to_thread(states.run_state)) == RunState.BEGUN


def _record_unreadable(tier_query: TierQuery) -> Sequence[RefusedHit]:
    """Return what a store left out because it cannot be read, after writing each to the audit log."""
    for hit in tier_query.candidates.refused:
        tier_query.record(hit)
    return tier_query.candidates.refused


async def _save_pinned_state(tier_query: TierQuery) -> None:
    try:
        if tier_query.consistency:
            await asyncio.to_thread(tier_query.consistency.save)
    except KiwiError as error:
        tier_query.fail(error)


def check_query(query: SearchQuery) -> None:
    """Raise `UsageError` when a query is invalid."""
    if not query.text.strip():
        raise UsageError("the query is empty", hint='describe what to find, such as "roll back a deploy"')
    if len(query.text) > MAX_QUERY_CHARACTERS:
        hint = "describe what to find; of a text to compare with, use the first paragraph"
        raise UsageError(f"the query is over {MAX_QUERY_CHARACTERS} characters", hint=hint)
    if not 1 <= query.limit <= MAX_LIMIT:
        hint = "--limit 10, or the setting limit"
        raise UsageError(f"limit {query.limit} is not between 1 and {MAX_LIMIT}", hint=hint)
    if query.half_life_days is not None and not query.half_life_days >= 0:
        hint = "the setting half_life_days; 0: age does not count"
        raise UsageError("half_life_days is not a number from 0 up", hint=hint)
    if query.per_signer is not None and query.per_signer < 0:
        raise UsageError("per_signer is not a number from 0 up", hint="--per-signer 3, or --per-signer off")
    check_weights(weights_of(query))
