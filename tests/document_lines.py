"""What every format keeps to: sections and passages are the lines they name, and together hold all of them."""

from __future__ import annotations

from kiwi_rag.formats.outcome import ParsedDocument
from kiwi_rag.model import Document, Passage
from kiwi_rag.model.refs import ItemRef, ItemType


def as_document(text: str, parsed: ParsedDocument, path: str = "docs/a.md") -> Document:
    metadata = {"file_type": parsed.file_type, "title": parsed.title, "service": parsed.service}
    ref, files = ItemRef(ItemType.DOCUMENT, path), {path: text.encode()}
    return Document(ref, files, path, metadata, parsed.sections, rendered=parsed.rendered)


def assert_sections_are_the_lines(text: str, parsed: ParsedDocument) -> None:
    """Each section equals its lines; they follow each other; each line that is not blank is in one of them.

    Of a rendered document these are the rendered lines.
    """
    lines = text.split("\n") if parsed.rendered is None else [line.text for line in parsed.rendered]
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


def assert_passages_are_rendered(text: str, parsed: ParsedDocument, passages: tuple[Passage, ...]) -> None:
    """Each passage is what its lines of the file show, and nothing that is shown is in no passage.

    A line of the file that shows several lines may be the first or the last of two passages.
    """
    rendered = parsed.rendered or ()
    lines, shown = text.split("\n"), [line.text for line in rendered]
    assert all(1 <= line.number <= len(lines) and "\n" not in line.text for line in rendered)
    missing = [number for number, line in enumerate(shown) if line.strip()]
    for ordinal, passage in enumerate(passages):
        assert passage.ordinal == ordinal
        assert passage.text.strip()
        within = [n for n, line in enumerate(rendered) if passage.start_line <= line.number <= passage.end_line]
        again = [shown[n] for n in within]
        assert passage.text in "\n".join(again)
        places = [set(within[at : at + 1 + passage.text.count("\n")]) for at in _places(again, passage.text)]
        missing = [n for n in missing if not any(n in place for place in places)]
        ends = {passage.start_line, passage.end_line}
        beyond = [{n for n in within if n not in place and rendered[n].number not in ends} for place in places]
        # The file of a notebook has the outputs of a cell before its code.
        assert parsed.file_type == "notebook" or any(not any(shown[n].strip() for n in others) for others in beyond)
    assert not missing


def _places(lines: list[str], text: str) -> list[int]:
    """Return the lines at which `text` begins: whole lines, or a part of one."""
    size = 1 + text.count("\n")
    return [n for n in range(len(lines)) if text in "\n".join(lines[n : n + size])]
