"""Passages with nearly the same text are one hit that names the others."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_rag.model import SearchQuery
from kiwi_rag.search.diversify import COPY_SHARE, CopyIndex
from kiwi_rag.search.hits import MAX_NAMED
from tests.workspaces import Yard

RULE = "The harbour master opens the eastern lock for every ship that carries a pilot and has booked the tide in time."


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path / "yard")


async def test_copies_of_a_passage_are_one_hit_that_names_them_and_counts_once(yard: Yard) -> None:
    for folder in ("v1", "v2", "v3"):
        yard.write(f"docs/{folder}/lock.md", f"# Locks\n\n{RULE}\n")
    yard.write("docs/next/lock.md", f"# Locks\n\n{RULE.replace('eastern', 'western')}\n")
    yard.write("docs/harbour.md", "# Harbour\n\nThe harbour is closed in winter.\n")
    await yard.index()
    reply = await yard.search("harbour master lock", limit=2)
    first, second = reply.hits
    assert second.path == "docs/harbour.md"
    found = {f"{first.path}:{first.passage.start_line}-{first.passage.end_line}", *first.duplicates}
    assert found == {f"docs/{folder}/lock.md:1-3" for folder in ("v1", "v2", "v3", "next")}
    assert (first.more_duplicates, second.duplicates) == (0, ())


async def test_what_differs_in_more_than_a_few_words_is_no_copy(yard: Yard) -> None:
    yard.write("a.md", "# Lock\n\nThe lock opens at six.\n")
    yard.write("b.md", "# Lock\n\nThe lock opens at ten.\n")
    await yard.index()
    assert len((await yard.search("lock opens")).hits) == 2


async def test_copies_whose_file_is_gone_are_not_named_and_many_are_counted(yard: Yard) -> None:
    for number in range(MAX_NAMED + 5):
        yard.write(f"{number:02}.md", f"# Locks\n\n{RULE}\n")
    await yard.index()
    for number in (1, 2):
        (yard.root / f"{number:02}.md").unlink()
    (hit,) = (await yard.search("harbour")).hits
    assert (len(hit.duplicates), hit.more_duplicates) == (MAX_NAMED, 2)
    assert not {"01.md:1-3", "02.md:1-3"} & set(hit.duplicates)


async def test_a_larger_limit_only_adds_hits(yard: Yard) -> None:
    for number in range(12):
        yard.write(f"{number:02}.md", f"# Lock {number % 4}\n\n{RULE} {f'Lock {number % 4} is special. ' * 3}\n")
        yard.write(f"other{number:02}.md", f"# Quay {number}\n\nQuay {number} is of the harbour.\n")
    await yard.index()
    searches = [await yard.searcher.search(SearchQuery("harbour lock", limit=limit)) for limit in (1, 3, 8)]
    orders = [[hit.path for hit in reply.hits] for reply in searches]
    assert orders[0] == orders[2][:1]
    assert orders[1] == orders[2][:3]


@given(st.randoms(use_true_random=False), st.integers(1, 60), st.integers(0, 8))
def test_the_index_of_copies_finds_what_comparing_each_finds(source: random.Random, size: int, changes: int) -> None:
    words = [f"{'w' * source.randint(1, 5)}{source.randint(0, 99)}" for _ in range(size)]
    index, texts = CopyIndex(), list[set[str]]()
    for _ in range(8):
        text = words.copy()
        for _ in range(changes):
            text[source.randrange(size)] = f"x{source.randint(0, 99)}"
        alike = [n for n, other in enumerate(texts) if len(other & set(text)) >= COPY_SHARE * len(other | set(text))]
        assert index.find(" ".join(text)) == (alike[0] if alike else None)
        index.add(" ".join(text))
        texts.append(set(text))
