"""The figures of `benchmarks.structure`, on code whose figures are known."""

from __future__ import annotations

import ast
from pathlib import Path

from benchmarks import structure
from benchmarks.structure import CallTrace, Module

_TEXT = '''"""A docstring
of two lines."""

# a comment
import os


class Twice:
    """A class."""

    def short(self):
        return os.name  # said here


try:
    Twice()
except Exception:
    pass
'''


def module(name: str, text: str) -> Module:
    return Module(name, text, ast.parse(text))


def test_code_is_counted_without_blanks_comments_and_docstrings():
    assert len(module("a", _TEXT).code) == 8
    assert module("a", _TEXT).comments == 1


def test_a_class_name_in_two_modules_and_a_broad_except_are_found():
    found = [module("a", _TEXT), module("b", _TEXT.replace("Exception", "OSError"))]
    assert structure.repeated_classes(found) == {"Twice": ["a", "b"]}
    assert structure.broad_excepts(found) == ["a:17"]
    assert structure.functions(found) == [(2, "a.short"), (2, "b.short")]


def test_lines_of_one_shape_are_a_copy_whatever_their_names():
    one = "".join(f"value_{n} = make({n})\n" if n % 2 else f"check(value_{n - 1}, 'x{n}')\n" for n in range(1, 13))
    other = one.replace("value", "result").replace("make", "build")
    shapes = {"a": structure.python_shape(module("a", one)), "b": structure.python_shape(module("b", other))}
    assert structure.copies(shapes) == ["a:1 ~ b:1"]
    assert structure.copies({"a": shapes["a"], "b": shapes["b"][:-1]}) == []


def test_lines_of_sql_are_counted_without_comments(tmp_path: Path):
    (tmp_path / "a.sql").write_text("-- why\nselect 1,\n  2; -- two\n\n/* a\nb */\nselect 3;\n")
    assert structure.sql_lines(tmp_path) == 3


def test_a_trace_begins_at_its_function_and_counts_modules():
    from kiwi_rag import lexical
    from kiwi_rag.model import refs

    every = CallTrace().of(lambda: (refs.check_item_id("acme/deploy"), lexical.terms("deploy")))
    later = CallTrace("kiwi_rag.lexical.terms").of(lambda: (refs.check_item_id("acme/deploy"), lexical.terms("deploy")))
    assert set(every.modules) > set(later.modules) == {"kiwi_rag.lexical"}


def test_the_layers_are_those_of_the_import_contract():
    rank = structure.layers()
    assert rank["errors"] < rank["registry"] < rank["cli"]
    trace = CallTrace()
    trace.calls["kiwi_rag.errors", "kiwi_rag.cli.main"] += 1
    trace.calls["kiwi_rag.cli", "kiwi_rag.errors.KiwiError"] += 1
    assert structure.upward(trace) == ["kiwi_rag.errors → kiwi_rag.cli.main"]


def test_no_modules_import_each_other_in_a_circle():
    assert structure.circles() == []
