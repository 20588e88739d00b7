"""Say from k6's CSV whether a load test held: rate, error ratio and latency percentiles, whole and in its last part.

Reads ``metric_name``, ``timestamp``, ``metric_value`` and ``status`` of a file of ``k6 run --out csv=…``. Exits with 1
if the objective was missed.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__permissions__ = ["read"]

LAST_SECONDS = 600


@dataclass(frozen=True)
class Request:
    """One answered request."""

    at: int
    milliseconds: float
    failed: bool


@dataclass(frozen=True)
class Result:
    """What a part of the test shows."""

    rate: float
    error_ratio: float
    p50: float
    p95: float
    p99: float


def read(rows: Iterable[Mapping[str, str]]) -> list[Request]:
    """Return the requests in a CSV of k6; other metrics are left out."""
    return [
        Request(int(row["timestamp"]), float(row["metric_value"]), not row["status"].startswith(("2", "3")))
        for row in rows
        if row["metric_name"] == "http_req_duration"
    ]


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def summarise(requests: Sequence[Request]) -> Result:
    """Return the figures of some requests.

    Raises
    ------
    ValueError
        If there are none.
    """
    if not requests:
        raise ValueError("the file has no http_req_duration: was it written with --out csv?")
    seconds = max(r.at for r in requests) - min(r.at for r in requests) + 1
    times = sorted(r.milliseconds for r in requests)
    p50, p95, p99 = (percentile(times, share) for share in (0.5, 0.95, 0.99))
    return Result(len(requests) / seconds, sum(r.failed for r in requests) / len(requests), p50, p95, p99)


def holds(result: Result, objective_ms: float, minimum_rate: float) -> bool:
    """Return whether the rate was reached with p99 within the objective and under one error in a thousand."""
    return result.rate >= minimum_rate and result.p99 <= objective_ms and result.error_ratio < 0.001


def main() -> int:
    """Print the figures of the whole test and of its last ten minutes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--objective-ms", type=float, required=True)
    parser.add_argument("--minimum-rate", type=float, required=True)
    given = parser.parse_args()
    with given.file.open(newline="") as file:
        requests = read(csv.DictReader(file))
    end = max((r.at for r in requests), default=0)
    parts = {"whole test": requests, "last 10 min": [r for r in requests if r.at > end - LAST_SECONDS]}
    results = {name: summarise(part) for name, part in parts.items()}
    for name, r in results.items():
        times = f"p50 {r.p50:.0f}  p95 {r.p95:.0f}  p99 {r.p99:.0f} ms"
        sys.stdout.write(f"{name:12} {r.rate:7.1f}/s  errors {r.error_ratio:.3%}  {times}\n")
    held = all(holds(result, given.objective_ms, given.minimum_rate) for result in results.values())
    sys.stdout.write("held\n" if held else "did not hold\n")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
