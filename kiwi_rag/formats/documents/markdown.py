"""Markdown: a section for each heading, under the path of the headings above it.

A heading within a quote or a list is part of what quotes or lists it. Front matter stays with the first section.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import dropwhile, islice

from kiwi_rag.formats.documents.text import file_name, large
from kiwi_rag.formats.lines import Stretch, flat, one_line
from kiwi_rag.formats.markdown import MAX_LINES, Heading, heading_path, is_large, outline
from kiwi_rag.formats.nodes import Node, read_yaml
from kiwi_rag.formats.outcome import MalformedSource, ParsedDocument
from kiwi_rag.model import Finding

_FENCE = re.compile(r"---[ \t]*$")
_FENCE_END = re.compile(r"(?:---|\.\.\.)[ \t]*$")
_KEY = re.compile(r"[\w\"'][^:#]*:(?:\s|$)")
_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])")
_NOT_WORDS = re.compile(r"<[^<>]*>|`+|\*\*|\{[#.:][^{}]*\}\s*$")
_HTML_TITLE = re.compile(r"<h1\b[^<>]*>(.{1,500}?)</h1>", re.DOTALL | re.IGNORECASE)


def parse(path: str, text: str) -> ParsedDocument:
    """Return Markdown as sections of the kind ``section``, with title, service and domain of its front matter.

    Without a title there, it is the first heading of level 1, else the file's name. A text of more than `MAX_LINES`
    lines is Markdown too, but one section without a heading.
    """
    if is_large(text):
        return replace(large(path, text, "Markdown", f"{MAX_LINES:,} lines"), file_type="markdown")
    lines = text.split("\n")
    front = front_matter_lines(lines)
    values, findings = _front_matter(path, lines, front)
    found = headings(text, front)
    title = values.said("title") or _first_title(found, text) or file_name(path)
    parts = flat(lines, stretches(found, front, lines))
    return ParsedDocument("markdown", title, parts, values.said("service"), values.said("domain"), findings)


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
    return tuple(Heading(each.line, each.level, plain(each.text)) for each in found)


def stretches(found: Sequence[Heading], front: int, lines: Sequence[str]) -> Iterator[Stretch]:
    """Yield the lines above the first heading, then those of each; front matter goes with the first of them."""
    path: list[Heading] = []
    begin = 1
    for heading in found:
        if begin > 1 or any(line.strip() for line in lines[front : heading.line - 1]):
            yield Stretch("section", begin, heading.line - 1, heading_path(path))
            begin = heading.line
        path = [*(h for h in path if h.level < heading.level), heading]
    yield Stretch("section", begin, len(lines), heading_path(path))


def plain(heading: str) -> str:
    """Return a heading's words without links, emphasis, code marks, tags and attributes, on one line."""
    return " ".join(_NOT_WORDS.sub("", _LINK.sub(r"\1", heading)).split())


def _front_matter(path: str, lines: Sequence[str], front: int) -> tuple[Node, tuple[Finding, ...]]:
    """Return the front matter's values, with a warning where there are none to be read."""
    nothing = Node("mapping", 0, 0)
    if not front:
        return nothing, ()
    try:
        return next(iter(read_yaml("\n".join(lines[1 : front - 1]))), nothing), ()
    except MalformedSource as refusal:
        message = f"the front matter is not read: {refusal.message}"
        hint = refusal.hint or "write it as 'key: value' lines"
        return nothing, (Finding("document.front-matter", message, refusal.line + 1, path, hint, severity="warning"),)


def _first_title(found: Sequence[Heading], text: str) -> str:
    titles = (heading.text for heading in found if heading.level == 1 and heading.text)
    html = _HTML_TITLE.search(text[:4_000])
    return one_line(next(titles, "") or (plain(html[1]) if html else ""))
