"""``kiwi usage``: what remote embedding took."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

import click

from kiwi_rag import render
from kiwi_rag.cli.session import DONE, Session
from kiwi_rag.errors import UsageError

_DAYS = re.compile(r"(\d{1,5})d?", re.ASCII)


@click.command(epilog="Example: kiwi usage, or kiwi --json usage --since 7d")
@click.option("--since", default="30d", show_default=True, metavar="DAY|Nd", help="First day, or how many days back.")
@click.pass_obj
def usage(session: Session, since: str) -> int:
    """Show what remote embedding took, a line a day (UTC) and model: calls, texts, tokens, cost, latency, failures.

    Costs are list prices, or those of the setting embedding_prices; a + or ? says that some are not known.
    """
    from kiwi_rag.embedding.usage import usage_rows

    first = first_day(since, datetime.now(UTC).date())
    log = session.app().settings.cache_path / "usage.jsonl"
    rows = [row.as_dict() for row in usage_rows(log, first)]
    if session.as_json:
        session.data({"since": first.isoformat(), "log": str(log), "rows": rows})
    elif rows:
        for line in render.usage_lines(rows):
            session.out(line)
    if not rows:
        session.say(f"nothing was embedded remotely since {first}; the log is {log}")
    return DONE


def first_day(since: str, today: date) -> date:
    """Return the day that `since` names, or that is so many days back, today included.

    Raises
    ------
    UsageError
        If it is neither.
    """
    try:
        if number := _DAYS.fullmatch(since):
            return today - timedelta(days=max(int(number[1]), 1) - 1)
        return date.fromisoformat(since)
    except (ValueError, OverflowError):
        raise UsageError(f"{since!r} is no day", hint="--since 2026-01-31, or --since 7d") from None
