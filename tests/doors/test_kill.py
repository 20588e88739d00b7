"""kill -9 at random points of `index` and `publish`: what was acknowledged is there, and nothing half-written is."""

from __future__ import annotations

import os
import random
import re
import signal
import time

import pytest

from tests.doors.conftest import Kiwi, note

KILLS = int(os.environ.get("KIWI_KILLS", "3"))
SEED = int(os.environ.get("KIWI_SEED", "7"))
NEW_NOTES = 4
ACKNOWLEDGED = re.compile(r"^(?:stored|published|known) +(\w+:[\w/-]+)@", re.MULTILINE)


def write_notes(kiwi: Kiwi, round_number: int) -> None:
    for index in range(NEW_NOTES):
        extra = f"Round {round_number}, note {index}: pump {round_number * NEW_NOTES + index} feeds the north basin."
        kiwi.write(f"knowledge/acme/r{round_number}-{index}.md", note(extra=extra).replace("category: acme/cost", ""))
    kiwi.run("--quiet", "sign", ".ai")


def run_and_kill(kiwi: Kiwi, arguments: list[str], after: float) -> tuple[set[str], bool]:
    """Start a command, kill it `after` seconds, and return what it had acknowledged and whether it was killed."""
    process = kiwi.start("--quiet", *arguments)
    deadline = time.monotonic() + after
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    killed = process.poll() is None
    if killed:
        process.send_signal(signal.SIGKILL)
    out, err = process.communicate()
    assert killed or process.returncode == 0, err
    return set(ACKNOWLEDGED.findall(out)), killed


def listed(kiwi: Kiwi, source: str) -> set[str]:
    return {f"{row['item_type']}:{row['item_id']}" for row in kiwi.json("list", "--source", source)}


def survive(kiwi: Kiwi, arguments: list[str], source: str, base: float, spread: float) -> int:
    """Kill a command `KILLS` times; return how often it was really hit."""
    chance = random.Random(SEED)
    acknowledged: set[str] = set()
    hits = rounds = 0
    write_notes(kiwi, 0)
    while hits < KILLS:
        rounds += 1
        assert rounds < 4 * KILLS, "the command is over before it can be killed"
        heard, killed = run_and_kill(kiwi, arguments, base + spread * chance.random())
        acknowledged |= heard
        hits += killed
        assert acknowledged <= listed(kiwi, source)
        if not killed:
            write_notes(kiwi, rounds)
    return hits


def test_index_survives_kill_9(ready: Kiwi):
    assert survive(ready, ["index"], "project", 0.15, 0.6) == KILLS
    doctor = ready.json("doctor", "--repair")
    assert doctor["problems"] == []
    report = ready.json("index")
    assert report["refused"] == []
    again = ready.json("index")
    assert (again["admitted"], again["encoded"]) == ([], 0)
    assert {row["state"] for row in ready.json("verify")} == {"verified"}
    assert ready.json("doctor")["problems"] == []
    assert len(ready.json("list")) == len(list((ready.cwd / ".ai/knowledge/acme").glob("*.md")))


@pytest.mark.usefixtures("kiwi")
def test_publish_survives_kill_9(ready: Kiwi):
    ready.run("registry", "start")
    assert survive(ready, ["publish", "--all"], "registry", 0.3, 0.9) == KILLS
    last = ready.json("publish", "--all")
    everything = {row["ref"].split("@")[0] for row in last["published"]}
    assert len(everything) == len(list((ready.cwd / ".ai/knowledge/acme").glob("*.md")))
    assert everything == listed(ready, "registry")
    assert {row["state"] for row in ready.json("verify", "--source", "registry")} == {"verified"}
    hits = ready.json("search", "which pump feeds the north basin", "--source", "registry", "--limit", "200")["hits"]
    assert {f"{h['item_type']}:{h['item_id']}" for h in hits} <= everything
    assert len(hits) == len(everything)
