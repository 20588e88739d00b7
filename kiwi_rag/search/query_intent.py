"""What a query asks for, recognised by its form, and which passages it favours for that. Pure.

"POST /check-ins" asks for an operation, "which services call svc-x" for those that name it and not for svc-x itself,
"why did we choose" for a decision. Vectors and words still rank the passages. The form of the query adds a bonus that
is small compared with them, so a better match of another kind still comes first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kiwi_rag.model import Candidate

OPERATION = re.compile(r"\b(GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS|TRACE)\s+(/\S*)", re.IGNORECASE)
_IDENTIFIER = re.compile(r"\b[a-z0-9]+(?:[-_][a-z0-9]+)+\b|\b[A-Za-z]+[a-z0-9][A-Z]\w+\b", re.IGNORECASE)
_PARAMETER = re.compile(r"\{[^{}/]*\}|:\w+|<[^<>/]*>")

TYPE_BONUS = 0.04
"""Bonus of a passage of the file type that is asked for. A cosine higher by about 0.1 has the same effect."""
OPERATION_BONUS = 0.25
"""Bonus of exactly the operation that the query names."""
NAME_BONUS = 0.08
"""Bonus of a passage that contains the names in the query literally."""


@dataclass(frozen=True, slots=True)
class IntentKind:
    """What a query asks for; passages of the file ``types`` get a bonus, those of the ``sections`` a second one."""

    name: str
    types: frozenset[str] = frozenset()
    sections: frozenset[str] = frozenset()


_CODE = frozenset({"java", "python"})
_SPEC = frozenset({"openapi"})
# The first pattern that matches decides, so that specific forms stand before general ones.
_KINDS: tuple[tuple[re.Pattern[str], IntentKind], ...] = (
    (OPERATION, IntentKind("endpoint", _SPEC, frozenset({"endpoint"}))),
    (
        re.compile(
            r"\b(?:does|do|is|are)\b.{0,80}\b(?:calls?|depends?|uses?|needs?|consumes?|invokes?|rel(?:y|ies|iant))\b"
            r"|\bdependencies of\b",
            re.IGNORECASE,
        ),
        IntentKind("dependencies"),
    ),
    (
        re.compile(
            r"\b(?:calls?|callers?|calling|depends?|dependencies|dependents?|consumes?|consumers?|uses|invokes?|relies)\b",
            re.IGNORECASE,
        ),
        IntentKind("callers"),
    ),
    (
        re.compile(r"\b(?:publish\w*|emits?|emitted|subscri\w+|events?|channels?|topics?|asyncapi)\b", re.IGNORECASE),
        IntentKind("event", frozenset({"asyncapi"}), frozenset({"channel", "message"})),
    ),
    (
        re.compile(
            r"\b(?:why|decid\w+|decision|rationale|chos\w+|choose|alternatives?|adrs?|trade-?offs?)\b", re.IGNORECASE
        ),
        IntentKind("decision", frozenset({"adr"})),
    ),
    (
        re.compile(r"\b(?:diagrams?|sequence|c4|plantuml|drawn|picture)\b", re.IGNORECASE),
        IntentKind("diagram", frozenset({"plantuml"})),
    ),
    (
        re.compile(r"\b(?:schemas?|fields?|properties|attributes?|payload|data model)\b", re.IGNORECASE),
        IntentKind("schema", _SPEC | {"asyncapi"}, frozenset({"schema", "message"})),
    ),
    (
        re.compile(r"\b(?:endpoints?|operations?|routes?|rest|http|api call|openapi|swagger)\b", re.IGNORECASE),
        IntentKind("endpoint", _SPEC, frozenset({"endpoint"})),
    ),
    (
        re.compile(
            r"\b(?:class|method|function|implement\w*|computed?|calculated?|code|javadoc|source)\b|\w+\(\)",
            re.IGNORECASE,
        ),
        IntentKind("code", _CODE, frozenset({"method", "function", "class"})),
    ),
    (
        re.compile(r"\b(?:who owns|owners?|owned|team|responsible|domain|capabilit\w+|tickets?)\b", re.IGNORECASE),
        IntentKind("ownership", frozenset({"yaml", "json"}), frozenset({"definition"})),
    ),
)
_NONE = IntentKind("")


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
        if self.operation is None or candidate.passage.kind != "endpoint":
            return 0.0
        return OPERATION_BONUS if any(_operation(h) == self.operation for h in candidate.passage.heading) else 0.0

    def _is_about_names(self, candidate: Candidate) -> bool:
        """Whether a passage belongs to a named service, or is below a key or heading of that name."""
        subjects = {str(candidate.metadata.get("service", "")).lower(), *map(_first_words, candidate.passage.heading)}
        return not subjects.isdisjoint(self.names)

    def _name_bonus(self, candidate: Candidate) -> float:
        if not self.names:
            return 0.0
        # The files of a service contain its name everywhere. They answer what it depends on, and not who calls it.
        if self._is_about_names(candidate) and self.kind.name in ("callers", "dependencies"):
            return NAME_BONUS * (1 if self.kind.name == "dependencies" else -1)
        text = f"{candidate.passage.context}\n{candidate.passage.text}".lower()
        return NAME_BONUS * sum(name in text for name in self.names) / len(self.names)


def _first_words(heading: str) -> str:
    return heading.partition(":")[0].strip().lower()


def parse_intent(text: str) -> QueryIntent:
    """Return what a query asks for."""
    kind = next((kind for form, kind in _KINDS if form.search(text)), _NONE)
    names = tuple(dict.fromkeys(name.lower() for name in _IDENTIFIER.findall(text)))
    return QueryIntent(kind, names, _operation(text))


def _operation(text: str) -> tuple[str, str] | None:
    """Return the method and path of an operation that a text names, with ``{}`` for each parameter."""
    found = OPERATION.search(text)
    if found is None:
        return None
    path = _PARAMETER.sub("{}", found[2].partition("?")[0].rstrip(".,;:!'\"`)")).rstrip("/")
    return found[1].upper(), path.lower()
