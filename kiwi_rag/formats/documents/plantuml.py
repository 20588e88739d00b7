"""PlantUML: each diagram whole, from ``@start…`` to ``@end…``, with what stands before it.

See https://plantuml.com/commons for titles and names of diagrams.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kiwi_rag.formats.documents.text import file_name
from kiwi_rag.formats.lines import Stretch, flat, one_line
from kiwi_rag.formats.outcome import ParsedDocument

_START = re.compile(r"\s*@start[a-z]+\b[ \t]*(.*)", re.IGNORECASE)
_END = re.compile(r"\s*@end[a-z]+\b", re.IGNORECASE)
_TITLE = re.compile(r"\s*title[ \t]+(.+)", re.IGNORECASE)
_MARKUP = re.compile(r"<[^<>]*>|\*\*|//|__|==|\"")


def parse(path: str, text: str) -> ParsedDocument:
    """Return each diagram as a section under its title, else its name; a text without ``@start`` is one diagram."""
    lines = text.split("\n")
    found = flat(lines, _diagrams(lines))
    titles = [section.heading[0] for section in found if section.heading]
    return ParsedDocument("plantuml", titles[0] if titles else file_name(path), found)


def _diagrams(lines: Sequence[str]) -> Iterator[Stretch]:
    """Yield the diagrams; lines between two belong to the second, lines after the last to the last."""
    bounds = _bounds(lines)
    for number, (start, end) in enumerate(bounds):
        last = len(lines) if number == len(bounds) - 1 else end
        title = _title(lines[start - 1 : end])
        yield Stretch("diagram", start, last, (title,) if title else ())


def _bounds(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Return the first and the last line of each diagram, an unclosed one's last being that before the next."""
    bounds: list[tuple[int, int]] = []
    begin, opened = 1, 0
    for number, line in enumerate(lines, start=1):
        if opened and (_END.match(line) or _START.match(line)):
            ends = number if _END.match(line) else number - 1
            bounds.append((begin, ends))
            begin, opened = ends + 1, 0
        if _START.match(line):
            opened = number
    if opened or not bounds:
        bounds.append((begin, len(lines)))
    return bounds


def _title(lines: Sequence[str]) -> str:
    titles = (match[1] for line in lines if (match := _TITLE.match(line)))
    names = (match[1] for line in lines if (match := _START.match(line)))
    found = next(titles, "") or next(names, "")
    return one_line(_MARKUP.sub(" ", found.replace("\\n", " ")))
