"""Markdown documents: CommonMark's headings with true lines, front matter with the first section."""

from __future__ import annotations

from time import process_time

import pytest

from kiwi_rag.formats.documents import parse
from kiwi_rag.formats.markdown import MAX_LINES
from tests.document_lines import assert_sections_are_the_lines

GUIDE = """\
---
title: Check-in
service: svc-check-in
domain: Operations
---

# Guests

They arrive.

Rules
-----

1. one

### Late *arrivals* by [form](https://x.test) {#late}

text
"""


def outline(text: str) -> list[tuple[int, int, tuple[str, ...]]]:
    parsed = parse("docs/a.md", text)
    assert_sections_are_the_lines(text, parsed)
    assert {section.kind for section in parsed.sections} <= {"section"}
    return [(s.start_line, s.end_line, s.heading) for s in parsed.sections]


def test_front_matter_stays_with_the_first_section_and_names_the_document() -> None:
    parsed = parse("docs/a.md", GUIDE)
    assert (parsed.title, parsed.service, parsed.domain) == ("Check-in", "svc-check-in", "Operations")
    assert outline(GUIDE) == [
        (1, 9, ("Guests",)),
        (11, 14, ("Guests", "Rules")),
        (16, 18, ("Guests", "Rules", "Late *arrivals* by form")),
    ]


def test_text_above_the_first_heading_is_a_section_of_its_own() -> None:
    assert outline("---\na: b\n---\nIntro.\n\n# One\n") == [(1, 4, ()), (6, 6, ("One",))]
    assert outline("Intro.\n# One\n## Two\n# Three") == [
        (1, 1, ()), (2, 2, ("One",)), (3, 3, ("One", "Two")), (4, 4, ("Three",))
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "```\n# code\n```\n",
        "~~~ sh\n# code\n```\n# code\n~~~\n",
        "```\n# never closed\n",
        "    # indented code\n",
        "<pre>\n# raw\n\n# raw\n</pre>\n",
        "<!--\n# hidden\n\n# hidden\n-->\n",
        "<div>\n# within a block\n</div>\n",
        "> # quoted\n",
        "- # listed\n",
        "- listed\n---\n",
        "> quoted\n---\n",
        "Text\n- listed\n---\n",
        "#hashtag\n",
        "####### seven\n",
        "\\# escaped\n",
        "Text\n\n---\n\nText\n",
    ],
)
def test_what_is_no_heading_to_commonmark_opens_no_section(text: str) -> None:
    assert [heading for _, _, heading in outline(text)] == [()]


def test_what_is_a_heading_to_commonmark_opens_one() -> None:
    assert outline("x\n\n  ## Two ##\n")[1] == (3, 3, ("Two",))
    assert outline("x\n\nTwo\nlines\n===\n")[1] == (3, 5, ("Two lines",))
    assert outline("#\ntext")[0] == (1, 2, ())  # an empty one is none in the path


def test_the_title_is_the_first_heading_of_level_1_or_the_files_name() -> None:
    assert parse("docs/a.md", "## 1.2.0\n\n# Change log\n").title == "Change log"
    assert parse("docs/a.md", "## 1.2.0\n").title == "a.md"
    assert parse("a.md", '<h1 align="center">\n <img src="x"> Kiwi\n</h1>\n\n## Use\n').title == "Kiwi"


def test_front_matter_may_open_with_comments_and_must_have_a_key() -> None:
    assert parse("a.md", "---\n# optional\ntitle: T\n---\n# H\n").title == "T"
    assert outline("---\n\n# H\n\nText\n\n---\n") == [(1, 1, ()), (3, 7, ("H",))]


def test_front_matter_that_cannot_be_read_is_one_warning_and_still_indexed() -> None:
    text = "---\ntitle: a: b: c\n---\n# H\n"
    parsed = parse("docs/a.md", text)
    assert [(f.code, f.severity, f.path) for f in parsed.findings] == [
        ("document.front-matter", "warning", "docs/a.md")
    ]
    assert parsed.title == "H"
    assert outline(text) == [(1, 4, ("H",))]


def test_only_line_feeds_end_lines() -> None:
    text = "# A\x0b\x0c\u2028\u2029\x85x\n\rtext\r# no\n# B\n"
    assert [(start, heading[0][:1]) for start, _, heading in outline(text)] == [(1, "A"), (3, "B")]


@pytest.mark.parametrize(
    "text",
    [
        "> " * 100_000 + "x",
        "- " * 100_000 + "x",
        "\n".join(" " * level + "- x" for level in range(1_500)),
        "[" * 100_000 + "\n===",
        "# " + "<" * 100_000,
        "\n".join("#" * (1 + number % 6) + " h" for number in range(10_000)),
        "---\na: " + "[" * 15_000 + "\n---\n",
    ],
    ids=["quotes", "lists", "indented-lists", "brackets", "tags", "headings", "front-matter"],
)
def test_deep_nesting_neither_crashes_nor_takes_long(text: str) -> None:
    started = process_time()
    outline(text)
    assert process_time() - started < 15


def test_a_file_of_as_many_lines_as_allowed_has_all_its_headings() -> None:
    unit = "# A *part*\n\n```\n# none\n```\n\nwords\n\nBelow\n-----\n\nmore" + " and more" * 60 + "\n\n"
    text = unit * ((MAX_LINES - 1) // unit.count("\n"))
    assert len(text) > 2 << 20
    started = process_time()
    document = parse("a.md", text)
    assert {section.heading for section in document.sections} == {("A *part*",), ("A *part*", "Below")}
    assert document.findings == ()
    assert process_time() - started < 15


@pytest.mark.parametrize("path", ["docs/a.md", "docs/adr/0001-a.md"])
def test_a_file_of_more_lines_is_plain_text_and_says_so(path: str) -> None:
    text = "# A part\n\n## Status\n\nAccepted\n" + "\n## Decision\n" * (MAX_LINES // 2)
    document = parse(path, text)
    assert_sections_are_the_lines(text, document)
    (section,) = document.sections
    assert (document.file_type, section.heading) == ("markdown", ())
    (warning,) = document.findings
    assert (warning.code, warning.severity, warning.path) == ("document.large", "warning", path)
    assert "over 50,000 lines of Markdown" in warning.message and ".kiwiignore" in warning.hint


def test_other_tools_signatures_hide_no_heading() -> None:
    text = "<!-- tool:signed:2026:abc\n\n# One\n\ntext\n"
    assert parse("a.md", text).title == "One"
    assert outline(text) == [(1, 1, ()), (3, 5, ("One",))]
