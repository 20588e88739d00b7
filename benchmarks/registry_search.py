"""The registry's vector search at 20,000 passages beside the same query by hand against the same tuned index.

Run: ``python -m benchmarks.registry_search [passages]``, a multiple of 10,000. Prints one JSON object; times in
milliseconds, recall@10 against numpy. Both ask over a Unix socket with the vector as text, in turn, three times over.
The data are those of `million_data`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import million_data
from benchmarks.million_measure import EXACT, FILTERS, FUNCTION, Registry
from benchmarks.timing import spread
from kiwi_rag.registry import server, tuning
from kiwi_rag.registry.migrate import migrate

QUERIES = 200
REPEATS = 3


def measure(url: str, passages: int) -> dict[str, Any]:
    """Load, tune, and measure."""
    migrate(url)
    with psycopg.connect(url, autocommit=True) as connection:
        million_data.prepare(connection)
        million_data.load(connection, 0, passages)
        tuned = asyncio.run(tuning.tune(url))
        registry, queries = Registry(connection, million_data.matrix(0, passages)), million_data.queries(QUERIES)
        beside = [registry.side_by_side(queries, tuned.effort or 1) for _ in range(REPEATS)]
        return {
            "passages": passages,
            "tuned": tuned.as_dict(),
            "numpy_scan": registry.numpy_scan(queries[:40]),
            "exact": registry.measure(EXACT, queries[:20]),
            "search_embeddings": {name: registry.measure(FUNCTION, queries, f) for name, f in FILTERS.items()},
            "beside_by_hand": beside,
            **{name: spread([one[name] for one in beside]) for name in ("ratio_p50", "ratio_p95")},
        }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        try:
            report = measure(server.start(Path(folder)), int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
        finally:
            server.stop(Path(folder))
    json.dump(report, sys.stdout, indent=1)
    sys.stdout.write("\n")
