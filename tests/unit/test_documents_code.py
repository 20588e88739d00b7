"""Code in every language: its definitions with what stands above them, under their types; and what is no code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kiwi_rag.chunking import split_document
from kiwi_rag.formats.documents import CODE_TYPES, FILE_TYPES, code, detect, parse, parse_as
from kiwi_rag.formats.documents.header import generated
from kiwi_rag.formats.outcome import ParsedDocument
from kiwi_rag.model import Document
from kiwi_rag.validation.admission import policy_of
from kiwi_rag.validation.document_gate import DocumentFile, inspect_document
from tests.document_lines import as_document, assert_passages_are_the_lines, assert_sections_are_the_lines
from tests.examples import size

FOLDER = Path(__file__).parents[1] / "data" / "languages"
FILES = sorted(path for path in FOLDER.iterdir() if path.suffix != ".json")
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
FORMS = [*CODE_TYPES, "tsx"]


def read(path: str, text: str) -> ParsedDocument:
    parsed = parse(path, text)
    assert_sections_are_the_lines(text, parsed)
    assert_passages_are_the_lines(text, split_document(as_document(text, parsed)))
    return parsed


def headings(path: str, text: str) -> list[tuple[str, ...]]:
    return [(s.kind, *s.heading) for s in read(path, text).sections if s.kind != "module"]


def outline(path: Path) -> dict[str, object]:
    """Return type, title and sections of a file, in the form of ``expected.json``."""
    parsed = read(path.name, path.read_text())
    sections = [[s.kind, s.start_line, s.end_line, *s.heading] for s in parsed.sections]
    return {"type": parsed.file_type, "title": parsed.title, "sections": sections}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_definition_stands_under_its_types_with_what_belongs_to_it(path: Path) -> None:
    assert outline(path) == EXPECTED[path.name]
    assert parse(path.name, path.read_text()).findings == ()


def test_there_is_a_file_of_each_language() -> None:
    assert {EXPECTED[path.name]["type"] for path in FILES} == set(CODE_TYPES) < set(FILE_TYPES)
    assert detect("a.tsx", "") == "tsx"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_heading_ends_with_the_name_of_its_definition(path: Path) -> None:
    lines = path.read_text().split("\n")
    for kind, first, last, *heading in EXPECTED[path.name]["sections"]:
        if kind in {"class", "method", "function"} and lines[first - 1].lstrip(" }]").rstrip() not in {"", "private:"}:
            name = heading[-1].partition("(")[0].split(" ")[-1].rpartition(".")[2]
            whole = "\n".join(lines if kind == "class" else lines[first - 1 : last])  # a class may begin above
            assert name in whole


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_truncated_file_is_still_read(path: Path) -> None:
    text = path.read_text()
    for length in range(0, len(text), max(len(text) // 12, 1)):
        read(path.name, text[:length])
        read(path.name, text[length:])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "text",
    ["", "\n \n", "%$ {{{ }}} )(\n" * 20, "Dear reader,\nhow are you?\n", "\ufeff\r\r\x0c\u2028", "}\n" * 9],
    ids=["empty", "blank", "signs", "prose", "spaces", "closed"],
)
def test_what_is_no_code_never_raises(form: str, text: str) -> None:
    parsed = parse_as("a.x", text, form)
    assert_sections_are_the_lines(text, parsed)
    assert [f.code for f in parsed.findings] in ([], ["document.malformed"])
    assert (parsed.file_type == "text") == bool(parsed.findings)


@pytest.mark.parametrize("form", [form for form in FORMS if form not in {"shell", "sql", "ruby", "php"}])
def test_signs_alone_are_text_with_a_warning_that_says_why(form: str) -> None:
    parsed = parse_as("src/a.x", "%$ {{{ }}} )(\n" * 20, form)
    (finding,) = parsed.findings
    assert (parsed.file_type, parsed.title) == ("text", "a.x")
    assert (finding.code, finding.severity, finding.path) == ("document.malformed", "warning", "src/a.x")
    # A grammar may not know all of its language, so the file may well be valid.
    assert finding.message.startswith("unreadable as ")
    assert finding.hint.startswith("correct the file if it is invalid, or leave it out")


DEEP = {
    "types": "class A {\n" * size(3_000) + "}\n" * size(3_000),
    "parentheses": "(" * size(30_000, 15),
    "braces": "{" * size(30_000, 15),
    "type-arguments": "a<" * size(30_000, 15),
    "comments": "/*" * size(10_000),
    "quotes": '"' * 10_000,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_deep_nesting_neither_crashes_nor_makes_endless_headings(form: str, text: str) -> None:
    parsed = parse_as("a.x", text, form)
    assert_sections_are_the_lines(text, parsed)
    assert max((len(s.heading) for s in parsed.sections), default=0) <= 60


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_long_file_has_all_of_its_definitions(path: Path) -> None:
    text = path.read_text()
    names = [tuple(heading) for kind, _, _, *heading in EXPECTED[path.name]["sections"] if kind == "function"]
    repeated = read(path.name, text * 20)
    found = [s.heading for s in repeated.sections]
    assert len(repeated.sections) >= 19 * len(EXPECTED[path.name]["sections"]) / 2
    assert all(found.count(name) >= 19 for name in names)


def test_a_very_large_file_is_text_and_says_so() -> None:
    document = parse("a.go", "package a\n" * ((1 << 20) // 10 + 1))
    (warning,) = document.findings
    assert (document.file_type, warning.code, warning.severity) == ("text", "document.large", "warning")


def test_a_file_that_takes_too_long_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "_SECONDS", -10)
    text = (FOLDER / "orders.ts").read_text() * 20
    document = parse("a.ts", text)
    (warning,) = document.findings
    assert (document.file_type, warning.code) == ("text", "document.malformed")
    assert "takes too long" in warning.message


def test_a_language_without_its_grammar_is_text_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tree_sitter_kotlin", None)
    code._language.cache_clear()
    try:
        document = read("src/a.kt", "fun a() {}\n")
    finally:
        code._language.cache_clear()
    (warning,) = document.findings
    assert (document.file_type, warning.code, warning.severity) == ("text", "document.grammar", "warning")
    assert "tree-sitter-kotlin is not installed as required" in warning.message


def test_a_grammar_is_imported_for_a_file_in_its_language_and_not_before() -> None:
    script = (
        "import sys; from kiwi_rag.formats.documents import parse\n"
        "parse('a.md', '# A'); assert not [name for name in sys.modules if name.startswith('tree_sitter')]\n"
        "parse('a.go', 'package a\\nfunc b() {}\\n')\n"
        "print(*sorted(name for name in sys.modules if name.startswith('tree_sitter') and '.' not in name))"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["tree_sitter", "tree_sitter_go"]


@pytest.mark.parametrize(
    ("path", "text", "title"),
    [
        ("a.go", "package a\n\nimport \"fmt\"\n\nfunc Run() {}\n", "Run"),
        ("a.go", "// Package a runs. It is fast.\npackage a\n", "Package a runs."),
        ("a.ts", "// Copyright 2026 Acme\n// Licensed under MIT\n\nimport x from 'y';\n", "a.ts"),
        ("a.ts", "/* eslint-disable */\nimport x from 'y';\nexport class B { c = 1 }\n", "B"),
        ("a.ts", "// biome-ignore lint/performance/noBarrelFile: entrypoint\nexport { a } from './a';\n", "a.ts"),
        ("a.ts", "// deno-lint-ignore-file no-explicit-any\nexport { a } from './a';\n", "a.ts"),
        ("a.ts", "/** Places orders. */\nexport class B {}\n", "B"),
        ("a.ts", "/**\n * @fileoverview Places orders.\n */\n\nimport x from 'y';\n", "Places orders."),
        ("a.c", "#include <stdio.h>\n#include \"a.h\"\n", "a.c"),
        ("a.rs", "//! Orders.\nuse a::b;\n", "Orders."),
        ("a.php", "<?php\nnamespace A\\B;\nuse C\\D;\n", "a.php"),
        ("a.py", "# -*- coding: utf-8 -*-\nimport a\nfrom b import c\n", "a.py"),
        ("a.py", '"""Checks permissions, and what was generated."""\n', "Checks permissions, and what was generated."),
        ("a.py", "import a\n\nclass B:\n    x = 1\n\ndef c(): ...\n", "B"),
        ("a.py", "def a(): ...\ndef b(): ...\ndef c(): ...\n", "a.py"),
        ("a.sh", "#!/bin/sh\n# Loads orders.\nset -e\n", "Loads orders."),
        ("A.cs", "using System;\nnamespace A.B;\nclass C { int d; }\n", "C"),
        ("a.sql", "-- " + "word " * 30 + "\nSELECT 1;\n", "a.sql"),
    ],
)  # fmt: skip
def test_a_title_is_what_a_file_says_it_is_or_its_main_definition(path: str, text: str, title: str) -> None:
    assert read(path, text).title == title


def test_what_needs_another_look_in_one_language_or_another() -> None:
    assert headings("a.cpp", "int a::B::c(int d) { return d; }\n") == [("method", "a", "B", "c(int d)")]
    assert headings("a.go", "func (s *S[T]) Run(x int) {}\n") == [("method", "S", "Run(x int)")]
    assert headings("a.kt", "fun List<Int>?.total(): Int = 0\n") == [("method", "List", "total()")]
    assert headings("a.rb", "class A::B\n  def c = 1\nend\n") == [("class", "A", "B")]
    assert headings("a.js", "export const f = x => x;\n") == [("function", "f")]
    assert headings("a.sql", 'CREATE VIEW "Orders" AS SELECT 1;\n') == [("class", "Orders")]
    assert headings("a.py", "def f[T](a: T, *, b: int = 1) -> T: ...\n") == [("function", "f(a, *, b)")]


HEADERS = {
    "a.h": ("struct a { int b; };\n", "c"),
    "b.h": ("namespace a {}\n", "cpp"),
    "c.h": ("class A {\npublic:\n};\n", "cpp"),
    "a.ts": ('<?xml version="1.0"?>\n<!DOCTYPE TS>\n', "text"),
    "run": ("#!/usr/bin/env node\nx();\n", "javascript"),
    "run2": ("#!/usr/bin/env -S deno run\nx();\n", "typescript"),
    "run3": ("#!/usr/bin/ruby\nputs 1\n", "ruby"),
    "run4": ("#!/usr/bin/zsh\necho\n", "shell"),
    "run5": ("#!/usr/bin/perl\nprint 1\n", "text"),
    "A.JAVA": ("class A {}", "java"),
}


@pytest.mark.parametrize("path", HEADERS)
def test_suffix_first_line_and_content_say_the_language(path: str) -> None:
    text, form = HEADERS[path]
    assert detect(path, text) == form


LONG = "function a(b,c){return b+c};" * 400
GENERATED = {
    "a.ts": "/**\n * Copyright\n *\n * @generated SignedSource<<1>>\n */\nexport const a = 1;\n",
    "a.go": "// Code generated by protoc-gen-go. DO NOT EDIT.\n// versions:\n\npackage a\n",
    "a.py": "# -*- coding: utf-8 -*-\n# Generated by the protocol buffer compiler.  DO NOT EDIT!\nx = 1\n",
    "b.py": '"""\n    Shop\n\n    Generated by OpenAPI Generator\n\n    Do not edit the class manually.\n"""\nx = 1\n',
    "A.cs": "// <auto-generated />\nclass A {}\n",
    "A.java": "/* This file is automatically generated.\n * Do not modify it. */\nclass A {}\n",
    "b.rs": "/* automatically generated by rust-bindgen 0.59.2 */\npub const A: u32 = 1;\n",
    "a.js": LONG,
    "b.js": "/* MIT */\n" * 20 + LONG,
    "a.css": "a{b:c}" * 1_000,
    "c.js": "x = 1;\n" * 900 + "//# sourceMappingURL=data:application/json;base64," + "A" * 6_000,
}
WRITTEN = {
    "a.ts": "/* eslint-disable */\nexport const a = 1;\n",
    "a.go": "// Package gen writes files that begin with \"Code generated by gen. DO NOT EDIT.\"\npackage gen\n",
    "b.go": 'package gen\n\nconst header = "// Code generated by gen. DO NOT EDIT."\n',
    "a.py": '"""Templates.\n\n' + "Words of it.\n" * 40 + '    This file was autogenerated. DO NOT EDIT\n"""\n',
    "b.py": "# Generated by Django 5.1 on 2026-01-01 10:00\nclass Migration: ...\n",
    "c.py": "# Skips files that say @generated.\nx = 1\n",
    "a.js": "x = 1;\n" * 900 + "//# sourceMappingURL=a.js.map\n",
    "b.js": "x = 1;\n" * 900 + f"const image = '{'A' * 9_000}';\n" + "y = 2;\n" * 900,
    "A.java": "@Generated(\"by hand\")\nclass A {}\n",
    "notes.md": "@generated\n\n" + "One long line of prose. " * 400,
    "notes.txt": "One long line of prose. " * 400,
    "small.js": "a(b)" * 300,
}  # fmt: skip


def inspected(path: str, text: str) -> tuple[Document | None, list[str]]:
    document, findings = inspect_document(DocumentFile(path, text.encode()), policy_of("documents"))
    return document, [finding.code for finding in findings]


@pytest.mark.parametrize("path", GENERATED)
def test_generated_and_minified_code_is_no_document(path: str) -> None:
    document, codes = inspected(path, GENERATED[path])
    assert (document, codes) == (None, ["bounds.generated"])


@pytest.mark.parametrize("path", WRITTEN)
def test_what_people_wrote_is_a_document(path: str) -> None:
    document, codes = inspected(path, WRITTEN[path])
    assert document is not None
    assert "bounds.generated" not in codes


@pytest.mark.parametrize(
    "unit", ["# ", "/*", "//\n", '"""', "''", "\n", "@generated ", "generated ", "do not edit ", "-- "]
)
def test_long_repetitions_are_looked_at_once_for_marks(unit: str) -> None:
    assert isinstance(generated(unit * 200_000), str)
