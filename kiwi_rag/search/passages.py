"""The ranking of documents: each passage with its page, with bonuses for intent and names, and a cap for each file.

Items are ranked as wholes (`kiwi_rag.search.ranking`). Of documents the passage is what is looked for, and a file may
have several. Each counts together with its document as the best passage of an item does, and all passages of a page
share what its path, its title and its kind add (`kiwi_rag.search.pages`). So the first page is the one that answers as
a whole, and of each page its best passages are shown.

The intent of a query is recognised by its form: "POST /check-ins" asks for an operation, "which services call svc-x"
for those that name it and not for svc-x itself, "why did we choose" for a decision. Vectors and words still rank the
passages. The form of the query adds a bonus that is small compared with them, so a better match of another kind still
comes first.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from kiwi_rag.formats.documents import CODE_TYPES
from kiwi_rag.lexical import max_term_score
from kiwi_rag.model import (
    Candidate,
    CollectionStatistics,
    FusionMethod,
    FusionWeights,
    ItemState,
    SearchResult,
    StoreQuery,
)
from kiwi_rag.search.diversify import NEAR, CopyIndex
from kiwi_rag.search.document_state import read_document_state
from kiwi_rag.search.hits import MAX_NAMED, Choice
from kiwi_rag.search.pages import PROSE_TYPES, parse_page_query
from kiwi_rag.search.ranking import ITEM_PARTS, Fusion, RankedHit, default_weights, passage_legs, sort_key
from kiwi_rag.search.tier_query import TierQuery, collect_candidates
from kiwi_rag.symbols import match_names, query_names

RANK_ALPHA = 0.5
"""The vector leg's share where scores are only an order: alpha was tuned for scores, and ranks count the same (RRF)."""


OPERATION = re.compile(r"\b(GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS|TRACE)\s+(/\S*)", re.IGNORECASE)
_IDENTIFIER = re.compile(r"\b[a-z0-9]+(?:[-_][a-z0-9]+)+\b|\b[A-Za-z]+[a-z0-9][A-Z]\w+\b", re.IGNORECASE)
_PARAMETER = re.compile(r"\{[^{}/]*\}|:\w+|<[^<>/]*>")

TYPE_BONUS = 0.04
"""Bonus of a passage of the file type that is asked for. A cosine higher by about 0.1 has the same effect."""
OPERATION_BONUS = 0.25
"""Bonus of exactly the operation that the query names."""
NAME_BONUS = 0.08
"""Bonus of a passage that contains the names in the query literally."""
SYMBOL_BONUS = 2.0
"""Bonus of the file or definition that the query names, above all that vectors, words and other bonuses add up to."""


@dataclass(frozen=True, slots=True)
class IntentKind:
    """What a query asks for; passages of the file ``types`` get a bonus, those of the ``sections`` a second one."""

    name: str
    types: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()


_ENDPOINT = IntentKind("endpoint", ("openapi",), ("endpoint",))
# The first pattern that matches decides, so that specific forms stand before general ones.
_KINDS: Mapping[str, IntentKind] = {
    OPERATION.pattern: _ENDPOINT,
    r"\b(does|do|is|are)\b.{0,80}\b(calls?|depends?|uses?|needs?|consumes?|invokes?|rel(y|ies|iant))\b"
    r"|\bdependencies of\b": IntentKind("dependencies"),
    r"\b(calls?|callers?|calling|depends?|dependencies|dependents?|consumes?|consumers?|uses|invokes?|relies)\b": (
        IntentKind("callers")
    ),
    r"\b(publish\w*|emits?|emitted|subscri\w+|events?|channels?|topics?|asyncapi)\b": (
        IntentKind("event", ("asyncapi",), ("channel", "message"))
    ),
    r"\b(why|decid\w+|decision|rationale|chos\w+|choose|alternatives?|adrs?|trade-?offs?)\b": (
        IntentKind("decision", ("adr",))
    ),
    r"\b(diagrams?|sequence|c4|plantuml|drawn|picture)\b": IntentKind("diagram", ("plantuml",)),
    r"\b(schemas?|fields?|properties|attributes?|payload|data model)\b": (
        IntentKind("schema", ("openapi", "asyncapi"), ("schema", "message"))
    ),
    r"\b(endpoints?|operations?|routes?|rest|http|api call|openapi|swagger)\b": _ENDPOINT,
    r"\b(class|method|function|implement\w*|computed?|calculated?|code|javadoc|source)\b|\w+\(\)": (
        IntentKind("code", CODE_TYPES, ("method", "function", "class"))
    ),
    r"\b(who owns|owners?|owned|team|responsible|domain|capabilit\w+|tickets?)\b": (
        IntentKind("ownership", ("yaml", "json"), ("definition",))
    ),
}


@dataclass(frozen=True, slots=True)
class QueryIntent:
    """The intent of a query: its kind, the names in it, and the operation that it names, as method and path pattern."""

    kind: IntentKind
    names: tuple[str, ...] = ()
    operation: tuple[str, str] | None = None

    def score_bonus(self, candidate: Candidate) -> float:
        """Return what the form of the query adds to a candidate's score; negative for what it does not ask for."""
        return self._type_bonus(candidate) + self._operation_bonus(candidate) + self._name_bonus(candidate)

    def _type_bonus(self, candidate: Candidate) -> float:
        matches = candidate.metadata.get("file_type") in self.kind.types
        return TYPE_BONUS * (matches + (matches and candidate.passage.kind in self.kind.sections))

    def _operation_bonus(self, candidate: Candidate) -> float:
        is_operation = self.operation is not None and candidate.passage.kind == "endpoint"
        return OPERATION_BONUS if is_operation and self.operation in map(_operation, candidate.passage.heading) else 0.0

    def _name_bonus(self, candidate: Candidate) -> float:
        if not self.names:
            return 0.0
        # What a passage is about: its service, or the keys and headings above it.
        keys = {heading.partition(":")[0].strip().lower() for heading in candidate.passage.heading}
        is_about_names = not {str(candidate.metadata.get("service", "")).lower(), *keys}.isdisjoint(self.names)
        # The files of a service contain its name everywhere. They answer what it depends on, and not who calls it.
        if is_about_names and self.kind.name in ("callers", "dependencies"):
            return NAME_BONUS * (1 if self.kind.name == "dependencies" else -1)
        text = f"{candidate.passage.context}\n{candidate.passage.text}".lower()
        return NAME_BONUS * sum(name in text for name in self.names) / len(self.names)


def parse_intent(text: str) -> QueryIntent:
    """Return what a query asks for."""
    kind = next((kind for form, kind in _KINDS.items() if re.search(form, text, re.IGNORECASE)), IntentKind(""))
    names = tuple(dict.fromkeys(name.lower() for name in _IDENTIFIER.findall(text)))
    return QueryIntent(kind, names, _operation(text))


def _operation(text: str) -> tuple[str, str] | None:
    """Return the method and path of an operation that a text names, with ``{}`` for each parameter."""
    found = OPERATION.search(text)
    if found is None:
        return None
    path = _PARAMETER.sub("{}", found[2].partition("?")[0].rstrip(".,;:!'\"`)")).rstrip("/")
    return found[1].upper(), path.lower()


@dataclass
class PassageChoice(Choice):
    """The choice among the passages of a workspace's documents, each text once, with a cap for each file.

    ``_copies`` are the places of the copies of each hit, ``_texts`` the texts of the hits.
    """

    floor = 0.55
    _states: dict[str, ItemState | None] = field(default_factory=dict)
    _has_vector: bool = True
    _copies: list[list[str]] = field(init=False)
    _texts: CopyIndex = field(init=False)

    @property
    def workspace(self) -> TierQuery:
        """The query of the workspace, the only collection that is searched."""
        return self.tier_queries[0]

    @property
    def fusion(self) -> FusionMethod:
        """By ranks where the scores are only an order."""
        return "convex" if self.is_comparable else "rrf"

    @property
    def weights(self) -> FusionWeights:
        """The tuned ones. As long as there are no vectors, words have all of it."""
        weights = self._tuned
        if not self._has_vector:
            return replace(weights, alpha=0.0)
        alpha = weights.alpha if self.fusion == "convex" else RANK_ALPHA
        return replace(weights, alpha=alpha if self.query.alpha is None else self.query.alpha)

    @property
    def _tuned(self) -> FusionWeights:
        """Those of items."""
        return default_weights()

    async def choose(self, store_query: StoreQuery) -> None:
        """Verify passages, best first, until there are enough hits; copies of a hit are named and do not count."""
        started = time.monotonic()
        self._has_vector = len(store_query.vector) > 0
        scored = self._scored(store_query.statistics)
        ranked = sorted(scored, key=lambda hit: (*sort_key(hit), hit.candidate.passage.ordinal))
        self.seconds += time.monotonic() - started
        self.hits, self._copies, self._texts, per_file, cap = [], [], CopyIndex(), Counter[str](), self.query.per_file
        for hit in ranked:
            is_full = len(self.hits) >= self.query.limit
            if not self.workspace.answers or (is_full and hit.score < NEAR * self.hits[-1].score):
                break  # below that score there are no copies of a hit: they would score as it does
            path, copied = hit.candidate.ref.item_id, self._texts.find(hit.candidate.passage.text)
            if copied is not None:
                await self._add_copy(hit, path, copied)
            elif not is_full and not (cap and per_file[path] >= cap):
                per_file[path] += await self._add(hit, path)

    async def finish(self) -> tuple[SearchResult, ...]:
        """Return the hits, best first, each with the places of its copies."""
        return tuple(
            replace(hit, duplicates=tuple(copies[:MAX_NAMED]), more_duplicates=len(copies[MAX_NAMED:]))
            for hit, copies in zip(self.hits, self._copies, strict=True)
        )

    async def _add(self, hit: RankedHit, path: str) -> bool:
        """Add a hit if it verifies; return whether it does."""
        if verified := await self._verify(hit, path):
            self.hits.append(verified)
            self._copies.append([])
            self._texts.add(verified.passage.text)
        return verified is not None

    async def _add_copy(self, hit: RankedHit, path: str, number: int) -> None:
        """Add the place of a copy to those of the hit `number`. Those that are only counted need not verify."""
        copies, shown = self._copies[number], self.hits[number]
        if len(copies) >= MAX_NAMED or await self._verify(hit, path):
            passage = hit.candidate.passage
            # The lines of an included file are not those of the page that shows it.
            page = path if passage.file else shown.ref.item_id if path == shown.passage.file else ""
            copies.append(page or f"{path}:{passage.start_line}-{passage.end_line}")

    def _scored(self, statistics: CollectionStatistics) -> Iterator[RankedHit]:
        text = self.query.text
        intent, named, page = parse_intent(text), query_names(text), parse_page_query(text, statistics)
        # In prose a single word is a subject and not a name, unless it is written as names are.
        word = text.strip()
        is_lone = word.isalpha() and word in (word.lower(), word.capitalize())
        self.kind = intent.kind.name
        hits, alpha = collect_candidates(self.tier_queries), self.weights.alpha
        fusion = Fusion(self.weights, max_term_score(statistics), comparable=self.is_comparable)
        for hit, vectors, words in zip(hits, *passage_legs(hits, fusion), strict=True):
            candidate = hit.candidate
            # All are added and not mixed in: a better match whose kind or path differs still comes first.
            added = {"kind": intent.score_bonus(candidate), **page.parts(candidate), "symbol": 0.0}
            if named and not (is_lone and candidate.metadata.get("file_type") in PROSE_TYPES):
                added["symbol"] = SYMBOL_BONUS * match_names(named, candidate.ref.item_id, candidate.passage)
            parts = {
                "cosine": candidate.cosine if candidate.embedded else None, "bm25": candidate.bm25,
                **dict(zip(ITEM_PARTS, candidate.item, strict=True)),
                "vectors": vectors, "words": words, "alpha": alpha, **added, "plan": hit.plan, "fusion": self.fusion,
            }  # fmt: skip
            score = alpha * vectors + (1 - alpha) * words + sum(added.values())
            yield replace(hit, score=score, parts=parts)

    async def _verify(self, hit: RankedHit, path: str) -> SearchResult | None:
        """Return a passage if it verifies and its file exists."""
        result = None if path in self.gone else await self.verifier.verify(hit)
        if result is None:
            return None
        if path not in self._states:
            self._states[path] = await asyncio.to_thread(read_document_state, *self.verifier.found(result))
        state = self._states[path]
        self.gone += [path] if state is None else []
        return replace(result, state=state) if state else None
