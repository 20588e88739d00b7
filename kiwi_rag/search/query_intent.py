"""What a question asks for, told by its form, and which passages that speaks for. Pure.

"POST /check-ins" asks for an operation, "which services call svc-x" for those that name it and not for svc-x itself,
"why did we choose" for a decision. Such a question is still answered by meaning and words; what its form adds is a
small part of a score, so that a better match of another kind is found all the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kiwi_rag.model import Candidate

OPERATION = re.compile(r"\b(GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS|TRACE)\s+(/\S*)", re.IGNORECASE)
_IDENTIFIER = re.compile(r"\b[a-z0-9]+(?:[-_][a-z0-9]+)+\b|\b[A-Za-z]+[a-z0-9][A-Z]\w+\b", re.IGNORECASE)
_PARAMETER = re.compile(r"\{[^{}/]*\}|:\w+|<[^<>/]*>")

TYPE_SHARE = 0.04
"""What a passage of the type that is asked for gains; a cosine of 0.05 more is worth as much."""
EXACT_SHARE = 0.25
"""What the very operation that a question names gains."""
NAMED_SHARE = 0.08
"""What a passage gains that names what a question names, letter by letter."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a question asks for: ``types`` and ``sections`` are those that speak for a passage."""

    name: str
    types: frozenset[str] = frozenset()
    sections: frozenset[str] = frozenset()


_CODE = frozenset({"java", "python"})
_SPEC = frozenset({"openapi"})
# In this order: the first whose form a question has is what it asks for.
_KINDS: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (OPERATION, Kind("endpoint", _SPEC, frozenset({"endpoint"}))),
    (
        re.compile(
            r"\b(?:does|do|is|are)\b.{0,80}\b(?:calls?|depends?|uses?|needs?|consumes?|invokes?|rel(?:y|ies|iant))\b"
            r"|\bdependencies of\b",
            re.IGNORECASE,
        ),
        Kind("dependencies"),
    ),
    (
        re.compile(
            r"\b(?:calls?|callers?|calling|depends?|dependencies|dependents?|consumes?|consumers?|uses|invokes?|relies)\b",
            re.IGNORECASE,
        ),
        Kind("callers"),
    ),
    (
        re.compile(r"\b(?:publish\w*|emits?|emitted|subscri\w+|events?|channels?|topics?|asyncapi)\b", re.IGNORECASE),
        Kind("event", frozenset({"asyncapi"}), frozenset({"channel", "message"})),
    ),
    (
        re.compile(
            r"\b(?:why|decid\w+|decision|rationale|chos\w+|choose|alternatives?|adrs?|trade-?offs?)\b", re.IGNORECASE
        ),
        Kind("decision", frozenset({"adr"})),
    ),
    (
        re.compile(r"\b(?:diagrams?|sequence|c4|plantuml|drawn|picture)\b", re.IGNORECASE),
        Kind("diagram", frozenset({"plantuml"})),
    ),
    (
        re.compile(r"\b(?:schemas?|fields?|properties|attributes?|payload|data model)\b", re.IGNORECASE),
        Kind("schema", _SPEC | {"asyncapi"}, frozenset({"schema", "message"})),
    ),
    (
        re.compile(r"\b(?:endpoints?|operations?|routes?|rest|http|api call|openapi|swagger)\b", re.IGNORECASE),
        Kind("endpoint", _SPEC, frozenset({"endpoint"})),
    ),
    (
        re.compile(
            r"\b(?:class|method|function|implement\w*|computed?|calculated?|code|javadoc|source)\b|\w+\(\)",
            re.IGNORECASE,
        ),
        Kind("code", _CODE, frozenset({"method", "function", "class"})),
    ),
    (
        re.compile(r"\b(?:who owns|owners?|owned|team|responsible|domain|capabilit\w+|tickets?)\b", re.IGNORECASE),
        Kind("ownership", frozenset({"yaml", "json"}), frozenset({"definition"})),
    ),
)
_NONE = Kind("")


@dataclass(frozen=True, slots=True)
class QueryIntent:
    """A question, read: its kind, the names in it, and the operation that it names, as method and path pattern."""

    kind: Kind
    names: tuple[str, ...] = ()
    operation: tuple[str, str] | None = None

    def share(self, candidate: Candidate) -> float:
        """Return what the form of the question adds to a candidate's score; below 0 where it speaks against it."""
        return self._of_type(candidate) + self._of_operation(candidate) + self._of_names(candidate)

    def _of_type(self, candidate: Candidate) -> float:
        typed = candidate.metadata.get("file_type") in self.kind.types
        return TYPE_SHARE * (typed + (typed and candidate.passage.kind in self.kind.sections))

    def _of_operation(self, candidate: Candidate) -> float:
        if self.operation is None or candidate.passage.kind != "endpoint":
            return 0.0
        return EXACT_SHARE if any(_operation(h) == self.operation for h in candidate.passage.heading) else 0.0

    def _is_own(self, candidate: Candidate) -> bool:
        """Whether a passage is about what is named: its service's, or under a key or heading of its name."""
        said = {str(candidate.metadata.get("service", "")).lower(), *map(_first_words, candidate.passage.heading)}
        return not said.isdisjoint(self.names)

    def _of_names(self, candidate: Candidate) -> float:
        """Who calls a service names it; its own files do so all the time, and tell what it calls itself."""
        if not self.names:
            return 0.0
        own = self._is_own(candidate)
        if own and self.kind.name in ("callers", "dependencies"):
            return NAMED_SHARE * (1 if self.kind.name == "dependencies" else -1)
        text = f"{candidate.passage.context}\n{candidate.passage.text}".lower()
        return NAMED_SHARE * sum(name in text for name in self.names) / len(self.names)


def _first_words(heading: str) -> str:
    return heading.partition(":")[0].strip().lower()


def read(text: str) -> QueryIntent:
    """Return what a question asks for."""
    kind = next((kind for form, kind in _KINDS if form.search(text)), _NONE)
    names = tuple(dict.fromkeys(name.lower() for name in _IDENTIFIER.findall(text)))
    return QueryIntent(kind, names, _operation(text))


def _operation(text: str) -> tuple[str, str] | None:
    """Return the method and the path of an operation that a text names, parameters of any name alike."""
    found = OPERATION.search(text)
    if found is None:
        return None
    path = _PARAMETER.sub("{}", found[2].partition("?")[0].rstrip(".,;:!'\"`)")).rstrip("/")
    return found[1].upper(), path.lower()
