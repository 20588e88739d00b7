"""`kiwi publish --all` of many items, as a user runs it: with an empty embedding cache, again when all is there, and
into a second registry with every vector in the cache.

Run: ``python -m benchmarks.publish [items]``. Prints one JSON object. The registry is the embedded one, so that its
server shares the machine's cores with the command; the items have distinct texts of two to three passages.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.place import Place

PARTS = (
    "pump",
    "valve",
    "queue",
    "ledger",
    "gateway",
    "scheduler",
    "cache",
    "relay",
    "index",
    "worker",
    "probe",
    "quota",
)
DEEDS = ("drains", "fills", "restarts", "reports to", "waits for", "feeds", "throttles", "copies", "renames", "signs")
TIMES = ("at dawn", "every hour", "after a deploy", "on the first of a month", "when the basin is full", "twice a day")
NOTE = """---
title: {title}
description: How {part} number {number} is kept in order, and whom to ask.
version: "1.0.0"
category: acme
author: ada
tags: [operations]
---

# {title}

{first}

## What to do when it stops

{second}
"""


def note(number: int) -> str:
    """Return a knowledge entry like no other one."""
    chance = random.Random(number)
    part = chance.choice(PARTS)

    def paragraph(sentences: int) -> str:
        return " ".join(
            f"The {chance.choice(PARTS)} {chance.randrange(10_000)} {chance.choice(DEEDS)} the"
            f" {chance.choice(PARTS)} {chance.randrange(10_000)} {chance.choice(TIMES)}."
            for _ in range(sentences)
        )

    title = f"The {part} {number} of the north basin"
    return NOTE.format(title=title, part=part, number=number, first=paragraph(5), second=paragraph(5))


def write_items(project: Path, count: int) -> None:
    """Write `count` entries below the project's ``.ai`` folder."""
    folder = project / ".ai/knowledge/acme"
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"n{number}.md").write_text(note(number))


def published(place: Place) -> tuple[float, float]:
    """Publish everything into a fresh registry, then once more; return the seconds of each."""
    place.run("registry", "start")
    try:
        return place.run("publish", "--all"), place.run("publish", "--all")
    finally:
        place.run("registry", "stop")


def measure(count: int) -> dict[str, Any]:
    """Return items a second, ready for JSON."""
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as folder:
        place, other = Place.below(Path(folder)), Path(folder, "other")
        write_items(place.project, count)
        place.run("sign", ".ai")
        shutil.copytree(place.env["HOME"], other)  # the same keys, and no registry yet
        cold, again = published(place)
        warm, _ = published(place.with_home(other))
    return {
        "items": count,
        "items_per_second": {
            "empty embedding cache": round(count / cold, 1),
            "all vectors cached": round(count / warm, 1),
            "nothing new": round(count / again, 1),
        },
    }


if __name__ == "__main__":
    json.dump(measure(*map(int, sys.argv[1:2] or ["1000"])), sys.stdout, indent=1)
    sys.stdout.write("\n")
