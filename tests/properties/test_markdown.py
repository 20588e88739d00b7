"""Whatever the text: Markdown read a window at a time has the blocks and headings that it has as a whole."""

from __future__ import annotations

from itertools import pairwise
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from kiwi_rag.formats import markdown

LINES = st.lists(
    st.one_of(
        st.sampled_from(["", " ", "# One", "#", "a", "===", "---", "```", "~~~ sh", "````", "<!-- a", "-->", "<div>"]),
        st.sampled_from(["</div>", "<pre>", "</pre>", "<b>", "<?x", "?>", "    code", "[a]: b", "[a", "- a", "> a"]),
        st.sampled_from(["  # b", "  - c", "| a |", "|-|", "\t```"]),
        st.text(st.sampled_from("a#`~<>-=[]:!? \t\r"), max_size=8),
    ),
    max_size=40,
)  # fmt: skip


def outermost(text: str, levels: int = 1) -> list[Token]:
    """Return the tokens of a text that are in no quote, list or table."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text.replace("\r", " ") + "\n")
    inner = {"blockquote", "bullet_list", "ordered_list", "table"}
    depth, found = 0, []
    for token in tokens:
        depth += token.nesting if token.type.removesuffix("_open").removesuffix("_close") in inner else 0
        if not depth and token.level < levels:
            found.append(token)
    return found


@given(LINES, st.integers(1, 7))
def test_windows_change_no_piece(lines: list[str], window: int) -> None:
    text = "x\n" + "\n".join(lines)
    whole = list(markdown.pieces(text))
    with patch.object(markdown, "_WINDOW", window):
        assert list(markdown.pieces(text)) == whole


@given(LINES, st.integers(1, 7))
def test_windows_change_nothing(lines: list[str], window: int) -> None:
    text = "x\n" + "\n".join(lines)
    markdown.outline.cache_clear()
    whole = markdown.outline(text)
    with patch.object(markdown, "_WINDOW", window):
        markdown.outline.cache_clear()
        assert markdown.outline(text) == whole


@given(LINES)
def test_blocks_are_those_of_the_library(lines: list[str]) -> None:
    text = "x\n" + "\n".join(lines)
    wanted = [(t.type, t.map[0] + 1, t.map[1]) for t in outermost(text) if t.type in {"fence", "html_block"} and t.map]
    kinds = {"fence": "fence", "html_block": "html"}
    found = markdown.outline(text).blocks
    assert [(b.kind, b.start_line, b.end_line) for b in found] == [(kinds[k], *lines) for k, *lines in wanted]


@given(LINES)
def test_headings_are_those_of_the_library(lines: list[str]) -> None:
    text = "x\n" + "\n".join(lines)
    wanted = [
        (opening.map[0] + 1, opening.tag, inline.content)
        for opening, inline in pairwise(outermost(text, 2))
        if opening.type == "heading_open" and opening.map
    ]
    assert [(h.line, f"h{h.level}", h.text) for h in markdown.outline(text).headings] == wanted
