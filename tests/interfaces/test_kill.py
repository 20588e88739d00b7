"""kill -9 at random points of `index` and `publish`: what was acknowledged is there, and nothing half-written is."""

from __future__ import annotations

import re

import pytest

from tests.examples import KILLS
from tests.interfaces.conftest import Kiwi, note
from tests.interfaces.kill_loop import KillLoop, seconds_of

NEW_NOTES = 4
ACKNOWLEDGED = re.compile(r"^(?:stored|published|known) +(\w+:[\w/-]+)@", re.MULTILINE)


def write_notes(kiwi: Kiwi, round_number: int) -> None:
    for index in range(NEW_NOTES):
        extra = f"Round {round_number}, note {index}: pump {round_number * NEW_NOTES + index} feeds the north basin."
        kiwi.write(f"knowledge/acme/r{round_number}-{index}.md", note(extra=extra).replace("category: acme/cost", ""))
    kiwi.run("--quiet", "sign", ".ai")


def listed(kiwi: Kiwi, source: str) -> set[str]:
    return {f"{row['item_type']}:{row['item_id']}" for row in kiwi.json("list", "--source", source)}


def survive(kiwi: Kiwi, arguments: list[str], source: str) -> int:
    """Kill a command `KILLS` times; return how often it was really hit."""
    write_notes(kiwi, 0)
    loop = KillLoop(kiwi, arguments, seconds_of(kiwi, *arguments))
    acknowledged: set[str] = set()
    killed = False
    while not loop.is_over:
        if not killed:
            write_notes(kiwi, loop.rounds + 1)
        out, killed = loop.run_and_kill()
        acknowledged |= set(ACKNOWLEDGED.findall(out))
        assert acknowledged <= listed(kiwi, source)
    return loop.kills


def test_index_survives_kill_9(ready: Kiwi):
    assert survive(ready, ["index"], "project") == KILLS
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
    assert survive(ready, ["publish", "--all"], "registry") == KILLS
    last = ready.json("publish", "--all")
    everything = {row["ref"].split("@")[0] for row in last["published"]}
    assert len(everything) == len(list((ready.cwd / ".ai/knowledge/acme").glob("*.md")))
    assert everything == listed(ready, "registry")
    assert {row["state"] for row in ready.json("verify", "--source", "registry")} == {"verified"}
    hits = ready.json("search", "which pump feeds the north basin", "--source", "registry", "--limit", "200")["hits"]
    assert {f"{h['item_type']}:{h['item_id']}" for h in hits} <= everything
    assert len(hits) == len(everything)
