"""Item files on disk: which are found, what their ids are, and which are not to be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kiwi_rag.errors import InvalidItemId, SourceUnreadable, UsageError
from kiwi_rag.formats.source import MAX_BYTES, item_id_of, locate, walk
from kiwi_rag.model.refs import ItemType
from kiwi_rag.storage.safe_open import read_linked


@pytest.fixture
def ai_dir(tmp_path: Path) -> Path:
    root = tmp_path / "project/.ai"
    for name in (
        "directives/acme/deploy.md",
        "directives/acme/deploy.md.sig",
        "directives/.hidden.md",
        "directives/notes.txt",
        "scripts/acme/rotate.py",
        "scripts/acme/__init__.py",
        "knowledge/acme/README.md",
        "knowledge/acme/cold-starts.md",
        "vectors/x.md",
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text")
    return root


def problems(ai_dir: Path) -> dict[str, str]:
    return {s.path.name: s.problem.code for s in walk(ai_dir) if s.problem}


def test_walk_yields_item_files_sorted(ai_dir: Path) -> None:
    found = [(s.item_type, s.item_id) for s in walk(ai_dir) if not s.problem]
    assert found == [
        (ItemType.DIRECTIVE, "acme/deploy"),
        (ItemType.SCRIPT, "acme/rotate"),
        (ItemType.KNOWLEDGE, "acme/cold-starts"),
    ]


def test_an_illegal_id_is_a_problem_of_its_own_file(ai_dir: Path) -> None:
    assert problems(ai_dir) == {"README.md": "source.item-id"}


def test_ids_that_fold_to_one_are_a_problem(ai_dir: Path) -> None:
    (ai_dir / "knowledge/acme/cold_starts.md").write_text("x")
    assert problems(ai_dir)["cold_starts.md"] == "source.same-id"


def test_links_out_dead_links_and_linked_folders_are_problems(ai_dir: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("secret")
    folder = ai_dir / "knowledge/acme"
    (folder / "out.md").symlink_to(outside)
    (folder / "dead.md").symlink_to(folder / "gone.md")
    (folder / "loop.md").symlink_to(folder / "loop.md")
    (folder / "inside.md").symlink_to(folder / "cold-starts.md")
    (folder / "linked").symlink_to(tmp_path)
    expected = {
        "README.md": "source.item-id",
        "out.md": "source.link-leaves-root",
        "dead.md": "source.unreadable",
        "loop.md": "source.unreadable",
        "linked": "source.linked-folder",
    }
    assert problems(ai_dir) == expected


def test_a_missing_folder_is_an_empty_one(tmp_path: Path) -> None:
    assert list(walk(tmp_path / ".ai")) == []


def test_a_type_folder_that_is_a_link_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / ".ai").mkdir()
    (tmp_path / ".ai/scripts").symlink_to(tmp_path)
    assert problems(tmp_path / ".ai") == {"scripts": "source.linked-folder"}


@pytest.mark.parametrize(
    "relative", ["../x.md", "/etc/passwd.md", "a/../../x.md", "A.md", "a b.md", "a.b.md", "", "ü.md"]
)
def test_paths_that_are_no_ids_are_refused(relative: str) -> None:
    with pytest.raises(InvalidItemId):
        item_id_of(relative)


def test_locate_tells_type_and_id_by_place(ai_dir: Path) -> None:
    assert locate(ai_dir, ai_dir / "scripts/acme/rotate.py") == (ItemType.SCRIPT, "acme/rotate")


@pytest.mark.parametrize("name", ["scripts/a.md", "other/a.md", "scripts/../../a.py"])
def test_locate_refuses_what_is_no_item_file(ai_dir: Path, name: str) -> None:
    with pytest.raises(UsageError):
        locate(ai_dir, ai_dir / name)


def test_read_stays_inside_its_root(ai_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    link = ai_dir / "knowledge/out.md"
    link.symlink_to(tmp_path / "outside")
    with pytest.raises(SourceUnreadable, match="leaves"):
        read_linked(link, ai_dir, MAX_BYTES)


@pytest.mark.parametrize("name", ["gone.md", "acme"])
def test_what_is_no_file_cannot_be_read(ai_dir: Path, name: str) -> None:
    with pytest.raises(SourceUnreadable):
        read_linked(ai_dir / "knowledge" / name, ai_dir, MAX_BYTES)


def test_a_pipe_is_refused_without_waiting_for_a_writer(ai_dir: Path) -> None:
    os.mkfifo(ai_dir / "knowledge/pipe.md")
    with pytest.raises(SourceUnreadable, match="regular"):
        read_linked(ai_dir / "knowledge/pipe.md", ai_dir, MAX_BYTES)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_file_is_said_to_be(ai_dir: Path) -> None:
    path = ai_dir / "knowledge/acme/cold-starts.md"
    path.chmod(0)
    with pytest.raises(SourceUnreadable):
        read_linked(path, ai_dir, MAX_BYTES)


def test_a_huge_file_is_not_read_whole(ai_dir: Path) -> None:
    path = ai_dir / "knowledge/huge.md"
    path.write_bytes(b"x" * 5_000_000)
    assert len(read_linked(path, ai_dir, MAX_BYTES)) == MAX_BYTES + 1
