"""Local search at 10,000 passages, warm and without embedding, beside raw Chroma queries of the same vectors.

Run: ``python -m benchmarks.local_search [passages] [queries] [rounds]``. Prints one JSON object; times in milliseconds.
Every query is asked in every way before the next, so that whatever else the machine does meets all of them alike; a
ratio is that of two medians of a round. Every query differs, so nothing is answered from what an earlier one left in
memory but the vectors and the postings of words that it shared.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import DIMENSION, raw_chroma, texts
from benchmarks.timing import percentiles, spread
from kiwi_rag.lexical import query_terms
from kiwi_rag.model import CollectionStatistics, EmbeddingRecord, Filters, Passage
from kiwi_rag.stores.local import LocalVectorStore
from tests.conformance.items import FINGERPRINT, admission, query, unit_vector

PER_ITEM = 10
WORDS_PER_PASSAGE = 120
NO_WORDS = CollectionStatistics(0, 0, {})
SEED = 10**6  # queries' vectors are drawn from here on, those of passages before


def metadata(number: int, items: int) -> dict[str, Any]:
    """Return what filters of a tenth, a hundredth and a ten-thousandth (at least one) of the items select."""
    return {
        "category": "rare" if number % 10 == 0 else "ops",
        "author": "one in a hundred" if number % 100 == 1 else "ada",
        "tags": ["single"] if number % max(10_000, items) == 2 else ["deploy"],
    }


def matching(passages: int) -> dict[str, Any]:
    """Return the passages that each filter selects."""
    count = passages // PER_ITEM
    made = [metadata(number, count) for number in range(count)]
    chosen = {
        "10%": [m["category"] == "rare" for m in made],
        "1%": [m["author"] != "ada" for m in made],
        "0.01%": ["single" in m["tags"] for m in made],
    }
    return {name: np.repeat(np.array(flags), PER_ITEM) for name, flags in chosen.items()}


async def fill(store: LocalVectorStore, passages: int) -> np.ndarray:
    """Store the passages, ten an item; return their vectors, one a row."""
    rng = np.random.default_rng(1)
    vectors = np.zeros((passages, DIMENSION), np.float32)
    async with store.writing():
        for number in range(count := passages // PER_ITEM):
            one = admission(f"acme/item-{number}", f"item {number}", metadata=metadata(number, count))
            batch = []
            for i, text in enumerate(texts(rng, PER_ITEM, WORDS_PER_PASSAGE)):
                vectors[number * PER_ITEM + i] = vector = unit_vector(number * PER_ITEM + i)
                batch.append(EmbeddingRecord(one, Passage(i, text, "", (), 1, 1), vector, FINGERPRINT))
            await store.put([batch])
    return vectors


SHARES = {"10%": Filters(category="rare"), "1%": Filters(author="one in a hundred"), "0.01%": Filters(tags=("single",))}


class Asked:
    """One store and one raw Chroma collection, and every way of asking them."""

    def __init__(self, store: LocalVectorStore, collection: Any, words: list[str]) -> None:
        self.store, self.collection, self.words = store, collection, words

    async def vectors(self, number: int, filters: Filters | None = None) -> Any:
        """Ask the store for the vectors leg alone, 100 deep as every search does."""
        return await self.store.search(query("", NO_WORDS, SEED + number, filters))

    async def hybrid(self, number: int) -> Any:
        """Ask as a federation asks: first the statistics, then the candidates."""
        text = self.words[number]
        own = await self.store.statistics(query_terms(text))
        return await self.store.search(query(text, own, SEED + number))

    async def chroma(self, number: int, results: int) -> Any:
        """Ask Chroma itself."""
        return self.collection.query(query_embeddings=[unit_vector(SEED + number).tolist()], n_results=results)

    def ways(self) -> dict[str, Callable[[int], Awaitable[Any]]]:
        """Return each way by its name."""
        filtered = {f"vector_only_{name}": partial(self.vectors, filters=f) for name, f in SHARES.items()}
        return {
            "vector_only": self.vectors,
            **filtered,
            "hybrid": self.hybrid,
            "raw_chroma_10": partial(self.chroma, results=10),
            "raw_chroma_100": partial(self.chroma, results=100),
        }

    async def round(self, numbers: range) -> dict[str, list[float]]:
        """Ask each query in every way; return the times of each way."""
        taken: dict[str, list[float]] = {name: [] for name in self.ways()}
        for number in numbers:
            for name, ask in self.ways().items():
                start = time.perf_counter()
                await ask(number)
                taken[name].append((time.perf_counter() - start) * 1000)
        return taken

    async def recall(self, numbers: range, vectors: np.ndarray, allowed: dict[str, Any]) -> list[float]:
        """Return recall@10 under each filter, over `numbers`, against a scan of everything; 1 where fewer match."""
        found = []
        for name, filters in SHARES.items():
            rows = allowed[name]
            for number in numbers:
                scores = vectors[rows] @ unit_vector(SEED + number)
                true = sorted(scores.tolist(), reverse=True)[:10]
                reply = await self.vectors(number, filters)
                mine = sorted((one.cosine for one in reply.items), reverse=True)[:10]
                hits = sum(any(abs(a - b) < 1e-5 for b in mine) for a in true)
                found.append(hits / len(true))
        return found


async def measure(folder: Path, passages: int, queries: int, rounds: int) -> dict[str, Any]:
    """Fill a store and time every way of asking it."""
    store = LocalVectorStore(folder, "benchmark")
    start = time.perf_counter()
    vectors = await fill(store, passages)
    filled = time.perf_counter() - start
    await store.close()  # what follows starts cold
    collection = raw_chroma(folder.parent / "chroma")
    for start_row in range(0, passages, 5_000):
        rows = slice(start_row, start_row + 5_000)
        collection.add(ids=[str(n) for n in range(passages)[rows]], embeddings=vectors[rows])
    words = texts(np.random.default_rng(2), queries * rounds + 1, 8)
    asked = Asked(store, collection, words)
    await asked.chroma(0, 100)
    start = time.perf_counter()
    await asked.hybrid(queries * rounds)
    opened = time.perf_counter() - start
    taken = [await asked.round(range(queries * n, queries * (n + 1))) for n in range(rounds)]
    recalls = await asked.recall(range(20), vectors, matching(passages))
    await store.close()
    return {
        "passages": passages,
        "fill_seconds": round(filled, 1),
        "open_and_first_hybrid_ms": round(opened * 1000, 1),
        "ms": {name: percentiles([t for one in taken for t in one[name]]) for name in taken[0]},
        "ratios": {**ratios(taken), "filtered_recall": spread([min(recalls)])},
    }


def ratios(taken: list[dict[str, list[float]]]) -> dict[str, Any]:
    """Return the ratios of two ways' medians, round by round."""
    pairs = {
        "to_chroma_10": ("vector_only", "raw_chroma_10"),
        "to_chroma_100": ("vector_only", "raw_chroma_100"),
        "filtered": ("vector_only_10%", "vector_only"),
        "filtered_1%": ("vector_only_1%", "vector_only"),
        "filtered_0.01%": ("vector_only_0.01%", "vector_only"),
        "hybrid": ("hybrid", "vector_only"),
    }
    return {
        name: spread([statistics.median(one[above]) / statistics.median(one[below]) for one in taken])
        for name, (above, below) in pairs.items()
    }


def main() -> None:
    """Measure and print."""
    passages, queries, rounds = (int(a) for a in (*sys.argv[1:], *("10000", "60", "5")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(measure(Path(folder) / "vectors", passages, queries, rounds)), indent=2))


if __name__ == "__main__":
    main()
