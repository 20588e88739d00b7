"""Compute error-budget burn rates and say whether a multiwindow alert should page, open a ticket or stay silent.

The windows and factors are those of the Site Reliability Workbook, chapter 5, for a 30-day objective: 14.4 over 1 h (2%
of the budget), 6 over 6 h (5%) and 1 over 3 d (10%), each confirmed by a short window of one twelfth.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__version__ = "2.1.0"
__category__ = "acme/slo"
__author__ = "reliability"
__tags__ = ["slo", "error-budget", "alerting", "burn-rate"]

PERIOD_MINUTES = 30 * 24 * 60


@dataclass(frozen=True)
class Minute:
    """Requests of one minute."""

    total: int
    errors: int


@dataclass(frozen=True)
class AlertRule:
    """Fires when both windows burn faster than ``factor``; windows in minutes."""

    name: str
    long_window: int
    short_window: int
    factor: float


ALERT_RULES = (
    AlertRule("page", 60, 5, 14.4),
    AlertRule("page", 360, 30, 6.0),
    AlertRule("ticket", 4320, 360, 1.0),
)


def error_budget(objective: float) -> float:
    """Return the allowed error ratio for an objective such as 0.999.

    Raises
    ------
    ValueError
        If the objective is not strictly between 0 and 1.
    """
    if not 0 < objective < 1:
        raise ValueError(f"objective {objective} is not strictly between 0 and 1; 99.9% is written 0.999")
    return 1 - objective


def error_ratio(minutes: Iterable[Minute]) -> float:
    """Return errors ÷ requests; 0.0 without requests."""
    rows = list(minutes)
    total = sum(m.total for m in rows)
    return sum(m.errors for m in rows) / total if total else 0.0


def burn_rate(minutes: Iterable[Minute], objective: float) -> float:
    """Return how many times faster than allowed the budget is spent; 1.0 spends it exactly in the period."""
    return error_ratio(minutes) / error_budget(objective)


def budget_left(minutes: Sequence[Minute], objective: float) -> float:
    """Return the share of the period's budget that is left; negative once it is overspent."""
    return 1 - burn_rate(minutes[-PERIOD_MINUTES:], objective)


def decide(minutes: Sequence[Minute], objective: float) -> str:
    """Return ``page``, ``ticket`` or ``none`` for a series that ends now.

    A window that is longer than the series is judged on what there is.
    """
    fired = (rule.name for rule in ALERT_RULES if _fires(rule, minutes, objective))
    return next(fired, "none")


def budget_minutes(objective: float) -> float:
    """Return the full-outage minutes that the budget of 30 days allows: 43.2 for 0.999."""
    return error_budget(objective) * PERIOD_MINUTES


def read_minutes(rows: Iterable[Mapping[str, str]]) -> list[Minute]:
    """Return minutes from CSV rows with the columns ``total`` and ``errors``, oldest first."""
    return [Minute(int(row["total"]), int(row["errors"])) for row in rows]


def _fires(rule: AlertRule, minutes: Sequence[Minute], objective: float) -> bool:
    windows = (rule.long_window, rule.short_window)
    return all(burn_rate(minutes[-size:], objective) > rule.factor for size in windows)


def main(argv: list[str] | None = None) -> int:
    """Read a CSV of minutes and write burn rates, budget left and the decision; return 1 for a page."""
    parser = argparse.ArgumentParser(description="Error-budget burn rate of one service.")
    parser.add_argument("csv", type=Path, help="columns total and errors, one row a minute, oldest first")
    parser.add_argument("--objective", type=float, required=True, help="for example 0.9995")
    options = parser.parse_args(argv)
    with options.csv.open(newline="", encoding="utf-8") as lines:
        minutes = read_minutes(csv.DictReader(lines))
    for hours in (1, 6, 72):
        sys.stdout.write(f"burn {hours:>2} h: {burn_rate(minutes[-hours * 60 :], options.objective):8.2f}\n")
    decision = decide(minutes, options.objective)
    sys.stdout.write(f"budget left: {budget_left(minutes, options.objective):.1%}\ndecision: {decision}\n")
    return int(decision == "page")


if __name__ == "__main__":
    raise SystemExit(main())
