"""`kiwi publish --all` of many items, as a user runs it: with an empty embedding cache, again when all is there, and
into a second registry with every vector in the cache.

Run: ``python benchmarks/publish.py [items]``. Prints one JSON object. The registry is the embedded one, so that its
server shares the machine's cores with the command; the items have distinct texts of two to three passages.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KIWI = [sys.executable, "-m", "kiwi_rag.cli", "-q"]
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


def timed(arguments: list[str], env: dict[str, str], cwd: Path) -> float:
    """Run a command; return seconds."""
    begun = time.perf_counter()
    subprocess.run([*KIWI, *arguments], env=env, cwd=cwd, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def published(env: dict[str, str], project: Path) -> tuple[float, float]:
    """Publish everything into a fresh registry, then once more; return the seconds of each."""
    timed(["registry", "start"], env, project)
    try:
        return timed(["publish", "--all"], env, project), timed(["publish", "--all"], env, project)
    finally:
        timed(["registry", "stop"], env, project)


def measure(count: int) -> dict[str, Any]:
    """Return items a second, ready for JSON."""
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as folder:
        Path(folder).chmod(0o755)
        project, cache = Path(folder, "project"), Path(folder, "cache")
        for made in ("home", "project", "cache"):
            Path(folder, made).mkdir()
        models = Path(os.environ.get("KIWI_CACHE_DIR", ROOT / ".cache/kiwi"), "models")
        if models.is_dir():
            (cache / "models").symlink_to(models)
        env = {**os.environ, "HOME": f"{folder}/home", "KIWI_CACHE_DIR": str(cache), "KIWI_KEY_PASSPHRASE": "bench"}
        write_items(project, count)
        for call in (["init"], ["keys", "new"], ["sign", ".ai"]):
            timed(call, env, project)
        shutil.copytree(env["HOME"], f"{folder}/other")  # the same keys, and no registry yet
        cold, again = published(env, project)
        warm, _ = published({**env, "HOME": f"{folder}/other"}, project)
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
