"""Decision records: which part of a decision a section is, by MADR's and Nygard's headings."""

from __future__ import annotations

import pytest

from kiwi_rag.formats.documents.markdown import parse, part_of
from tests.document_lines import assert_sections_are_the_lines

MADR = """\
---
# Optional elements.
status: accepted
---

# Use PostGIS

## Context and Problem Statement

Where is the guest?

## Decision Drivers

* cost

## Considered Options

* PostGIS

## Decision Outcome

Chosen: PostGIS.

### Consequences

* Good

### Confirmation

A test.

## Pros and Cons of the Options

### Solution by hand

* Bad

## More Information

None.
"""
NYGARD = "# 1. Record it\n\nDate: x\n\n## Status\n\nok\n\n## Context\n\na\n\n## Decision\n\nb\n\n## Consequences\n\nc\n"


def kinds(text: str) -> list[tuple[str, str]]:
    parsed = parse(text, "adr")
    assert_sections_are_the_lines(text, parsed)
    assert parsed.file_type == "adr"
    return [(section.kind, section.heading[-1]) for section in parsed.sections]


def test_parts_of_madr() -> None:
    assert kinds(MADR) == [
        ("section", "Use PostGIS"),
        ("context", "Context and Problem Statement"),
        ("drivers", "Decision Drivers"),
        ("options", "Considered Options"),
        ("decision", "Decision Outcome"),
        ("consequences", "Consequences"),
        ("decision", "Confirmation"),
        ("options", "Pros and Cons of the Options"),
        ("options", "Solution by hand"),
        ("section", "More Information"),
    ]
    assert parse(MADR, "adr").title == "Use PostGIS"


def test_parts_of_nygards_template() -> None:
    assert [kind for kind, _ in kinds(NYGARD)] == ["section", "section", "context", "decision", "consequences"]


def test_a_title_is_no_part_and_a_record_without_one_has_its_parts() -> None:
    assert kinds("# Decision: PostGIS\n\nx\n\n## Context\n\ny\n")[0] == ("section", "Decision: PostGIS")
    assert [kind for kind, _ in kinds("## Context\n\nx\n\n## Decision\n\ny\n")] == ["context", "decision"]


@pytest.mark.parametrize(
    ("heading", "part"),
    [
        ("1. Context", "context"),
        ("Problem statement", "context"),
        ("Alternatives considered", "options"),
        ("The decision", "decision"),
        ("Positive Consequences", "consequences"),
        ("Contextual advertising", ""),
        ("", ""),
    ],
)
def test_words_for_the_parts(heading: str, part: str) -> None:
    assert part_of(heading) == part
