"""A document's sections → its passages: each true to its lines, of a size that search and the model can use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import PurePosixPath

from kiwi_rag.model import Document, Passage, Section
from kiwi_rag.passages import tokens
from kiwi_rag.passages.cutting import Limit, cut, trimmed
from kiwi_rag.passages.embedded import PROSE_KINDS
from kiwi_rag.passages.merging import merged

MAX_TOKENS = 225
MAX_CONTEXT = 200
_MAX_PART = 80
_PART_TOKENS = 40
_JOINT = " > "


def split_document(document: Document) -> tuple[Passage, ...]:
    r"""Split a document into its passages, in the order of the file.

    Sections of up to 1,500 characters stay whole, longer ones become pieces of about 1,000 that repeat up to 200 of
    the piece before, tiny ones share a passage; and no passage has more than about ``MAX_TOKENS`` word pieces, its
    context included. The text of a passage equals its lines, joined by ``\n``; where one line alone is too long, it
    is a part of that line. Every line that is not blank is in a passage.
    """
    title, service = _title(document), str(document.metadata.get("service", ""))
    found: list[Passage] = []
    lines = document.content.split("\n")
    parts = [part for whole in document.sections for part in _parts(whole, lines)]
    for section in merged(parts, lines):
        context = _context(title, section.heading, service)
        limit = Limit(_estimate(section.kind), MAX_TOKENS - tokens.estimate_tokens(context))
        for text, first, last in _pieces(section, limit):
            found.append(Passage(len(found), text, context, section.heading, first, last, section.kind))
    return tuple(found)


def _parts(section: Section, lines: Sequence[str]) -> Iterator[Section]:
    """Yield a section whose first or last line is shared with another's in parts: those lines, and what is between."""
    first, last = section.start_line, section.end_line
    text = section.text
    head, tail = text[: text.find("\n")], text[text.rfind("\n") + 1 :]
    if first == last or (head == lines[first - 1] and tail == lines[last - 1]):
        yield section
        return
    yield replace(section, text=head, end_line=first)
    if last - first > 1:
        yield replace(section, text="\n".join(lines[first : last - 1]), start_line=first + 1, end_line=last - 1)
    yield replace(section, text=tail, start_line=last)


def _pieces(section: Section, limit: Limit) -> Iterator[tuple[str, int, int]]:
    """Yield the text, the first and the last line of each passage of a section."""
    text = section.text
    first, last = trimmed(text, 0, len(text))
    known, line = 0, section.start_line
    for span in cut(text[first:last], limit):
        start, end = trimmed(text, first + span[0], first + span[1])
        line += text.count("\n", known, start) - text.count("\n", start, known)
        known = start
        yield text[start:end], line, line + text.count("\n", start, end)


def _estimate(kind: str) -> tokens.Estimate:
    return tokens.prose if kind in PROSE_KINDS else tokens.code


def _title(document: Document) -> str:
    """Return the title, unless it is but the file's name: a renamed file needs no new vectors."""
    title = str(document.metadata.get("title", ""))
    return "" if title == PurePosixPath(document.path).name else title


@lru_cache(maxsize=1_024)
def _context(title: str, heading: tuple[str, ...], service: str) -> str:
    """Return service, title and headings, none of them twice, in at most ``MAX_CONTEXT`` characters."""
    parts = [_short(part) for part in heading if part]
    for outer in (_short(title), _short(service)):
        if outer and not any(outer.lower() in part.lower() for part in parts):
            parts.insert(0, outer)
    joined = _JOINT.join(parts)
    while len(parts) > 2 and (len(joined) > MAX_CONTEXT or tokens.estimate_tokens(joined) > 2 * _PART_TOKENS):
        del parts[-2]
        joined = _JOINT.join(parts)
    return joined


def _short(words: str) -> str:
    """Return the beginning of a title, a heading or a service, on one line."""
    words = " ".join(words.split())
    return words[: tokens.code.reach(words, 0, _MAX_PART, _PART_TOKENS)].strip()
