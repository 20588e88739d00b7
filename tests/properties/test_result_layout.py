"""Of any reply, at any width: no line is wider, and no word is cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_rag.model import ItemState, SearchReply, SearchResult
from kiwi_rag.render import hits
from kiwi_rag.render.layout import columns
from tests.screens import documents, items

WORD = st.text(st.sampled_from("abcXYZ019_-./é日本한🥝`{}"), min_size=1, max_size=40)
LINE = st.lists(WORD, max_size=25).map(" ".join)
TEXT = st.lists(LINE, max_size=6).map("\n".join)
WIDTH = st.integers(20, 220)
STATE = st.sampled_from([ItemState(), ItemState("edited: kiwi sign .ai/a.md"), ItemState(yanked=True)])


@st.composite
def replies(draw: st.DrawFn, text: st.SearchStrategy[str] = TEXT) -> SearchReply:
    base = draw(st.sampled_from([items(), documents()]))

    def changed(hit: SearchResult) -> SearchResult:
        passage = replace(hit.passage, text=draw(text), heading=tuple(draw(st.lists(LINE, max_size=2))))
        return replace(
            hit, passage=passage, path=draw(WORD), principal=draw(WORD), state=draw(STATE),
            metadata={"title": draw(LINE), "file_type": "text"}, duplicates=tuple(draw(st.lists(WORD, max_size=5))),
        )  # fmt: skip

    query = replace(base.query, text=draw(LINE) or "x")
    return replace(base, hits=tuple(map(changed, base.hits)), query=query, explanation=None)


@pytest.mark.slow
@given(replies(), WIDTH)
def test_only_a_single_word_or_a_command_is_wider_than_the_terminal(reply: SearchReply, width: int) -> None:
    for line in hits.hits_text(reply, width=width).splitlines():
        assert columns(line) <= width or len(line.split()) == 1 or line.strip().startswith("kiwi ")


@given(replies(st.just("")), WIDTH)
def test_the_words_are_the_same_at_every_width(reply: SearchReply, width: int) -> None:
    assert hits.hits_text(reply, width=width).split() == hits.hits_text(reply).split()
