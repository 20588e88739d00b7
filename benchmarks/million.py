"""`make bench-1m`: the registry's search from ten thousand to a million passages → MILLION.md and million.json here.

Run: ``python -m benchmarks.million [passages]``; meant to stay under 40 minutes for 1,000,000 on two quiet cores and
24 GB (MILLION.md says how long the last run took, and beside what load). Results are written after every stage. Times
are of single calls over a Unix socket, one at a time, in milliseconds; recall@10 is against numpy's exact scan; queries
are drawn as the stored vectors are, and are none of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import million_data
from benchmarks.million_measure import EXACT, FILTERS, FUNCTION, LEG, Registry
from benchmarks.million_report import write
from benchmarks.million_words import words
from kiwi_rag.registry import server, tuning
from kiwi_rag.registry.migrate import migrate

QUERIES = 300
SOME = 30  # where the cell is slow and only its p50 is looked at
FEW = 12


class Run:
    """One run: a registry that grows by stages, and what was measured so far."""

    def __init__(self, url: str, connection: psycopg.Connection[Any]) -> None:
        self.url = url
        self.connection = connection
        self.queries = million_data.queries(QUERIES)
        self.begun = time.perf_counter()
        self.results: dict[str, Any] = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
            "load_before": round(os.getloadavg()[0], 2),
            "seconds": {},
            "stages": {},
        }

    def timed(self, name: str, work: Callable[[], Any]) -> Any:
        """Do a piece of work, and note how long it took."""
        begun = time.perf_counter()
        done = work()
        self.results["seconds"][name] = round(time.perf_counter() - begun, 1)
        self.results["minutes"] = round((time.perf_counter() - self.begun) / 60, 1)
        print(f"{self.results['minutes']:5.1f} min  {name}", file=sys.stderr, flush=True)
        write(self.results)
        return done

    def tune(self, method: tuning.IndexMethod) -> tuning.Tuning:
        """Build an index by `method`."""
        return asyncio.run(tuning.tune(self.url, method=method))

    def baselines(self, passages: int) -> dict[str, Any]:
        """Numpy's scan, and the registry's own exact one, without an index in its way."""
        registry = self.registry(passages)
        return {
            "load": round(os.getloadavg()[0], 2),
            "numpy_scan": registry.numpy_scan(self.queries[:SOME]),
            "exact": {
                name: registry.measure(EXACT, self.queries[:FEW], chosen)
                for name, chosen in FILTERS.items()
                if passages < 500_000 or name in {"all", "1%"}
            },
        }

    def by_index(self, passages: int, tuned: tuning.Tuning) -> dict[str, Any]:
        """What an index gives: the public function, the leg of a hybrid search, and the statement by hand."""
        registry = self.registry(passages)
        return {
            "tuned": tuned.as_dict(),
            "search_embeddings": {
                name: registry.measure(FUNCTION, self.queries if name == "all" else self.queries[:SOME], chosen)
                for name, chosen in FILTERS.items()
            },
            "leg_of_100": {name: registry.measure(LEG, self.queries[:SOME], f) for name, f in FILTERS.items()},
            "beside_by_hand": registry.side_by_side(self.queries, tuned.effort or 1),
        }

    def registry(self, passages: int) -> Registry:
        """The registry as it is now; the matrix is made again only when it has grown."""
        if getattr(self, "_size", 0) != passages:
            self._matrix, self._size = million_data.matrix(0, passages), passages
        return Registry(self.connection, self._matrix)


def run(url: str, total: int) -> None:
    """Grow to `total` in three stages, each ten times the one before, and measure at each."""
    migrate(url)
    with psycopg.connect(url, autocommit=True) as connection:
        this = Run(url, connection)
        this.timed("prepare", lambda: million_data.prepare(connection))
        _stage(this, 0, total // 100, ("ivfflat",))
        tuned = _stage(this, total // 100, total // 10, ("hnsw", "ivfflat"))
        _grown(this, total // 10, total, tuned)


def _stage(this: Run, loaded: int, passages: int, methods: Sequence[tuning.IndexMethod]) -> tuning.Tuning | None:
    """Load, and measure without an index and with each; return what the last one, which stays, was tuned to."""
    tuned = None
    stage = this.results["stages"].setdefault(str(passages), {})
    this.timed(f"load to {passages}", lambda: million_data.load(this.connection, loaded, passages))
    stage.update(this.timed(f"baselines at {passages}", lambda: this.baselines(passages)))
    for method in methods:
        tuned = this.timed(f"build {method} at {passages}", lambda m=method: this.tune(m))
        stage[method] = this.timed(f"measure {method} at {passages}", lambda t=tuned: this.by_index(passages, t))
    stage["disk"] = this.registry(passages).sizes()
    return tuned


def _grown(this: Run, loaded: int, total: int, before: tuning.Tuning | None) -> None:
    """Tenfold, with the index in place; then tuned again; then the words."""
    stage = this.results["stages"].setdefault(str(total), {})
    grow = f"grow to {total}, into the index of {loaded}"
    this.timed(grow, lambda: million_data.load(this.connection, loaded, total))
    stage.update(this.timed(f"baselines at {total}", lambda: this.baselines(total)))
    if before:
        measured = this.timed("measure before re-tuning", lambda: this.by_index(total, before))
        stage["ivfflat, tuned at a tenth"] = measured
    tuned = this.timed(f"build ivfflat at {total}", lambda: this.tune("ivfflat"))
    stage["ivfflat"] = this.timed(f"measure ivfflat at {total}", lambda: this.by_index(total, tuned))
    this.timed("postings", lambda: million_data.load_postings(this.connection))
    stage["words"] = this.timed("measure words", lambda: words(this.connection, this.queries))
    stage["disk"] = this.registry(total).sizes()
    write(this.results)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        try:
            run(server.start(Path(folder)), int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
        finally:
            server.stop(Path(folder))
    print(json.dumps({"written": "benchmarks/MILLION.md"}))
