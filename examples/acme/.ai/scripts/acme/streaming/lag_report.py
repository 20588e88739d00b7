"""Summarise Kafka consumer lag from saved output of kafka-consumer-groups.sh --describe.

With one file it shows total lag, the worst partition and how uneven the lag is; with two files taken some time apart it
also gives the rate of change and the time left until the group has caught up.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

__version__ = "1.1.0"
__category__ = "acme/streaming"
__author__ = "platform-data"
__tags__ = ["kafka", "consumer-lag", "streaming"]

HEADER = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
SKEW_OF_A_STUCK_PARTITION = 0.8


@dataclass(frozen=True, order=True)
class Partition:
    """A topic's partition as one consumer group reads it."""

    topic: str
    number: int


@dataclass(frozen=True)
class LagSummary:
    """Lag in messages; ``skew`` is the worst partition's share of it, 0 when there is none."""

    total: int
    partitions: int
    worst: str
    skew: float
    unassigned: int

    @property
    def looks_stuck(self) -> bool:
        """Whether one partition holds nearly everything: more likely a poison message than slowness."""
        return self.partitions > 1 and self.skew >= SKEW_OF_A_STUCK_PARTITION


@dataclass(frozen=True)
class LagTrend:
    """Change between two measurements; ``drain_seconds`` is None unless lag falls."""

    per_second: float
    drain_seconds: float | None


def parse(text: str) -> dict[Partition, int | None]:
    """Return lag by partition; None where the group has committed nothing (``-``).

    Raises
    ------
    ValueError
        If no header line with the columns of ``--describe`` is found.
    """
    rows = [line.split() for line in text.splitlines() if line.strip()]
    header = next((row for row in rows if row[: len(HEADER)] == list(HEADER)), None)
    if header is None:
        raise ValueError("no header line of kafka-consumer-groups.sh --describe found")
    data = [row for row in rows if len(row) >= len(HEADER) and row[2].isdigit()]
    return {Partition(row[1], int(row[2])): None if row[5] == "-" else int(row[5]) for row in data}


def summarise(lags: Mapping[Partition, int | None]) -> LagSummary:
    """Return totals; partitions without a committed offset count as unassigned, not as zero lag."""
    known = {partition: lag for partition, lag in lags.items() if lag is not None}
    total = sum(known.values())
    worst = max(known, key=lambda p: known[p], default=None)
    name = f"{worst.topic}[{worst.number}]" if worst else ""
    skew = known[worst] / total if worst and total else 0.0
    return LagSummary(total, len(lags), name, round(skew, 3), len(lags) - len(known))


def trend(before: int, after: int, seconds: float) -> LagTrend:
    """Return the rate of change of total lag and, if it falls, the seconds until it is zero.

    Raises
    ------
    ValueError
        If `seconds` is not positive.
    """
    if seconds <= 0:
        raise ValueError("the second measurement must be later than the first")
    rate = (after - before) / seconds
    return LagTrend(rate, after / -rate if rate < 0 else None)


def main(argv: list[str] | None = None) -> int:
    """Write the report as JSON; return 1 if lag is above the ceiling."""
    parser = argparse.ArgumentParser(description="Summarise Kafka consumer lag.")
    parser.add_argument("latest", type=Path, help="output of kafka-consumer-groups.sh --describe")
    parser.add_argument("--earlier", type=Path, help="the same, taken before")
    parser.add_argument("--seconds", type=float, default=300.0, help="time between the two")
    parser.add_argument("--ceiling", type=int, default=5_000, help="highest normal total lag")
    options = parser.parse_args(argv)
    summary = summarise(parse(options.latest.read_text("utf-8")))
    report: dict[str, object] = {**asdict(summary), "looks_stuck": summary.looks_stuck}
    if options.earlier:
        earlier = summarise(parse(options.earlier.read_text("utf-8")))
        report |= asdict(trend(earlier.total, summary.total, options.seconds))
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return int(summary.total > options.ceiling)


if __name__ == "__main__":
    raise SystemExit(main())
