"""Pages of documentation: none costs more than it may, and all together are the answer in one page."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from kiwi_rag.model import ItemRef, ItemType, Passage, SearchResult
from kiwi_rag.usecases.library import Chunk, page_of
from kiwi_rag.wordpieces import estimate_tokens

_HIT = SearchResult(
    ItemRef(ItemType.DOCUMENT, "docs/a.md"), "library", ("library",), (), Passage(0, "x", "", (), 1, 1), {}, 0.5, {},
    "d", "k", "p", datetime(2026, 1, 1, tzinfo=UTC),
)  # fmt: skip
_TEXTS = st.lists(
    st.text(alphabet="ab \n`é語", min_size=1, max_size=60).filter(lambda text: bool(text.strip())), max_size=12
)


def _cost(chunk: Chunk) -> int:
    return 3 + estimate_tokens(chunk.text, "code")


@given(_TEXTS, st.integers(1, 40))
def test_pages_are_the_whole_answer_and_none_is_too_large(texts: list[str], budget: int) -> None:
    chunks = [Chunk(_HIT, text, 1, 1) for text in texts]
    pages, position = [], 0 if chunks else None
    while position is not None:
        page, following = page_of(chunks, position, budget, _cost)
        assert page, "every page moves on"
        smallest = _cost(replace(page[0], text=page[0].text[:1]))
        assert sum(map(_cost, page)) <= max(budget, smallest)
        pages += page
        position = following
    assert "".join(chunk.text for chunk in pages) == "".join(texts)


def test_a_long_chunk_is_divided_at_a_line_end() -> None:
    chunk = Chunk(_HIT, "one two three\nfour five six\nseven", 1, 3)
    page, following = page_of([chunk], 0, 9, _cost)
    assert [part.text for part in page] == ["one two three\nfour five six\n"[:following]]
    assert page[0].text.endswith("\n")
