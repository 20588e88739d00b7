"""Load the yearly timetable from the planners' spreadsheet into svc-sailings."""

from __future__ import annotations

import csv
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

OSLO = ZoneInfo("Europe/Oslo")


def sailings(rows: Iterator[dict[str, str]], year: int) -> Iterator[dict[str, str]]:
    """Expand rows such as "mon-fri 06:30" into single sailings; public holidays sail as Sundays."""
    for row in rows:
        for day in days(row["days"], dt.date(year, 1, 1), dt.date(year, 12, 31)):
            hour, minute = map(int, row["departure"].split(":"))
            yield {
                "route": row["route"],
                "vesselCode": row["ship"],
                "departure": dt.datetime(day.year, day.month, day.day, hour, minute, tzinfo=OSLO).isoformat(),
                "berthCode": row["berth"],
            }


def days(pattern: str, first: dt.date, last: dt.date) -> Iterator[dt.date]:
    """Days between two dates that a pattern of weekdays covers, both ends included."""
    names = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
    low, _, high = pattern.partition("-")
    wanted = range(names.index(low), names.index(high or low) + 1)
    day = first
    while day <= last:
        if day.weekday() in wanted:
            yield day
        day += dt.timedelta(days=1)


def read(path: Path, year: int) -> list[dict[str, str]]:
    """Read the spreadsheet's export and return sailings in order of departure."""
    with path.open(newline="") as file:
        return sorted(sailings(csv.DictReader(file), year), key=lambda sailing: sailing["departure"])
