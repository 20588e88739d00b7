"""``kiwi status``, ``doctor`` and ``audit``."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from kiwi_rag import render
from kiwi_rag.cli.index import WAIT_SECONDS
from kiwi_rag.cli.session import DONE, PARTLY, Session
from kiwi_rag.errors import EmbeddingError, KiwiError, RegistryError, StoreCorrupt
from kiwi_rag.local_service import address as place
from kiwi_rag.local_service import client
from kiwi_rag.model import Filters
from kiwi_rag.services import Services
from kiwi_rag.usecases.status import collect_status

if TYPE_CHECKING:
    from kiwi_rag.collection import Tier
    from kiwi_rag.stores.base import FileStore


@click.command(epilog="Example: kiwi status")
@click.pass_obj
def status(session: Session) -> int:
    """Show tiers, model, cache, the last errors and the resident service; starts nothing."""
    return session.run(lambda app: _status(session, app))


@click.command(epilog="Example: kiwi doctor --repair")
@click.option("--repair", is_flag=True, help="Mend what can be mended, without embedding again.")
@click.pass_obj
def doctor(session: Session, repair: bool) -> int:
    """Check keys, trust, model, indexes, audit chains and versions: 0 clean or repaired, 3 problems."""
    return session.run(lambda app: _doctor(session, app, repair))


@click.command(epilog="Example: kiwi audit verify, or kiwi audit show --limit 20")
@click.argument("action", type=click.Choice(["show", "verify"]), default="show")
@click.option(
    "--tier",
    type=click.Choice(["project", "user", "registry"]),
    default="project",
    show_default=True,
    help="Whose log; a registry's records are shown to its admins.",
)
@click.option("--since", type=int, default=0, help="Only records after this number.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="Only the newest N of them."
)
@click.pass_obj
def audit(session: Session, action: str, tier: str, since: int, limit: int) -> int:
    """Show the audit log of a tier, or verify its hash chain and print the head.

    Of a registry `verify` also tells whether the log is the one that you saw before.
    """
    return session.run(lambda app: _audit(session, app, action, tier, since, limit))


async def _status(session: Session, app: Services) -> int:
    service = await asyncio.to_thread(client.state, place.run_folder(session.around.environment()))
    data = await collect_status(app, service)
    if session.as_json:
        session.data(data)
    else:
        for line in render.status_lines(data):
            session.out(line)
        session.say(render.status_notice(data))
    return PARTLY if any(row["problems"] for row in data["tiers"]) else DONE


async def _doctor(session: Session, app: Services, repair: bool) -> int:
    from kiwi_rag.services.workspace import TIER as WORKSPACE
    from kiwi_rag.services.workspace import Workspace

    findings = [*_check_setup(app), *_check_model(app)]
    repaired: list[str] = []
    async with Workspace(app) as workspace:
        for name in [*app.source_names("local"), *([WORKSPACE] if workspace.is_indexed else [])]:
            try:
                place = workspace.tier if name == WORKSPACE else app.local(name)
                problems, done = await _check_tier(place, repair)
            except KiwiError as error:
                problems, done = [f"{name}: {error.message} ({error.hint})"], []
            findings += problems
            repaired += done
    findings += await _check_versions(session, app)
    if session.as_json:
        session.data({"problems": findings, "repaired": repaired})
    else:
        for line in repaired:
            session.out(render.safe(f"repaired  {line}"))
        for line in findings:
            session.out(render.safe(f"problem  {line}"))
    session.say("clean" if not findings else "indexes are mended by kiwi doctor --repair, the rest as each line says")
    return PARTLY if findings else DONE


async def _check_tier(place: Tier[FileStore], repair: bool) -> tuple[list[str], list[str]]:
    name = place.name
    done = [f"{name}: {line}" for line in await place.store.repair()] if repair else []
    problems = [f"{name}: {line}" for line in await place.store.check()]
    try:
        place.audit.verify_chain()
    except (StoreCorrupt, KiwiError) as error:
        problems.append(f"{name}: {error.message}")
    return problems, done


async def _check_versions(session: Session, app: Services) -> list[str]:
    """Compare the tiers: one version with two contents is a problem. A registry that does not answer is told."""
    from kiwi_rag.search.state import find_version_conflicts

    held = []
    for name in app.source_names("local"):
        with suppress(KiwiError):  # told by the check of the tier itself
            if app.is_indexed(name):
                held.append((app.local(name), await app.local(name).store.list(Filters())))
    try:
        async with asyncio.timeout(min(WAIT_SECONDS, app.settings.deadline)):
            found = await find_version_conflicts(held, app.registry() if app.registry_connection.exists else None)
    except (TimeoutError, RegistryError, EmbeddingError) as error:
        session.say(f"the registry's versions were not compared: {error or 'it did not answer in time'}")
        found = await find_version_conflicts(held, None)
    return [f"versions: {conflict} ({conflict.hint})" for conflict in found]


def _check_setup(app: Services) -> list[str]:
    from kiwi_rag.signing import keys, trust_file

    own = trust_file.load(app.user_trust)
    problems = [
        f"keys: {path} can be read by others (chmod 600 {path})"
        for path in app.keys_dir.glob("*.pem")
        if path.stat().st_mode & 0o077
    ]
    if not keys.names(app.keys_dir) and not app.settings.signing_key:
        problems.append("keys: there is no key to sign with (kiwi keys new)")
    if not app.trust.signers:
        problems.append("trust: nobody is trusted, so nothing can be admitted (kiwi keys new, or kiwi trust add)")
    if app.project_trust and app.project_trust.is_file() and not trust_file.is_pinned(own, app.project_trust):
        problems.append(f"trust: {app.project_trust} is not pinned, so its signers do not count (kiwi trust project)")
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
            session.data(asdict(head))
        else:
            session.out(f"{head.seq} records, head {head.hash}")
        return DONE
    records = log.newest(since, limit)
    if session.as_json:
        session.data([asdict(record) for record in records])
    else:
        for r in records:
            session.out(render.audit_line(asdict(r)))
    if not records:
        session.say("the log is empty")
    return DONE
