"""``kiwi index`` and ``sync``: bringing a local tier's index up to its files."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import click

from kiwi_rag.cli.session import Session
from kiwi_rag.cli.sign import TIER, acknowledge, report_rejections
from kiwi_rag.errors import KiwiError, RegistryContradicted, RegistryError
from kiwi_rag.services import Services

JOBS = 2  # as in kiwi_rag.ingest.batches, which help need not import


@click.command(epilog="Example: kiwi index, or kiwi index --tier user")
@TIER
@click.option("--rebuild", is_flag=True, help="Empty the index first; versions seen and the audit log stay.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=JOBS,
    show_default=True,
    help="Groups of 64 passages encoded at once. The local model uses every core as it is, and more jobs gain nothing;"
    " a server that embeds may answer several at once.",
)
@click.pass_obj
def index(session: Session, tier: str, rebuild: bool, jobs: int) -> int:
    """Admit, embed and store what changed; forget what is gone. Safe to stop and to run again."""
    return session.run(lambda app: _index(session, app, tier, rebuild, jobs))


@click.command(epilog="Example: kiwi sync --to user, or kiwi sync .ai/knowledge --to user")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--to", "target", type=click.Choice(["user"]), default="user", show_default=True)
@click.option("--force", is_flag=True, help="Overwrite other content of the same id.")
@click.pass_obj
def sync(session: Session, paths: tuple[Path, ...], target: str, force: bool) -> int:
    """Copy signed project items to the user tier and index them there; all of them, or those below PATHS."""
    return session.run(lambda app: _sync(session, app, paths, target, force))


async def _index(session: Session, app: Services, tier: str, rebuild: bool, jobs: int) -> int:
    from kiwi_rag import ingest

    if rebuild:
        await app.local(tier).store.clear()
    with session.bar(f"index {tier}", "files") as planned:
        acknowledged = acknowledge(session) if not session.draws_bars else lambda _: None
        report = await ingest.index(
            app.local(tier), app.writer, planned, lambda admission: acknowledged(f"stored  {admission.ref}"), jobs
        )
    encoded = getattr(app.embed, "encoded", None)
    if session.as_json:
        session.data(
            {
                "admitted": [str(ref) for ref in report.admitted],
                "unchanged": report.unchanged,
                "removed": [str(ref) for ref in report.removed],
                "refused": [r.as_dict() for r in report.rejected],
                "passages": report.passages,
                "encoded": encoded,
            }
        )
    else:
        session.out(
            f"{len(report.admitted)} admitted, {report.unchanged} unchanged, {len(report.removed)} removed, "
            f"{len(report.rejected)} refused; {report.passages} passages, {encoded} encoded"
        )
    return report_rejections(session, list(report.rejected))


async def _sync(session: Session, app: Services, paths: tuple[Path, ...], target: str, force: bool) -> int:
    from kiwi_rag import ingest
    from kiwi_rag.usecases import sign

    await learn_who_lost_trust(session, app)
    user, root = app.local(target), app.root("project")
    histories = sign.version_histories(app)
    copies, refused = [], []
    async with user.store.writing():
        for source in sign.sources_of(paths or (root,), root):
            try:
                envelope = await sign.check_copy(source, app.local("project"), user, app.gate, histories)
                sign.check_place(app.root(target), envelope, overwrite=force)
                copies.append(envelope)
            except KiwiError as error:
                refused.append(error)
        for envelope in [] if refused else copies:
            placed = sign.place_item(app.root(target), envelope, overwrite=force)
            admission = await ingest.ingest(placed, user, app.writer)
            acknowledge(session)(f"copied  {admission.ref}")
    if refused:
        session.say(f"nothing was copied: {len(refused)} of {len(refused) + len(copies)} items were refused")
    return report_rejections(session, refused)


WAIT_SECONDS = 5.0


async def learn_who_lost_trust(session: Session, app: Services) -> None:
    """Ask the registry, if this user has one, and judge by its answer from here on.

    Without an answer what is remembered counts, and a notice says how old that is.
    """
    if not app.registry_connection.exists:
        return
    try:
        async with asyncio.timeout(min(WAIT_SECONDS, app.settings.deadline)):
            await app.monitor.check(fully=True)
    except TimeoutError:
        session.say(f"the registry did not answer in time; {_age(app)}")
    except (RegistryError, RegistryContradicted) as error:
        session.say(f"{error.message}; {_age(app)}")
    app.refresh_trust()


def _age(app: Services) -> str:
    asked = app.monitor.pinned.checked_at()
    if asked is None:
        return "it never told who was revoked"
    minutes = int((datetime.now(UTC) - asked).total_seconds() // 60)
    ago = f"{minutes} min" if minutes < 120 else f"{minutes // 60} h" if minutes < 2880 else f"{minutes // 1440} days"
    return f"who was revoked is known as of {asked:%Y-%m-%d %H:%M} UTC ({ago} ago)"
