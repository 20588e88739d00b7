"""Searching a workspace's documents: embed the query → ask the index → fuse → verify → the best passages."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kiwi_rag.collection import Tier
from kiwi_rag.embedding.base import EmbeddingProvider
from kiwi_rag.errors import KiwiError, Refused, TierTimedOut, UsageError
from kiwi_rag.lexical import max_term_score, terms
from kiwi_rag.model import Candidate, RefusedHit, SearchQuery, StoredItem, sha256_hex
from kiwi_rag.model.search import DocumentHit, DocumentQuery, DocumentReply
from kiwi_rag.search import query_intent
from kiwi_rag.search.ranking import default_weights, normalise_cosine, reciprocal, saturated
from kiwi_rag.search.searcher import DEEPER, MAX_DEPTH, check
from kiwi_rag.search.tier_query import TierQuery, ask_candidates, ask_deeper, ask_first
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
"""What a file gains whose path holds all words of the question."""


@dataclass(frozen=True, slots=True)
class _Scored:
    candidate: Candidate
    score: float
    parts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class VerifiedDocument:
    """A document whose statement verified just now."""

    statement: DocumentStatement
    signer: Signer
    digest: str


class WorkspaceSearcher:
    """Searches one workspace's documents, and shows only passages that verify.

    Parameters
    ----------
    tier
        The tier that holds them.
    embed
        The embedding provider; its fingerprint must be that of the index.
    trust, audience
        What every hit is verified against.
    place
        The workspace; where its root is on this machine, hits are held against the files as they are.
    deadline
        Seconds that the index may take in all.
    """

    def __init__(  # noqa: PLR0913, PLR0917  # what a search depends on
        self,
        tier: Tier[FileStore],
        embed: EmbeddingProvider,
        trust: TrustPolicy,
        audience: str,
        place: WorkspaceConfig,
        deadline: float = 10.0,
    ) -> None:
        self.tier = tier
        self._embed = embed
        self._trust = trust
        self._audience = audience
        self._place = place
        self._deadline = deadline

    async def search(self, query: DocumentQuery) -> DocumentReply:
        """Return the best passages, each verified again.

        An index that fails is told in the reply's outcome, and never as an empty answer.

        Raises
        ------
        UsageError
            For a query that makes no sense.
        EmbeddingError
            When the model fails.
        """
        asked_for = SearchQuery(query.text, filters=query.filters, limit=query.limit)
        check(asked_for)
        if query.alpha is not None and not 0 <= query.alpha <= 1:
            raise UsageError(f"alpha {query.alpha:g} is not between 0 and 1", hint="0: words alone, 1: meaning alone")
        with span("kiwi.search", source=self.tier.name, limit=query.limit) as note:
            run = _Run(self, query, TierQuery(self.tier, self._deadline), query_intent.read(query.text))
            reply = await run.reply(asked_for)
            note(hits=len(reply.hits), refused=len(reply.refused), complete=reply.complete)
            return reply

    def verified(self, ref_path: str, stored: StoredItem | None) -> VerifiedDocument:
        """Return a stored document's statement, verified.

        Raises
        ------
        Refused
            When it does not verify, or the index's columns differ from what was signed.
        """
        if stored is None:
            raise HitChanged(f"{ref_path} left the index while it was being searched")
        if stored.problem:
            raise HitChanged(stored.problem)
        received = stored.admitted_at if self.tier.policy.received_now else None
        read, signer = document_statement.verify(stored.envelope, self._trust, received)
        wanted = (self._audience, self._place.name, ref_path, stored.content_sha256, stored.digest)
        if (read.registry, read.workspace, read.path, read.content_sha256, digest_of(stored.envelope)) != wanted:
            raise HitChanged(f"what the index says of {ref_path} is not what was signed")
        return VerifiedDocument(read, signer, stored.digest)

    def state_of(self, path: str, content_sha256: str) -> str:
        """Return ``same``, ``changed``, ``gone`` or ``elsewhere``: the file as it is beside what was indexed. Blocking.

        What others indexed need not be in this checkout.
        """
        try:
            data, _ = self._place.read(path, self.tier.policy.max_bytes)
        except FileNotFoundError:
            return "elsewhere" if self.tier.policy.received_now else "gone"
        except KiwiError:
            return "changed"
        return "same" if sha256_hex(data) == content_sha256 else "changed"


@dataclass(slots=True)
class _Run:
    """One search."""

    searcher: WorkspaceSearcher
    query: DocumentQuery
    asked: TierQuery
    question: query_intent.QueryIntent

    async def reply(self, asked_for: SearchQuery) -> DocumentReply:
        question, corrections, _ = await ask_first(asked_for, [self.asked], self.searcher._embed, mend=False)
        question = await ask_candidates([self.asked], question)
        unfinished = await self._is_unfinished()
        chosen = await self._chosen(question.statistics.passages and max_term_score(question.statistics))
        while len(chosen.hits) < self.query.limit and self._may_be_more(question.depth):
            question = await ask_deeper([self.asked], question, min(question.depth * DEEPER, MAX_DEPTH))
            chosen = await self._chosen(max_term_score(question.statistics))
        return DocumentReply(
            self.query,
            tuple(chosen.hits),
            self.asked.outcome(),
            self.question.kind.name,
            tuple(chosen.refused),
            tuple(chosen.gone),
            corrections,
            unfinished,
        )

    async def _is_unfinished(self) -> bool:
        """Whether the last run over the whole workspace was broken off, so that files may be missing."""
        return bool(await self.asked.guard("statistics", self.searcher.tier.store.get_note(RUN)) == BEGUN)

    def _may_be_more(self, depth: int) -> bool:
        return self.asked.answers and depth < MAX_DEPTH and len(self.asked.candidates.items) >= depth

    async def _chosen(self, rarest: float) -> _Chosen:
        chosen = _Chosen(self)
        scored = sorted(
            self._scored(rarest), key=lambda s: (-s.score, s.candidate.ref.item_id, s.candidate.passage.ordinal)
        )
        for entry in scored:
            if len(chosen.hits) >= self.query.limit:
                break
            await chosen.consider(entry)
        return chosen

    def _scored(self, rarest: float) -> Iterator[_Scored]:
        comparable = self.asked.tier.store.capabilities.scores
        # Alpha was tuned for scores; ranks count the same in both legs (RRF) unless the query says otherwise.
        alpha = (default_weights().alpha if comparable else 0.5) if self.query.alpha is None else self.query.alpha
        wanted, candidates = set(terms(self.query.text)), self.asked.candidates.items
        for candidate, (vectors, words) in zip(candidates, _legs(candidates, rarest, comparable), strict=True):
            kind, path = self.question.share(candidate), PATH_SHARE * _held(wanted, candidate.ref.item_id)
            parts = {
                "cosine": candidate.cosine, "bm25": candidate.bm25, "vectors": vectors, "words": words, "alpha": alpha,
                "kind": kind, "path": path, "plan": self.asked.candidates.plan,
                "fusion": "convex" if comparable else "rrf",
            }  # fmt: skip
            yield _Scored(candidate, alpha * vectors + (1 - alpha) * words + kind + path, parts)


class _Chosen:
    """The hits so far, and what was refused on the way."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._documents: dict[str, VerifiedDocument | None] = {}
        self._states: dict[str, str] = {}
        self._taken: Counter[str] = Counter()
        self.hits: list[DocumentHit] = []
        self.refused: list[RefusedHit] = []
        self.gone: list[str] = []

    async def consider(self, entry: _Scored) -> None:
        """Take a passage as a hit if it verifies, its file is there, and not too many of its file are taken."""
        path, cap = entry.candidate.ref.item_id, self._run.query.per_file
        if (cap and self._taken[path] >= cap) or not self._run.asked.answers:
            return
        verified = await self._document(path, entry.candidate)
        if verified is None or await self._state(path, verified) == "gone":
            return
        passage, digests = entry.candidate.passage, verified.statement.passages
        if not 0 <= passage.ordinal < len(digests) or digests[passage.ordinal] != passage_digest(passage):
            self._refuse(entry.candidate, HitChanged(f"the index shows text of {path} that was not signed"))
            return
        self._taken[path] += 1
        self.hits.append(_hit(entry, verified, _CHANGED[self._states[path]]))

    async def _document(self, path: str, candidate: Candidate) -> VerifiedDocument | None:
        if path not in self._documents:
            self._documents[path] = None
            searcher, asked = self._run.searcher, self._run.asked
            try:
                stored = await asked.in_time(asked.tier.store.get(candidate.ref))
                self._documents[path] = searcher.verified(path, stored)
            except TierTimedOut:
                return None
            except Refused as error:
                self._refuse(candidate, error)
        return self._documents[path]

    async def _state(self, path: str, verified: VerifiedDocument) -> str:
        if path not in self._states:
            look = self._run.searcher.state_of
            self._states[path] = await asyncio.to_thread(look, path, verified.statement.content_sha256)
            if self._states[path] == "gone":
                self.gone.append(path)
        return self._states[path]

    def _refuse(self, candidate: Candidate, error: KiwiError) -> None:
        hit = RefusedHit(candidate.ref, self._run.asked.tier.name, error.code, error.message)
        self._run.asked.record(hit, candidate.digest, candidate.key_id)
        self.refused.append(hit)


def _legs(candidates: Sequence[Candidate], rarest: float, comparable: bool) -> list[tuple[float, float]]:
    """Return each candidate's share of 1 in both legs: by its scores, or by its ranks where they are only an order."""
    if comparable:
        return [(normalise_cosine(c.cosine), saturated(c.bm25, rarest)) for c in candidates]
    vectors, words = _reciprocals([c.cosine + 1 for c in candidates]), _reciprocals([c.bm25 for c in candidates])
    return list(zip(vectors, words, strict=True))


def _reciprocals(scores: Sequence[float]) -> list[float]:
    """Return what each score's rank adds to an RRF score; equal scores share a rank, and one of 0 was not found."""
    ranks: dict[float, int] = {}
    for rank, score in enumerate(sorted(scores, reverse=True), start=1):
        ranks.setdefault(score, rank)
    return [reciprocal(ranks[score]) if score > 0 else 0.0 for score in scores]


def _held(wanted: set[str], path: str) -> float:
    """Return the share of a question's terms that a path holds."""
    return len(wanted & set(terms(path))) / len(wanted) if wanted else 0.0


def _hit(entry: _Scored, verified: VerifiedDocument, changed: bool | None) -> DocumentHit:
    read = verified.statement
    return DocumentHit(
        path=read.path,
        passage=entry.candidate.passage,
        metadata=read.metadata,
        score=entry.score,
        parts=entry.parts,
        content_sha256=read.content_sha256,
        digest=verified.digest,
        key_id=verified.signer.key_id,
        principal=verified.signer.principal,
        signed_at=read.signed_at,
        changed=changed,
    )


def best_paths(hits: Sequence[DocumentHit]) -> list[str]:
    """Return the files of some hits, each once, in their order."""
    return list(dict.fromkeys(hit.path for hit in hits))
