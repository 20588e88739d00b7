"""kill -9 during indexing and watching: the next run ends equal to a fresh index, by path and digests."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kiwi_rag.ingest import GROUP
from tests.embedding_server import HeldServer, vectors_of
from tests.examples import KILLS
from tests.interfaces.conftest import Kiwi, with_server
from tests.interfaces.kill_loop import SEED, KillLoop, seconds_of


def change(kiwi: Kiwi, chance: random.Random, round_number: int) -> None:
    """Write some files, change some, move one, delete one."""
    for n in range(6):
        path = kiwi.cwd / f"d{n % 3}/{round_number}-{n}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# Round {round_number}\n\nBuoy {n} of round {round_number} blinks {chance.random()}.\n")
    files = sorted(kiwi.cwd.glob("d*/*.md"))
    chance.choice(files).write_text(f"# Changed\n\nIn round {round_number}.\n")
    moved = chance.choice(files)
    moved.rename(moved.with_name(f"moved-{round_number}.md"))
    files.remove(moved)
    chance.choice(files).unlink()


def held(kiwi: Kiwi) -> dict[str, tuple[str, str]]:
    return {r["path"]: (r["sha256"], r["passages_sha256"]) for r in kiwi.json("workspace", "list")}


def fresh(kiwi: Kiwi) -> dict[str, tuple[str, str]]:
    """What an index made from nothing holds of the same files."""
    kiwi.run("--quiet", "workspace", "index", "--rebuild")
    return held(kiwi)


def survive(kiwi: Kiwi, *command: str) -> None:
    change(kiwi, random.Random(SEED), 0)
    loop = KillLoop(kiwi, list(command), seconds_of(kiwi, "workspace", "index"))
    while not loop.is_over:
        change(kiwi, loop.chance, loop.rounds + 1)
        loop.run_and_kill()
    report = kiwi.json("workspace", "index")
    assert (report["failed"], report["complete"]) == ([], True)
    after = held(kiwi)
    assert set(after) == {path.relative_to(kiwi.cwd).as_posix() for path in kiwi.cwd.glob("d*/*.md")}
    again = kiwi.json("workspace", "index")
    assert (again["encoded"], again["embedded"]) == (0, 0)
    assert kiwi.json("workspace", "stats")["embedded"] == 1
    assert after == fresh(kiwi)


def test_index_survives_kill_9(kiwi: Kiwi):
    survive(kiwi, "workspace", "index")


def test_watch_survives_kill_9(kiwi: Kiwi):
    survive(kiwi, "workspace", "watch")


def is_in_first_stage(stats: Mapping[str, Any]) -> bool:
    return bool(stats["run"] == "begun")


def is_in_second_stage(stats: Mapping[str, Any]) -> bool:
    return stats["run"] == "complete" and 0 < stats["embedded"] < 1


@pytest.mark.parametrize("is_due", [is_in_first_stage, is_in_second_stage])
def test_kill_9_in_either_stage_of_an_index_run(kiwi: Kiwi, is_due):
    for run in range(-(-KILLS // 3)):
        with HeldServer(vectors_of) as server:
            kiwi = with_server(kiwi, server)
            kill_when(kiwi, is_due, run)
            server.released.set()
            for n in range(2 * GROUP, 600):  # which need not all be encoded now
                (kiwi.cwd / f"{n}.md").unlink()
            report = kiwi.json("workspace", "index")
            assert (report["failed"], report["complete"]) == ([], True)
            stats = kiwi.json("workspace", "stats")
            assert (stats["documents"], stats["embedded"], stats["problems"]) == (2 * GROUP, 1, [])
            assert held(kiwi) == fresh(kiwi)


def kill_when(kiwi: Kiwi, is_due: Callable[[Mapping[str, Any]], bool], run: int) -> None:
    """Index 600 documents, a group of which the server embeds before it holds the run, and kill that once it is due."""
    for n in range(600):
        path = kiwi.cwd / (f"{n}/README.md" if n < GROUP else f"{n}.md")  # a README is embedded before others
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# Buoy {n}\n\nBuoy {n} of run {run} is {'lit' if n < GROUP else 'held by a chain'}.\n")
    shutil.rmtree(kiwi.cwd / ".ai", ignore_errors=True)
    process = kiwi.start("--quiet", "workspace", "index")
    while not is_due(kiwi.json("workspace", "stats")):
        assert process.poll() is None, "the run is over before it can be killed"
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert kiwi.json("workspace", "stats")["complete"] is False
