"""Item files on disk: which are found, what their ids are, and which are not to be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kiwi_rag.errors import InvalidItemId, SourceUnreadable, UsageError
from kiwi_rag.formats.source import (
    MAX_BYTES,
    ItemCandidate,
    item_id_of,
    locate,
    path_of,
    read_item,
    strays,
    walk,
)
from kiwi_rag.model.refs import ItemRef, ItemType
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
        "knowledge/acme/on call.md",
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
        (ItemType.KNOWLEDGE, "acme/readme"),
    ]


def test_an_illegal_id_is_a_problem_of_its_own_file(ai_dir: Path) -> None:
    assert problems(ai_dir) == {"on call.md": "source.item-id"}


def test_ids_that_fold_to_one_are_a_problem(ai_dir: Path) -> None:
    (ai_dir / "knowledge/acme/cold_starts.md").write_text("x")
    assert problems(ai_dir)["cold_starts.md"] == "source.same-id"


SPELLED = ("knowledge/acme/README.md", "knowledge/Acme/Deploy-Notes.MD", "knowledge/docs/SKILL.md", "scripts/A/Run.py")


def test_a_file_whose_name_differs_from_an_id_in_case_alone_has_that_id(ai_dir: Path) -> None:
    for name in SPELLED:
        (ai_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (ai_dir / name).write_text("text")
        item_type, item_id = locate(ai_dir, ai_dir / name)
        assert item_id == name.partition("/")[2].rpartition(".")[0].lower()
        assert path_of(ai_dir, ItemRef(item_type, item_id)) == ai_dir / name
    found = {source.path: source.item_id for source in walk(ai_dir) if not source.problem}
    assert {name: found[ai_dir / name] for name in SPELLED} == {
        "knowledge/acme/README.md": "acme/readme",
        "knowledge/Acme/Deploy-Notes.MD": "acme/deploy-notes",
        "knowledge/docs/SKILL.md": "docs/skill",
        "scripts/A/Run.py": "a/run",
    }


def test_its_candidate_has_the_main_file_of_its_id(ai_dir: Path) -> None:
    source = next(source for source in walk(ai_dir) if source.item_id == "acme/readme")
    (ai_dir / "knowledge/acme/README.md.sig").write_bytes(b"signature")
    candidate = read_item(source, ai_dir)
    assert isinstance(candidate, ItemCandidate)
    assert (candidate.main, set(candidate.files), candidate.signature) == ("readme.md", {"readme.md"}, b"signature")


@pytest.mark.parametrize(
    ("one", "other"), [("acme/readme.md", "acme/README.md"), ("acme/README.md", "Acme/readme.md"), ("b.md", "B.md")]
)
def test_of_two_files_with_one_id_the_one_that_is_spelled_more_like_it_is_meant(
    ai_dir: Path, one: str, other: str
) -> None:
    for name in (one, other):
        (ai_dir / "knowledge" / name).parent.mkdir(exist_ok=True)
        (ai_dir / "knowledge" / name).write_text("text")
    found = {source.path: source for source in walk(ai_dir)}
    meant, second = found[ai_dir / "knowledge" / one], found[ai_dir / "knowledge" / other]
    assert meant.problem is None
    assert second.problem is not None
    assert (second.problem.code, one in second.problem.message) == ("source.same-id", True)
    assert path_of(ai_dir, ItemRef(ItemType.KNOWLEDGE, meant.item_id)) == meant.path


def test_an_item_without_a_file_has_the_path_of_its_id(ai_dir: Path) -> None:
    assert path_of(ai_dir, ItemRef(ItemType.KNOWLEDGE, "acme/new")) == ai_dir / "knowledge/acme/new.md"
    assert path_of(ai_dir / "none", ItemRef(ItemType.SKILL, "a/b")) == ai_dir / "none/skills/a/b/SKILL.md"


def test_files_that_belong_to_no_item_are_named(ai_dir: Path) -> None:
    for name in (
        *("notes.md", "prompts/ask.md", "skills/loose.md", "skills/acme/pdf/SKILL.md", "skills/acme/pdf/more.txt"),
        *("knowledge/acme/rule.mdc", "knowledge/acme/map.png", "config.yaml", "keys/me.pem", "libraries/docs/api.md"),
        *(".gitignore", "knowledge/.hidden.md", "knowledge/gone.md.sig", "scripts/__pycache__/rotate.pyc"),
    ):
        (ai_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (ai_dir / name).write_text("text")
    assert [path.relative_to(ai_dir).as_posix() for path in strays(ai_dir)] == [
        *("notes.md", "directives/notes.txt", "knowledge/acme/map.png", "knowledge/acme/rule.mdc"),
        *("prompts/ask.md", "skills/loose.md"),
    ]


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
        "on call.md": "source.item-id",
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
    "relative", ["../x.md", "/etc/passwd.md", "a/../../x.md", "a b.md", "a.b.md", "", "ü.md", "\u212a.md"]
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
