"""Rank tests that passed and failed on the same commit, from test results as JSON lines.

Each line holds ``test``, ``commit``, ``outcome`` (passed, failed or skipped) and ``at`` (ISO time). A test is
flaky when at least three commits saw both outcomes; one that never passed again after a commit is broken, and is
not listed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

__version__ = "1.1.1"
__category__ = "acme/code"
__author__ = "developer-experience"
__tags__ = ["testing", "flaky-tests", "ci"]
__permissions__ = ["write"]

MIN_MIXED_COMMITS = 3


class Result(NamedTuple):
    """Outcome of one run of one test."""

    test: str
    commit: str
    outcome: str


@dataclass(frozen=True)
class Flake:
    """A flaky test: on how many commits it was both green and red, and its failures among all runs."""

    test: str
    mixed_commits: int
    failures: int
    runs: int

    @property
    def failure_rate(self) -> float:
        """Failures ÷ runs."""
        return self.failures / self.runs


def read_results(lines: Iterable[str]) -> list[Result]:
    """Read JSON lines; empty lines and skipped tests are left out."""
    rows = (json.loads(line) for line in lines if line.strip())
    return [Result(r["test"], r["commit"], r["outcome"]) for r in rows if r["outcome"] != "skipped"]


def find_flakes(results: Iterable[Result], min_mixed: int = MIN_MIXED_COMMITS) -> list[Flake]:
    """Return flaky tests, most mixed commits first, then by failure rate, then by name."""
    by_test: defaultdict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_test[result.test].append(result)
    flakes = [_flake(test, rows) for test, rows in by_test.items()]
    return sorted((f for f in flakes if f.mixed_commits >= min_mixed), key=_rank)


def render(flakes: Iterable[Flake]) -> str:
    """Return a Markdown table."""
    rows = [f"| {f.test} | {f.mixed_commits} | {f.failures}/{f.runs} | {f.failure_rate:.1%} |" for f in flakes]
    return "\n".join(["| test | mixed commits | failures | rate |", "| --- | --- | --- | --- |", *rows]) + "\n"


def _flake(test: str, rows: list[Result]) -> Flake:
    outcomes: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        outcomes[row.commit].add(row.outcome)
    mixed = sum({"passed", "failed"} <= seen for seen in outcomes.values())
    return Flake(test, mixed, sum(row.outcome == "failed" for row in rows), len(rows))


def _rank(flake: Flake) -> tuple[int, float, str]:
    return -flake.mixed_commits, -flake.failure_rate, flake.test


def main(argv: list[str] | None = None) -> int:
    """Write the table to standard output or to a file."""
    parser = argparse.ArgumentParser(description="Rank flaky tests.")
    parser.add_argument("results", type=Path, help="JSON lines")
    parser.add_argument("--output", type=Path, help="write the table here instead")
    options = parser.parse_args(argv)
    table = render(find_flakes(read_results(options.results.read_text("utf-8").splitlines())))
    if options.output:
        options.output.write_text(table, "utf-8")
    else:
        sys.stdout.write(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
