"""List feature flags that outlived their purpose, from a JSON export of Unleash.

Release and experiment flags live for 60 days at most; kill switches (kind ``ops``) have no end but must have been tried
within 183 days. Output is sorted by how long a flag is overdue, and counted by team.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TypedDict

__version__ = "1.0.2"
__category__ = "acme/release"
__author__ = "developer-experience"
__tags__ = ["feature-flags", "unleash", "cleanup"]

MAX_AGE_DAYS = 60
MAX_UNTRIED_DAYS = 183
TEAM_LIMIT = 10


class Flag(TypedDict):
    """A flag as the export has it; dates are ISO days, ``last_tried`` is empty if never."""

    name: str
    kind: str
    team: str
    created: str
    last_tried: str


@dataclass(frozen=True)
class Overdue:
    """A flag and by how many days it is late."""

    name: str
    team: str
    days: int


def days_overdue(flag: Flag, today: date) -> int:
    """Return by how many days the flag is late; zero or less when it is in time."""
    if flag["kind"] == "ops":
        since = flag["last_tried"] or flag["created"]
        return (today - date.fromisoformat(since)).days - MAX_UNTRIED_DAYS
    return (today - date.fromisoformat(flag["created"])).days - MAX_AGE_DAYS


def overdue(flags: Iterable[Flag], today: date) -> list[Overdue]:
    """Return late flags, latest first, ties by name."""
    late = [Overdue(f["name"], f["team"], days) for f in flags if (days := days_overdue(f, today)) > 0]
    return sorted(late, key=lambda o: (-o.days, o.name))


def teams_over_limit(late: Iterable[Overdue], limit: int = TEAM_LIMIT) -> list[str]:
    """Return the teams with more than `limit` late flags: they make no new ones until it is fewer."""
    counts = Counter(o.team for o in late)
    return sorted(team for team, count in counts.items() if count > limit)


def main(argv: list[str] | None = None) -> int:
    """Write the list; return 1 if a team is over its limit."""
    parser = argparse.ArgumentParser(description="List feature flags that should be gone.")
    parser.add_argument("export", type=Path, help="JSON list of flags")
    parser.add_argument("--today", type=date.fromisoformat, default=date.today())
    options = parser.parse_args(argv)
    late = overdue(json.loads(options.export.read_text("utf-8")), options.today)
    sys.stdout.writelines(f"{o.days:>5} d  {o.team:<14} {o.name}\n" for o in late)
    blocked = teams_over_limit(late)
    sys.stdout.writelines(f"over limit: {team}\n" for team in blocked)
    return int(bool(blocked))


if __name__ == "__main__":
    raise SystemExit(main())
