"""Whatever the file: sections and passages are the lines they name, and hold all of them; chunks lose nothing."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kiwi_rag.chunking import DOCUMENTS, TextChunker, split_document
from kiwi_rag.formats.documents import parse_as
from kiwi_rag.wordpieces import PROSE_KINDS, code, estimate_tokens, prose
from tests.document_lines import (
    as_document,
    assert_passages_are_rendered,
    assert_passages_are_the_lines,
    assert_sections_are_the_lines,
)

ANY_LINE = st.one_of(
    st.sampled_from(["", " ", "\t", "\x0c", "\r", "\u2028", "}", "---", "..."]),
    st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\n"), max_size=40),
    st.integers(1, 60).map(lambda n: "A sentence of some words. " * n),
    st.integers(1, 3_000).map(lambda n: "x" * n),
    st.integers(1, 400).map(lambda n: "漢 {" * n),
)
WORDS = {
    "markdown": ["# One", "## Two", "#", "```", "~~~", "===", "- item", "> quote", "    code", "<div>", "<!--", "-->",
                 "title: x", "a: [b"],
    "adr": ["# Use it", "## Context", "### Consequences", "## Considered Options", "## Decision"],
    "java": ["package a.b;", "import x.Y;", "class A {", "interface B {", "enum C { D,", "int f() {", "}", "/** doc */",
             "// note", "@Override", "int x = 1;", "A() { }", "record R(int a) {", "return (a) -> { };", "/*", '"""'],
    "python": ["def f(a):", "    return 1", "class A:", "    def g(self):", "        pass", "@x", "# note", '"""',
               "if x:", "    x = 1", "else:", "async def h(): ..."],
    "tsx": ["import x from 'y';", "export class A<T> {", "  f(a: T): void {", "  }", "}", "/** doc */", "// note",
            "@x()",
            "export const g = () => {", "};", "interface B {", "return <a>{b}</a>;", "`${x", "/*", "type C = {",
            "namespace D {"],
    "go": ["package a", "// note", "func f() {", "func (s *S) g() {", "}", "type S struct {", "type (", ")", "/*", "`"],
    "rust": ["//! doc", "/// doc", "#[x]", "impl A for B {", "fn f(&self) {", "}", "mod c {", "struct D;", "r#\""],
    "cpp": ["namespace a {", "template <typename T>", "class B {", "public:", "int f();", "void B::g() {", "}", "};",
            "/*",
            "#if X", "#endif", "#define M(a) \\", "R\"("],
    "csharp": ["namespace A {", "/// doc", "[X]", "class B {", "int F() {", "}", "int G => 1;", "@\"", "#region x"],
    "kotlin": ["package a.b", "class A {", "fun f() {", "fun B.g() = 1", "}", "/** doc */", "object C {", '"""',
            "val x = ("],
    "swift": ["/// doc", "class A {", "func f(a: Int) {", "}", "extension B {", "@x", "init() {", '"""', "/*"],
    "ruby": ["# note", "module A", "class B < C", "def f(a)", "def self.g", "end", "<<~X", "X", "=begin", "=end",
            "%w("],
    "php": ["<?php", "namespace A;", "class B {", "function f($a) {", "}", "/** doc */", "#[X]", "?>", "<p>", "<<<X"],
    "sql": ["-- note", "CREATE TABLE a (", "b int", ");", "CREATE FUNCTION f() RETURNS int AS $$", "$$;",
            "SELECT 1;", "/*"],
    "shell": ["# note", "f() {", "}", "function g {", "cat <<X", "X", "if a; then", "fi", "case a in", "'"],
    "plantuml": ["@startuml", "@enduml", "title Some", "a -> b", "' note"],
    "text": ["Title", "====="],
}  # fmt: skip
RENDERED = {
    "rst": ["Title", "=====", "-----", ".. note:: Text", ".. py:function:: f(a)", "   :param a: b", "   content", "::",
            ".. a comment", "   of two lines", ".. |a| replace:: b", "|a| and :ref:`x <y>`", ":class:`~a.B", "x`",
            ".. code-block:: c", "   :caption: d", "   int x;", "* item", ".. _t:", "`a <http://b>`_", "__ http://c"],
    "html": ["<main>", "</main>", "<h1>One</h1>", "<h2>", "Two</h2>", "<p>text", "</p>", "<pre>", "</pre>",
             "<dl><dt class='sig'>f()</dt><dd>", "</dd></dl>", "<div hidden>", "</div>", "a &lt; b &#10; c", "<!--",
             "<script>x()", "</script>", "<table><tr><td>1<td>2", "<nav>n</nav>", "x<br>y", "<title>T</title>", "<li>x",
             "<article>", "</article>", "<a class='headerlink'>#</a>"],
    "asciidoc": ["= Title", "== Two", "Three", "-----", "----", "////", "// note", ":a: b", "{a} <<x,y>>", "[NOTE]",
                 "====", ".Block", "link:a[b]", "include::x[]", "++++", "|===", "|a |b"],
    "mdx": ["# One", "## Two", "import a from 'b'", "export const title = 'T'", "export const a = [", "]", "<Box", "/>",
            "a='b c'", "<Box>", "</Box>", "{/* c */}", "```js", "```", "<div style={{display: 'none'}}>", "</div>",
            "`<A>`", "---", "title: x", "{/*", "rows={[{a: 'hidden', b: `c", "d`}]}", "<!-- c -->"],
}  # fmt: skip
FORMS = st.sampled_from(list(WORDS))


@st.composite
def files(draw: st.DrawFn) -> tuple[str, str]:
    form = draw(FORMS)
    lines = draw(st.lists(st.one_of(st.sampled_from(WORDS[form]), ANY_LINE), max_size=60))
    return form, "\n".join(lines)


@given(files())
def test_sections_and_passages_are_the_lines_they_name(file: tuple[str, str]) -> None:
    form, content = file
    parsed = parse_as("docs/a.x", content, form)
    assert_sections_are_the_lines(content, parsed)
    passages = split_document(as_document(content, parsed))
    assert_passages_are_the_lines(content, passages)
    for passage in passages:
        estimate = prose if passage.kind in PROSE_KINDS else code
        assert len(passage.text) <= DOCUMENTS.whole
        assert len(passage.context) <= 200
        assert estimate.count(passage.text) + estimate_tokens(passage.context) <= DOCUMENTS.tokens + 2
    assert [p.start_line for p in passages] == sorted(p.start_line for p in passages)


@given(files())
def test_no_passage_stands_within_the_one_before(file: tuple[str, str]) -> None:
    form, content = file
    passages = split_document(as_document(content, parse_as("docs/a.x", content, form)))
    for first, second in pairwise(passages):
        assert second.end_line > first.end_line or second.start_line == first.end_line


@st.composite
def rendered_files(draw: st.DrawFn) -> tuple[str, str]:
    form = draw(st.sampled_from(list(RENDERED)))
    lines = draw(st.lists(st.one_of(st.sampled_from(RENDERED[form]), ANY_LINE), max_size=60))
    return form, "\n".join(lines)


CELLS = st.builds(
    lambda kind, source, outputs: {"cell_type": kind, "outputs": outputs, "source": source},
    st.sampled_from(["markdown", "code", "raw"]),
    st.lists(st.one_of(st.sampled_from(["# One\n", "x = 1\n", "```\n", "\n", "a", ""]), ANY_LINE), max_size=12),
    st.lists(
        st.builds(lambda text: {"output_type": "stream", "text": text}, st.lists(ANY_LINE, max_size=20)), max_size=2
    ),
)
NOTEBOOKS = st.builds(
    lambda cells, indent: ("notebook", json.dumps({"cells": cells, "nbformat": 4}, indent=indent)),
    st.lists(CELLS, max_size=6), st.sampled_from([None, 1]),
)  # fmt: skip


@given(st.one_of(rendered_files(), NOTEBOOKS))
def test_passages_of_rendered_files_are_what_their_lines_show(file: tuple[str, str]) -> None:
    form, content = file
    parsed = parse_as("docs/a.x", content, form)
    assert parsed.rendered is not None
    assert_sections_are_the_lines(content, parsed)
    passages = split_document(as_document(content, parsed))
    assert_passages_are_rendered(content, parsed, passages)
    assert parse_as("docs/a.x", content, form) == parsed


@given(st.text(st.sampled_from("ab .\n漢"), max_size=400), st.integers(1, 60).flatmap(
    lambda size: st.tuples(st.just(size), st.integers(0, size - 1))))  # fmt: skip
def test_chunks_keep_every_character_the_size_and_the_overlap(content: str, sizes: tuple[int, int]) -> None:
    size, overlap = sizes
    chunker = TextChunker(size, overlap)
    spans = list(chunker.spans(content))
    assert chunker.split(content) == [content[start:end] for start, end in spans]
    assert all(0 < end - start <= size for start, end in spans)
    assert [spans[0][0], spans[-1][1]] == [0, len(content)] if content else not spans
    for (_, first_end), (start, end) in pairwise(spans):
        assert first_end - overlap <= start <= first_end < end
