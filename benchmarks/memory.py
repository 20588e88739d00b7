"""A conversation memory of 100,000 exchanges: a search, a context, adding one, forgetting, and the process's memory.

Run: ``python -m benchmarks.memory [exchanges]``. Prints one JSON object. Texts and vectors are generated and behave as
natural ones do; of ``add``, ``encode_p50_ms`` is what the default model takes for the same two messages.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from benchmarks.data import TOPICS, clustered, texts
from benchmarks.timing import named_percentiles, taken
from kiwi_rag.embedding import EmbeddingProvider, Fingerprint
from kiwi_rag.model import Exchange, Vector
from kiwi_rag.services import Services
from kiwi_rag.services.memory import Memory
from kiwi_rag.sources.memory.exchanges import Selection
from kiwi_rag.usecases.memory import MemoryQuery, get_context, search_memory

EXCHANGES, QUERIES, ADDED = 100_000, 200, 100
_TOGETHER, _VECTORS = 20_000, 20_000
_START = datetime(2025, 1, 1, tzinfo=UTC)


class Generated(EmbeddingProvider):
    """Vectors without a model: a text has one of many that were made before."""

    batch_size = 256

    def __init__(self) -> None:
        self._vectors = clustered(np.arange(_VECTORS) % TOPICS, 1)

    @property
    def fingerprint(self) -> Fingerprint:
        """Its own."""
        return Fingerprint("generated", "0" * 64, 384, "none", 256)

    def encode(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return a vector a text."""
        return [self._vectors[crc32(text.encode()) % _VECTORS] for text in texts]


def exchanges(begin: int, count: int, session: str = "") -> list[Exchange]:
    """Return exchanges of 20 and 60 words, fifty in a session."""
    rng = np.random.default_rng(begin)
    said = zip(texts(rng, count, 20), texts(rng, count, 60), strict=True)
    return [
        Exchange(f"e{n}", session or f"s{n // 50}", *both, _START + timedelta(minutes=n))
        for n, both in enumerate(said, start=begin)
    ]


def resident() -> float:
    """Return the memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * 4096 / 1e6)


async def measure(folder: Path, count: int) -> dict[str, Any]:
    """Fill a memory, and use it."""
    app = Services.open({"HOME": str(folder), "KIWI_HOME": str(folder / "home")}, folder)
    questions = texts(np.random.default_rng(7), QUERIES, 8)
    found: dict[str, Any] = {"exchanges": count}
    async with app, Memory(app, embed=Generated()) as memory:
        started = time.perf_counter()
        for begin in range(0, count, _TOGETHER):
            await memory.add_all(exchanges(begin, min(_TOGETHER, count - begin)))
        found["stored_a_second"] = round(count / (time.perf_counter() - started))

        def searches() -> list[Awaitable[Any]]:
            return [search_memory(memory, MemoryQuery(one), app.settings) for one in questions]

        first = search_memory(memory, MemoryQuery(questions[0]), app.settings)
        found["first_search_ms"] = round(await taken(first))
        found["mb_before"] = resident()
        found |= named_percentiles("search", [await taken(one) for one in searches()])
        contexts = [get_context(memory, MemoryQuery(one), app.settings) for one in questions]
        found |= named_percentiles("context", [await taken(one) for one in contexts])
        adds, after = [], []
        for one, question in zip(exchanges(count, ADDED, "now"), questions, strict=False):
            adds.append(await taken(memory.add(one)))
            after.append(await taken(search_memory(memory, MemoryQuery(question), app.settings)))
        found |= named_percentiles("add", adds) | named_percentiles("search_after_add", after)
        found["mb_after"] = resident()
        found["forget_s"] = round(await taken(memory.forget(Selection(ids=(f"e{count}",)))) / 1000, 1)
    return found


async def encoding() -> dict[str, float]:
    """Return what the default model takes for the two messages of an exchange."""
    app = Services.open({"HOME": str(Path.home())}, Path.cwd())
    async with app:
        embed = app.embed.uncached
        await embed.documents(["warm"])
        pairs = [[one.user_message, one.assistant_message] for one in exchanges(0, ADDED)]
        return named_percentiles("encode", [await taken(embed.documents(pair)) for pair in pairs])


def main() -> None:
    """Print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else EXCHANGES
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as folder:
        found = asyncio.run(measure(Path(folder), count))
        sizes = (path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        found["disk_mb"] = round(sum(sizes) / 1e6)
    print(json.dumps(found | asyncio.run(encoding())))


if __name__ == "__main__":
    main()
