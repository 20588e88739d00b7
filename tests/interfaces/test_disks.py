"""A read-only and a full disk: what reads answers as ever; what writes says why it cannot, and changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from kiwi_rag.storage.sqlite import connect
from tests.disks import full_disk, read_only, small_disk
from tests.interfaces.conftest import Kiwi, note

Disk = Callable[[Path], AbstractContextManager[None]]
DISKS: Mapping[str, Disk] = {"read-only": read_only, "full": full_disk}
CAUSES = {"read-only": "Read-only file system", "full": "[Nn]o space left "}
EXCHANGE = '{"session_id": "s1", "user_message": "How do we deploy?", "assistant_message": "With make deploy."}'
READING = (
    "search basin", "search basin --source all", "search basin --source user", "list", "show acme/n0", "status",
    "verify", "validate .ai/knowledge", "validate .ai/directives/bad.md", "config", "keys list", "keys show",
    "trust list", "audit verify", "audit show", "usage", "consent list", "registry status", "workspace search buoy",
    "workspace stats", "workspace list", "memory search deploy", "memory context deploy", "memory list",
    "memory stats", "memory export -", "library list", "library search hb buoy", "library get hb buoy",
    "library status hb", "ask basin", "init",
)  # fmt: skip
WRITING = (
    "sign .ai/knowledge/acme/new.md", "add .ai/knowledge/acme/new.md", "index", "index --rebuild", "sync",
    "publish .ai/knowledge/acme/n0.md", "delete acme/n0 --yes", "keys new second", "keys retire default",
    "trust remove ada@acme.example", "workspace index .", "workspace index . --rebuild", "memory add ../exchange.json",
    "memory forget --all --yes", "memory reindex", "library add docs --id /a/b --version 1",
    "library remove hb --yes", "setup claude --project", "setup claude --memory", "init ../other",
    "serve", "serve token new ci --role reader", "consent allow example.org", "doctor", "doctor --repair",
)  # fmt: skip


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kiwi]:
    """A user whose home and project are on a small disk, with one of everything that is searched."""
    with small_disk(tmp_path_factory.mktemp("disk") / "disk", "24m") as disk:
        disk.chmod(0o755)
        kiwi = Kiwi(disk / "home", disk / "project")
        kiwi.home.mkdir()
        (kiwi.cwd / "docs").mkdir(parents=True)
        kiwi.run("init")
        kiwi.run("keys", "new", "--principal", "ada@acme.example")
        for number in range(3):
            kiwi.write(f"knowledge/acme/n{number}.md", note(extra=f"Basin {number} is fed by pump {number}."))
            (kiwi.cwd / f"docs/d{number}.md").write_text(f"# Buoy {number}\n\nBuoy {number} blinks.\n")
        (disk / "exchange.json").write_text(EXCHANGE)
        for line in ("sign .ai", "index", "workspace index .", "memory add ../exchange.json"):
            kiwi.run(*line.split())
        kiwi.run("library", "add", "docs", "--id", "/acme/hb", "--version", "1")
        kiwi.write("knowledge/acme/new.md", note(extra="It is not signed yet."))
        kiwi.write("directives/bad.md", "no directive")
        yield kiwi


def said(result) -> tuple[int, str, str]:
    """Return a result without seconds, sizes, and what the error log has."""
    texts = (re.sub(r"(?m)^error .*\n", "", text) for text in (result.stdout, result.stderr))  # `status` counts them
    return result.returncode, *(re.sub(r"\d[\d.,]* (s|bytes|[kKMG]i?B)\b", "", text) for text in texts)


def files(folder: Path) -> dict[str, bytes]:
    """Return what a folder has, but for empty files, and logs."""
    paths = (
        path for path in folder.rglob("*") if path.is_file() and path.name not in ("filler", "kiwi.jsonl", "runs.jsonl")
    )
    found = {str(path): path.read_bytes() for path in paths if not path.name.endswith(("-wal", "-shm"))}
    return {path: data for path, data in found.items() if data}


@pytest.mark.parametrize("kind", DISKS)
def test_what_reads_says_the_same_as_on_another_disk(user: Kiwi, kind: str):
    before = {line: said(user.run(*line.split(), expect=None)) for line in READING}
    with DISKS[kind](user.home.parent):
        for line in READING:
            assert said(user.run(*line.split(), expect=None)) == before[line], line


@pytest.mark.parametrize("kind", DISKS)
@pytest.mark.parametrize("line", WRITING)
def test_what_writes_names_path_and_cause_and_changes_nothing(user: Kiwi, kind: str, line: str):
    before = files(user.home.parent)
    with DISKS[kind](user.home.parent):
        run = user.run_process if line.startswith("publish") else user.run  # a real Postgres
        result = run(*line.split(), expect=None)
        text = result.stderr + result.stdout
        assert result.returncode in (1, 3), text
        assert "Traceback" not in text
        assert re.search(CAUSES[kind], text), text
        assert str(user.home.parent) in text
        assert files(user.home.parent) == before
    assert files(user.home.parent) == before


def test_on_a_read_only_disk_what_a_killed_process_left_in_a_log_is_read(user: Kiwi):
    catalog = user.vectors / "catalog-100.sqlite3"
    kept = {
        path: path.read_bytes() for path in (catalog, catalog.with_name("catalog-100.sqlite3-wal")) if path.exists()
    }
    with closing(connect(catalog)) as writer:
        writer.execute("UPDATE items SET admitted_at = admitted_at")
        writer.execute("DELETE FROM items WHERE item_id = 'acme/n0'")
        left = {
            path: path.read_bytes()
            for path in user.vectors.glob("catalog-100.sqlite3*")
            if path.suffix != ".sqlite3-shm"
        }
    for path, data in left.items():
        path.write_bytes(data)
    with read_only(user.home.parent):
        assert [row["item_id"] for row in user.json("list")] == ["acme/n1", "acme/n2"]
        assert not (user.vectors / "catalog-100.sqlite3-shm").exists()
    for path in left:
        path.unlink()
    for path, data in kept.items():
        path.write_bytes(data)


def test_a_refusal_that_the_audit_log_cannot_have_is_shown_and_noticed(user: Kiwi):
    catalog = user.vectors / "catalog-100.sqlite3"
    before = catalog.read_bytes()
    with closing(connect(catalog)) as writer:
        writer.execute("UPDATE blobs SET content = cast(replace(content, 'pump 2', 'pump 9') AS blob)")
    with read_only(user.home.parent):
        hits = user.run("search", "pump basin", expect=3)
        assert "acme/n2" not in hits.stdout and "Read-only file system" in hits.stderr
        verdict = user.run("verify", "acme/n2", expect=4)
        assert re.search("the audit log has no record of it: .*Read-only file system", verdict.stdout + verdict.stderr)
    catalog.write_bytes(before)
