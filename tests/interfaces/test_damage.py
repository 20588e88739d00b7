"""A damaged index is told, and rebuilt from what is true without embedding again."""

from __future__ import annotations

import shutil
import sqlite3

import pytest

from kiwi_rag.stores.local import LocalVectorStore
from tests.interfaces.conftest import Kiwi, note


def prepared(ready: Kiwi) -> Kiwi:
    for number in range(5):
        ready.write(f"knowledge/acme/n{number}.md", note(extra=f"Basin {number} is fed by pump {number}."))
    ready.run("--quiet", "sign", ".ai")
    ready.run("index")
    return ready


def assert_whole(kiwi: Kiwi) -> None:
    report = kiwi.json("index")
    assert report["encoded"] == 0
    assert len(kiwi.json("list")) == 5
    assert len(kiwi.json("search", "which pump feeds the basin")["hits"]) == 5
    assert kiwi.json("doctor")["problems"] == []


def test_a_corrupted_catalog_is_moved_aside_and_made_anew(ready: Kiwi):
    kiwi = prepared(ready)
    catalog = kiwi.vectors / "catalog-100.sqlite3"
    catalog.write_bytes(b"\x00garbage" * 5000)
    result = kiwi.run("search", "which pump feeds the basin", expect=None)
    assert result.returncode in (1, 3)
    assert "doctor" in result.stderr
    kiwi.run("doctor", "--repair")
    assert list(catalog.parent.glob("catalog-100.sqlite3.corrupt-*"))
    assert_whole(kiwi)


def test_a_corrupted_chroma_folder_is_rebuilt_from_the_catalog(ready: Kiwi, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(LocalVectorStore.__init__.__kwdefaults__, "exact_limit", 0)  # as if there were 50,000 passages
    kiwi = prepared(ready)
    assert (kiwi.vectors / "chroma-100" / "chroma.sqlite3").exists()
    for path in (kiwi.vectors / "chroma-100").rglob("*"):
        if path.is_file():
            path.write_bytes(b"garbage")
    kiwi.run("doctor", "--repair")
    assert_whole(kiwi)


EDITS = {
    "payload": "update items set payload = cast(replace(payload, '1.0.0', '1.0.1') as blob) where item_id = 'acme/n3'",
    "content": "update blobs set content = cast(replace(content, 'Basin 3', 'Basin 9') as blob) "
    "where instr(content, 'Basin 3')",
}


@pytest.mark.parametrize("what", EDITS)
def test_a_row_edited_in_the_catalog_is_never_shown(ready: Kiwi, what: str):
    kiwi = prepared(ready)
    with sqlite3.connect(kiwi.vectors / "catalog-100.sqlite3") as catalog:
        catalog.execute(EDITS[what])
        assert catalog.execute("select changes()").fetchone()[0] == 1
    reply = kiwi.json("search", "which pump feeds the basin", expect=3)
    assert "acme/n3" not in [h["item_id"] for h in reply["hits"]]
    assert len(reply["refused"]) == 1
    assert what == "content" or reply["refused"][0]["code"] == "bad-signature"
    kiwi.run("show", "acme/n3", expect=4)


def test_an_index_that_came_with_a_clone_is_not_opened(ready: Kiwi):
    kiwi = prepared(ready)
    stranger = Kiwi(kiwi.home.parent / "stranger", kiwi.cwd)
    stranger.home.mkdir()
    (stranger.home / ".ai").mkdir()
    (stranger.home / ".ai/trust.toml").write_bytes((kiwi.home / ".ai/trust.toml").read_bytes())
    (stranger.home / ".ai/owner-token").write_text("a" * 64)
    shutil.copytree(kiwi.vectors, stranger.vectors)
    assert stranger.json("search", "which pump feeds the basin")["hits"] == []
    assert list(stranger.vectors.glob("catalog-100.sqlite3.foreign-*"))
    stranger.run("index")
    assert len(stranger.json("search", "which pump feeds the basin")["hits"]) == 5
    # The first user's own index is still there, versions and audit log with it.
    assert kiwi.json("audit", "verify")["seq"] >= 5
    assert len(kiwi.json("list")) == 5
