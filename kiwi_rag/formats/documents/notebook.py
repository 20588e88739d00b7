"""Jupyter notebooks (nbformat 4): the cells as Markdown, each line with the line of the file that it is from.

Code is fenced, and followed by the beginning of what it printed. Images, HTML and other outputs are left out; nothing
is executed. nbformat itself is not used: it tells no positions. See
https://nbformat.readthedocs.io/en/latest/format_description.html.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice

from kiwi_rag.formats.documents.markdown import parse as parse_markdown
from kiwi_rag.formats.nodes import Node, read_json
from kiwi_rag.formats.outcome import MalformedSource, ParsedDocument, line_starts
from kiwi_rag.model import RenderedLine

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_FENCE = re.compile(r"`{3,}")
_OUTPUT_LINES = 12
_OUTPUT_CHARACTERS = 200
_OUTPUT_TEXTS = (("text",), ("data", "text/plain"))


def parse(text: str, form: str) -> ParsedDocument:
    """Return the cells of a notebook as sections of the kind ``section``, under the headings in its Markdown.

    Raises
    ------
    MalformedSource
        If the text is no JSON, has no list of cells, or too many lines.
    """
    roots = read_json(text)
    cells = roots[0].child("cells") if len(roots) == 1 else None
    if cells is None or cells.kind != "sequence":
        raise MalformedSource("document.malformed", "it has no list of cells", 1)
    notebook = _Notebook(text, roots[0].said(("metadata", "kernelspec", "language")))
    rendered = tuple(line for cell in cells.children for line in notebook.cell(cell))
    document = parse_markdown("\n".join(line.text for line in rendered), form)
    return ParsedDocument(form, document.title, document.sections, rendered=rendered)


class _Notebook:
    def __init__(self, text: str, language: str) -> None:
        self._text, self._starts = text, line_starts(text)
        self._language = language if language.isalnum() else "python"

    def cell(self, cell: Node) -> Iterator[RenderedLine]:
        """Yield the lines of a cell, with a blank one at its end."""
        lines = list(self._lines(cell.child("source")))
        kind = cell.said(("cell_type",))
        if kind == "markdown":
            yield from lines
        elif kind in {"code", "raw"} and lines:
            yield from _fenced(lines, self._language if kind == "code" else "")
            outputs = cell.child("outputs")
            for output in outputs.children if outputs else ():
                shown = [line for line in islice(self._output(output), _OUTPUT_LINES) if line.text.strip()]
                yield from _fenced(shown, "text") if shown else ()
        if lines:
            yield RenderedLine("", lines[-1].number)

    def _output(self, output: Node) -> Iterator[RenderedLine]:
        """Yield the text of an output: what was printed, or the plain text of a value."""
        part = self._text[output.start : output.end]
        # Most outputs are large images: they are not parsed unless a text is somewhere in them.
        node = next(iter(read_json(part)), None) if '"text' in part else None
        for path in _OUTPUT_TEXTS:
            found = node
            for key in path:
                found = found.child(key) if found else None
            if found:
                for line in self._strings(output.start + found.start, output.start + found.end):
                    yield line._replace(text=line.text[:_OUTPUT_CHARACTERS])

    def _lines(self, source: Node | None) -> Iterator[RenderedLine]:
        return self._strings(source.start, source.end) if source else iter(())

    def _strings(self, start: int, end: int) -> Iterator[RenderedLine]:
        """Yield the lines of a JSON string, or of several in a list, from one offset to another.

        A string that does not end a line is continued by the next one.
        """
        open_text, open_line = "", 0
        for match in _STRING.finditer(self._text, start, end):
            number = bisect_right(self._starts, match.start())
            *whole, rest = json.loads(match[0], strict=False).split("\n")
            for text in whole:
                yield RenderedLine(open_text + text, open_line or number)
                open_text, open_line = "", 0
            open_text, open_line = open_text + rest, (open_line or number) if open_text + rest else 0
        if open_text:
            yield RenderedLine(open_text, open_line)


def _fenced(lines: list[RenderedLine], language: str) -> Iterator[RenderedLine]:
    fence = max([*(mark[0] + "`" for line in lines for mark in _FENCE.finditer(line.text)), "```"], key=len)
    yield RenderedLine(fence + language, lines[0].number)
    yield from lines
    yield RenderedLine(fence, lines[-1].number)
