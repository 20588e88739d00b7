"""One query over several tiers: embed it, fetch candidates from each tier, rank, diversify, and verify."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from kiwi_rag.collection import Tier
from kiwi_rag.embedding.base import EmbeddingProvider
from kiwi_rag.errors import KiwiError, UsageError
from kiwi_rag.lexical import max_term_score
from kiwi_rag.model import (
    Explanation,
    FusionMethod,
    FusionWeights,
    RefusedHit,
    SearchQuery,
    SearchReply,
    SearchResult,
    StoreQuery,
)
from kiwi_rag.search.diversify import Selection, count_near_signers, diversify, resolve_cap
from kiwi_rag.search.hits import Verifier
from kiwi_rag.search.ranking import (
    Fusion,
    RankedHit,
    Recency,
    apply_shadowing,
    check_weights,
    default_weights,
    fuse,
    sort_key,
)
from kiwi_rag.search.state import read_states
from kiwi_rag.search.tier_query import (
    TierQuery,
    collect_candidates,
    fetch_candidates,
    fetch_deeper,
    prepare_query,
)
from kiwi_rag.signing.trust import TrustPolicy
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.telemetry import span

DEEPER = 5
"""By which factor the depth of a leg grows when hits are missing."""
MAX_DEPTH = 2_000
"""The most passages of a leg that a registry returns."""
MAX_LIMIT = 200
MAX_QUERY_CHARACTERS = 10_000


class HybridSearchHandler:
    """Searches tiers by vectors and by words, and returns only hits that verify.

    Parameters
    ----------
    tiers
        The tiers to search.
    embed
        The embedding provider; its fingerprint must be that of the tiers' vectors.
    trust, audience
        What every hit is verified against.
    deadline
        Seconds that a tier may take in all, the verification of its hits included.
    """

    def __init__(
        self,
        tiers: Sequence[Tier[VectorStore]],
        embed: EmbeddingProvider,
        trust: TrustPolicy,
        audience: str,
        deadline: float = 10.0,
    ) -> None:
        self._tiers = tiers
        self._embed = embed
        self._trust = trust
        self._audience = audience
        self._deadline = deadline

    async def search(self, query: SearchQuery) -> SearchReply:
        """Embed the query, search each tier, rank, apply shadowing, and verify.

        A tier that fails costs at most its deadline, from its first request to its last verified hit, and the reply
        names it: a failure never makes the reply shorter without a notice. Raises `UsageError` for an invalid query,
        `EmbeddingError` when the model fails.
        """
        check_query(query)
        with span("kiwi.search", source=query.source, limit=query.limit) as set_attributes:
            reply = await self._search(query)
            set_attributes(hits=len(reply.hits), refused=len(reply.refused), complete=reply.complete)
            return reply

    async def _search(self, query: SearchQuery) -> SearchReply:
        started = time.monotonic()
        run = await self._begin(query, [TierQuery(tier, self._deadline) for tier in self._tiers])
        selection = await _select(run)
        hits = await _results(run, selection)
        refused = [*run.verifier.refused, *(hit for tq in run.tier_queries for hit in _record_unreadable(tq))]
        await asyncio.gather(*(_save_pinned_state(tq) for tq in run.tier_queries))
        run.seconds["whole"] = time.monotonic() - started
        outcomes = tuple(tq.outcome() for tq in run.tier_queries)
        return SearchReply(query, hits, outcomes, tuple(refused), _explanation(run, selection), run.corrections)

    async def _begin(self, query: SearchQuery, tier_queries: Sequence[TierQuery]) -> _Run:
        store_query, corrections, seconds = await prepare_query(query, tier_queries, self._embed)
        trust = self._trust
        for tier_query in tier_queries:  # what one registry revoked counts in no tier
            if tier_query.consistency:
                trust = tier_query.consistency.apply_revocations(trust)
        return _Run(
            query,
            tier_queries,
            store_query,
            Verifier(tier_queries, trust, self._audience, store_query.fingerprint),
            weights_of(query),
            _fusion_method(query, tier_queries),
            Recency(query.half_life_days, datetime.now(UTC)) if query.half_life_days else None,
            {key_id: signer.principal for key_id, signer in trust.by_key.items()},
            corrections,
            {"embedding": seconds},
        )


@dataclass(slots=True)
class _Run:
    """One search in progress; ``principals`` is key id → principal, ``seconds`` the time of the search's own steps."""

    query: SearchQuery
    tier_queries: Sequence[TierQuery]
    store_query: StoreQuery
    verifier: Verifier
    weights: FusionWeights
    fusion: FusionMethod
    recency: Recency | None
    principals: dict[str, str]
    corrections: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)
    rounds: int = 1
    signers: int = 0


async def _select(run: _Run) -> Selection:
    """Fetch candidates and choose hits, deeper as long as hits are missing and a tier may have more candidates.

    Without the deeper rounds one item with many passages could displace all others.
    """
    run.store_query = await fetch_candidates(run.tier_queries, run.store_query)
    selection = await _select_verified(run)
    while len(selection.hits) < run.query.limit and _may_have_more(run):
        depth = min(run.store_query.depth * DEEPER, MAX_DEPTH)
        run.store_query = await fetch_deeper(run.tier_queries, run.store_query, depth)
        run.rounds += 1
        selection = await _select_verified(run)
    return selection


async def _select_verified(run: _Run) -> Selection:
    """Choose hits, again until no further item fails verification: a failed item must not influence others' ranks."""
    while True:
        failures = run.verifier.failures()
        ranked = _rank(run)
        run.signers = count_near_signers(ranked, run.principals)
        cap = resolve_cap(run.query.per_signer, run.query.limit, run.signers)
        selection = await diversify(ranked, run.query.limit, cap, run.verifier, run.principals)
        if run.verifier.failures() == failures:
            return selection


def _rank(run: _Run) -> list[RankedHit]:
    started = time.monotonic()
    rarest, comparable = max_term_score(run.store_query.statistics), _is_comparable(run.tier_queries)
    fusion = Fusion(run.weights, rarest, run.fusion, run.recency, comparable)
    ranked = apply_shadowing(fuse(collect_candidates(run.tier_queries), run.store_query.depth, fusion))
    run.seconds["fusion"] = run.seconds.get("fusion", 0.0) + time.monotonic() - started
    return ranked


def _may_have_more(run: _Run) -> bool:
    """Whether the tiers together returned as many candidates as one leg's depth: then there may be others."""
    count = sum(len(tq.candidates.items) for tq in run.tier_queries if tq.answers)
    return run.store_query.depth < MAX_DEPTH and count >= run.store_query.depth


async def _results(run: _Run, selection: Selection) -> tuple[SearchResult, ...]:
    best_first = sorted(selection.hits, key=lambda hit: sort_key(hit.ranked))
    tiers = {tq.tier.name: tq.tier for tq in run.tier_queries}
    states = await asyncio.to_thread(read_states, [(hit.item, tiers[hit.tier]) for hit in best_first])
    pairs = zip(best_first, states, strict=True)
    return tuple([await run.verifier.result(hit, selection.addresses(hit), state) for hit, state in pairs])


def _explanation(run: _Run, selection: Selection) -> Explanation:
    return Explanation(
        terms=run.store_query.terms,
        statistics=run.store_query.statistics,
        fusion=run.fusion,
        weights=run.weights,
        seconds=run.seconds,
        rounds=run.rounds,
        depth=run.store_query.depth,
        signers=run.signers,
        cap=selection.cap,
        suppressed=selection.suppressed,
    )


def _record_unreadable(tier_query: TierQuery) -> Sequence[RefusedHit]:
    """Return what a store left out because it cannot be read, after writing each to the audit log."""
    for hit in tier_query.candidates.refused:
        tier_query.record(hit)
    return tier_query.candidates.refused


async def _save_pinned_state(tier_query: TierQuery) -> None:
    if tier_query.consistency:
        try:
            await asyncio.to_thread(tier_query.consistency.save)
        except KiwiError as error:
            tier_query.state, tier_query.error = "error", error


def check_query(query: SearchQuery) -> None:
    """Raise `UsageError` when a query is invalid."""
    check_text_and_limit(query.text, query.limit)
    if query.half_life_days is not None and not query.half_life_days >= 0:
        hint = "the setting half_life_days; 0: age does not count"
        raise UsageError("half_life_days is not a number from 0 up", hint=hint)
    if query.per_signer is not None and query.per_signer < 0:
        raise UsageError("per_signer is not a number from 0 up", hint="--per-signer 3, or --per-signer off")
    check_weights(weights_of(query))


def check_text_and_limit(text: str, limit: int) -> None:
    """Raise `UsageError` when the text is empty or too long, or the limit is out of range."""
    if not text.strip():
        raise UsageError("the query is empty", hint='kiwi search "roll back a deploy"')
    if len(text) > MAX_QUERY_CHARACTERS:
        hint = "describe what to find; of a text to compare with, use the first paragraph"
        raise UsageError(f"the query is over {MAX_QUERY_CHARACTERS} characters", hint=hint)
    if not 1 <= limit <= MAX_LIMIT:
        raise UsageError(f"limit {limit} is not between 1 and {MAX_LIMIT}", hint="--limit 10, or the setting limit")


def weights_of(query: SearchQuery) -> FusionWeights:
    """Return the weights of the fusion: the query's, or the tuned ones; the query's alpha replaces theirs."""
    weights = query.weights or default_weights()
    return weights if query.alpha is None else replace(weights, alpha=query.alpha)


def _fusion_method(query: SearchQuery, tier_queries: Sequence[TierQuery]) -> FusionMethod:
    """Return how to fuse: by ranks as soon as the scores of one tier cannot be compared with those of others."""
    return query.fusion if _is_comparable(tier_queries) else "rrf"


def _is_comparable(tier_queries: Sequence[TierQuery]) -> bool:
    return all(tq.tier.store.capabilities.scores for tq in tier_queries)
