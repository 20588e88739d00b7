"""Files that a document shows as they stand: Sphinx's ``literalinclude``, and ``{* path *}`` of FastAPI's pages.

Only files below the root are included, and what they include in turn is not. The text of an included file stands in
sections of its own, under the heading of the document that includes it, with the lines of the included file.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from kiwi_rag.formats.outcome import ParsedDocument, section
from kiwi_rag.model import Section

MAX_INCLUDES = 20
"""Files that a document includes."""
MAX_INCLUDED_BYTES = 256 << 10
"""Bytes of an included file; a larger one is not included."""
_MARKDOWN = (".md", ".markdown", ".mdx")
_INCLUDE = re.compile(
    r"^[ ]{0,40}(?:\{[*!]>?[ ]{0,9}([^\s*!{}]{1,300}+)([^\n{}]{0,300})[*!]\}"
    r"|\.\.[ ]literalinclude::[ ]+(\S{1,300})[ ]*((?:\n[ ]+:[^\n]{0,300}){0,20}))",
    re.MULTILINE,
)
_RANGES = re.compile(r"\bln\[([\d:,\s]+)\]|:lines:[ ]*([\d\-,\s]+)")
_RANGE = re.compile(r"(\d{0,7})(?:([:-])(\d{0,7}))?")


class Include(NamedTuple):
    """A place in a document that includes a file: its line, the paths that may be meant, best first, and the lines."""

    line: int
    paths: tuple[str, ...]
    ranges: tuple[tuple[int, int], ...]


def find_includes(path: str, text: str) -> list[Include]:
    """Return what a document at `path` includes, of as many files as may be."""
    markdown = path.lower().endswith(_MARKDOWN)
    found: list[Include] = []
    for match in _INCLUDE.finditer(text):
        target = match[1] if markdown else match[3]
        if target and (paths := tuple(_candidates(path, target))):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Include(line, paths, tuple(_ranges(match[2] or match[4] or ""))))
        if len(found) == MAX_INCLUDES:
            break
    return found


def _candidates(path: str, target: str) -> Iterator[str]:
    """Yield paths below the root: from the document's folder, then from each above, which a site may be built in."""
    folder = posixpath.dirname(path)
    for _ in range(MAX_INCLUDES):
        joined = posixpath.normpath(posixpath.join(folder, target.lstrip("/")))
        if not joined.startswith("..") and joined not in {".", path}:
            yield joined
        if not folder:
            return
        folder = posixpath.dirname(folder)


def _ranges(options: str) -> Iterator[tuple[int, int]]:
    """Yield the first and the last line of each range in ``ln[1:8,12]`` or ``:lines: 1-8,12``; 0 is the last line."""
    written = _RANGES.search(options)
    for part in (written[1] or written[2]).split(",") if written else ():
        if (match := _RANGE.fullmatch(part.strip())) and (match[1] or match[3]):
            yield int(match[1] or 1), int(match[3] or 0) if match[2] else int(match[1])


def with_included(parsed: ParsedDocument, path: str, text: str, included: Mapping[str, str]) -> ParsedDocument:
    """Return a document with sections of the files that it includes, each below the section that includes it."""
    places = [(include, name) for include in find_includes(path, text) if (name := _first(include, included))]
    if not places:
        return parsed
    sections: list[Section] = []
    for one, following in zip(parsed.sections, (*parsed.sections[1:], None), strict=True):
        sections.append(one)
        while places and (following is None or places[0][0].line < _line(parsed, following)):
            include, name = places.pop(0)
            sections += _included(name, included[name], include, one.heading)
    return replace(parsed, sections=tuple(sections))


def _first(include: Include, included: Mapping[str, str]) -> str:
    return next((path for path in include.paths if path in included), "")


def _line(parsed: ParsedDocument, one: Section) -> int:
    return one.start_line if parsed.rendered is None else parsed.rendered[one.start_line - 1].number


def _included(name: str, text: str, include: Include, heading: tuple[str, ...]) -> Iterator[Section]:
    lines = text.split("\n")
    for start, end in include.ranges or ((1, 0),):
        last = min(end, len(lines)) if end else len(lines)
        if found := section(lines, max(start, 1), last, heading, "text"):
            yield replace(found, file=name)
