"""A search of project, user and registry together, beside the same search of each tier alone, in the same run.

Run: ``python -m benchmarks.federated [items] [queries] [repeats]``. Prints one JSON object; times in milliseconds.
Each tier holds `items` signed items of its own, each of about five passages, in its real store; the registry is an
embedded server. A search is whole but for the model: statistics, candidates, fusion, and every hit verified. The
query's vector is made before, for the model takes the same time either way. The four searches of a query take turns,
and each query is new to every store.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import texts
from benchmarks.timing import p95, spread
from kiwi_rag.model import SearchQuery
from kiwi_rag.search import Searcher
from tests.registry_shelf import registry, registry_tier
from tests.search_tiers import EMBED, THREE, Shelf, WordsProvider, note

TIERS = ("project", "user", "registry")
SECTIONS, WORDS_A_SECTION = 4, 90


class Remembered(WordsProvider):
    """Gives vectors that were made before."""

    def __init__(self, asked: Sequence[str]) -> None:
        super().__init__()
        self._vectors = dict(zip(asked, EMBED.encode(asked), strict=True))

    async def query(self, text: str) -> Any:
        return self._vectors[text]


async def fill(shelf: Shelf, items: int) -> int:
    """Store the items; return how many passages a tier has."""
    passages = 0
    for place, name in enumerate(TIERS):
        rng = np.random.default_rng(place)
        for number in range(items):
            sections = enumerate(texts(rng, SECTIONS, WORDS_A_SECTION))
            body = "\n\n".join(f"## Part {n}\n\n{text}" for n, text in sections)
            await shelf.put(name, f"{name}/n{number}", note(f"Entry {number} of {name}", body))
        passages = (await shelf.tier(name).store.status()).passages or passages
    return passages


async def seconds(handler: Searcher, text: str) -> float:
    """The time of one search of which ten hits must come, in ms."""
    start = time.perf_counter()
    reply = await handler.search(SearchQuery(text, "all", limit=10))
    taken = (time.perf_counter() - start) * 1000
    assert reply.complete and len(reply.hits) == 10, reply.tiers
    return taken


async def round_of(handlers: dict[str, Searcher], asked: Sequence[str]) -> dict[str, list[float]]:
    """Ask everything once, in an order that changes."""
    taken: dict[str, list[float]] = {name: [] for name in handlers}
    for number, text in enumerate(asked):
        names = random.Random(number).sample(list(handlers), len(handlers))
        for name in names:
            taken[name].append(await seconds(handlers[name], text))
    return taken


def report_of(rounds: Sequence[dict[str, list[float]]]) -> dict[str, Any]:
    """p50 and p95 of each way of searching, and how the federated ones compare."""
    told: dict[str, Any] = {}
    for name in rounds[0]:
        told[name] = {
            "p50": spread([statistics.median(one[name]) for one in rounds], 2),
            "p95": spread([p95(one[name]) for one in rounds], 2),
        }
    for what, figure in (("p50", statistics.median), ("p95", p95)):
        ratios = [figure(one["federated"]) / max(figure(one[name]) for name in TIERS) for one in rounds]
        told[f"federated_{what}_to_slowest_alone"] = spread(ratios, 3)
    return told


async def measure(folder: Path, url: str, items: int, queries: int, repeats: int) -> dict[str, Any]:
    """Fill three tiers, and time searches of them."""
    shelf = Shelf(folder, trust=THREE)
    shelf.tiers["registry"] = registry_tier(url, folder / "audit")
    passages = await fill(shelf, items)
    asked = texts(np.random.default_rng(99), queries * repeats + 5, 6)
    embed = Remembered(asked)

    def handler(*names: str) -> Searcher:
        return Searcher([shelf.tier(name) for name in names], embed, 60.0)

    handlers = {"federated": handler(*TIERS), **{name: handler(name) for name in TIERS}}
    await round_of(handlers, asked[:5])
    rounds = [
        await round_of(handlers, asked[5 + queries * number : 5 + queries * (number + 1)]) for number in range(repeats)
    ]
    await shelf.close()
    return {"items": items, "passages": passages, "queries": queries, "repeats": repeats, **report_of(rounds)}


def main() -> None:
    """Measure and print."""
    items, queries, repeats = (int(a) for a in (*sys.argv[1:], *("200", "30", "3")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as folder, registry() as url:
        print(json.dumps(asyncio.run(measure(Path(folder), url, items, queries, repeats)), indent=2))


if __name__ == "__main__":
    main()
