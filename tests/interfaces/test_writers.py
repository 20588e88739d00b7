"""Two processes on one tier: one writes, the second is told who does, and readers never wait."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kiwi_rag.stores.local import LocalVectorStore
from kiwi_rag.stores.local.ownership import WAIT_SECONDS, WriterLock
from tests.disks import small_disk
from tests.interfaces.conftest import PATIENCE, Kiwi, note

HOLDER = """
import asyncio, sys
from pathlib import Path
from kiwi_rag.services import Services
import os

async def hold():
    async with Services.open(os.environ, Path.cwd()) as app:
        async with app.local("project").store.writing():
            print("holding", flush=True)
            await asyncio.to_thread(sys.stdin.readline)

asyncio.run(hold())
"""


@pytest.fixture
def holder(ready: Kiwi):
    ready.run("add", str(ready.write("knowledge/acme/note.md", note())))
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], cwd=ready.cwd, env=ready.environment(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline().strip() == "holding"
    yield process
    process.stdin.close()
    process.wait(timeout=PATIENCE)


def test_a_second_writer_is_told_who_writes_within_five_seconds(ready: Kiwi, holder, monkeypatch: pytest.MonkeyPatch):
    usual = LocalVectorStore.__init__.__kwdefaults__
    assert usual["wait_seconds"] == WAIT_SECONDS < 5
    monkeypatch.setitem(usual, "wait_seconds", 0.2)
    result = ready.run("index", expect=1)
    assert holder.poll() is None, "told while the other still writes"
    assert f"{holder.pid}" in result.stderr
    assert "writing" in result.stderr


def test_readers_keep_working_while_one_writes(ready: Kiwi, holder, monkeypatch: pytest.MonkeyPatch):
    acquire = WriterLock.acquire

    def not_the_writers(lock: WriterLock) -> None:
        assert lock._holder_file.parent != ready.vectors, "a reader waits for the writer"
        acquire(lock)

    monkeypatch.setattr(WriterLock, "acquire", not_the_writers)
    assert [h["item_id"] for h in ready.json("search", "staging scale-down")["hits"]] == ["acme/note"]
    assert ready.json("list")
    assert holder.poll() is None


def test_the_lock_dies_with_its_process(ready: Kiwi, holder):
    holder.kill()
    holder.wait()
    ready.run("index")


def test_reading_while_a_real_index_run_writes(ready: Kiwi):
    for number in range(30):
        ready.write(f"knowledge/acme/n{number}.md", note(extra=f"Basin {number} is fed by pump {number}."))
    ready.run("--quiet", "sign", ".ai")
    writer = ready.start("--quiet", "index")
    seen = []
    while writer.poll() is None:
        seen.append(len(ready.json("search", "which pump feeds the basin", "--limit", "50")["hits"]))
    assert writer.communicate() and writer.returncode == 0
    assert seen == sorted(seen)
    assert len(ready.json("search", "which pump feeds the basin", "--limit", "50")["hits"]) == 30


def test_a_full_disk_is_told_and_nothing_is_half_written(ready: Kiwi):
    with small_disk(ready.cwd / ".ai/vectors", "400k") as vectors:
        for number in range(40):
            long = " ".join(f"Basin {number} is fed by pump {n}." for n in range(120))
            ready.write(f"knowledge/acme/n{number}.md", note(extra=long))
        ready.run("--quiet", "sign", ".ai", expect=None)
        result = ready.run("index", expect=1)
        assert "full" in result.stderr.lower()
        subprocess.run(["mount", "-o", "remount,size=200m", str(vectors)], check=True)
        ready.run("--quiet", "sign", ".ai")
        ready.run("index")
        assert len(ready.json("list")) == 40
        assert ready.json("doctor", "--repair")["problems"] == []
