"""One query over several tiers: the sentence of the reading half of the house, top to bottom."""

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
from kiwi_rag.search.diversify import Chosen, cap_of, diversify, near_signers
from kiwi_rag.search.hits import Verifier
from kiwi_rag.search.ranking import Fusion, Group, Recency, check_weights, default_weights, fuse, groups, order
from kiwi_rag.search.state import states_of
from kiwi_rag.search.tier_query import TierQuery, ask_candidates, ask_deeper, ask_first, found
from kiwi_rag.signing.trust import TrustPolicy
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.telemetry import span

DEEPER = 5
MAX_DEPTH = 2_000
"""More passages of a leg a registry does not give."""
MAX_LIMIT = 200
MAX_QUERY_CHARACTERS = 10_000


@dataclass(slots=True)
class _Run:
    """One search: what it asks, what came back, and how long its own steps took."""

    query: SearchQuery
    asked: Sequence[TierQuery]
    question: StoreQuery
    verifier: Verifier
    weights: FusionWeights
    fusion: FusionMethod
    recency: Recency | None
    principals: dict[str, str]
    corrections: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)
    rounds: int = 1
    signers: int = 0


class HybridSearchHandler:
    """Searches tiers by meaning and by words, and shows only what verifies.

    Parameters
    ----------
    tiers
        The tiers to ask.
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
        """Embed the query, ask each tier, fuse, apply precedence, verify, and answer.

        A tier that fails costs at most its deadline, from the first question to the last hit that is verified, and is
        named in the reply; it never makes the reply silently shorter. Raises `UsageError` for a query that makes no
        sense, `EmbeddingError` when the model fails.
        """
        check(query)
        with span("kiwi.search", source=query.source, limit=query.limit) as note:
            reply = await self._search(query)
            note(hits=len(reply.hits), refused=len(reply.refused), complete=reply.complete)
            return reply

    async def _search(self, query: SearchQuery) -> SearchReply:
        started = time.monotonic()
        run = await self._begin(query, [TierQuery(tier, self._deadline) for tier in self._tiers])
        chosen = await self._choose(run)
        hits = await _results(run, chosen)
        refused = [*run.verifier.refused, *(hit for a in run.asked for hit in _unreadable(a))]
        await asyncio.gather(*(_remember(a) for a in run.asked))
        run.seconds["whole"] = time.monotonic() - started
        outcomes = tuple(a.outcome() for a in run.asked)
        return SearchReply(query, hits, outcomes, tuple(refused), _explanation(run, chosen), run.corrections)

    async def _begin(self, query: SearchQuery, asked: Sequence[TierQuery]) -> _Run:
        question, corrections, seconds = await ask_first(query, asked, self._embed)
        trust = self._trust
        for a in asked:
            trust = (
                a.look.apply_revocations(trust) if a.look else trust
            )  # what a registry revoked counts nowhere from here
        return _Run(
            query,
            asked,
            question,
            Verifier(asked, trust, self._audience, question.fingerprint),
            weights_of(query),
            _fusion_of(query, asked),
            Recency(query.half_life_days, datetime.now(UTC)) if query.half_life_days else None,
            {key_id: signer.principal for key_id, signer in trust.by_key.items()},
            corrections,
            {"embedding": seconds},
        )

    async def _choose(self, run: _Run) -> Chosen:
        """Ask for candidates and choose among them, deeper as long as hits are missing and a tier may have more.

        One item with many passages could else take the place of all others.
        """
        run.question = await ask_candidates(run.asked, run.question)
        chosen = await _settled(run)
        while len(chosen.hits) < run.query.limit and _may_be_more(run):
            depth = min(run.question.depth * DEEPER, MAX_DEPTH)
            run.question = await ask_deeper(run.asked, run.question, depth)
            run.rounds += 1
            chosen = await _settled(run)
        return chosen


async def _settled(run: _Run) -> Chosen:
    """Choose hits until all that was looked at verifies: what does not has no say in the others' scores."""
    while True:
        failures = run.verifier.failures()
        ranked = _ranked(run)
        run.signers = near_signers(ranked, run.principals)
        cap = cap_of(run.query.per_signer, run.query.limit, run.signers)
        chosen = await diversify(ranked, run.query.limit, cap, run.verifier, run.principals)
        if run.verifier.failures() == failures:
            return chosen


def _ranked(run: _Run) -> list[Group]:
    started = time.monotonic()
    rarest, comparable = max_term_score(run.question.statistics), _is_comparable(run.asked)
    fusion = Fusion(run.weights, rarest, run.fusion, run.recency, comparable)
    ranked = groups(fuse(found(run.asked), run.question.depth, fusion))
    run.seconds["fusion"] = run.seconds.get("fusion", 0.0) + time.monotonic() - started
    return ranked


def _may_be_more(run: _Run) -> bool:
    """Whether the tiers together gave as many candidates as were asked for: then there may be others."""
    given = sum(len(a.candidates.items) for a in run.asked if a.answers)
    return run.question.depth < MAX_DEPTH and given >= run.question.depth


async def _results(run: _Run, chosen: Chosen) -> tuple[SearchResult, ...]:
    best_first = sorted(chosen.hits, key=lambda hit: order(hit.group.winner))
    tiers = {a.tier.name: a.tier for a in run.asked}
    states = await asyncio.to_thread(states_of, [(hit.item, tiers[hit.tier]) for hit in best_first])
    pairs = zip(best_first, states, strict=True)
    return tuple([await run.verifier.result(hit, chosen.addresses(hit), state) for hit, state in pairs])


def _explanation(run: _Run, chosen: Chosen) -> Explanation:
    return Explanation(
        terms=run.question.terms,
        statistics=run.question.statistics,
        fusion=run.fusion,
        weights=run.weights,
        seconds=run.seconds,
        rounds=run.rounds,
        depth=run.question.depth,
        signers=run.signers,
        cap=chosen.cap,
        suppressed=chosen.suppressed,
    )


def _unreadable(asked: TierQuery) -> Sequence[RefusedHit]:
    """Return what a store left out because it cannot be read, each written to the audit log."""
    for hit in asked.candidates.refused:
        asked.record(hit)
    return asked.candidates.refused


async def _remember(asked: TierQuery) -> None:
    if asked.look:
        try:
            await asyncio.to_thread(asked.look.save)
        except KiwiError as error:
            asked.state, asked.error = "error", error


def check(query: SearchQuery) -> None:
    """Raise `UsageError` when a query makes no sense."""
    if not query.text.strip():
        raise UsageError("the query is empty", hint='kiwi search "roll back a deploy"')
    if len(query.text) > MAX_QUERY_CHARACTERS:
        hint = "ask for what is to be found; a text to compare with can be cut to its first paragraph"
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


def weights_of(query: SearchQuery) -> FusionWeights:
    """Return the weights of the fusion: the query's own, or the tuned ones; its alpha goes before theirs."""
    weights = query.weights or default_weights()
    return weights if query.alpha is None else replace(weights, alpha=query.alpha)


def _fusion_of(query: SearchQuery, asked: Sequence[TierQuery]) -> FusionMethod:
    """Return how to fuse: by ranks as soon as one tier's scores are none that others' could be held against."""
    return query.fusion if _is_comparable(asked) else "rrf"


def _is_comparable(asked: Sequence[TierQuery]) -> bool:
    return all(a.tier.store.capabilities.scores for a in asked)
