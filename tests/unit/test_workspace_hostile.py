"""A repository is a stranger's: its links, pipes, names, patterns and settings cost nobody anything."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from kiwi_rag.errors import ConfigError
from kiwi_rag.sources.workspace.config import WorkspaceConfig, git_root, head_commit
from tests.workspaces import Yard

KEY = "AKIA" + "QWERTYUIOPASDFGH"
GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"]


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path / "yard")


@pytest.mark.parametrize("name", [".gitignore", ".kiwiignore", ".ai/workspace.yaml"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "device"])
async def test_what_is_no_plain_file_is_no_ignore_file_and_no_settings(
    yard: Yard, tmp_path: Path, name: str, kind: str
):
    yard.write("a.md", "# A\n")
    place = yard.root / name
    place.parent.mkdir(exist_ok=True)
    (tmp_path / "secret").write_text("a.md\npassword: hunter2\n")
    {
        "link": lambda: place.symlink_to(tmp_path / "secret"),
        "pipe": lambda: os.mkfifo(place),
        "folder": place.mkdir,
        "device": lambda: place.symlink_to("/dev/zero"),
    }[kind]()
    started = time.monotonic()
    assert (await yard.index()).indexed == ["a.md"]
    assert time.monotonic() - started < 60


def test_settings_that_cannot_be_read_are_not_quoted(tmp_path: Path):
    (tmp_path / ".ai").mkdir()
    (tmp_path / ".ai/workspace.yaml").write_text('name: x\npassword: "hunter2-very-secret\n')
    with pytest.raises(ConfigError) as refused:
        WorkspaceConfig.at(tmp_path)
    assert "hunter2" not in str(refused.value)


def test_a_workspace_cannot_take_the_name_of_a_library(tmp_path: Path):
    (tmp_path / ".ai").mkdir()
    (tmp_path / ".ai/workspace.yaml").write_text("name: lib__fastapi__fastapi_v1\n")
    with pytest.raises(ConfigError, match="libraries have such names"):
        WorkspaceConfig.at(tmp_path)


async def test_names_that_cannot_be_shown_are_told_and_stop_nothing(yard: Yard):
    yard.write("good.md", "# Good\n")
    for name in (
        b"caf\xe9.md",
        b"x\n0 failed; all verified.md",
        b"esc\x1b[31m.md",
        b"back\\slash.md",
        "rtl\u202e.md".encode(),
    ):
        (Path(os.fsdecode(os.fsencode(yard.root) + b"/" + name))).write_bytes(b"# X\n")
    report = await yard.index()
    assert report.indexed == ["good.md"]
    assert len(report.failed) == 5
    assert all(path.isascii() and path.isprintable() for path in report.failed)
    json.dumps(report.as_dict()).encode()


async def test_folders_may_be_nested_deeply(yard: Yard):
    folder = yard.root
    for _ in range(400):
        folder = folder / "d"
    folder.mkdir(parents=True)
    (folder / "a.md").write_text("# Deep\n")
    (yard.root / "b.md").write_text("# B\n")
    report = await yard.index()
    assert "b.md" in report.indexed
    assert len(report.indexed) + len(report.failed) == 2


async def test_patterns_that_take_for_ever_leave_their_folder_out_and_say_so(yard: Yard):
    yard.write("sub/a.md", "# A\n")
    yard.write("sub/" + "a" * 200 + ".md", "# A\n")
    yard.write("sub/.gitignore", "*a*a*a*a*a*a*b\n")
    yard.write("b.md", "# B\n")
    started = time.monotonic()
    report = await yard.index()
    assert (report.indexed, list(report.failed)) == (["b.md"], ["sub"])
    assert time.monotonic() - started < 60


async def test_half_a_character_in_a_key_costs_its_file_at_most(yard: Yard):
    yard.write("a.json", '{"\\ud800key": {"x": 1}, "title": "T"}')
    yard.write("b.md", "# B\n")
    report = await yard.index()
    assert "b.md" in report.indexed
    assert set(report.indexed) | set(report.failed) == {"a.json", "b.md"}


async def test_what_is_decoded_is_looked_at_again(yard: Yard):
    escaped = "\\u0041" + KEY[1:]
    yard.write("a.yaml", f'title: "\\x41{KEY[1:]}"\n"{escaped}":\n  note: "harbour"\nservice: "svc\\e[31m-x"\n')
    yard.write("b.md", f"# rotate {KEY[:4]}**{KEY[4:]}** now \U000e0041\u202e\n\nThe harbour.\n")
    yard.write(".ai/workspace.yaml", f'domains:\n  "Qu\\eay {KEY}": [svc-x]\nservices:\n  c.md: svc-x\n')
    yard.write("c.md", "# C\n\nThe harbour, too.\n")
    await yard.index()
    hits = (await yard.search("harbour", limit=20)).hits
    assert {hit.path for hit in hits} == {"a.yaml", "b.md", "c.md"}
    for hit in hits:
        told = [hit.passage.context, *hit.passage.heading, *hit.metadata.values()]
        assert not [text for text in told if KEY in text or not text.isprintable()]
    assert not [text for text in yard.embed.texts if KEY in text]


def test_git_is_asked_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A repository's own settings can make git run commands; so its files are read, and it is not run."""
    subprocess.run([*GIT, "init", "-q", "-b", "main"], cwd=tmp_path, check=True)
    (tmp_path / "a.md").write_text("a")
    subprocess.run([*GIT, "add", "."], cwd=tmp_path, check=True)
    subprocess.run([*GIT, "commit", "-q", "-m", "x"], cwd=tmp_path, check=True)
    head = subprocess.run([*GIT, "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True)
    subprocess.run([*GIT, "worktree", "add", "-q", "../tree", "-b", "side"], cwd=tmp_path, check=True)
    monkeypatch.setenv("PATH", "")
    (tmp_path / "sub").mkdir()
    for root in (tmp_path, tmp_path / "sub", tmp_path.parent / "tree"):
        assert head_commit(root) == head.stdout.strip()
    assert git_root(tmp_path / "sub") == tmp_path


def test_packed_references_and_no_commits_at_all(tmp_path: Path):
    subprocess.run([*GIT, "init", "-q"], cwd=tmp_path, check=True)
    assert head_commit(tmp_path) == ""
    (tmp_path / "a.md").write_text("a")
    subprocess.run([*GIT, "add", "."], cwd=tmp_path, check=True)
    subprocess.run([*GIT, "commit", "-q", "-m", "x"], cwd=tmp_path, check=True)
    head = subprocess.run([*GIT, "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True)
    subprocess.run([*GIT, "pack-refs", "--all"], cwd=tmp_path, check=True)
    assert head_commit(tmp_path) == head.stdout.strip()
    subprocess.run([*GIT, "checkout", "-q", "--detach"], cwd=tmp_path, check=True)
    assert head_commit(tmp_path) == head.stdout.strip()
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/../../../../etc/passwd\n")
    assert head_commit(tmp_path) == ""
