"""The main road: the first walk by real processes in an empty home, with sockets closed to all but loopback."""

from __future__ import annotations

import json
import os
import pty
import re
import secrets
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.examples import size
from tests.interfaces.conftest import Kiwi, note
from tests.shared import CORPUS, QUERIES, ROOT, needs_shared

ACME = ROOT / "examples/acme/.ai"
MEASURES = ("ndcg@10", "hit@3", "mrr@10")


def test_from_an_empty_home_to_another_project(kiwi: Kiwi):
    kiwi.run_process("init")
    kiwi.run_forked("keys", "new", "--principal", "ada@acme.example")
    kiwi.copy(ACME)
    kiwi.run_forked("sign", ".ai")
    indexed = json.loads(kiwi.run_forked("--json", "index").stdout)
    assert len(indexed["admitted"]) >= 30
    assert indexed["refused"] == []
    published = json.loads(kiwi.run_forked("--json", "publish", "--all").stdout)
    assert len(published["published"]) == len(indexed["admitted"])

    other = kiwi.at(kiwi.cwd.parent / "other")
    other.run_forked("init")
    hits = other.json("search", "a deploy went wrong, take it back", "--source", "all")["hits"]
    found = next(h for h in hits if h["item_id"] == "acme/deploy/rollback")
    assert (found["tier"], found["signer"], found["verified"]) == ("registry", "ada@acme.example", True)

    other.run_forked("get", "directive:acme/deploy/rollback")
    original = (kiwi.cwd / ".ai/directives/acme/deploy/rollback.md").read_bytes()
    assert (other.cwd / ".ai/directives/acme/deploy/rollback.md").read_bytes() == original
    verified = other.json("verify")
    assert [row["state"] for row in verified] == ["verified"]
    again = other.json("search", "a deploy went wrong, take it back", "--source", "all")["hits"]
    assert next(h for h in again if h["item_id"] == "acme/deploy/rollback")["tiers"] == ["project", "registry"]


def test_publishing_again_changes_nothing(ready: Kiwi):
    ready.write("knowledge/acme/note.md", note())
    ready.run("sign", ".ai")
    first = ready.json("publish", "--all")["published"]
    second = ready.json("publish", "--all")["published"]
    assert [row["already_published"] for row in first] == [False]
    assert [row["already_published"] for row in second] == [True]
    assert first[0]["sequence"] == second[0]["sequence"]


def test_a_dead_registry_is_told_and_the_local_tiers_still_answer(ready: Kiwi):
    path = ready.write("knowledge/acme/note.md", note())
    ready.run("add", str(path))
    ready.extra["KIWI_REGISTRY_URL"] = "postgresql://nobody@127.0.0.1:9/none"
    reply = ready.json("search", "staging scale-down", "--source", "all", expect=3)
    assert [h["item_id"] for h in reply["hits"]] == ["acme/note"]
    states = {tier["tier"]: tier["state"] for tier in reply["tiers"]}
    assert states == {"project": "ok", "user": "ok", "registry": "error"}
    assert "unreachable" in json.dumps(reply["tiers"])
    only = ready.run("search", "staging scale-down", "--source", "registry", expect=1)
    assert only.stdout == ""
    assert "registry" in only.stderr


def test_nothing_found_is_an_empty_list_and_a_line_on_stderr(ready: Kiwi):
    ready.run("index")
    result = ready.run("search", "anything", "--format", "json")
    assert json.loads(result.stdout) == []
    assert "nothing found" in result.stderr


def test_shadowing_is_told(ready: Kiwi):
    path = ready.write("knowledge/acme/note.md", note())
    ready.run("add", str(path))
    ready.run("sync", "--to", "user")
    path.write_text(note(version="1.1.0", extra="It wakes at six, since May."))
    ready.run("add", str(path))
    hits = ready.json("search", "staging scale-down")["hits"]
    assert [(h["tier"], h["version"], h["shadows"]) for h in hits] == [("project", "1.1.0", ["user"])]


def test_delete_removes_file_signature_and_entry(ready: Kiwi):
    path = ready.write("knowledge/acme/note.md", note())
    ready.run("add", str(path))
    ready.run("delete", "acme/note", expect=2)
    ready.run("delete", "acme/note", "--yes")
    assert not path.exists()
    assert ready.json("list") == []
    assert ready.json("search", "staging scale-down")["hits"] == []


def test_a_removed_file_leaves_the_index(ready: Kiwi):
    path = ready.write("knowledge/acme/note.md", note())
    ready.run("add", str(path))
    path.unlink()
    assert ready.json("index")["removed"] == ["knowledge:acme/note"]
    assert ready.json("list") == []


@pytest.mark.parametrize("form", ["text", "jsonl", "md", "paths"])
def test_every_format_names_the_item(ready: Kiwi, form: str):
    ready.run("add", str(ready.write("knowledge/acme/note.md", note())))
    out = ready.run("search", "staging scale-down", "--format", form).stdout
    assert "note" in out
    if form == "jsonl":
        assert json.loads(out.splitlines()[0])["item_id"] == "acme/note"
    if form == "paths":
        assert re.fullmatch(r".*knowledge/acme/note\.md:\d+", out.strip())


@pytest.fixture(scope="module")
def rye(tmp_path_factory) -> Kiwi:
    """The real items, in an everyday run each fourth of them, signed."""
    base = tmp_path_factory.mktemp("rye")
    base.chmod(0o755)
    (base / "home").mkdir()
    (base / "project").mkdir()
    user = Kiwi(base / "home", base / "project")
    user.run("init")
    user.run("keys", "new")
    files = sorted(path for path in CORPUS.rglob("*") if path.is_file())
    for path in files[:: len(files) // size(len(files))]:
        user.write(str(path.relative_to(CORPUS)), path.read_bytes())
    user.run("sign", ".ai", expect=4)
    return user


def terminal(kiwi: Kiwi, *arguments: str) -> tuple[int, str]:
    """Run a command whose stderr is a terminal, and return its exit code and what it drew there."""
    master, slave = pty.openpty()
    kiwi.extra["TERM"] = "xterm"
    process = kiwi.start(*arguments, stdout=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    drawn = b""
    while True:
        if select.select([master], [], [], 0.2)[0]:
            try:
                drawn += os.read(master, 65536)
            except OSError:
                break
        elif process.poll() is not None:
            break
    os.close(master)
    return process.wait(), drawn.decode(errors="replace")


@needs_shared
def test_real_items_are_admitted_indexed_and_left_alone(rye: Kiwi):
    shutil.rmtree(rye.cwd / ".ai/vectors", ignore_errors=True)
    rye.run("index", expect=4)
    assert len(rye.json("list")) >= 0.95 * size(161)
    again = rye.json("index", expect=4)
    assert (again["admitted"], again["encoded"]) == ([], 0)
    assert all(any(f["hint"] for f in refused["findings"]) for refused in again["refused"])

    edited = rye.cwd / ".ai/knowledge/ryeos/core/kinds/parser.md"
    edited.write_text(
        edited.read_text().replace("1.0.0", "1.0.1")
        + f"\nOne more line, about signatures: {secrets.token_hex(16)}, which no cache has.\n"
    )
    rye.run("sign", str(edited))
    third = rye.json("index", expect=4)
    assert third["admitted"] == ["knowledge:ryeos/core/kinds/parser@1.0.1"]
    assert 0 < third["encoded"] <= third["passages"]


def test_a_first_index_converts_the_weights_and_shows_how_far_it_is(ready: Kiwi):
    """The cache of this home is its own, so every passage is really encoded."""
    ready.extra["KIWI_CACHE_DIR"] = str(ready.home / "cache")
    for folder in ("code", "incident"):
        shutil.copytree(ACME / "directives/acme" / folder, ready.cwd / ".ai/directives/acme" / folder)
    ready.run("sign", ".ai")
    code, drawn = terminal(ready, "index")
    assert code == 0, drawn
    assert "files/s" in drawn
    assert re.search(r"\d+/\d+ \[\d\d:\d\d<\d\d:\d\d", drawn)
    assert len(ready.json("list")) == 6
    assert list((ready.home / "cache").rglob("model.onnx"))
    again = ready.json("index")
    assert (again["admitted"], again["encoded"]) == ([], 0)


@needs_shared
def test_hybrid_is_not_below_any_leg_or_grep(rye: Kiwi, tmp_path: Path):
    rye.run("index", expect=4)
    here = {f"{row['item_type']}:{row['item_id']}" for row in rye.json("list")}
    judged = [json.loads(line) for line in QUERIES.read_text().splitlines()]
    judged = [
        {**row, "relevant": {ref: row["relevant"][ref] for ref in row["relevant"] if ref in here}} for row in judged
    ]
    queries = tmp_path / "queries.jsonl"
    queries.write_text("\n".join(json.dumps(row) for row in judged if row["relevant"]))
    rows = {row["method"]: row for row in rye.json("eval", str(queries))["rows"]}
    assert list(rows) == ["grep", "bm25", "vectors", "rrf", "hybrid"]
    means = {name: {measure: row["metrics"][measure] for measure in MEASURES} for name, row in rows.items()}
    print(json.dumps(means, indent=1))
    for measure in MEASURES:
        assert means["hybrid"][measure] >= max(means[m][measure] for m in ("grep", "bm25", "vectors")), measure


def test_one_item_that_the_registry_refuses_does_not_stop_the_others(ready: Kiwi):
    ready.write("knowledge/acme/first.md", note())
    ready.write("knowledge/acme/second.md", note(extra="Another note."))
    ready.run("sign", ".ai")
    ready.run("publish", ".ai/knowledge/acme/first.md")
    ready.run("sign", ".ai/knowledge/acme/first.md", "--force")
    time.sleep(1)  # signed_at has whole seconds
    ready.run("sign", ".ai/knowledge/acme/first.md", "--force")
    report = ready.json("publish", "--all", expect=4)
    assert [row["ref"] for row in report["published"]] == ["knowledge:acme/second@1.0.0"]
    assert report["refused"][0]["code"] == "registry-refused"
    assert report["refused"][0]["hint"]
