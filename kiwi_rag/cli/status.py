"""``kiwi status``, ``usage``, ``doctor`` and ``audit``."""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta

import click

from kiwi_rag import render
from kiwi_rag.cli.session import DONE, PARTLY, Session, command, option
from kiwi_rag.errors import UsageError
from kiwi_rag.local_service import client, protocol
from kiwi_rag.services import Services
from kiwi_rag.usecases.status import collect_status, diagnose

_DAYS = re.compile(r"(\d{1,5})d?", re.ASCII)


@command(epilog="Example: kiwi status")
async def status(session: Session, app: Services) -> int:
    """Show the tiers, the model, the cache, the latest errors and the local service, without starting anything."""
    service = await asyncio.to_thread(client.state, protocol.run_folder(session.environment()))
    data = await collect_status(app, service)
    session.print_data(data, render.status_lines(data))
    if not session.as_json:
        session.notify(render.status_notice(data))
    return PARTLY if any(row["problems"] for row in data["tiers"]) else DONE


@command(epilog="Example: kiwi usage, or kiwi --json usage --since 7d")
@option("--since", default="30d", metavar="DAY|Nd", help="First day, or number of days.")
def usage(session: Session, since: str) -> None:
    """Show the remote embedding of each day (UTC) and model: calls, texts, tokens, cost, latency and failures.

    Costs are computed from list prices or the setting embedding_prices; + or ? marks sums with unknown prices.
    """
    from kiwi_rag.embedding.usage import usage_rows

    first = first_day(since, datetime.now(UTC).date())
    log = session.app().settings.cache_path / "usage.jsonl"
    rows = usage_rows(log, first)
    data = {"since": first.isoformat(), "log": str(log), "rows": rows}
    session.print_data(data, render.usage_lines(rows) if rows else ())
    if not rows:
        session.notify(f"nothing was embedded remotely since {first}; the log is {log}")


@command(epilog="Example: kiwi doctor --repair")
@option("--repair", is_flag=True, help="Repair indexes as far as possible without embedding again.")
async def doctor(session: Session, app: Services, repair: bool) -> int:
    """Check keys, trust, model, indexes, audit chains and versions. Exit code 3: there are problems."""
    found = await diagnose(app, repair=repair)
    for notice in found.notices:
        session.notify(notice)
    lines = [*(f"repaired  {line}" for line in found.repaired), *(f"problem  {line}" for line in found.problems)]
    session.print_data({"problems": found.problems, "repaired": found.repaired}, map(render.safe, lines))
    advice = "repair indexes with kiwi doctor --repair, and the rest as each line says"
    session.notify(advice if found.problems else "no problems")
    return PARTLY if found.problems else DONE


@command(epilog="Example: kiwi audit verify, or kiwi audit show --limit 20")
@click.argument("action", type=click.Choice(["show", "verify"]), default="show")
@option(
    "--tier",
    type=click.Choice(["project", "user", "registry"]),
    default="project",
    help="Whose log to read. Only a registry's admins can read its records.",
)
@option("--since", type=int, default=0, help="Only records after this number.")
@option("--limit", type=click.IntRange(1, 100_000), default=1000, help="Only the newest N records.")
async def audit(session: Session, app: Services, action: str, tier: str, since: int, limit: int) -> None:
    """Show the audit log of a tier, or verify its hash chain and print the head.

    For a registry, `verify` also checks that the log contains the head that was pinned earlier.
    """
    from kiwi_rag.usecases import registry

    if action == "verify":
        await _verify_log(session, app, tier)
        return
    if tier == "registry":
        rows = await registry.newest_records(app, since, limit)
    else:
        rows = [asdict(record) for record in app.local(tier).audit.newest(since, limit)]
    session.print_data(rows, map(render.audit_line, rows))
    if not rows:
        session.notify("the audit log is empty")


async def _verify_log(session: Session, app: Services, tier: str) -> None:
    from kiwi_rag.usecases import registry

    log = await registry.verify_log(app) if tier == "registry" else None
    head = log.head if log else app.local(tier).audit.verify_chain()
    more = {"seen": log.pinned.seq, "records": log.all_read} if log else {}
    session.print_data({**asdict(head), **more}, [f"{head.seq} records, head {head.hash}"])
    if log:
        seen = log.pinned.seq
        compared = f"the log continues from pinned record {seen}" if seen else "the log was read for the first time"
        unread = "the records were not verified, because only the registry's admins may read them"
        session.notify(f"{compared}; {'every record was verified' if log.all_read else unread}")


def first_day(since: str, today: date) -> date:
    """Return the day that `since` names: a date, or a number of days up to and including `today`.

    Raises
    ------
    UsageError
        When it is neither.
    """
    try:
        if number := _DAYS.fullmatch(since):
            return today - timedelta(days=max(int(number[1]), 1) - 1)
        return date.fromisoformat(since)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{since!r} is not a day or a number of days", hint="--since 2026-01-31, or --since 7d"
        ) from None
