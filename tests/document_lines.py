"""What every format keeps to: sections and passages are the lines they name, and together hold all of them."""

from __future__ import annotations

from kiwi_rag.formats.outcome import ParsedDocument
from kiwi_rag.model import Document, Passage
from kiwi_rag.model.refs import ItemRef, ItemType


def as_document(text: str, parsed: ParsedDocument, path: str = "docs/a.md") -> Document:
    metadata = {"file_type": parsed.file_type, "title": parsed.title, "service": parsed.service}
    return Document(ItemRef(ItemType.DOCUMENT, path), {path: text.encode()}, path, metadata, parsed.sections)


def assert_sections_are_the_lines(text: str, parsed: ParsedDocument) -> None:
    """Each section equals its lines; they follow each other; each line that is not blank is in one of them."""
    lines = text.split("\n")
    last, covered = 0, set()
    for section in parsed.sections:
        assert section.text == "\n".join(lines[section.start_line - 1 : section.end_line])
        assert last < section.start_line <= section.end_line
        last = section.end_line
        covered.update(range(section.start_line, section.end_line + 1))
    assert {n for n, line in enumerate(lines, start=1) if line.strip()} <= covered


def assert_passages_are_the_lines(text: str, passages: tuple[Passage, ...]) -> None:
    """Each passage equals its lines, or is a part of one; each line that is not blank is in one."""
    lines = text.split("\n")
    covered: set[int] = set()
    for ordinal, passage in enumerate(passages):
        assert passage.ordinal == ordinal
        named = "\n".join(lines[passage.start_line - 1 : passage.end_line])
        part = passage.start_line == passage.end_line and passage.text in named
        assert passage.text.strip()
        assert passage.text == named or part
        covered.update(range(passage.start_line, passage.end_line + 1))
    assert {n for n, line in enumerate(lines, start=1) if line.strip()} <= covered
