"""What a search shows is what the stored screens show; ``python -m tests.screens`` writes them anew."""

from __future__ import annotations

import pytest

from kiwi_rag.render.layout import columns
from tests.screens import SCREENS, path_of, screens

SHOWN = [pytest.param(*screen, id=f"{screen[0]}-{screen[1]}") for screen in screens()]


@pytest.mark.parametrize(("name", "width", "text"), SHOWN)
def test_a_search_shows_what_is_stored(name: str, width: int, text: str) -> None:
    assert text == path_of(name, width).read_text(encoding="utf-8"), "after a change: python -m tests.screens"


@pytest.mark.parametrize(("name", "width", "text"), SHOWN)
def test_only_a_word_that_is_wider_than_the_screen_is_over_its_width(name: str, width: int, text: str) -> None:
    over = [line for line in text.splitlines() if columns(line) > width]
    assert all(len(line.split()) == 1 or line.strip().startswith("kiwi ") for line in over)
    assert len(over) <= 8


def test_every_stored_screen_is_compared() -> None:
    assert {path.name for path in SCREENS.iterdir()} == {path_of(name, width).name for name, width, _ in screens()}
