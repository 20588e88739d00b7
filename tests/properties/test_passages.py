"""Whatever the text: passages cover it, and say truly where they stand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kiwi_rag.chunking import ITEMS as ITEM_SIZES
from kiwi_rag.chunking import Sizes, split
from kiwi_rag.formats import parse_item
from kiwi_rag.model import Item
from kiwi_rag.model.refs import ItemType

LINES = st.one_of(
    st.sampled_from(
        ["", " ", "# One", "## Two", "### ", "```", "~~~", "    code", "<!-- note", "-->", "---", "| a | b |", "\r"]
    ),
    st.sampled_from(["<process>", '<step name="a">', "</step>", "</process>", "<!-- t:signed:1", "title: x"]),
    st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\n"), max_size=60),
    st.integers(1, 80).map(lambda n: "A sentence of some words. " * n),
    st.integers(1, 900).map(lambda n: "x" * n),
)
BODIES = st.lists(LINES, max_size=40).map("\n".join)
FENCE = "```xml\n<directive name='a' version='1.0.0'><description>d</description></directive>\n```\n"
CODE = st.lists(
    st.sampled_from(["x = 1", "", "def f():\n    return 1", "# note", "class A:\n    b = 2\n", "@f\ndef g(): ..."])
)


def sized(tokens: int, overlap: int) -> Sizes:
    """Return sizes in word pieces, of about five characters each."""
    return replace(ITEM_SIZES, tokens=tokens, joined_tokens=tokens, overlap=5 * overlap)


def knowledge(body: str) -> Item | None:
    return parse_item(ItemType.KNOWLEDGE, "a", body).item


def directive(body: str) -> Item | None:
    return parse_item(ItemType.DIRECTIVE, "a", f"# T\n\n{FENCE}{body}").item


def script(lines: list[str]) -> Item | None:
    return parse_item(ItemType.SCRIPT, "a", '"""Doc."""\n' + "\n".join(lines)).item


ITEMS = st.one_of(BODIES.map(knowledge), BODIES.map(directive), CODE.map(script)).filter(lambda item: item is not None)
SIZES = st.tuples(st.integers(20, 200), st.integers(0, 19))


def file_lines(item: Item) -> list[str]:
    return item.content.removeprefix("\ufeff").split("\n")


@given(ITEMS)
def test_body_sections_are_the_lines_they_name(item: Item) -> None:
    lines = file_lines(item)
    for section in item.sections:
        if section.kind == "body":
            assert section.text == "\n".join(lines[section.start_line - 1 : section.end_line])


@given(ITEMS)
def test_body_sections_do_not_overlap(item: Item) -> None:
    spans = [(s.start_line, s.end_line) for s in item.sections if s.kind == "body"]
    assert all(end < start for (_, end), (start, _) in pairwise(spans))


@given(BODIES)
def test_knowledge_sections_cover_the_body(body: str) -> None:
    content = "---\nversion: 1.0.0\n---\n" + body
    item = knowledge(content)
    assert item is not None
    covered = {n for s in item.sections if s.kind == "body" for n in range(s.start_line, s.end_line + 1)}
    assert covered >= {n for n, line in enumerate(content.split("\n"), start=1) if n > 3 and line.strip()}


@given(ITEMS, SIZES)
def test_passages_cover_every_line_of_the_body(item: Item, sizes: tuple[int, int]) -> None:
    passages = split(item, sized(sizes[0], sizes[1]))[1:]
    lines = file_lines(item)
    covered = {n for p in passages for n in range(p.start_line, p.end_line + 1)}
    body = {n for s in item.sections if s.kind == "body" for n in range(s.start_line, s.end_line + 1)}
    assert {n for n in body if lines[n - 1].strip()} <= covered


@given(ITEMS, SIZES)
def test_no_word_of_the_body_is_lost(item: Item, sizes: tuple[int, int]) -> None:
    passages = split(item, sized(sizes[0], 0))
    summaries = sum(p.text in item.sections[0].text for p in passages)
    body = "".join("".join(p.text.split()) for p in passages if p.ordinal >= min(summaries, 1))
    for section in item.sections:
        if section.kind == "body":
            assert "".join(section.text.split()) in body


@given(ITEMS, SIZES)
def test_passages_stand_where_they_say(item: Item, sizes: tuple[int, int]) -> None:
    lines = file_lines(item)
    for passage in split(item, sized(sizes[0], sizes[1])):
        stretch = "\n".join(lines[passage.start_line - 1 : passage.end_line])
        assert passage.text in stretch or passage.text in item.sections[0].text


@given(ITEMS)
def test_ordinals_count_from_zero_and_splitting_is_deterministic(item: Item) -> None:
    passages = split(item)
    assert [p.ordinal for p in passages] == list(range(len(passages)))
    assert passages == split(item)
