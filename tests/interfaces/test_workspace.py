"""A repository's documents through the command line: indexed, listed, searched, and what goes wrong on the way."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedding_server import EmbeddingServer, vectors_of
from tests.interfaces.conftest import Kiwi, with_server
from tests.shared import ROOT

DATA = ROOT / "tests/data/workspace"
NASTY = ROOT / "tests/data/workspace-nasty"


@pytest.fixture(scope="module")
def estate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kiwi]:
    """A user with the example workspace, indexed, whose vectors say nothing of what the texts mean."""
    folder = tmp_path_factory.mktemp("estate")
    (folder / "home").mkdir()
    shutil.copytree(DATA, folder / "estate")
    with EmbeddingServer(vectors_of) as server:
        user = with_server(Kiwi(folder / "home", folder / "estate"), server)
        user.run("workspace", "index")
        yield user


def test_a_second_run_encodes_nothing(estate: Kiwi):
    report = estate.json("workspace", "index")
    assert (report["indexed"], report["failed"], report["encoded"]) == ([], [], 0)
    stats = estate.json("workspace", "stats")
    assert stats["complete"] is True
    assert stats["documents"] == len(estate.json("workspace", "list")) == report["unchanged"]
    assert {"openapi", "asyncapi", "adr", "java", "plantuml", "markdown", "yaml", "text"} <= set(stats["file_types"])


def test_every_passage_stands_where_it_says(estate: Kiwi):
    for query in ("check in", "refund", "sailing", "manifest", "why"):
        found = estate.json("workspace", "search", query, "--limit", "50", "--per-file", "0")
        assert found["hits"]
        for hit in found["hits"]:
            lines = (estate.cwd / hit["path"]).read_text().split("\n")[hit["start_line"] - 1 : hit["end_line"]]
            assert hit["text"] in "\n".join(lines)
            assert hit["verified"] is True


def test_filters_and_formats(estate: Kiwi):
    hits = estate.json("workspace", "search", "check in", "--file-type", "openapi", "--limit", "20")["hits"]
    assert {hit["file_type"] for hit in hits} == {"openapi"}
    hits = estate.json("workspace", "search", "check in", "--service", "svc-check-in", "--limit", "20")["hits"]
    assert {hit["service"] for hit in hits} == {"svc-check-in"}
    hits = estate.json("workspace", "search", "check in", "--path", "decisions", "--limit", "20")["hits"]
    assert {hit["path"].split("/")[0] for hit in hits} == {"decisions"}
    paths = estate.run("workspace", "search", "check in", "--format", "paths").stdout.splitlines()
    assert all((estate.cwd / line.rpartition(":")[0]).is_file() for line in paths)
    none = estate.run("workspace", "list", "--service", "svc-of-nobody")
    assert (none.stdout, "no document matches" in none.stderr) == ("", True)
    rows = [
        json.loads(line) for line in estate.run("workspace", "search", "x", "--format", "jsonl").stdout.splitlines()
    ]
    assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
    assert "vectors" in estate.run("workspace", "search", "check in", "--explain").stdout


def test_a_save_is_one_files_work(kiwi: Kiwi):
    for n in range(5):
        (kiwi.cwd / f"{n}.md").write_text(f"# Note {n}\n\nWhat stands in note {n}.\n")
    kiwi.run("workspace", "index")
    # Something that no run before this one left in the cache of vectors.
    (kiwi.cwd / "3.md").write_text(f"# Note 3\n\nThe anchor was replaced in March, number {time.time_ns()}.\n")
    report = kiwi.json("workspace", "index", "--file", "3.md")
    assert (report["indexed"], report["encoded"]) == (["3.md"], 1)
    (kiwi.cwd / "sub").mkdir()
    (kiwi.cwd / "3.md").rename(kiwi.cwd / "sub/three.md")
    report = kiwi.json("workspace", "index")
    assert (report["moved"], report["encoded"]) == ([{"path": "sub/three.md", "from": "3.md"}], 0)
    hit = kiwi.json("workspace", "search", "when was the anchor replaced")["hits"][0]
    assert (hit["path"], hit["changed"]) == ("sub/three.md", False)


def test_the_index_keeps_out_of_git(kiwi: Kiwi):
    subprocess.run(["git", "init", "-q"], cwd=kiwi.cwd, check=True)
    (kiwi.cwd / "a.md").write_text("# A\n")
    kiwi.run("workspace", "index")
    told = subprocess.run(
        ["git", "status", "--porcelain", "-uall"], cwd=kiwi.cwd, capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines() == ["?? a.md"]


def test_what_is_wrong_with_the_call_is_said(kiwi: Kiwi, tmp_path: Path):
    (kiwi.cwd / "a.md").write_text("# A\n")
    assert "is not in the workspace" in kiwi.run("workspace", "index", "--file", "/etc/passwd", expect=2).stderr
    assert "does not exist" in kiwi.run("workspace", "index", str(tmp_path / "none"), expect=2).stderr
    kiwi.run("workspace", "index")
    assert "is empty" in kiwi.run("workspace", "search", "  ", expect=2).stderr
    home = kiwi.at(kiwi.home)
    (kiwi.home / ".ai").mkdir(exist_ok=True)
    assert "holds the user tier" in home.run("workspace", "index", ".", expect=2).stderr
    (kiwi.cwd / ".ai").mkdir(exist_ok=True)
    (kiwi.cwd / ".ai/workspace.yaml").write_text("nonsense: 1\n")
    assert "unknown key" in kiwi.run("workspace", "index", expect=2).stderr


def test_an_index_that_never_was_says_what_to_do(kiwi: Kiwi):
    assert "is not indexed yet" in kiwi.run("workspace", "search", "anything", expect=1).stderr
    assert kiwi.json("workspace", "stats")["documents"] == 0
    assert "is not indexed yet" in kiwi.run("workspace", "list", expect=1).stderr
    assert kiwi.run("workspace", "stats").stderr.endswith("if no run is under way: kiwi workspace index\n")
    assert list(kiwi.cwd.iterdir()) == []


def test_what_to_do_next_names_the_root_that_the_command_named(kiwi: Kiwi, tmp_path: Path):
    root = tmp_path / "two words"
    root.mkdir()
    command = f"kiwi workspace index '{root}'"
    assert command in kiwi.run("workspace", "search", "anything", "--root", str(root), expect=1).stderr
    assert command in kiwi.run("workspace", "list", str(root), expect=1).stderr
    assert command in kiwi.run("workspace", "stats", str(root)).stderr
    (root / "a.md").write_text("# Tides\n")
    kiwi.run("workspace", "index", str(root))
    assert kiwi.run("workspace", "stats", str(root)).stderr == ""
    (root / "a.md").write_text("# Tides and moons\n")
    assert command in kiwi.run("workspace", "search", "tides", "--root", str(root)).stderr


def test_a_group_without_a_command_prints_its_help(kiwi: Kiwi):
    shown = kiwi.run("workspace", expect=2).stderr
    assert shown.startswith("Usage: kiwi workspace [OPTIONS] COMMAND")
    assert "kiwi:" not in shown
    assert "..." not in shown.partition("Commands:")[2]  # no description is cut


def test_doctor_looks_at_the_index_of_documents(ready: Kiwi):
    (ready.cwd / "a.md").write_text("# A\n\nAlpha.\n")
    ready.run("workspace", "index")
    assert ready.json("doctor")["problems"] == []
    catalog = ready.vectors / "documents/catalog-100.sqlite3"
    with sqlite3.connect(catalog) as connection:
        connection.execute("UPDATE meta SET value = 7 WHERE name = 'passages'")
    connection.close()
    problems = ready.json("doctor", expect=3)["problems"]
    assert [line for line in problems if line.startswith("workspace: ")] == problems != []
    assert ready.json("doctor", "--repair")["problems"] == []


def test_files_of_every_bad_kind_are_reported_and_none_is_lost(kiwi: Kiwi):
    """What must not crash: see the folder's own files for what each of them is."""
    shutil.copytree(NASTY, kiwi.cwd, dirs_exist_ok=True)
    (kiwi.cwd / "fifty-megabytes.yaml").write_text("openapi: 3.0.0\npaths:\n" + "  /a:\n    get: {}\n" * 2_700_000)
    (kiwi.cwd / "gone.md").symlink_to("/etc/hostname")
    (kiwi.cwd / "good.md").write_text("# Good\n\nThe lighthouse keeper sleeps by day.\n")
    report = kiwi.json("workspace", "index", expect=3)
    assert [row["path"] for row in report["failed"]] == ["gone.md"]
    assert {"code", "message", "hint"} <= set(report["failed"][0])
    skipped = {row["path"]: row["reason"] for row in report["skipped"]}
    assert "8 MiB" in skipped["fifty-megabytes.yaml"]
    assert kiwi.json("workspace", "search", "lighthouse keeper")["hits"][0]["path"] == "good.md"
    files = {path.relative_to(kiwi.cwd).as_posix() for path in kiwi.cwd.rglob("*") if path.is_file()}
    known = {row["path"] for row in kiwi.json("workspace", "list")} | set(skipped) | {"gone.md"}
    assert {path for path in files if not path.startswith(".ai/")} - known == set()
