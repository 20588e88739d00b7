"""Forecast when a volume is full: a straight line through its free bytes of the last days, asked from Prometheus."""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from typing import NamedTuple

__permissions__ = ["network"]

DAY = 86_400


class Forecast(NamedTuple):
    """Days until the volume is full, None if it does not fill up, and how well the line fits (R², 0 to 1)."""

    days: float | None
    fit: float


def forecast(points: Sequence[tuple[float, float]]) -> Forecast:
    """Return when the least-squares line through (second, free bytes) reaches zero, counted from the last point.

    Raises
    ------
    ValueError
        If there are fewer than three points.
    """
    if len(points) < 3:
        raise ValueError("a forecast needs at least three points: does the volume exist?")
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    total = sum((y - mean_y) ** 2 for _, y in points)
    rest = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    fit = 1 - rest / total if total else 1.0
    free = mean_y + slope * (points[-1][0] - mean_x)
    return Forecast(max(0.0, free / -slope / DAY) if slope < 0 else None, fit)


def query_url(server: str, volume: str, days: int, now: float) -> str:
    """Return the address of a range query for the free bytes of a volume, one point an hour.

    Raises
    ------
    ValueError
        If the name of the volume cannot stand in a query, or the server is none of the web.
    """
    if not server.startswith(("http://", "https://")):
        raise ValueError(f"{server!r} is not the address of a server")
    if not all(char.isalnum() or char in "-_./" for char in volume):
        raise ValueError(f"{volume!r} is not the name of a volume")
    query = f'node_filesystem_avail_bytes{{volume="{volume}"}}'
    asked = {"query": query, "start": now - days * DAY, "end": now, "step": 3600}
    return f"{server.rstrip('/')}/api/v1/query_range?{urllib.parse.urlencode(asked)}"


def main() -> int:
    """Print the forecast; exit with 1 if the volume is full within 30 days."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--volume", required=True)
    parser.add_argument("--days", type=int, default=28)
    given = parser.parse_args()
    url = query_url(given.server, given.volume, given.days, time.time())
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310  # the address begins with http
        series = json.load(answer)["data"]["result"]
    found = forecast([(float(at), float(free)) for at, free in series[0]["values"]] if series else [])
    text = "does not fill up" if found.days is None else f"is full in {found.days:.0f} days"
    sys.stdout.write(f"{given.volume} {text} (fit {found.fit:.2f})\n")
    return int(found.days is not None and found.days < 30)


if __name__ == "__main__":
    sys.exit(main())
