"""kill -9 during indexing and watching: the next run ends equal to a fresh index, by path and digests."""

from __future__ import annotations

import random

from tests.interfaces.conftest import Kiwi
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
    assert kiwi.json("workspace", "index")["encoded"] == 0
    assert after == fresh(kiwi)


def test_index_survives_kill_9(kiwi: Kiwi):
    survive(kiwi, "workspace", "index")


def test_watch_survives_kill_9(kiwi: Kiwi):
    survive(kiwi, "workspace", "watch")
