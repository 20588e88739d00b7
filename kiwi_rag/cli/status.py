"""``kiwi status``, ``usage``, ``doctor`` and ``audit``."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import click

from kiwi_rag import render
from kiwi_rag.cli.index import WAIT_SECONDS
from kiwi_rag.cli.session import DONE, PARTLY, Session
from kiwi_rag.errors import EmbeddingError, KiwiError, RegistryError, StoreCorrupt, UsageError
from kiwi_rag.local_service import address, client
from kiwi_rag.model import Filters
from kiwi_rag.services import Services
from kiwi_rag.usecases.status import collect_status

if TYPE_CHECKING:
    from kiwi_rag.collection import Tier
    from kiwi_rag.stores.base import FileStore


_DAYS = re.compile(r"(\d{1,5})d?", re.ASCII)


@click.command(epilog="Example: kiwi status")
@click.pass_obj
def status(session: Session) -> int:
    """Show the tiers, the model, the cache, the latest errors and the local service, without starting anything."""
    return session.run(lambda app: _status(session, app))


@click.command(epilog="Example: kiwi usage, or kiwi --json usage --since 7d")
@click.option("--since", default="30d", show_default=True, metavar="DAY|Nd", help="First day, or number of days.")
@click.pass_obj
def usage(session: Session, since: str) -> int:
    """Show the remote embedding of each day (UTC) and model: calls, texts, tokens, cost, latency and failures.

    Costs are computed from list prices or the setting embedding_prices; + or ? marks sums with unknown prices.
    """
    from kiwi_rag.embedding.usage import usage_rows

    first = first_day(since, datetime.now(UTC).date())
    log = session.app().settings.cache_path / "usage.jsonl"
    rows = [row.as_dict() for row in usage_rows(log, first)]
    if session.as_json:
        session.print_json({"since": first.isoformat(), "log": str(log), "rows": rows})
    elif rows:
        for line in render.usage_lines(rows):
            session.print(line)
    if not rows:
        session.notify(f"nothing was embedded remotely since {first}; the log is {log}")
    return DONE


@click.command(epilog="Example: kiwi doctor --repair")
@click.option("--repair", is_flag=True, help="Repair indexes as far as possible without embedding again.")
@click.pass_obj
def doctor(session: Session, repair: bool) -> int:
    """Check keys, trust, model, indexes, audit chains and versions. Exit code 3: there are problems."""
    return session.run(lambda app: _doctor(session, app, repair))


@click.command(epilog="Example: kiwi audit verify, or kiwi audit show --limit 20")
@click.argument("action", type=click.Choice(["show", "verify"]), default="show")
@click.option(
    "--tier",
    type=click.Choice(["project", "user", "registry"]),
    default="project",
    show_default=True,
    help="Whose log to read. Only a registry's admins can read its records.",
)
@click.option("--since", type=int, default=0, help="Only records after this number.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="Only the newest N records."
)
@click.pass_obj
def audit(session: Session, action: str, tier: str, since: int, limit: int) -> int:
    """Show the audit log of a tier, or verify its hash chain and print the head.

    For a registry, `verify` also checks that the log contains the head that was pinned earlier.
    """
    return session.run(lambda app: _audit(session, app, action, tier, since, limit))


async def _status(session: Session, app: Services) -> int:
    service = await asyncio.to_thread(client.state, address.run_folder(session.context.environment()))
    data = await collect_status(app, service)
    if session.as_json:
        session.print_json(data)
    else:
        for line in render.status_lines(data):
            session.print(line)
        session.notify(render.status_notice(data))
    return PARTLY if any(row["problems"] for row in data["tiers"]) else DONE


async def _doctor(session: Session, app: Services, repair: bool) -> int:
    from kiwi_rag.services.workspace import TIER as WORKSPACE
    from kiwi_rag.services.workspace import Workspace

    findings = [*_check_setup(app), *_check_model(app)]
    repaired: list[str] = []
    async with Workspace(app) as workspace:
        for name in [*app.source_names("local"), *([WORKSPACE] if workspace.is_indexed else [])]:
            try:
                target = workspace.tier if name == WORKSPACE else app.local(name)
                problems, done = await _check_tier(target, repair)
            except KiwiError as error:
                problems, done = [f"{name}: {error.message} ({error.hint})"], []
            findings += problems
            repaired += done
    findings += await _check_versions(session, app)
    if session.as_json:
        session.print_json({"problems": findings, "repaired": repaired})
    else:
        for line in repaired:
            session.print(render.safe(f"repaired  {line}"))
        for line in findings:
            session.print(render.safe(f"problem  {line}"))
    session.notify(
        "no problems" if not findings else "repair indexes with kiwi doctor --repair, and the rest as each line says"
    )
    return PARTLY if findings else DONE


async def _check_tier(tier: Tier[FileStore], repair: bool) -> tuple[list[str], list[str]]:
    name = tier.name
    done = [f"{name}: {line}" for line in await tier.store.repair()] if repair else []
    problems = [f"{name}: {line}" for line in await tier.store.check()]
    try:
        tier.audit.verify_chain()
    except (StoreCorrupt, KiwiError) as error:
        problems.append(f"{name}: {error.message}")
    return problems, done


async def _check_versions(session: Session, app: Services) -> list[str]:
    """Return versions that have different content in two tiers; print a notice if the registry does not answer."""
    from kiwi_rag.search.state import find_version_conflicts

    indexed = []
    for name in app.source_names("local"):
        with suppress(KiwiError):  # the check of the tier itself reports it
            if app.is_indexed(name):
                indexed.append((app.local(name), await app.local(name).store.list(Filters())))
    try:
        async with asyncio.timeout(min(WAIT_SECONDS, app.settings.deadline)):
            found = await find_version_conflicts(indexed, app.registry() if app.registry_connection.exists else None)
    except (TimeoutError, RegistryError, EmbeddingError) as error:
        session.notify(f"the registry's versions were not compared: {error or 'the registry did not answer in time'}")
        found = await find_version_conflicts(indexed, None)
    return [f"versions: {conflict} ({conflict.hint})" for conflict in found]


def _check_setup(app: Services) -> list[str]:
    from kiwi_rag.signing import keys, trust_file

    user_trust = trust_file.load(app.user_trust)
    problems = [
        f"keys: other users can read {path} (chmod 600 {path})"
        for path in app.keys_dir.glob("*.pem")
        if path.stat().st_mode & 0o077
    ]
    if not keys.names(app.keys_dir) and not app.settings.signing_key:
        problems.append("keys: there is no key to sign with (kiwi keys new)")
    if not app.trust.signers:
        problems.append("trust: no signer is trusted, so nothing can be admitted (kiwi keys new, or kiwi trust add)")
    if app.project_trust and app.project_trust.is_file() and not trust_file.is_pinned(user_trust, app.project_trust):
        problems.append(
            f"trust: {app.project_trust} is not pinned, so its signers are not trusted (kiwi trust project)"
        )
    return problems


def _check_model(app: Services) -> list[str]:
    try:
        app.embed.encode(["ready"])
    except KiwiError as error:
        return [f"model: {error.message} ({error.hint})"]
    return [f"model: {line}" for line in app.embed.verify()]


async def _audit(session: Session, app: Services, action: str, tier: str, since: int, limit: int) -> int:
    if tier == "registry":
        from kiwi_rag.cli import registry as registry_audit

        return await (
            registry_audit.verify_log(session, app)
            if action == "verify"
            else registry_audit.show_log(session, app, since, limit)
        )
    log = app.local(tier).audit
    if action == "verify":
        head = log.verify_chain()
        if session.as_json:
            session.print_json(asdict(head))
        else:
            session.print(f"{head.seq} records, head {head.hash}")
        return DONE
    records = log.newest(since, limit)
    if session.as_json:
        session.print_json([asdict(record) for record in records])
    else:
        for r in records:
            session.print(render.audit_line(asdict(r)))
    if not records:
        session.notify("the audit log is empty")
    return DONE


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
