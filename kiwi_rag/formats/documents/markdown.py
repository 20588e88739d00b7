"""Markdown: a section for each heading, under the path of the headings above it; and architecture decision records.

A heading within a quote or a list is part of what quotes or lists it. Front matter stays with the first section. Of a
decision record, each section has the kind of the part of the decision it belongs to. The forms are Markdown Any
Decision Records 2 to 4 (https://adr.github.io/madr/), Michael Nygard's "Documenting Architecture Decisions" (2011:
Status, Context, Decision, Consequences), and the usual words for the same parts. A heading that names no part belongs
to the part it stands under.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import dropwhile, islice
from pathlib import PurePosixPath

from kiwi_rag.formats.markdown import MAX_LINES, Heading, is_large, outline, sections
from kiwi_rag.formats.nodes import Node, read_yaml
from kiwi_rag.formats.outcome import MalformedSource, ParsedDocument, one_line
from kiwi_rag.model import Finding, Section

_FENCE = re.compile(r"---[ \t]*$")
_FENCE_END = re.compile(r"(?:---|\.\.\.)[ \t]*$")
_KEY = re.compile(r"[\w\"'][^:#]*:(?:\s|$)")
_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])")
_NOT_WORDS = re.compile(r"<[^<>]*>|`+|\*\*|\{[#.:][^{}]*\}\s*$")
_HTML_TITLE = re.compile(r"<h1\b[^<>]*>(.{1,500}?)</h1>", re.DOTALL | re.IGNORECASE)

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

_MADR = frozenset({
    *("context and problem statement", "decision drivers", "considered options", "decision outcome"),
    "pros and cons of the options",
})  # fmt: skip
_NYGARD = frozenset({"status", "context", "decision", "consequences"})
_FOLDERS = frozenset({"adr", "adrs", "decisions", "decision-records", "decision-log", "architecture-decisions"})
_HEAD_LINES = 40
# In front matter, or as MADR 2 has it: "* Status: accepted", with or without emphasis.
_STATUS = re.compile(
    r"[\s*_-]*status[*_]*[ \t]*:[\s*_\"'{]*(?:proposed|accepted|rejected|deprecated|superseded|draft)\b", re.IGNORECASE
)
_PEOPLE = re.compile(r"[\s*_-]*(?:deciders|decision[-_]makers)[*_]*[ \t]*:", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:\.\d+)*[.)]?\s+")


def parse(text: str, form: str) -> ParsedDocument:
    """Return Markdown as sections of the kind ``section``, with title, service and domain of its front matter.

    Without a title there, it is the first heading of level 1. The sections of a decision record (`form` ``adr``) have
    the kinds of its parts.

    Raises
    ------
    MalformedSource
        If the text has more than `MAX_LINES` lines.
    """
    if is_large(text):
        raise MalformedSource("document.large", f"{MAX_LINES:,} lines", 0)
    lines = text.split("\n")
    front = front_matter_lines(lines)
    values, findings = _front_matter(lines, front)
    found = list(headings(text, front))
    title = values.said(("title",)) or _first_title(found, text)
    if found and not any(line.strip() for line in lines[front : found[0].line - 1]):
        found[0] = replace(found[0], line=1)  # front matter goes with the first heading
    parts = sections(lines, 1, len(lines), found, "section")
    if form == "adr":
        parts = _parts_of_decision(parts)
    return ParsedDocument(form, title, tuple(parts), values.said(("service",)), values.said(("domain",)), findings)


def front_matter_lines(lines: Sequence[str]) -> int:
    """Return how many lines the front matter has, both of its fences included; 0 if there is none."""
    below = dropwhile(lambda line: line.startswith("#"), islice(lines, 1, None))  # comments of YAML
    if not _FENCE.match(lines[0]) or not _KEY.match(next(below, "")):
        return 0
    ends = (number for number, line in enumerate(islice(lines, 1, None), start=2) if _FENCE_END.match(line))
    return next(ends, 0)


@lru_cache(maxsize=1)  # detection and the parser read the headings of a file one after the other
def headings(text: str, front: int) -> tuple[Heading, ...]:
    """Return the headings below the first `front` lines without inline markup; none of a text that is too large."""
    found = () if is_large(text) else outline(text, front or None).headings
    return tuple(Heading(each.line, each.level, one_line(plain(each.text))) for each in found)


def plain(heading: str) -> str:
    """Return a heading's words without links, emphasis, code marks, tags and attributes, on one line."""
    return " ".join(_NOT_WORDS.sub("", _LINK.sub(r"\1", heading)).split())


def _front_matter(lines: Sequence[str], front: int) -> tuple[Node, tuple[Finding, ...]]:
    """Return the front matter's values, with a warning where there are none to be read."""
    nothing = Node("mapping", 0, 0)
    if not front:
        return nothing, ()
    try:
        return next(iter(read_yaml("\n".join(lines[1 : front - 1]))), nothing), ()
    except MalformedSource as refusal:
        message = f"the front matter is not read: {refusal.message}"
        hint = refusal.hint or "write it as 'key: value' lines"
        return nothing, (Finding("document.front-matter", message, refusal.line + 1, hint=hint, severity="warning"),)


def _first_title(found: Sequence[Heading], text: str) -> str:
    titles = (heading.text for heading in found if heading.level == 1 and heading.text)
    html = _HTML_TITLE.search(text[:4_000])
    return one_line(next(titles, "") or (plain(html[1]) if html else ""))


def _parts_of_decision(found: Sequence[Section]) -> list[Section]:
    """Return the sections of a decision record with the kinds of the parts they belong to."""
    titled = sum(bool(part_of(top)) for top in {section.heading[0] for section in found if section.heading}) < 2
    return [replace(section, kind=_kind(section.heading[titled:])) for section in found]


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
    words = (heading.text.lower() for heading in headings(text, front_matter_lines(lines)))
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
