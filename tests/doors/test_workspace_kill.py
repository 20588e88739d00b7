"""kill -9 during indexing and watching: the next run ends equal to a fresh index, by path and digests."""

from __future__ import annotations

import os
import random
import signal
import time

from tests.doors.conftest import Kiwi

KILLS = int(os.environ.get("KIWI_KILLS", "3"))
SEED = int(os.environ.get("KIWI_SEED", "7"))


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


def killed(kiwi: Kiwi, command: list[str], after: float) -> bool:
    process = kiwi.start("--quiet", *command)
    deadline = time.monotonic() + after
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    hit = process.poll() is None
    if hit:
        process.send_signal(signal.SIGKILL)
    process.communicate()
    return hit


def survive(kiwi: Kiwi, command: list[str], base: float, spread: float) -> None:
    chance = random.Random(SEED)
    hits = rounds = 0
    while hits < KILLS:
        rounds += 1
        assert rounds < 4 * KILLS, "the command is over before it can be killed"
        change(kiwi, chance, rounds)
        hits += killed(kiwi, command, base + spread * chance.random())
    report = kiwi.json("workspace", "index")
    assert (report["failed"], report["complete"]) == ([], True)
    after = held(kiwi)
    assert set(after) == {path.relative_to(kiwi.cwd).as_posix() for path in kiwi.cwd.glob("d*/*.md")}
    assert kiwi.json("workspace", "index")["encoded"] == 0
    assert after == fresh(kiwi)


def test_index_survives_kill_9(kiwi: Kiwi):
    survive(kiwi, ["workspace", "index"], 0.2, 0.5)


def test_watch_survives_kill_9(kiwi: Kiwi):
    survive(kiwi, ["workspace", "watch"], 0.3, 0.7)
