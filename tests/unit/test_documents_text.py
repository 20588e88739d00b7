"""Plain text documents: one section, and a title where the text has one."""

from __future__ import annotations

import pytest

from kiwi_rag.formats.documents import parse
from tests.document_lines import assert_sections_are_the_lines


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Opening hours\n\nNine to five.\n", "Opening hours"),
        ("Opening hours\n=============\nNine to five.\n", "Opening hours"),
        ("This sentence goes on\nin the next line.\n", "a.txt"),
        ("#!/bin/sh\n\necho\n", "a.txt"),
        ("x" * 81, "a.txt"),
        ("", "a.txt"),
    ],
)
def test_the_title_is_a_first_line_that_reads_like_one(text: str, title: str) -> None:
    assert parse("docs/a.txt", text).title == title


def test_the_text_is_one_section_without_blank_lines_around_it() -> None:
    text = "\n \n  one\n\ntwo\x0c\u2028three\n\n"
    parsed = parse("docs/a.txt", text)
    assert_sections_are_the_lines(text, parsed)
    assert [(s.kind, s.start_line, s.end_line, s.heading) for s in parsed.sections] == [("text", 3, 5, ())]


def test_what_is_not_its_format_is_text_with_a_warning_that_says_why() -> None:
    parsed = parse("src/a.py", "Title\n\nx = = 1\n")
    (finding,) = parsed.findings
    assert (parsed.file_type, parsed.title) == ("text", "a.py")
    assert (finding.code, finding.severity, finding.where) == ("document.malformed", "warning", "src/a.py:3")
    assert "invalid syntax" in finding.message
    assert ".kiwiignore" in finding.hint
