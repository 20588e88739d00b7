"""Architecture decision records: which Markdown files are some, and which part of a decision each section is.

The forms are Markdown Any Decision Records 2 to 4 (https://adr.github.io/madr/), Michael Nygard's "Documenting
Architecture Decisions" (2011: Status, Context, Decision, Consequences), and the usual words for the same parts. A
heading that names no part belongs to the part it stands under.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from kiwi_rag.formats.documents import markdown
from kiwi_rag.formats.outcome import ParsedDocument

_PARTS = {
    "context": ("context", "problem", "issue", "background", "motivation", "situation"),
    "drivers": ("decision driver", "driver", "force", "decision criteria", "criteria", "constraint", "assumption"),
    "options": ("considered option", "considered alternative", "option", "alternative", "pros and cons", "position"),
    "decision": ("decision", "outcome", "resolution", "solution", "rationale", "confirmation", "validation"),
    "consequences": ("consequence", "positive consequence", "negative consequence", "implication", "result", "impact"),
    "section": ("more information", "link", "reference", "related", "status", "note", "appendix", "history", "date"),
}
_KINDS = {word: kind for kind, words in _PARTS.items() for word in words}
_PART = re.compile(rf"(?:\d+[.)]?\s+|the\s+)?({'|'.join(sorted(_KINDS, key=len, reverse=True))})(?:s|es)?\b")

_MADR = frozenset(
    {
        "context and problem statement",
        "decision drivers",
        "considered options",
        "decision outcome",
        "pros and cons of the options",
    }
)
_NYGARD = frozenset({"status", "context", "decision", "consequences"})
_FOLDERS = frozenset({"adr", "adrs", "decisions", "decision-records", "decision-log", "architecture-decisions"})
_HEAD_LINES = 40
# In front matter, or as MADR 2 has it: "* Status: accepted", with or without emphasis.
_STATUS = re.compile(
    r"[\s*_-]*status[*_]*[ \t]*:[\s*_\"'{]*(?:proposed|accepted|rejected|deprecated|superseded|draft)\b", re.IGNORECASE
)
_PEOPLE = re.compile(r"[\s*_-]*(?:deciders|decision[-_]makers)[*_]*[ \t]*:", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:\.\d+)*[.)]?\s+")


def parse(path: str, text: str) -> ParsedDocument:
    """Return a decision record as Markdown is, each section of the kind of the part it belongs to."""
    document = markdown.parse(path, text)
    titled = sum(bool(part_of(top)) for top in {s.heading[0] for s in document.sections if s.heading}) < 2
    parts = (replace(s, kind=_kind(s.heading[1:] if titled else s.heading)) for s in document.sections)
    return replace(document, file_type="adr", sections=tuple(parts))


def part_of(heading: str) -> str:
    """Return the kind of the part of a decision record that a heading names, empty if it names none."""
    named = _PART.match(heading.lower().strip())
    return _KINDS[named[1]] if named else ""


def _kind(headings: Sequence[str]) -> str:
    """Return the kind that the innermost heading says, ``section`` if none does; what is under options is of them."""
    kinds = [kind for heading in headings if (kind := part_of(heading))]
    return "options" if "options" in kinds else kinds[-1] if kinds else "section"


def is_decision_record(path: str, text: str) -> bool:
    """Say whether `text` is a decision record, by its headings and head; a folder only tips a doubtful case."""
    lines = text.split("\n")
    words = (heading.text.lower() for heading in markdown.headings(text, markdown.front_matter_lines(lines)))
    said = {_NUMBER.sub("", text, count=1).strip(" :*_") for text in words}
    madr, nygard = len(said & _MADR), len(said & _NYGARD)
    head = [line[:200] for line in lines[:_HEAD_LINES]]
    status, people = any(map(_STATUS.match, head)), any(map(_PEOPLE.match, head))
    if madr >= 2 or (nygard >= 3 and "decision" in said):
        return True
    if madr + nygard and (people or (status and said & {"decision", "decision outcome"})):
        return True
    in_folder = bool(_FOLDERS & {part.lower() for part in PurePosixPath(path).parent.parts})
    return in_folder and (madr + (nygard >= 2) + ("decision" in said) + status + people) > 0
