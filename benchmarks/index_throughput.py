"""`kiwi index` of signed items with an empty embedding cache, beside encoding the very same passages and nothing else.

Run: ``python -m benchmarks.index_throughput [items] [rounds]``. Prints one JSON object. Both sides are processes of
their own and take turns. Indexing counts whole: starting, the gate, splitting, encoding, the catalog and Chroma.
Encoding counts without the start of its process and the loading of the model, with the provider that indexing uses,
all passages at once and no cache: the most that the model gives on this machine.
"""

from __future__ import annotations

import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.place import Place
from benchmarks.timing import spread
from tests.shared import ROOT

SUBJECTS = (
    "the ingress controller", "a nightly backup", "the billing ledger", "each replica", "the message queue",
    "our certificate authority", "the staging cluster", "a failed migration", "the on-call engineer", "every dashboard",
    "the feature flag", "a read-only follower", "the retry budget", "this runbook", "the search index",
)  # fmt: skip
VERBS = (
    "must be drained before", "reports its state to", "is rebuilt from", "waits at most thirty seconds for",
    "keeps two copies of", "is paused automatically by", "should never write to", "announces a change to",
    "is checked every morning against", "takes its credentials from", "falls back to", "is rotated together with",
)  # fmt: skip
ENDS = (
    "so that no request is lost", "unless the error rate stays below one percent", "and the change is noted in the log",
    "because a restart takes several minutes", "when the primary region cannot be reached", "after two people agreed",
    "until the disk has a tenth of its space free", "as the service agreement demands", "before traffic is moved back",
)  # fmt: skip
HEADINGS = ("When to use it", "Steps", "What can go wrong", "How to take it back", "Whom to tell", "Background")
HEAD = """---
title: {title}
description: {description}
version: "1.0.0"
category: operations
author: ada
tags: [operations, runbook]
---

# {title}
"""
ENCODE = """
import asyncio, json, sqlite3, sys, time
from pathlib import Path
from kiwi_rag.embedding.factory import load_provider
provider = load_provider(cache_dir=Path(sys.argv[2])).uncached
rows = sqlite3.connect(sys.argv[1]).execute("SELECT context, text FROM passages").fetchall()
from kiwi_rag.model import Passage
from kiwi_rag.wordpieces import embedded_text
texts = [embedded_text(Passage(0, text, context, (), 1, 1)) for context, text in rows]
provider.encode(["warm"])
started, busy = time.perf_counter(), time.process_time()
asyncio.run(provider.documents(texts))
seconds, cpu = time.perf_counter() - started, time.process_time() - busy
print(json.dumps({"seconds": seconds, "cpu": cpu, "texts": len(texts), "distinct": len(set(texts))}))
"""


def note(number: int) -> str:
    """Return a knowledge entry like no other one: a summary and three to six sections of uneven length."""
    chance = random.Random(number)

    def sentence() -> str:
        words = f"{chance.choice(SUBJECTS)} {chance.choice(VERBS)} {chance.choice(SUBJECTS)} {chance.choice(ENDS)}"
        return f"{words[0].upper()}{words[1:]}."

    title = f"Runbook {number}, {chance.choice(SUBJECTS)} and {chance.choice(SUBJECTS)}"
    parts = [HEAD.format(title=title, description=sentence())]
    for heading in chance.sample(HEADINGS, chance.randint(3, 6)):
        parts.append(f"## {heading}\n\n" + " ".join(sentence() for _ in range(chance.randint(2, 9))) + "\n")
    return "\n".join(parts)


def write_items(project: Path, count: int) -> None:
    """Write `count` entries below the project's ``.ai`` folder."""
    folder = project / ".ai/knowledge/operations"
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"r{number}.md").write_text(note(number))


def child_seconds() -> float:
    """Return the processor seconds that this process's ended children took."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Sides:
    """Both sides of the comparison: a project of signed items, and how each side is run over it."""

    def __init__(self, place: Place, items: int) -> None:
        self.place = place
        write_items(place.project, items)
        place.run("sign", ".ai")

    def index(self) -> dict[str, Any]:
        """Index with an empty cache; return seconds, passages and how many were encoded."""
        self.place.forget()
        busy = child_seconds()
        seconds, printed = self.place.call("--json", "index")
        report = json.loads(printed)
        cpu = child_seconds() - busy
        return {"seconds": seconds, "cpu": cpu, "passages": report["passages"], "encoded": report["encoded"]}

    def encode(self) -> dict[str, Any]:
        """Encode what the catalog holds; return seconds and texts."""
        catalog = next((self.place.project / ".ai/vectors").rglob("catalog-100.sqlite3"))
        command = [sys.executable, "-c", ENCODE, str(catalog), str(self.place.cache)]
        done = subprocess.run(command, env=self.place.env, cwd=ROOT, check=True, stdout=subprocess.PIPE)
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def measure(items: int, rounds: int) -> dict[str, Any]:
    """Return passages a second of both, and the ratio of each round, ready for JSON."""
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as folder:
        side = Sides(Place.below(Path(folder)), items)
        side.place.run("index")  # so that nothing is read from the disk for the first time
        turns = [(side.index(), side.encode()) for _ in range(rounds)]
        again = [side.place.call("--json", "index") for _ in range(3)]
    ratios = [encoded["seconds"] / indexed["seconds"] for indexed, encoded in turns]
    passages = turns[0][0]["passages"]
    unchanged = json.loads(again[-1][1])
    return {
        "items": items,
        "passages": passages,
        "distinct_texts": turns[0][1]["distinct"],
        "encoded": turns[0][0]["encoded"],
        "index_passages_per_second": round(passages / statistics.median(i["seconds"] for i, _ in turns), 1),
        "encode_passages_per_second": round(passages / statistics.median(e["seconds"] for _, e in turns), 1),
        "ratio": spread(ratios),
        "processor_seconds": {
            "index": round(statistics.median(i["cpu"] for i, _ in turns), 1),
            "encode": round(statistics.median(e["cpu"] for _, e in turns), 1),
        },
        "unchanged": {
            "seconds": round(statistics.median(seconds for seconds, _ in again), 2),
            "admitted": len(unchanged["admitted"]),
            "unchanged": unchanged["unchanged"],
            "encoded": unchanged["encoded"],
        },
    }


def main() -> None:
    """Measure and print."""
    items, rounds = (int(argument) for argument in (*sys.argv[1:], *("800", "2")[len(sys.argv) - 1 :]))
    print(json.dumps(measure(items, rounds), indent=1))


if __name__ == "__main__":
    main()
