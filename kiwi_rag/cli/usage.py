"""``kiwi usage``: what remote embedding took."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from kiwi_rag import present
from kiwi_rag.cli.session import DONE, Session
from kiwi_rag.errors import UsageError

_DAYS = re.compile(r"(\d{1,5})d?", re.ASCII)


@click.command(epilog="Example: kiwi usage, or kiwi usage --since 7d --chart usage.png")
@click.option("--since", default="30d", show_default=True, metavar="DAY|Nd", help="First day, or how many days back.")
@click.option(
    "--chart",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw it (.png, .svg or .pdf; needs the extra 'plot').",
)
@click.pass_obj
def usage(session: Session, since: str, chart: Path | None) -> int:
    """Show what remote embedding took, a line a day (UTC) and model: calls, texts, tokens, cost, latency, failures.

    Costs are list prices, or those of the setting embedding_prices; a + or ? says that some are not known.
    """
    from kiwi_rag.embedding.usage_report import usage_rows

    first = first_day(since, datetime.now(UTC).date())
    if chart:
        _check_chart(chart)
    log = session.app().settings.cache_path / "usage.jsonl"
    rows = [row.as_dict() for row in usage_rows(log, first)]
    _show(session, rows, log, first)
    if chart and rows:
        from kiwi_rag.present.usage_chart import draw_usage

        draw_usage(rows, chart)
        session.say(f"drawn to {chart}")
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


def _check_chart(chart: Path) -> None:
    from kiwi_rag.evaluation import plot

    plot.check(chart)
    if not chart.absolute().parent.is_dir():
        raise UsageError(f"cannot write {chart}: there is no folder {chart.parent}")


def _show(session: Session, rows: list[dict[str, Any]], log: Path, first: date) -> None:
    if session.as_json:
        session.data({"since": first.isoformat(), "log": str(log), "rows": rows})
    elif rows:
        for line in (*present.usage_lines(rows), *present.usage_bars(rows)):
            session.out(line)
    if not rows:
        session.say(f"nothing was embedded remotely since {first}; the log is {log}")
