"""Records of libraries: one file each, read strictly; the names of their collections are injective."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiwi_rag.errors import NoSuchLibrary, StoreCorrupt, UsageError
from kiwi_rag.signing.statement import is_collection
from kiwi_rag.sources.library.record import Library, LibraryRecords, check_id, check_version, collection_name
from tests.examples import examples

_WORD = st.text("ab1._-~", min_size=1, max_size=12)
_IDS = st.builds(lambda owner, name: f"/a{owner}/b{name}", _WORD, _WORD)
_VERSIONS = st.builds(lambda text: f"1{text}", st.text("019.abAB+_!-", max_size=12))


def library(version: str = "1.0.0", id: str = "/vitejs/vite", **others: object) -> Library:
    given = {"title": "vite", "aliases": ("vite",), "origin": "path", "root": Path("/tmp"), **others}
    return Library(id, version, **given)  # type: ignore[arg-type]


@examples(200)
@given(_IDS, _VERSIONS, _IDS, _VERSIONS)
def test_different_libraries_have_different_collections(one: str, v: str, other: str, w: str) -> None:
    first, second = collection_name(f"{one}@{v}"), collection_name(f"{other}@{w}")
    assert is_collection(first) and is_collection(second)
    assert (first == second) == ((one, v) == (other, w))


def test_collections_with_long_names_differ_too() -> None:
    ids = [f"/{'o' * 90}/{'n' * 80}{end}@1.0" for end in ("", "a", "b")] + ["/" + "o" * 40 + "/x@1"]
    names = {collection_name(one) for one in ids}
    assert len(names) == len(ids) and all(len(name) <= 64 and is_collection(name) for name in names)


def test_a_name_shows_what_it_is_of() -> None:
    assert collection_name("/fastapi/fastapi@0.121.0") == "lib__fastapi__fastapi_v0_p121_p0"
    assert library().name == "lib__vitejs__vite_v1_p0_p0"


@pytest.mark.parametrize("text", ["vite", "/vite", "/a/../b", "/a//b", "/a/b@1", "/a/b c", "/a/" + "b" * 101, "/é/b"])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cannot be the id"):
        check_id(text)


def test_ids_and_versions_have_one_form() -> None:
    assert check_id("/VercEL/Next.js") == "/vercel/next.js"
    assert (check_version("v1.2"), check_version("1.2"), check_version("vault")) == ("1.2", "1.2", "vault")
    for text in ("", "../1", "1 2", "1/2", "x" * 65):
        with pytest.raises(UsageError, match="cannot be a version"):
            check_version(text)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    records = LibraryRecords(tmp_path / "libraries")
    written = library(include=("docs",), code=True, commit="ab" * 20, added_at="2026-11-23T04:00:00Z")
    records.write(written)
    assert records.read(written.name) == written
    assert records.list() == ([written], [])
    assert (tmp_path / "libraries" / f"{written.name}.json").stat().st_mode & 0o777 == 0o600


def test_what_is_removed_is_gone_but_not_the_folder_of_a_user(tmp_path: Path) -> None:
    records, folder = LibraryRecords(tmp_path / "libraries"), tmp_path / "mine"
    folder.mkdir()
    mine = library(root=folder)
    npm = library(origin="npm:vite", version="2.0.0")
    npm = library(origin="npm:vite", version="2.0.0", root=records.files_of(npm))
    for one in (mine, npm):
        records.write(one)
    npm.root.mkdir()
    for one in (mine, npm):
        records.remove(one)
    assert folder.is_dir() and list(records.folder.iterdir()) == []
    with pytest.raises(NoSuchLibrary):
        records.read(mine.name)


_CHANGES = {
    "no json": lambda text: text[:-9],
    "another version": lambda text: text.replace("1.0.0", "1.0.1"),
    "a number": lambda text: text.replace('"vite"\n', "1\n", 1),
    "a text for a flag": lambda text: text.replace("false", '"no"'),
    "another member": lambda text: text.replace('"title"', '"more": 1,\n    "title"'),
    "a member less": lambda text: text.replace('  "title": "vite",\n', ""),
    "a relative root": lambda text: text.replace('"/tmp"', '"tmp"'),
    "a folder above": lambda text: text.replace('"include": []', '"include": ["../x"]'),
    "a control character": lambda text: text.replace('"title": "vite"', '"title": "\\u001b[31m"'),
    "another origin": lambda text: text.replace('"path"', '"http://x"'),
    "files that are not its own": lambda text: text.replace('"path"', '"npm:vite"'),
    "deep": lambda _: "[" * 60_000,
    "large": lambda text: text + " " * (1 << 16),
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
def test_a_damaged_record_is_named_and_hides_no_other(tmp_path: Path, change: object) -> None:
    records = LibraryRecords(tmp_path)
    damaged, other = library(), library(version="2.0.0")
    for one in (damaged, other):
        records.write(one)
    path = tmp_path / f"{damaged.name}.json"
    path.write_text(change(path.read_text()))  # type: ignore[operator]
    found, errors = records.list()
    assert found == [other]
    assert [type(error) for error in errors] == [StoreCorrupt]
    assert str(path) in errors[0].message and errors[0].hint.endswith(f"rm {path}")


def test_a_link_in_place_of_a_record_is_not_followed(tmp_path: Path) -> None:
    records = LibraryRecords(tmp_path / "libraries")
    records.write(library())
    path = records.folder / f"{library().name}.json"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    found, errors = records.list()
    assert found == [] and str(path) in errors[0].message
    assert json.loads((tmp_path / "elsewhere").read_text())
