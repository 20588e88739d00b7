"""Whatever stands in a YAML or JSON file: no section is untrue, none overlaps another, and no line is lost."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kiwi_rag.formats.documents import parse
from kiwi_rag.formats.documents.structured import LONG_LINE
from kiwi_rag.formats.nodes import DEPTH, Node, read_json, read_yaml
from kiwi_rag.formats.outcome import ParsedDocument
from tests.examples import examples

pytestmark = pytest.mark.slow

WORDS = st.text(st.characters(blacklist_categories=("Cs",)), max_size=30)
KEYS = st.one_of(
    st.sampled_from(
        ["openapi", "asyncapi", "info", "paths", "/a", "get", "post", "parameters", "components", "schemas"]
    ),
    st.sampled_from(
        ["channels", "operations", "messages", "name", "id", "title", "service", "a: b", "# c", "- d", "'"]
    ),
    WORDS,
)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), WORDS, st.sampled_from(["3.0.0", "2.6.0"]), WORDS.map(lambda w: w * 40)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=30
)
ROOTS = st.one_of(
    VALUES, VALUES.map(lambda v: {"openapi": "3.0.0", "paths": {"/a": {"get": v, "x": v}}, "components": v})
)
MAPPINGS = st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=4), min_size=1, max_size=4)
LAYOUTS = st.fixed_dictionaries(
    {
        "indent": st.integers(2, 6),
        "width": st.sampled_from([20, 80, 10_000]),
        "default_flow_style": st.sampled_from([None, True, False]),
    }
)
INDENTS = st.one_of(st.none(), st.integers(0, 4), st.just("\t"))
LINES = st.one_of(
    st.sampled_from(
        ["---", "...", "# note", "", "  ", "- a: b", "-", "  - c", "openapi: 3.0.0", "paths:", "  /a:", "    get:"]
    ),
    st.sampled_from(
        ["? x", ": y", "a: |", "  text", "  # text", "b: &x {c: *x}", "{", "}", "[1,", "]", '"', "a: 'b", "\tc: d"]
    ),
    st.sampled_from(["%YAML 1.1", "!t a: b", "c: >-", "a: b # c", '"a": {"b": 1}, "c": {}}', "x" * LONG_LINE]),
    st.text(max_size=20),
)


def dumped(value: Any, layout: dict[str, Any]) -> str:
    return yaml.dump(value, Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True, **layout)


def bare(text: str) -> str:
    return "".join(text.split())


def check(document: ParsedDocument, text: str) -> None:
    lines = text.split("\n")
    for section in document.sections:
        named = lines[section.start_line - 1 : section.end_line]
        assert section.text == "\n".join(named) or (
            section.text in "\n".join(named) and max(map(len, (named[0], named[-1]))) >= LONG_LINE - 1
        )
        assert lines[section.start_line - 1].strip() and lines[section.end_line - 1].strip()
    for one, other in pairwise(document.sections):
        shared = one.end_line == other.start_line and len(lines[one.end_line - 1]) >= LONG_LINE - 1
        assert one.end_line < other.start_line or shared
    # Text that is not blank stands in exactly one section, in its order.
    assert "".join(bare(section.text) for section in document.sections) == bare(text)


@given(ROOTS, LAYOUTS)
def test_sections_of_yaml_are_true_and_complete(value: Any, layout: dict[str, Any]) -> None:
    text = dumped(value, layout)
    document = parse("x.yaml", text)
    assert document.file_type != "text"
    check(document, text)


@given(ROOTS, INDENTS, st.booleans())
def test_sections_of_json_are_true_and_complete(value: Any, indent: int | str | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    document = parse("x.json", text)
    assert document.file_type != "text"
    check(document, text)


@given(st.lists(LINES, max_size=30).map("\n".join), st.sampled_from(["x.yaml", "x.json"]))
@examples(75)
def test_any_text_is_read_or_becomes_text_with_one_warning(text: str, path: str) -> None:
    document = parse(path, text)
    assert [finding.code for finding in document.findings] == ["document.malformed"] * (document.file_type == "text")
    check(document, text)


def keys_stand_where_they_say(node: Node, value: Any, text: str) -> None:
    """Check that the key of each entry, and the value, are read from where the node says they are."""
    if isinstance(value, dict):
        assert [child.key for child in node.children] == list(value)
        for child, inner in zip(node.children, value.values(), strict=True):
            assert json.loads(text[child.anchor : child.start].rstrip().removesuffix(":")) == child.key
            assert json.loads(text[child.start : child.end]) == inner
            if child.children:
                keys_stand_where_they_say(child, inner, text)


@given(MAPPINGS, INDENTS)
def test_json_nodes_stand_where_they_say(value: dict[str, Any], indent: int | str | None) -> None:
    text = json.dumps(value, indent=indent)
    (root,) = read_json(text)
    keys_stand_where_they_say(root, value, text)


@given(MAPPINGS, LAYOUTS)
def test_yaml_nodes_stand_where_the_parser_in_python_finds_them(value: dict[str, Any], layout: dict[str, Any]) -> None:
    text = dumped(value, layout)
    (root,) = read_yaml(text)
    _same_places(root, yaml.compose(text, Loader=yaml.SafeLoader), text, depth=1)


def _same_places(node: Node, composed: Any, text: str, depth: int) -> None:
    assert node.start == composed.start_mark.index
    if node.kind == "scalar":
        assert node.end == composed.end_mark.index
    else:
        # A block collection's end mark is past the blanks behind it.
        assert text[node.start : node.end] == text[node.start : composed.end_mark.index].rstrip(" \n")
    if depth <= DEPTH and node.kind == "mapping":
        for child, (key, inner) in zip(node.children, composed.value, strict=True):
            assert (child.key, child.anchor) == (key.value, key.start_mark.index)
            _same_places(child, inner, text, depth + 1)
    if depth <= DEPTH and node.kind == "sequence":
        for child, inner in zip(node.children, composed.value, strict=True):
            _same_places(child, inner, text, depth + 1)
