"""Java documents: methods with Javadoc and annotations, under package, class and signature."""

from __future__ import annotations

import pytest

from kiwi_rag.formats.documents import parse, parse_as
from kiwi_rag.formats.outcome import ParsedDocument
from tests.document_lines import assert_sections_are_the_lines

ORDERS = """\
/* License */
package com.acme.orders;

import java.util.List;

/** Keeps orders. */
@Service
public class Orders implements Store<Order> {
    private final int limit = 3; // trailing
    // not of the field above

    /** Makes one. */
    public Orders() { }

    /**
     * Places an order.
     */
    @Override
    @Transactional
    public <T extends Order> Receipt place(
            List<? super T> orders, int... counts) throws IOException {
        Runnable r = () -> { class Local { void no() { } } };
        return new Receipt() { public int total() { return 1; } };
    }

    private int late = 1;
    private int later = 2;

    enum State { OPEN { int f() { return 1; } }, CLOSED;
        int g() { return 2; }
    }

    record Line(int count) {
        Line { check(count); }
    }

    interface Listener { void heard(Order order); }

    @interface Marked { int value() default 1; }
}
"""


def read(text: str) -> ParsedDocument:
    parsed = parse_as("src/Orders.java", text, "java")
    assert_sections_are_the_lines(text, parsed)
    return parsed


def test_each_method_stands_under_its_class_with_its_javadoc_and_annotations() -> None:
    parsed = read(ORDERS)
    orders = "com.acme.orders.Orders"
    assert (parsed.file_type, parsed.title, parsed.findings) == ("java", "Orders", ())
    assert [(s.kind, s.start_line, s.end_line, s.heading) for s in parsed.sections] == [
        ("class", 1, 4, (orders,)),
        ("class", 6, 9, (orders,)),
        ("method", 10, 13, (orders, "Orders()")),
        ("method", 15, 24, (orders, "Receipt place( List<? super T> orders, int... counts)")),
        ("field", 26, 26, (orders,)),
        ("field", 27, 27, (orders,)),
        ("class", 29, 29, (orders, "State")),
        ("method", 30, 31, (orders, "State", "int g()")),
        ("class", 33, 33, (orders, "Line")),
        ("method", 34, 35, (orders, "Line", "Line")),
        ("method", 37, 37, (orders, "Listener", "void heard(Order order)")),
        ("method", 39, 40, (orders, "Marked", "int value()")),
    ]


def test_a_file_with_an_error_keeps_its_other_methods() -> None:
    text = "class A {\n  int f() { return 1 }\n  int g() { return 2; }\n  void h( { }\n  int i() { return 3; }\n"
    found = {section.heading[-1] for section in read(text).sections}
    assert {"int f()", "int g()"} <= found


@pytest.mark.parametrize("text", ["%$ {{{ }}} )(\n" * 20, "Dear Java,\nhow are you?\n", "class A {\n" * 5_000])
def test_what_has_no_declaration_is_text_with_one_warning(text: str) -> None:
    parsed = read(text)
    assert (parsed.file_type, parsed.title) == ("text", "Orders.java")
    assert [(f.code, f.severity) for f in parsed.findings] == [("document.malformed", "warning")]


def test_files_without_a_class_are_java_too() -> None:
    assert read("/** About. */\npackage a.b;\n").sections[0].heading == ("a.b",)
    assert [s.kind for s in read("void main() { }\n").sections] == ["method"]
    assert read("").sections == ()
    assert read("module a.b { requires c; }\n").file_type == "java"


def test_everything_on_one_line_is_one_section() -> None:
    text = "class A {" + " int f() { return 1; }" * 50 + "}"
    assert len(read(text).sections) == 1


def test_only_line_feeds_end_lines_and_signs_beyond_latin_count_once() -> None:
    text = "class A {\n  // ü\u2028 漢\r 𝄞\x0c\n  int f() { return 1; }\n}\n"
    assert (read(text).sections[-1].start_line, read(text).sections[-1].heading) == (2, ("A", "int f()"))


def test_deep_nesting_neither_crashes_nor_makes_endless_headings() -> None:
    deep = read("class A {\n" * 3_000 + "}\n" * 3_000)
    assert max(len(s.heading) for s in deep.sections) <= 60
    read("class A { int f() { return " + "(" * 20_000 + "1" + ")" * 20_000 + "; } }")


def test_a_very_large_file_is_text_and_says_so() -> None:
    unit = "class A { int b; }\n"
    document = parse("a.java", unit * ((2 << 20) // len(unit) + 1))
    (warning,) = document.findings
    assert (document.file_type, document.title) == ("text", "a.java")
    assert (warning.code, warning.severity) == ("document.large", "warning")
