"""Match a day's captures with the settlement file of the acquirer and name the differences."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Movement:
    """Money in or out, in minor units; reversals are negative."""

    reference: str
    amount: int


def read(path: Path) -> Counter[Movement]:
    """Read movements with their count, because the same amount may be captured twice for good reasons."""
    with path.open(newline="") as file:
        return Counter(Movement(row["reference"], int(row["amount"])) for row in csv.DictReader(file))


def differences(ours: Counter[Movement], theirs: Counter[Movement]) -> list[str]:
    """Sentences for the finance department: missing with the bank, and unknown to us."""
    missing = [f"{m.reference}: {m.amount / 100:.2f} kr captured but not settled" for m in (ours - theirs).elements()]
    unknown = [f"{m.reference}: {m.amount / 100:.2f} kr settled but unknown to us" for m in (theirs - ours).elements()]
    return missing + unknown
