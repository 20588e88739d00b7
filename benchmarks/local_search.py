"""Local search at 10,000 passages, warm and without embedding, beside a raw Chroma query in the same run.

Run: ``python benchmarks/local_search.py [passages] [queries]``. Prints one JSON object; times in milliseconds.
Every query differs, so nothing is answered from what an earlier one left in memory but the vectors themselves.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kiwi_rag.lexical import query_terms
from kiwi_rag.model import EmbeddingRecord, Filters, Passage
from kiwi_rag.stores.local import LocalVectorStore
from tests.conformance.items import FINGERPRINT, admission, query, unit_vector

PER_ITEM = 10
WORDS_PER_PASSAGE = 120
VOCABULARY = 20_000
_WORDS = ["".join(letters) for letters in itertools.islice(itertools.product("bdfklmnprt", repeat=5), VOCABULARY)]


def texts(rng: np.random.Generator, count: int, words: int) -> list[str]:
    """Texts whose words follow Zipf's law, as natural ones do."""
    numbers = rng.zipf(1.2, (count, words)) % VOCABULARY
    return [" ".join(_WORDS[n] for n in row) for row in numbers]


async def fill(store: LocalVectorStore, passages: int) -> None:
    """Store the passages, ten an item; every tenth item is of category ``rare``."""
    rng = np.random.default_rng(1)
    async with store.writing():
        for number in range(passages // PER_ITEM):
            category = "rare" if number % 10 == 0 else "ops"
            one = admission(f"acme/item-{number}", f"item {number}", metadata={"category": category})
            batch = [
                EmbeddingRecord(one, Passage(i, text, "", (), 1, 1), unit_vector(number * PER_ITEM + i), FINGERPRINT)
                for i, text in enumerate(texts(rng, PER_ITEM, WORDS_PER_PASSAGE))
            ]
            await store.upsert(batch)


async def timed(run: Callable[[int], Awaitable[Any]], count: int) -> dict[str, float]:
    """p50 and p95 of `count` calls, in ms."""
    taken = []
    for number in range(count):
        start = time.perf_counter()
        await run(number)
        taken.append((time.perf_counter() - start) * 1000)
    return {"p50": round(statistics.median(taken), 2), "p95": round(statistics.quantiles(taken, n=20)[18], 2)}


async def measure(folder: Path, passages: int, queries: int) -> dict[str, Any]:
    """Fill a store and time every way of asking it."""
    store = LocalVectorStore(folder, "benchmark")
    start = time.perf_counter()
    await fill(store, passages)
    report: dict[str, Any] = {"passages": passages, "fill_seconds": round(time.perf_counter() - start, 1)}
    asked = texts(np.random.default_rng(2), queries + 1, 8)
    held = [await store.statistics([])] * len(asked)
    await store.close()  # what follows starts cold

    rare = Filters(category="rare")

    async def vectors(number: int, filters: Filters | None = None) -> None:
        await store.search(query("", held[number], 10**6 + number, filters))

    async def hybrid(number: int, filters: Filters | None = None) -> None:
        # As a federation asks: first the statistics, then the candidates.
        own = await store.statistics(query_terms(asked[number]))
        await store.search(query(asked[number], own, 10**6 + number, filters))

    start = time.perf_counter()
    await hybrid(queries)
    report["open_and_first_hybrid_ms"] = round((time.perf_counter() - start) * 1000, 1)
    report["hybrid_new_words"] = await timed(hybrid, queries)
    report["hybrid_known_words"] = await timed(hybrid, queries)
    report["hybrid_10_percent"] = await timed(lambda n: hybrid(n, rare), queries)
    report["vector_only"] = await timed(vectors, queries)
    report["vector_only_10_percent"] = await timed(lambda n: vectors(n, rare), queries)
    await store.close()
    report["raw_chroma_100"], report["raw_chroma_10"] = await raw_chroma(folder / "chroma", queries)
    return report


async def raw_chroma(folder: Path, queries: int) -> tuple[dict[str, float], dict[str, float]]:
    """`collection.query` on the very index the store keeps, for 100 and for 10 results."""
    import chromadb
    from chromadb.config import Settings

    client = chromadb.PersistentClient(path=str(folder), settings=Settings(anonymized_telemetry=False))
    collection = client.get_collection("items", embedding_function=None)

    async def ask(number: int, results: int) -> None:
        collection.query(query_embeddings=[unit_vector(10**6 + number).tolist()], n_results=results)

    await ask(0, 100)
    return await timed(lambda n: ask(n, 100), queries), await timed(lambda n: ask(n, 10), queries)


def main() -> None:
    """Measure and print."""
    passages = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    queries = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(measure(Path(folder) / "vectors", passages, queries)), indent=2))


if __name__ == "__main__":
    main()
