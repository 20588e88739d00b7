"""Where the local tier's exact search stops paying: a matrix product beside Chroma's index, at growing sizes.

Run: ``python -m benchmarks.local_plan [passages …]``. Prints one JSON object; times in milliseconds. Both are asked in
turns for the 100 nearest of the same vectors, which lie in clusters as those of real texts do. ``cold`` is what a new
process pays before its first answer: reading every vector from the catalog's table, or opening Chroma's folder.
``recall_at_10`` is Chroma's, its 100 nearest ranked anew by their exact products.
"""

from __future__ import annotations

import json
import sqlite3
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import DIMENSION, raw_chroma
from benchmarks.data import clustered as around
from benchmarks.timing import percentiles, timed
from kiwi_rag.stores.local.search import best, products

SIZES = (10_000, 25_000, 50_000, 100_000)
QUERIES = 100
DEPTH = 100
SHARES = (0.1, 0.01, 0.0001)


def clustered(count: int, seed: int) -> np.ndarray:
    """Return unit vectors around 400 centres, every dimension alike, shape ``(count, 384)``."""
    topics = np.random.default_rng(seed).integers(0, 400, count)
    return around(topics, seed + 1, centres=400, noise=1.0, spectrum=np.float32(1))


def spent(action: Callable[[], Any]) -> tuple[float, Any]:
    """Return the milliseconds that `action` took, and what it returned."""
    seconds, found = timed(action)
    return seconds * 1000, found


def read_matrix(path: Path) -> Any:
    """Return all vectors of the table, as the store reads them."""
    connection = sqlite3.connect(path)
    blobs = connection.execute("SELECT vector FROM vectors ORDER BY passage_key")
    matrix = np.frombuffer(b"".join(row[0] for row in blobs), dtype="<f4").reshape(-1, DIMENSION)
    connection.close()
    return matrix


def grow(folder: Path, start: int, end: int) -> float:
    """Add the vectors of rows `start` to `end` to both; return the seconds that Chroma took."""
    vectors = clustered(end - start, seed=start + 1)
    connection = sqlite3.connect(folder / "vectors.sqlite")
    connection.execute("CREATE TABLE IF NOT EXISTS vectors (passage_key INTEGER PRIMARY KEY, vector BLOB NOT NULL)")
    rows = ((start + n, row.tobytes()) for n, row in enumerate(vectors))
    connection.executemany("INSERT INTO vectors VALUES (?, ?)", rows)
    connection.commit()
    connection.close()
    index = raw_chroma(folder / "chroma")
    parts = [slice(at, at + 5_000) for at in range(0, len(vectors), 5_000)]
    keys = [str(start + n) for n in range(len(vectors))]
    return sum(timed(lambda p=part: index.upsert(ids=keys[p], embeddings=vectors[p]))[0] for part in parts)


def compare(folder: Path, size: int) -> dict[str, Any]:
    """Ask both in turns."""
    load, matrix = spent(lambda: read_matrix(folder / "vectors.sqlite"))
    index = raw_chroma(folder / "chroma")
    asked = clustered(QUERIES + 1, seed=10**9)
    opened, _ = spent(
        lambda: index.query(query_embeddings=[asked[-1].tolist()], n_results=DEPTH, include=["distances"])
    )
    exact, chroma, found = [], [], []
    filtered: dict[float, list[float]] = {share: [] for share in SHARES}
    rows = {share: np.flatnonzero(np.random.default_rng(1).random(size) < share) for share in SHARES}
    for vector in asked[:QUERIES]:
        taken, near = spent(lambda: best(products(matrix, vector), DEPTH))  # noqa: B023 - called at once
        exact.append(taken)
        taken, answer = spent(
            lambda: index.query(query_embeddings=[vector.tolist()], n_results=DEPTH, include=["distances"])  # noqa: B023
        )
        chroma.append(taken)
        keys = np.array([int(key) for key in answer["ids"][0]])
        true = near[np.argsort(-(matrix[near] @ vector))][:10]
        mine = keys[np.argsort(-(matrix[keys] @ vector))][:10]
        found.append(len(set(true.tolist()) & set(mine.tolist())) / len(true))
        for share, allowed in rows.items():
            filtered[share].append(spent(lambda: best(products(matrix[allowed], vector), DEPTH))[0])  # noqa: B023
    return {
        "exact": percentiles(exact),
        "chroma": percentiles(chroma),
        "chroma_recall_at_10": round(statistics.mean(found), 4),
        "cold": {"exact_load": round(load, 1), "chroma_open": round(opened, 1)},
        "exact_filtered": {f"{share:.2%}": percentiles(times) for share, times in filtered.items()},
    }


def main() -> None:
    """Measure and print."""
    sizes = [int(argument) for argument in sys.argv[1:]] or list(SIZES)
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="kiwi-bench-") as folder:
        held = 0
        for size in sizes:
            built = grow(Path(folder), held, size)
            held = size
            report[str(size)] = {**compare(Path(folder), size), "chroma_added_in_seconds": round(built, 1)}
            print(size, report[str(size)], file=sys.stderr, flush=True)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
