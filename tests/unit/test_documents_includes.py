"""Files that a document includes: their text under its headings, their names and digests in the signed statement."""

from __future__ import annotations

from pathlib import Path

import pytest

from kiwi_rag.formats.documents.includes import MAX_INCLUDES, find_includes
from kiwi_rag.model.refs import ItemRef, ItemType
from kiwi_rag.signing.statement import parse_index
from tests.workspaces import Yard

PAGE = """\
# First steps

Write this file:

{* ../../docs_src/first.py hl[2] *}

## Run it

Start the server, and open the page in a browser.
"""
CODE = "from harbour import Quay\n\nquay = Quay()\n\n\ndef moor(vessel):\n    return quay.add(vessel)\n"


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path / "yard")


async def found(yard: Yard, text: str, path: str) -> list[tuple[str, int, int, tuple[str, ...], str]]:
    """Return path, lines, headings and text of the hits whose document is at `path`."""
    hits = (await yard.search(text, path=path)).hits
    return [(h.path, h.passage.start_line, h.passage.end_line, h.passage.heading, h.passage.text) for h in hits]


@pytest.mark.parametrize(("path", "text", "line", "paths", "ranges"), [
    ("en/docs/a.md", "\n{* ../../src/x.py ln[2:8,12] hl[3] *}", 2, ("src/x.py",), ((2, 8), (12, 12))),
    ("a.md", "{!> src/x.py !}", 1, ("src/x.py",), ()),
    ("d/a.rst", ".. literalinclude:: x.py\n   :language: python\n   :lines: 3-\n", 1, ("d/x.py", "x.py"), ((3, 0),)),
    ("d/a.txt", "Text::\n\n   .. literalinclude:: /x.py\n", 3, ("d/x.py", "x.py"), ()),
])  # fmt: skip
def test_includes_are_found_with_their_lines(path, text, line, paths, ranges) -> None:
    assert find_includes(path, text) == [(line, paths, ranges)]


@pytest.mark.parametrize(("path", "text"), [
    ("a.md", "{* ../x.py *}"), ("a.md", "{* a.md *}"), ("a.rst", ".. literalinclude:: ../../etc/passwd"),
    ("a.rst", "{* x.py *}"), ("a.md", ".. literalinclude:: x.py"), ("a.md", "{* x.py"), ("a.md", "a {* b *}"),
])  # fmt: skip
def test_what_is_above_the_root_or_in_another_format_is_no_include(path: str, text: str) -> None:
    assert find_includes(path, text) == []


def test_hostile_includes_are_read_to_their_end() -> None:
    for sample in (
        "{*",
        "{* a",
        "{* a *}\n",
        f"{{*{'a' * 500}\n",
        ".. literalinclude:: a\n",
        ".. literalinclude:: a\n :b:\n",
    ):
        assert len(find_includes("a.md", sample * (300_000 // len(sample)))) <= MAX_INCLUDES


async def test_a_passage_of_an_included_file_names_it_under_the_headings_of_the_page(yard: Yard) -> None:
    yard.write("docs/en/docs/a.md", PAGE)
    yard.write("docs_src/first.py", CODE)
    assert (await yard.index()).complete
    hits = await found(yard, "moor vessel quay", "docs/en/docs/a.md")
    assert ("docs_src/first.py", 1, 7, ("First steps",), CODE.strip()) in hits
    stored = await yard.store.get(ItemRef(ItemType.DOCUMENT, "docs/en/docs/a.md"))
    assert stored
    assert set(parse_index(stored.envelope.payload).digests) == {"docs/en/docs/a.md", "docs_src/first.py"}


@pytest.mark.parametrize("query", ["moor vessel quay", "first steps moor vessel quay"])
async def test_the_included_file_names_the_page_that_shows_it_as_a_copy(yard: Yard, query: str) -> None:
    """Whichever of both passages is the better one: the second query has the page's heading."""
    yard.write("docs/a.md", PAGE.replace("../../docs_src", "../src"))
    yard.write("src/first.py", CODE)
    await yard.index()
    (hit,) = [hit for hit in (await yard.search(query)).hits if "moor" in hit.passage.text]
    assert (hit.ref.item_id == "docs/a.md") == ("steps" in query)
    assert (hit.path, hit.duplicates) == ("src/first.py", ("docs/a.md",))


async def test_a_change_of_an_included_file_indexes_the_page_again(yard: Yard) -> None:
    yard.write("docs/a.md", PAGE.replace("../../docs_src", "../src"))
    yard.write("src/first.py", CODE)
    await yard.index()
    yard.write("src/first.py", CODE.replace("moor", "anchor"))
    assert all(h.state.changed for h in (await yard.search("moor vessel quay", path="docs/a.md")).hits)
    report = await yard.index()
    assert report.indexed == ["docs/a.md", "src/first.py"]
    assert any("anchor" in text for *_, text in await found(yard, "anchor vessel", "docs/a.md"))
    assert (await yard.index()).indexed == []


async def test_without_a_record_of_read_files_an_included_file_is_compared_after_redaction(yard: Yard) -> None:
    yard.write("docs/a.md", PAGE.replace("../../docs_src", "../src"))
    yard.write("src/first.py", CODE)
    await yard.index()
    yard.states.clear()
    for text, changed in ((CODE, False), (CODE + "# more\n", True)):
        yard.write("src/first.py", text)
        hits = (await yard.search("moor vessel quay", path="docs/a.md")).hits
        assert hits and {bool(h.state.changed) for h in hits} == {changed}


async def test_an_included_file_that_is_gone_leaves_the_page(yard: Yard) -> None:
    yard.write("docs/a.md", PAGE.replace("../../docs_src", "../src"))
    place = yard.write("src/first.py", CODE)
    await yard.index()
    place.unlink()
    assert all(h.state.changed for h in (await yard.search("moor vessel quay")).hits)
    report = await yard.index()
    assert (report.indexed, report.removed) == (["docs/a.md"], ["src/first.py"])
    assert not any("moor" in text for *_, text in await found(yard, "moor vessel quay", "docs/a.md"))


async def test_what_may_not_be_read_is_not_included(yard: Yard, tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text("harbourmaster = 'outside'\n")
    yard.write("src/.env", "harbourmaster = 'env'\n")
    yard.write("src/ignored.py", "harbourmaster = 'ignored'\n")
    yard.write(".gitignore", "ignored.py\n")
    yard.write("src/large.py", "harbourmaster = 'large'\n" * 20_000)
    yard.write("src/binary.py", b"harbourmaster\0")
    (yard.root / "src/link.py").symlink_to(tmp_path / "outside.py")
    names = ("src/.env", "src/ignored.py", "src/large.py", "src/binary.py", "src/link.py", "../outside.py", "src", "/x")
    yard.write("a.md", "# Page\n\n" + "".join(f"{{* {name} *}}\n\n" for name in names))
    await yard.index("a.md")
    stored = await yard.store.get(ItemRef(ItemType.DOCUMENT, "a.md"))
    assert stored
    assert set(parse_index(stored.envelope.payload).digests) == {"a.md"}


async def test_credentials_of_an_included_file_are_redacted(yard: Yard) -> None:
    key = "AKIA" + "Q3EGRZ7XWJ5KMT2B"
    yard.write("docs/a.rst", "Page\n====\n\n.. literalinclude:: ../x.py\n   :lines: 2-\n\nBelow.\n")
    yard.write("x.py", f"first = 1\nkey = '{key}'\n")
    report = await yard.index("docs/a.rst")
    assert [(finding.code, finding.path) for finding in report.warnings] == [("secrets.redacted", "x.py")]
    hits = await found(yard, "key redacted", "docs/a.rst")
    assert ("x.py", 2, 2, ("Page",), "key = '(redacted)'") in hits
