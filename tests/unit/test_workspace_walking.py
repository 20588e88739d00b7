"""Which files a workspace has, and what is left out of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kiwi_rag.errors import KiwiError, NotFound
from kiwi_rag.sources.workspace.source import find_file, is_path_ignored, walk


def make(root: Path, *paths: str, text: str = "text\n") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def found(root: Path) -> list[str]:
    return [entry.path for entry in walk(root)]


def refused(root: Path) -> list[str]:
    failed: dict[str, KiwiError] = {}
    list(walk(root, failed=failed))
    return list(failed)


def test_files_come_in_the_order_of_their_paths(tmp_path):
    make(tmp_path, "b.md", "a/z.md", "a/b/c.yaml", "Makefile")
    assert found(tmp_path) == ["Makefile", "a/b/c.yaml", "a/z.md", "b.md"]


def test_what_no_index_is_better_for_is_left_out(tmp_path):
    make(tmp_path, "node_modules/x/readme.md", ".git/config", ".ai/knowledge/a.md", "a.min.js", "package-lock.json")
    make(tmp_path, ".env", ".env.local", "photo.PNG", "lib.tar.gz", "key.pem", "sub/.venv/lib/a.py", "kept.md")
    assert found(tmp_path) == ["kept.md"]


def test_kiwiignore_goes_before_gitignore_and_the_deeper_before_both(tmp_path):
    make(tmp_path, "gen/a.md", "gen/b.md", "docs/draft.md", "docs/keep/draft.md", "docs/other.md", "package-lock.json")
    (tmp_path / ".gitignore").write_text("gen/*\ndraft.md\n")
    (tmp_path / ".kiwiignore").write_text("!gen/a.md\nother.md\n!package-lock.json\n")
    (tmp_path / "docs/keep/.gitignore").write_text("!draft.md\n")
    assert found(tmp_path) == ["docs/keep/draft.md", "gen/a.md", "package-lock.json"]


def test_no_pattern_brings_back_gits_own_folder_or_the_items(tmp_path):
    make(tmp_path, ".git/HEAD", ".ai/knowledge/a.md", "sub/.git/config")
    (tmp_path / ".kiwiignore").write_text("!.git/\n!.ai/\n")
    assert found(tmp_path) == []


def test_what_git_would_ignore_is_ignored(tmp_path):
    """Held against git itself, over patterns of every kind."""
    make(tmp_path, "a.log", "a/b.log", "build/x.md", "a/build/y.md", "top.txt", "a/top.txt", "x y.md", "d/e/f/g.md")
    make(tmp_path, "d/e/h.md", "[b].md", "b.md", "#hash.md", "!bang.md", "trail .md", "UP.md", "deep/a/foo/b.md")
    patterns = ["*.log", "!a/b.log", "build/", "/top.txt", "d/**/g.md", "\\[b\\].md", "\\#hash.md", "\\!bang.md"]
    (tmp_path / ".gitignore").write_text("\n".join([*patterns, "up.md", "**/foo", "", "# a comment", ""]))
    (tmp_path / "d/e/.gitignore").write_text("*\n!h.md\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    asked = ["git", "ls-files", "--others", "--cached", "--exclude-standard", "-z"]
    told = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split("\0")
    wanted = sorted(path for path in told if path and not path.endswith(".gitignore"))
    assert sorted(found(tmp_path)) == wanted
    assert {path for path in told if path and path.endswith(".md") and is_path_ignored(tmp_path, path)} == set()
    assert is_path_ignored(tmp_path, "build/x.md")
    assert is_path_ignored(tmp_path, "deep/a/foo/b.md")


def test_a_link_out_of_the_workspace_is_refused_and_one_inside_is_passed_over(tmp_path):
    root = tmp_path / "root"
    make(root, "a.md", "sub/b.md")
    make(tmp_path, "secret.md", "outside/c.md")
    (root / "leaves.md").symlink_to(tmp_path / "secret.md")
    (root / "folder").symlink_to(tmp_path / "outside")
    (root / "circle").symlink_to(root / "circle")
    (root / "same.md").symlink_to("a.md")
    (root / "up").symlink_to(root)
    assert found(root) == ["a.md", "sub/b.md"]
    assert refused(root) == ["circle", "folder", "leaves.md"]
    failed: dict[str, KiwiError] = {}
    assert find_file(root, "leaves.md", failed) is None
    assert find_file(root, "same.md", failed) is None
    assert list(failed) == ["leaves.md"]


def test_pipes_and_sockets_are_no_files(tmp_path):
    make(tmp_path, "a.md")
    os.mkfifo(tmp_path / "pipe.md")
    assert found(tmp_path) == ["a.md"]
    assert find_file(tmp_path, "pipe.md", {}) is None


def test_a_root_that_is_not_there_is_not_empty(tmp_path):
    with pytest.raises(NotFound):
        list(walk(tmp_path / "gone"))


def test_a_folder_that_cannot_be_listed_is_told(tmp_path, monkeypatch):
    make(tmp_path, "a.md", "locked/b.md")
    real = os.scandir

    def scandir(folder):
        if str(folder).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return real(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert (found(tmp_path), refused(tmp_path)) == (["a.md"], ["locked"])


def test_a_change_that_an_editor_hides_is_seen_by_the_entrys_own_time(tmp_path):
    make(tmp_path, "a.md")
    before = find_file(tmp_path, "a.md", {})
    stat = (tmp_path / "a.md").stat()
    (tmp_path / "a.md").write_text("TEXT\n")
    os.utime(tmp_path / "a.md", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    after = find_file(tmp_path, "a.md", {})
    assert before is not None and after is not None
    assert (before.size, (tmp_path / "a.md").stat().st_mtime_ns) == (after.size, stat.st_mtime_ns)
    assert after.changed_ns > before.changed_ns
