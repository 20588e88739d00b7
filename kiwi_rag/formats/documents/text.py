"""Plain text: one section, which chunking splits; and PlantUML: each diagram whole, from ``@start…`` to ``@end…``.

See https://plantuml.com/commons for titles and names of diagrams.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kiwi_rag.formats.lines import Stretch, flat, one_line
from kiwi_rag.formats.outcome import ParsedDocument

_TITLE_AT_MOST = 80
_START = re.compile(r"\s*@start[a-z]+\b[ \t]*(.*)", re.IGNORECASE)
_END = re.compile(r"\s*@end[a-z]+\b", re.IGNORECASE)
_TITLE = re.compile(r"\s*title[ \t]+(.+)", re.IGNORECASE)
_MARKUP = re.compile(r"<[^<>]*>|\*\*|//|__|==|\"")


def parse(text: str, form: str) -> ParsedDocument:
    """Return plain text as one section, or PlantUML as one for each diagram, under its title, else its name.

    The title of a plain text is the first line if that looks like a title. A text without ``@start`` is one diagram.
    """
    lines = text.split("\n")
    if form == "plantuml":
        diagrams = flat(lines, _diagrams(lines))
        return ParsedDocument(form, next((each.heading[0] for each in diagrams if each.heading), ""), diagrams)
    found = flat(lines, [Stretch("text", 1, len(lines))])
    return ParsedDocument(form, _title(found[0].text.split("\n", 1)) if found else "", found)


def _title(parts: list[str]) -> str:
    """Return the first line where it is short, begins like a title and stands apart from what follows; else empty."""
    first, rest = parts[0].strip(), parts[1] if len(parts) > 1 else ""
    apart = not rest.split("\n", 1)[0].strip(" =-~*#")
    return first if apart and first[:1].isalnum() and len(first) <= _TITLE_AT_MOST else ""


def _diagrams(lines: Sequence[str]) -> Iterator[Stretch]:
    begin = 1
    for end in _ends(lines):
        title = _diagram_title(lines[begin - 1 : end])
        yield Stretch("diagram", begin, end, (title,) if title else ())
        begin = end + 1


def _ends(lines: Sequence[str]) -> list[int]:
    """Return the last line of each diagram, of an unclosed one that before the next; the last one takes the rest."""
    ends: list[int] = []
    is_open = False
    for number, line in enumerate(lines, start=1):
        starts = _START.match(line) is not None
        if is_open and (starts or _END.match(line)):
            ends.append(number - starts)
            is_open = False
        is_open |= starts
    # What follows the last end belongs to that diagram.
    return [*(ends if is_open else ends[:-1]), len(lines)]


def _diagram_title(lines: Sequence[str]) -> str:
    titles = (match[1] for line in lines if (match := _TITLE.match(line)))
    names = (match[1] for line in lines if (match := _START.match(line)))
    found = next(titles, "") or next(names, "")
    return one_line(_MARKUP.sub(" ", found.replace("\\n", " ")))
