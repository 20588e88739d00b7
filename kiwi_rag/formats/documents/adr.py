"""Architecture decision records: Markdown whose headings say which part of a decision stands below them.

Headings are those of MADR (https://adr.github.io/madr/), of Michael Nygard's template, and the usual words for the same
parts in others'. A heading that is none of them belongs to the part it stands under.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from kiwi_rag.formats.documents import ParsedDocument, markdown

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
