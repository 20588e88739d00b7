"""The search of a workspace's documents: embed the query → query the index → rank → verify → the best passages."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kiwi_rag.collection import Tier
from kiwi_rag.embedding.base import EmbeddingProvider
from kiwi_rag.errors import KiwiError, Refused, TierTimedOut, UsageError
from kiwi_rag.lexical import max_term_score, terms
from kiwi_rag.model import Candidate, CollectionStatistics, RefusedHit, StoredItem, sha256_hex
from kiwi_rag.model.search import DocumentHit, DocumentQuery, DocumentReply
from kiwi_rag.search import query_intent
from kiwi_rag.search.ranking import default_weights, normalise_cosine, reciprocal, saturate_bm25
from kiwi_rag.search.searcher import DEEPER, MAX_DEPTH, check_text_and_limit
from kiwi_rag.search.tier_query import TierQuery, fetch_candidates, fetch_deeper, prepare_query
from kiwi_rag.search.verify import HitChanged
from kiwi_rag.signing import document_statement
from kiwi_rag.signing.document_statement import DocumentStatement, passage_digest
from kiwi_rag.signing.statement import digest_of
from kiwi_rag.signing.trust import Signer, TrustPolicy
from kiwi_rag.sources.workspace.config import WorkspaceConfig
from kiwi_rag.sources.workspace.report import BEGUN, RUN
from kiwi_rag.stores.base import FileStore
from kiwi_rag.telemetry import span

_CHANGED = {"same": False, "changed": True, "elsewhere": None}
PATH_SHARE = 0.05
"""What is added to the score of a file whose path contains all words of the query."""


@dataclass(frozen=True, slots=True)
class VerifiedDocument:
    """A document whose statement verified just now."""

    statement: DocumentStatement
    signer: Signer
    digest: str


class WorkspaceSearcher:
    """Searches one workspace's documents, and returns only passages that verify.

    Parameters
    ----------
    tier
        The tier that contains them.
    embed
        The embedding provider; its fingerprint must be that of the index.
    trust, audience
        What every hit is verified against.
    workspace
        The workspace; where its root is on this machine, hits are compared with the files as they are.
    deadline
        Seconds that the index may take in all.
    """

    def __init__(  # noqa: PLR0913, PLR0917  # what a search depends on
        self,
        tier: Tier[FileStore],
        embed: EmbeddingProvider,
        trust: TrustPolicy,
        audience: str,
        workspace: WorkspaceConfig,
        deadline: float = 10.0,
    ) -> None:
        self.tier = tier
        self._embed = embed
        self._trust = trust
        self._audience = audience
        self._workspace = workspace
        self._deadline = deadline

    async def search(self, query: DocumentQuery) -> DocumentReply:
        """Return the best passages, each verified again.

        The reply's outcome says when the index failed; a failure is never an empty reply.

        Raises
        ------
        UsageError
            For an invalid query.
        EmbeddingError
            When the model fails.
        """
        check_text_and_limit(query.text, query.limit)
        if query.alpha is not None and not 0 <= query.alpha <= 1:
            raise UsageError(f"alpha {query.alpha:g} is not between 0 and 1", hint="0: words alone, 1: meaning alone")
        with span("kiwi.search", source=self.tier.name, limit=query.limit) as set_attributes:
            reply = await self._search(query)
            set_attributes(hits=len(reply.hits), refused=len(reply.refused), complete=reply.complete)
            return reply

    async def _search(self, query: DocumentQuery) -> DocumentReply:
        tier_query = TierQuery(self.tier, self._deadline)
        store_query, corrections, _ = await prepare_query(query, [tier_query], self._embed)
        store_query = await fetch_candidates([tier_query], store_query)
        last_run = await tier_query.guard("statistics", self.tier.store.get_note(RUN))
        run = _Run(self, query, tier_query, query_intent.parse_intent(query.text))
        await run.select(store_query.statistics)
        while len(run.hits) < query.limit and run.may_have_more(store_query.depth):
            depth = min(store_query.depth * DEEPER, MAX_DEPTH)
            store_query = await fetch_deeper([tier_query], store_query, depth)
            run = _Run(self, query, tier_query, run.intent)
            await run.select(store_query.statistics)
        return DocumentReply(
            query,
            tuple(run.hits),
            tier_query.outcome(),
            run.intent.kind.name,
            tuple(run.refused),
            tuple(run.missing),
            corrections,
            unfinished=last_run == BEGUN,
        )

    def verify_document(self, path: str, stored: StoredItem | None) -> VerifiedDocument:
        """Return a stored document's statement, verified.

        Raises
        ------
        Refused
            When it does not verify, or the index's columns differ from what was signed.
        """
        if stored is None:
            raise HitChanged(f"{path} was removed from the index during the search")
        if stored.problem:
            raise HitChanged(stored.problem)
        received = stored.admitted_at if self.tier.policy.received_now else None
        statement, signer = document_statement.verify(stored.envelope, self._trust, received)
        expected = (self._audience, self._workspace.name, path, stored.content_sha256, stored.digest)
        signed = (statement.registry, statement.workspace, statement.path, statement.content_sha256)
        if (*signed, digest_of(stored.envelope)) != expected:
            raise HitChanged(f"the index's columns for {path} differ from what was signed")
        return VerifiedDocument(statement, signer, stored.digest)

    def read_state(self, path: str, content_sha256: str) -> str:
        """Compare a file with what was indexed: ``same``, ``changed``, ``missing`` or ``elsewhere``. Blocking.

        ``elsewhere``: of a shared index, a file that is not in this checkout.
        """
        try:
            data, _ = self._workspace.read(path, self.tier.policy.max_bytes)
        except FileNotFoundError:
            return "elsewhere" if self.tier.policy.received_now else "missing"
        except KiwiError:
            return "changed"
        return "same" if sha256_hex(data) == content_sha256 else "changed"


@dataclass(frozen=True, slots=True)
class _RankedPassage:
    candidate: Candidate
    score: float
    parts: dict[str, Any]


@dataclass(slots=True)
class _Run:
    """One choice of hits among a tier's candidates; ``missing`` are the paths of hits whose file no longer exists."""

    searcher: WorkspaceSearcher
    query: DocumentQuery
    tier_query: TierQuery
    intent: query_intent.QueryIntent
    hits: list[DocumentHit] = field(default_factory=list)
    refused: list[RefusedHit] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    _documents: dict[str, VerifiedDocument | None] = field(default_factory=dict)
    _states: dict[str, str] = field(default_factory=dict)
    _per_file: Counter[str] = field(default_factory=Counter)

    def may_have_more(self, depth: int) -> bool:
        """Whether the index may have candidates beyond this depth."""
        return self.tier_query.answers and depth < MAX_DEPTH and len(self.tier_query.candidates.items) >= depth

    async def select(self, statistics: CollectionStatistics) -> None:
        """Verify the candidates, best first, until there are enough hits."""
        # Without passages there is no candidate either: their scores need no bound.
        rarest = max_term_score(statistics) if statistics.passages else 0.0
        ranked = sorted(
            self._rank(rarest), key=lambda r: (-r.score, r.candidate.ref.item_id, r.candidate.passage.ordinal)
        )
        for passage in ranked:
            if len(self.hits) >= self.query.limit:
                break
            await self._consider(passage)

    def _rank(self, rarest: float) -> Iterator[_RankedPassage]:
        comparable = self.tier_query.tier.store.capabilities.scores
        # Alpha was tuned for scores; ranks count the same in both legs (RRF) unless the query sets another share.
        alpha = (default_weights().alpha if comparable else 0.5) if self.query.alpha is None else self.query.alpha
        query_terms, candidates = set(terms(self.query.text)), self.tier_query.candidates.items
        for candidate, (vectors, words) in zip(candidates, _legs(candidates, rarest, comparable), strict=True):
            # Both are added and not mixed in: a better match whose kind or path differs still comes first.
            kind = self.intent.score_bonus(candidate)
            path = PATH_SHARE * _share_in_path(query_terms, candidate.ref.item_id)
            parts = {
                "cosine": candidate.cosine, "bm25": candidate.bm25, "vectors": vectors, "words": words, "alpha": alpha,
                "kind": kind, "path": path, "plan": self.tier_query.candidates.plan,
                "fusion": "convex" if comparable else "rrf",
            }  # fmt: skip
            yield _RankedPassage(candidate, alpha * vectors + (1 - alpha) * words + kind + path, parts)

    async def _consider(self, ranked: _RankedPassage) -> None:
        """Add a passage as a hit if it verifies, its file exists, and `per_file` is not reached."""
        path, cap = ranked.candidate.ref.item_id, self.query.per_file
        if (cap and self._per_file[path] >= cap) or not self.tier_query.answers:
            return
        document = await self._document(path, ranked.candidate)
        if document is None or await self._state(path, document) == "missing":
            return
        passage, digests = ranked.candidate.passage, document.statement.passages
        if not 0 <= passage.ordinal < len(digests) or digests[passage.ordinal] != passage_digest(passage):
            self._refuse(ranked.candidate, HitChanged(f"the index has text of {path} that was not signed"))
            return
        self._per_file[path] += 1
        self.hits.append(_hit(ranked, document, _CHANGED[self._states[path]]))

    async def _document(self, path: str, candidate: Candidate) -> VerifiedDocument | None:
        if path not in self._documents:
            self._documents[path] = None
            try:
                stored = await self.tier_query.in_time(self.tier_query.tier.store.get(candidate.ref))
                self._documents[path] = self.searcher.verify_document(path, stored)
            except TierTimedOut:
                return None
            except Refused as error:
                self._refuse(candidate, error)
        return self._documents[path]

    async def _state(self, path: str, document: VerifiedDocument) -> str:
        if path not in self._states:
            read_state = self.searcher.read_state
            self._states[path] = await asyncio.to_thread(read_state, path, document.statement.content_sha256)
            if self._states[path] == "missing":
                self.missing.append(path)
        return self._states[path]

    def _refuse(self, candidate: Candidate, error: KiwiError) -> None:
        hit = RefusedHit(candidate.ref, self.tier_query.tier.name, error.code, error.message)
        self.tier_query.record(hit, candidate.digest, candidate.key_id)
        self.refused.append(hit)


def _legs(candidates: Sequence[Candidate], rarest: float, comparable: bool) -> list[tuple[float, float]]:
    """Return each candidate's share of 1 in both legs: by its scores, or by its ranks where they are only an order."""
    if comparable:
        return [(normalise_cosine(c.cosine), saturate_bm25(c.bm25, rarest)) for c in candidates]
    vectors, words = _reciprocals([c.cosine + 1 for c in candidates]), _reciprocals([c.bm25 for c in candidates])
    return list(zip(vectors, words, strict=True))


def _reciprocals(scores: Sequence[float]) -> list[float]:
    """Return what each score's rank adds to an RRF score; equal scores share a rank, and 0 means not found."""
    ranks: dict[float, int] = {}
    for rank, score in enumerate(sorted(scores, reverse=True), start=1):
        ranks.setdefault(score, rank)
    return [reciprocal(ranks[score]) if score > 0 else 0.0 for score in scores]


def _share_in_path(query_terms: set[str], path: str) -> float:
    """Return the share of a query's terms that occur in a path."""
    return len(query_terms & set(terms(path))) / len(query_terms) if query_terms else 0.0


def _hit(ranked: _RankedPassage, document: VerifiedDocument, changed: bool | None) -> DocumentHit:
    statement = document.statement
    return DocumentHit(
        path=statement.path,
        passage=ranked.candidate.passage,
        metadata=statement.metadata,
        score=ranked.score,
        parts=ranked.parts,
        content_sha256=statement.content_sha256,
        digest=document.digest,
        key_id=document.signer.key_id,
        principal=document.signer.principal,
        signed_at=statement.signed_at,
        changed=changed,
    )
