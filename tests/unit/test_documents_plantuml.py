"""PlantUML documents: each diagram whole, under its title."""

from __future__ import annotations

from kiwi_rag.formats.documents import parse
from tests.document_lines import assert_sections_are_the_lines

TWO = """\
' check-in
@startuml arrival
title **Arrival**\\nof guests
a -> b
@enduml

!include x
@startmindmap
* one
@endmindmap
' end
"""


def outline(text: str) -> list[tuple[int, int, tuple[str, ...]]]:
    parsed = parse("docs/flow.puml", text)
    assert_sections_are_the_lines(text, parsed)
    assert {section.kind for section in parsed.sections} <= {"diagram"}
    return [(s.start_line, s.end_line, s.heading) for s in parsed.sections]


def test_each_diagram_is_whole_with_the_lines_about_it() -> None:
    assert outline(TWO) == [(1, 5, ("Arrival of guests",)), (7, 11, ())]
    assert parse("docs/flow.puml", TWO).title == "Arrival of guests"


def test_a_diagrams_name_stands_for_a_title() -> None:
    assert outline("@startuml arrival flow\na -> b\n@enduml") == [(1, 3, ("arrival flow",))]


def test_unclosed_and_bare_diagrams_are_diagrams() -> None:
    assert outline("@startuml\na -> b\n@startuml\nb -> c\n") == [(1, 2, ()), (3, 4, ())]
    assert outline("a -> b\n") == [(1, 1, ())]
    assert parse("docs/flow.puml", "a -> b\n").title == "flow.puml"
    assert outline("") == []
