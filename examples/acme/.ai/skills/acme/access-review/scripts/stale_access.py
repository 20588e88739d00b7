"""List the accounts that an access review asks about, with the reason, from exports of accounts and of people.

The rules are those of references/rules.md. Rows are sorted by urgency; an account has its most urgent reason only.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path

__permissions__ = ["read"]

REASONS = ("left", "unknown", "admin", "unused", "never")
UNUSED_DAYS = 90
UNUSED_ADMIN_DAYS = 30


def is_admin(role: str) -> bool:
    """Return whether a role is one of an administrator."""
    return any(word in role.lower() for word in ("admin", "owner"))


def reason(account: Mapping[str, str], people: Mapping[str, Mapping[str, str]], today: date) -> str:
    """Return the most urgent reason to ask about an account, or nothing."""
    person = people.get(account["person"])
    if person is None:
        return "unknown"
    if person["left_on"] and date.fromisoformat(person["left_on"]) < today:
        return "left"
    if not account["last_login"]:
        return "never"
    days = (today - date.fromisoformat(account["last_login"])).days
    if is_admin(account["role"]):
        return "unused" if days > UNUSED_ADMIN_DAYS else "admin"
    return "unused" if days > UNUSED_DAYS else ""


def review(
    accounts: Iterable[Mapping[str, str]], people: Iterable[Mapping[str, str]], today: date
) -> list[tuple[str, str, str, str]]:
    """Return reason, team, account and role of every account to ask about, the most urgent first."""
    known = {row["person"]: row for row in people}
    rows = []
    for account in accounts:
        if why := reason(account, known, today):
            team = known.get(account["person"], {}).get("team", "security-engineering")
            rows.append((why, team, account["account"], account["role"]))
    return sorted(rows, key=lambda row: (REASONS.index(row[0]), row[1:]))


def main() -> int:
    """Print the rows as CSV."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("accounts", type=Path)
    parser.add_argument("people", type=Path)
    parser.add_argument("--today", type=date.fromisoformat, default=date.today())
    given = parser.parse_args()
    with given.accounts.open(newline="") as accounts, given.people.open(newline="") as people:
        rows = review(csv.DictReader(accounts), csv.DictReader(people), given.today)
    out = csv.writer(sys.stdout)
    out.writerow(("reason", "team", "account", "role"))
    out.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
