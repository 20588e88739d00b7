"""Python documents: functions and classes with decorators, docstrings and the comments above them."""

from __future__ import annotations

import warnings

import pytest

from kiwi_rag.formats.documents import parse
from kiwi_rag.formats.outcome import ParsedDocument
from tests.document_lines import assert_sections_are_the_lines

METHOD = '''\
    # Why it is here.
    @cached
    async def place(self, order, /, *more, dry=False, **rest):
        """Place it."""
        def inner(): ...
        return 1
'''
ORDERS = f'''\
#!/usr/bin/env python3
"""Keeps orders. And more."""

import json

LIMIT = 3


@decorated(
    "a"
)
def total(orders: list[int]) -> int:
    return sum(orders)


class Small:
    def a(self): ...
    def b(self): ...


class Orders(Store):
    """{"Long. " * 250}"""

    count = 1

{METHOD}
    def other(self): ...

if LIMIT:
    def chosen(): ...
else:
    class Chosen: ...

print(LIMIT)
'''


def read(text: str) -> ParsedDocument:
    parsed = parse("src/orders.py", text)
    assert_sections_are_the_lines(text, parsed)
    return parsed


def test_functions_and_classes_stand_with_all_that_belongs_to_them() -> None:
    parsed = read(ORDERS)
    assert (parsed.file_type, parsed.title, parsed.findings) == ("python", "Keeps orders.", ())
    assert [(s.kind, s.start_line, s.end_line, s.heading) for s in parsed.sections] == [
        ("module", 1, 6, ()),
        ("function", 9, 13, ("total(orders)",)),
        ("class", 16, 18, ("Small",)),
        ("class", 21, 24, ("Orders",)),
        ("function", 26, 31, ("Orders", "place(self, order, *more, dry, **rest)")),
        ("function", 33, 33, ("Orders", "other(self)")),
        ("module", 35, 35, ()),
        ("function", 36, 36, ("chosen()",)),
        ("module", 37, 37, ()),
        ("class", 38, 38, ("Chosen",)),
        ("module", 40, 40, ()),
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("def f(:\n    pass\n", 1),
        ("x = 1\nprint 'two'\n", 2),
        ("x = '\0'\n", 0),
        ("(" * 10_000 + ")" * 10_000, 1),
        ("x = " + "1+" * 50_000 + "1", 0),
    ],
    ids=["syntax", "python-2", "nul", "parentheses", "additions"],
)
def test_what_the_parser_refuses_is_text_with_one_warning(text: str, line: int) -> None:
    parsed = read(text)
    assert (parsed.file_type, parsed.title) == ("text", "orders.py")
    assert [(f.code, f.severity, f.path) for f in parsed.findings] == [
        ("document.malformed", "warning", "src/orders.py")
    ]
    assert parsed.findings[0].line in {0, line}


def test_a_strange_escape_is_the_files_own_matter() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read("x = '\\d'\n").file_type == "python"


def test_only_line_feeds_end_lines() -> None:
    text = "x = 'a\u2028b\x0b'\r\n\x0c\ndef f():\n    pass\n"
    assert read(text).sections[-1].start_line == 3


def test_an_empty_module_has_no_sections() -> None:
    assert read("\n \n").sections == ()


def test_a_very_large_file_is_text_and_says_so() -> None:
    unit = "x = 1\n"
    document = parse("a.py", unit * ((1 << 20) // len(unit) + 1))
    (warning,) = document.findings
    assert (document.file_type, document.title) == ("text", "a.py")
    assert (warning.code, warning.severity) == ("document.large", "warning")
