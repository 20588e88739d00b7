"""A local store of 1,000,000 passages: filling it, its Chroma index, searches, a write, memory and disk.

Run: ``python -m benchmarks.million_local [passages] [folder]``. Prints one JSON object, and progress on stderr. With a
folder the store is kept there and filled only once. Texts and vectors are generated and behave as natural ones do. Each
process that searches is a new one, so that it pays for opening the store. Times are of single searches, one at a time.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import TOPICS, clustered, texts
from benchmarks.memory import resident
from benchmarks.timing import named_percentiles, taken
from kiwi_rag.lexical import query_terms
from kiwi_rag.model import CollectionStatistics, EmbeddingRecord, Filters, ItemRef, ItemType, Passage, StoreQuery
from kiwi_rag.stores.local import LocalVectorStore
from tests.conformance.items import FINGERPRINT, admission

PASSAGES, PER_ITEM, WORDS, TOGETHER, QUERIES = 1_000_000, 50, 60, 20, 60
NO_WORDS = CollectionStatistics(0, 0, {})
SHARES = {"10%": Filters(category="tenth"), "1%": Filters(author="hundredth")}


def items(begin: int, count: int) -> list[list[EmbeddingRecord]]:
    """Return items of fifty passages, the n-th about the n-th topic."""
    rng = np.random.default_rng(begin + 1)
    written = texts(rng, count * PER_ITEM, WORDS)
    vectors = clustered(np.repeat(np.arange(begin, begin + count) % TOPICS, PER_ITEM), begin + 1)
    made = []
    for n in range(count):
        number, rows = begin + n, range(n * PER_ITEM, (n + 1) * PER_ITEM)
        metadata = {
            "category": "tenth" if number % 10 == 0 else "", "author": "hundredth" if number % 100 == 1 else "",
            "tags": [],
        }  # fmt: skip
        one = admission(f"acme/item-{number}", f"item {number}", metadata=metadata)
        passages = [Passage(i, written[row], "", (), 1, 1) for i, row in enumerate(rows)]
        made.append([EmbeddingRecord(one, p, vectors[row], FINGERPRINT) for p, row in zip(passages, rows, strict=True)])
    return made


async def fill(folder: Path, passages: int) -> dict[str, float]:
    """Store the passages, and build Chroma's index; return the seconds of both."""
    store, count = LocalVectorStore(folder, "benchmark"), passages // PER_ITEM
    begun = time.perf_counter()
    async with store.writing():
        for begin in range(0, count, TOGETHER):
            await store.put(items(begin, min(TOGETHER, count - begin)))
            if begin % 1_000 == 0:
                print(f"{begin * PER_ITEM} after {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
        stored = time.perf_counter() - begun
    whole = time.perf_counter() - begun
    await store.close()
    return {"fill_s": round(stored, 1), "chroma_s": round(whole - stored, 1), "fill_mb": resident()}


class Searches:
    """One open store, and queries of it."""

    def __init__(self, folder: Path) -> None:
        self.store = LocalVectorStore(folder, "benchmark")
        self.words = texts(np.random.default_rng(7), QUERIES, 8)
        self.vectors = clustered(np.arange(QUERIES) * 7 % TOPICS, 10**6)

    async def search(self, number: int, filters: Filters | None = None, *, lexical: bool = True) -> Any:
        """Search as a federation does: first the statistics, then the candidates."""
        text = self.words[number] if lexical else ""
        terms = query_terms(text)
        known = await self.store.statistics(terms) if lexical else NO_WORDS
        query = StoreQuery(self.vectors[number], tuple(terms), known, filters or Filters(), FINGERPRINT)
        return await self.store.search(query)

    async def measure(self) -> dict[str, Any]:
        """Search in every way, then write and search again."""
        found: dict[str, Any] = {"first_search_ms": round(await taken(self.search(0)))}
        found["plan"], found["mb_searched"] = (await self.search(1, lexical=False)).plan, resident()
        numbers = range(2, QUERIES)
        found |= named_percentiles("hybrid", [await taken(self.search(n)) for n in numbers])
        found |= named_percentiles("vectors", [await taken(self.search(n, lexical=False)) for n in numbers])
        for name, filters in SHARES.items():
            found |= named_percentiles(f"filtered_{name}", [await taken(self.search(n, filters)) for n in numbers])
        found["mb_filtered"] = resident()
        (one,) = items(10**7, 1)
        found["write_ms"] = round(await taken(self.store.put([one])))
        found["search_after_write_ms"] = round(await taken(self.search(0)))
        found["close_with_chroma_s"] = round(await taken(self.store.close()) / 1000, 1)
        self.store = LocalVectorStore(self.store.folder, "benchmark")
        await self.store.delete(ItemRef(ItemType.DIRECTIVE, one[0].admission.ref.item_id))
        await self.store.close()
        return found


def main() -> None:
    """Fill and print, or with the argument ``search`` measure the searches of a folder."""
    if sys.argv[1:2] == ["search"]:
        print(json.dumps(asyncio.run(Searches(Path(sys.argv[2])).measure())))
        return
    passages = int(sys.argv[1]) if len(sys.argv) > 1 else PASSAGES
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as temporary:
        folder = Path(sys.argv[2] if len(sys.argv) > 2 else temporary) / "vectors"
        found: dict[str, Any] = {"passages": passages, "load": round(os.getloadavg()[0], 2)}
        if not folder.exists():
            found |= asyncio.run(fill(folder, passages))
        command = [sys.executable, "-m", "benchmarks.million_local", "search", str(folder)]
        found |= json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        sizes = [(path.parent != folder, path.stat().st_size) for path in folder.rglob("*") if path.is_file()]
        for name, below in (("catalog", False), ("chroma", True)):
            found[f"{name}_mb"] = round(sum(size for is_below, size in sizes if is_below == below) / 1e6)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
