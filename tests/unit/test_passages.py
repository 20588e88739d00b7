"""Sections become passages of the wanted size, with context, overlap and true lines."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from kiwi_rag.chunking import ITEMS, Sizes, split
from kiwi_rag.formats import parse_item
from kiwi_rag.formats.source import walk
from kiwi_rag.model import Item, Passage
from kiwi_rag.model.refs import ItemType
from kiwi_rag.wordpieces import embedded_text, estimate_tokens
from tests.shared import CORPUS, needs_shared


def sized(tokens: int, overlap: int) -> Sizes:
    """Return sizes in word pieces, of about five characters each."""
    return replace(ITEMS, tokens=tokens, joined_tokens=tokens, overlap=5 * overlap)


def knowledge(body: str) -> Item:
    item = parse_item(ItemType.KNOWLEDGE, "a/note", f"---\ntitle: Note\ndescription: D\n---\n{body}").item
    assert item is not None
    return item


def test_the_summary_comes_first() -> None:
    first, second = split(knowledge("Text.\n"))
    assert (first.ordinal, first.start_line, first.end_line) == (0, 1, 4)
    assert first.text.startswith("Note\n")
    assert (second.ordinal, second.text, second.start_line) == (1, "Text.", 5)


def test_context_names_the_id_the_title_and_headings() -> None:
    passages = split(knowledge("# Note\n\n## Cost\n\n" + "word " * 300))
    assert passages[-1].context == "a note > Cost"  # the id says the title already
    assert embedded_text(passages[-1]).startswith("a note > Cost\nword word")
    titled = parse_item(
        ItemType.KNOWLEDGE, "acme/adr/0015-roll_out", "---\ntitle: Progressive delivery\n---\n# Why\n\nText."
    ).item
    assert titled is not None
    assert split(titled)[-1].context == "acme adr 0015 roll out > Progressive delivery > Why"


def test_the_model_sees_no_markup_and_the_words_leg_does() -> None:
    text = "\n".join([
        "<process>", '  <step name="check_health">Ask **`svc-check-in`**, #1 of 3.</step>', "</process>",
        "| a | b |", "|---|---|", "| 1 < 2 | x > 0 |", "```python", "f(a, *b)  # twice", "```",
    ])  # fmt: skip
    passage = Passage(1, text, "acme health", (), 1, 9)
    assert passage.indexed_text == f"acme health\n{text}"
    lines = [line.strip() for line in embedded_text(passage).split("\n") if line.strip()]
    assert lines[0] == "acme health"
    assert lines[1] == "check health: Ask svc-check-in , 1 of 3."
    assert {"a b", "1 < 2 x > 0", "f(a, b) twice"} <= set(lines)
    assert not any(mark in "".join(lines) for mark in ("<process", "**", "```", "---"))


def test_nothing_but_markup_is_embedded_as_it_stands() -> None:
    assert embedded_text(Passage(1, "|---|---|", "", (), 1, 1)) == "|---|---|"


def test_tiny_neighbours_share_a_passage() -> None:
    passages = split(knowledge("# A\n\none\n\n## B\n\ntwo\n\n## C\n\nthree\n"))
    assert [p.text for p in passages[1:]] == ["# A\n\none\n\n## B\n\ntwo\n\n## C\n\nthree"]
    assert passages[1].heading == ("A",)


def test_sections_of_different_chapters_do_not_share_one() -> None:
    assert [p.heading for p in split(knowledge("# A\n\none\n\n# B\n\ntwo\n"))[1:]] == [("A",), ("B",)]


def test_long_sections_are_cut_at_lines_and_overlap() -> None:
    lines = [f"Line number {n} says a little about something." for n in range(100)]
    passages = split(knowledge("\n".join(lines)), sized(100, 20))[1:]
    assert all(estimate_tokens(p.text) <= 100 for p in passages)
    assert all(later.start_line <= earlier.end_line for earlier, later in pairwise(passages))
    assert all(p.text == "\n".join(lines[p.start_line - 5 : p.end_line - 4]) for p in passages)


def test_a_long_line_is_cut_at_sentence_ends() -> None:
    sentence = "This sentence has a few plain words in it. "
    passages = split(knowledge(sentence * 60), sized(60, 0))[1:]
    assert len(passages) > 5
    assert {(p.start_line, p.end_line) for p in passages} == {(5, 5)}
    assert all(p.text.endswith(".") for p in passages)
    assert " ".join(p.text for p in passages) == (sentence * 60).rstrip()  # no spaces at the ends of a piece


def test_a_line_without_spaces_is_cut_too() -> None:
    passages = split(knowledge("x" * 5_000), sized(60, 0))[1:]
    assert "".join(p.text for p in passages) == "x" * 5_000
    assert max(estimate_tokens(p.text) for p in passages) <= 80


@needs_shared
def test_real_items_make_a_moderate_number_of_passages() -> None:
    items = [
        parse_item(s.item_type, s.item_id, s.path.read_bytes().decode()).item
        for s in walk(CORPUS)
        if s.item_id and not s.problem
    ]
    passages = [p for item in items if item for p in split(item)]
    assert 900 <= len(passages) <= 1_500
    assert max(estimate_tokens(embedded_text(p)) for p in passages) <= 250


def test_blank_lines_between_long_ones_make_no_passage() -> None:
    passages = split(knowledge("\n\n".join(["x" * 105] * 3) + "\n"), sized(20, 19))[1:]
    assert all(p.text.strip() for p in passages)
    assert len({(p.text, p.start_line) for p in passages}) == len(passages)
