"""Documentation is ranked by pages: their kind, their names, and all of their passages count, each within limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kiwi_rag.model import CollectionStatistics
from kiwi_rag.search import pages
from kiwi_rag.search.pages import PageQuery, page_kind, parse_page_query
from tests.workspaces import Yard

MOOR = "Moor a ship with two lines and a spring."
OTHERS = {f"docs/other{n}.md": f"# Other {n}\n\nBuoy {n} blinks every {n} seconds.\n" for n in range(8)}


async def explained(folder: Path, files: dict[str, str], query: str) -> dict[str, dict[str, Any]]:
    """Return the files that a query finds in a workspace of these files and some others, best first, with all parts."""
    yard = Yard(folder / "yard")
    for path, text in (OTHERS | files).items():
        yard.write(path, text)
    await yard.index()
    reply = await yard.search(query)
    await yard.store.close()
    best = {hit.path: hit for hit in reversed(reply.hits)}
    return {hit.path: {**best[hit.path].parts, "score": best[hit.path].score} for hit in reply.hits}


async def ranked(folder: Path, files: dict[str, str], query: str) -> list[str]:
    """Return the files that a query finds, best first."""
    return list(await explained(folder, files, query))


@pytest.mark.parametrize(
    ("path", "title", "kind"),
    [
        ("docs/releases/4.2.txt", "", "release"),
        ("docs/releases/index.txt", "", "release"),
        ("CHANGELOG.md", "", "release"),
        ("doc/whatsnew_20.rst", "", "release"),
        ("docs/history/changelog-5.5.rst", "", "release"),
        ("doc/source/release/1.20.0-notes.rst", "", "release"),
        ("Doc/tides/3.11.rst", "What’s New In Tides 3.11", "release"),  # as Sphinx writes it
        ("doc/announce/release-8.0.0.rst", "", "announcement"),
        ("src/content/blog/2024/12/05/tides-19.md", "", "announcement"),
        ("site/2024-12-05-tides.md", "", "announcement"),
        ("docs/Guides/Migration-Guide-V5.md", "", "migration"),
        ("docs/08-migration-guides/24-to-6.mdx", "", "migration"),
        ("docs/deprecations.rst", "", "migration"),
        ("docs/contributing.rst", "", "about"),
        ("docs/internals/queue.rst", "", "about"),
        ("README.md", "", "index"),
        ("docs/reference/index.md", "", "index"),
        ("docs/topics/migrations.txt", "", ""),
        ("docs/howto/writing-migrations.txt", "", ""),
        ("docs/1.2-moorings.md", "", ""),
        ("docs/v2/moorings.md", "", ""),
        ("versioned_docs/version-2.x/moorings.md", "", ""),
        ("docs/3.1/moorings.md", "", ""),
        ("html/genindex-M.html", "", "index"),
        ("api/prev_api_changes/api_changes_3.5.0.rst", "", "release"),
        ("notes/2026-01-harbour.txt", "", ""),
        ("docs/topics/http2.md", "", ""),
    ],
)
def test_the_names_of_a_page_tell_its_kind(path: str, title: str, kind: str) -> None:
    assert page_kind(path, title) == kind


def asked(text: str) -> PageQuery:
    return parse_page_query(text, CollectionStatistics())


@pytest.mark.parametrize(
    ("text", "changes", "migration", "versions"),
    [
        ("What changed in 3.11?", True, False, {"3.11"}),
        ("what's new in version 8.0", True, False, {"8"}),
        ("release notes", True, False, set()),
        ("tides 19 new features", True, False, {"19"}),
        ("changelog 2.4.1", True, False, {"2.4.1"}),
        ("migrate from 1.4 to 2.0", False, True, {"2"}),
        ("breaking changes v4 -> v5", True, True, {"5"}),
        ("upgrade to the newest version", False, True, set()),
        ("how do I run code when a model is changed", False, False, set()),
        ("remove a row", False, False, set()),
        ("tls 1.3", False, False, set()),
    ],
)
def test_the_form_of_a_query_tells_which_changes_it_asks_for(
    text: str, changes: bool, migration: bool, versions: set[str]
) -> None:
    query = asked(text)
    assert (query.changes, query.migration, set(query.versions)) == (changes, migration, versions)


RELEASES = {
    "docs/guide/moor.md": f"# Ropes\n\n{MOOR} Others say that bollards of iron are better than those of wood.\n",
    "docs/releases/2.1.md": f"# Release 2.1\n\nMooring: {MOOR} Mooring is new.\n",
    "docs/releases/2.0.md": f"# Release 2.0\n\nMooring: {MOOR} Mooring is better.\n",
}


async def test_a_guide_comes_before_the_release_notes_that_mention_it(tmp_path: Path) -> None:
    assert (await ranked(tmp_path, RELEASES, "how do I moor a ship with a spring"))[0] == "docs/guide/moor.md"


async def test_release_notes_come_first_if_they_are_asked_for_and_those_of_another_version_last(tmp_path: Path) -> None:
    parts = await explained(tmp_path, RELEASES, "what is new in 2.1 for mooring")
    assert next(iter(parts)) == "docs/releases/2.1.md"
    assert parts["docs/releases/2.1.md"]["page"] == pages.CHANGES_SHARE
    assert parts["docs/releases/2.0.md"]["page"] == -pages.CHANGES_SHARE


async def test_a_section_under_a_version_is_release_notes_whatever_its_file_is_called(tmp_path: Path) -> None:
    log = f"# Progress\n\n## Mooring 2.1.0 (2026-05-04)\n\nMooring: {MOOR}\n"
    files = {"docs/progress.md": log, "docs/moor.md": f"# Work\n\n## Ships\n\nMooring: {MOOR}\n"}
    parts = await explained(tmp_path, files, "moor a ship with lines")
    assert parts["docs/progress.md"]["page"] == -pages.CHANGES_SHARE
    assert parts["docs/moor.md"]["page"] == 0.0


async def test_a_page_of_the_name_that_is_asked_for_loses_nothing(tmp_path: Path) -> None:
    files = {"docs/history.md": f"# Tides of history\n\n{MOOR}\n", "docs/changes.md": f"# Work\n\n{MOOR}\n"}
    parts = await explained(tmp_path, files, "the history of the moor")
    assert parts["docs/history.md"]["page"] == 0.0
    assert parts["docs/changes.md"]["page"] == -pages.CHANGES_SHARE


async def test_a_page_that_lists_others_loses_little_and_nothing_if_its_title_is_asked_for(tmp_path: Path) -> None:
    files = {"docs/index.md": f"# Mooring ships\n\n{MOOR}\n", "README.md": f"# Harbour\n\n{MOOR}\n"}
    parts = await explained(tmp_path, files, "mooring ships")
    assert parts["docs/index.md"]["page"] == pytest.approx(0.0)
    assert parts["README.md"]["page"] == -pages.ABOUT_SHARE


async def test_the_page_whose_other_passages_match_too_comes_before_one_with_a_single_one(tmp_path: Path) -> None:
    about = "\n".join(
        f"## Part {n}\n\nA ship moors at quay {n}, with lines of {n} metres. {MOOR * 6}\n" for n in range(4)
    )
    apart = "\n".join(
        f"## Part {n}\n\nCranes lift {n} tons of grain, cement or timber. {'Grain. ' * 40}" for n in range(3)
    )
    same = f"## Part 9\n\nA ship moors at quay 9, with lines of 9 metres. {MOOR * 6}\n"
    files = {"docs/b-moor.md": f"# Quays\n\n{about}", "docs/a-cranes.md": f"# Quays\n\n{apart}\n\n{same}"}
    assert (await ranked(tmp_path, files, "ship lines at a quay"))[0] == "docs/b-moor.md"


async def test_headings_with_the_words_of_the_query_and_no_others_count_most() -> None:
    statistics = CollectionStatistics(10, 100, {"moor": 2, "ship": 3}, 5)
    query = parse_page_query("moor ships", statistics)
    exact, longer, other = (
        query._likeness(pages._words(text)) for text in ("Mooring ships", "Mooring of ships in ice", "Ice")
    )
    assert exact == pytest.approx(1.0)
    assert other == 0.0
    assert 0 < longer < exact
    assert asked("moor")._likeness(pages._words("moor")) == 0.0  # of words that no passage has


async def test_a_common_word_alone_is_no_name_in_prose_and_one_in_code(tmp_path: Path) -> None:
    files = {
        "docs/all.md": "# Everything\n\n## Mooring\n\nMooring is not here.\n\n## moor_ship\n\nmoor_ship moors.\n",
        "src/quay.py": "def mooring(ship):\n    return ship.lines\n",
    }
    parts = await explained(tmp_path, files, "mooring")
    assert next(iter(parts)) == "src/quay.py"
    assert (parts["src/quay.py"]["symbol"] > 1, parts["docs/all.md"]["symbol"]) == (True, 0.0)
    parts = await explained(tmp_path, files, "moor_ship")
    assert next(iter(parts)) == "docs/all.md"
    assert parts["docs/all.md"]["symbol"] > 1


async def test_the_explanation_names_what_the_page_adds(tmp_path: Path) -> None:
    parts = await explained(tmp_path, RELEASES, "ropes to moor a ship")
    assert parts["docs/releases/2.1.md"]["page"] == -pages.CHANGES_SHARE
    assert parts["docs/guide/moor.md"]["page"] == 0.0
    assert parts["docs/guide/moor.md"]["headings"] > 0
    for p in parts.values():
        added = sum(p[name] for name in ("kind", "path", "headings", "page", "symbol"))
        assert p["score"] == pytest.approx(p["alpha"] * p["vectors"] + (1 - p["alpha"]) * p["words"] + added)
