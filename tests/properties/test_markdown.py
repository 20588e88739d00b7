"""Whatever the text: Markdown read a window at a time has the blocks and headings that it has as a whole."""

from __future__ import annotations

from itertools import pairwise
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kiwi_rag.formats import markdown

LINES = st.lists(
    st.one_of(
        st.sampled_from(["", " ", "# One", "#", "a", "===", "---", "```", "~~~ sh", "````", "<!-- a", "-->", "<div>"]),
        st.sampled_from(["</div>", "<pre>", "</pre>", "<b>", "<?x", "?>", "    code", "[a]: b", "[a", "- a", "> a"]),
        st.text(st.sampled_from("a#`~<>-=[]:!? \t\r"), max_size=8),
    ),
    max_size=40,
)  # fmt: skip


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
    tokens = MarkdownIt("commonmark").disable(["list", "blockquote"]).parse(text.replace("\r", " ") + "\n")
    wanted = [(t.type, t.map[0] + 1, t.map[1]) for t in tokens if t.type in {"fence", "html_block"} and t.map]
    kinds = {"fence": "fence", "html_block": "html"}
    found = markdown.outline(text).blocks
    assert [(b.kind, b.start_line, b.end_line) for b in found] == [(kinds[k], *lines) for k, *lines in wanted]


@given(LINES)
def test_headings_are_those_of_the_library(lines: list[str]) -> None:
    text = "x\n" + "\n".join(lines)
    tokens = MarkdownIt("commonmark").disable(["list", "blockquote"]).parse(text.replace("\r", " ") + "\n")
    wanted = [
        (opening.map[0] + 1, opening.tag, inline.content)
        for opening, inline in pairwise(tokens)
        if opening.type == "heading_open" and opening.map and not markdown._is_list(opening.markup, inline.content)
    ]
    assert [(h.line, f"h{h.level}", h.text) for h in markdown.outline(text).headings] == wanted
