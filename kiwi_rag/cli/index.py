"""``kiwi index`` and ``sync``: update a local tier's index, and copy items to the user tier."""

from __future__ import annotations

from pathlib import Path

import click

from kiwi_rag.cli.session import Session, with_services
from kiwi_rag.cli.sign import TIER, acknowledge, report_rejections
from kiwi_rag.services import Services
from kiwi_rag.usecases import add
from kiwi_rag.usecases.trust import fetch_revocations

JOBS = 2  # the default of ingest.index, repeated here so that --help does not import kiwi_rag.ingest


@click.command(epilog="Example: kiwi index, or kiwi index --tier user")
@TIER
@click.option("--rebuild", is_flag=True, help="Empty the index first. Recorded versions and the audit log are kept.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=JOBS,
    show_default=True,
    help="Batches of 64 passages that are embedded at the same time. More are faster with an embedding server only;"
    " the local model uses every core already.",
)
@with_services
async def index(session: Session, app: Services, tier: str, rebuild: bool, jobs: int) -> int:
    """Update a tier's index: admit and embed changed files, and remove deleted ones. Can be stopped and run again."""
    acknowledged = (lambda _: None) if session.shows_progress else acknowledge(session)
    with session.progress_bar(f"index {tier}", "files") as planned:
        report = await add.update_index(
            app, tier, planned, lambda admission: acknowledged(f"stored  {admission.ref}"), jobs, rebuild=rebuild
        )
    encoded = getattr(app.embed, "encoded", None)
    if session.as_json:
        session.print_json(
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
        session.print(
            f"{len(report.admitted)} admitted, {report.unchanged} unchanged, {len(report.removed)} removed, "
            f"{len(report.rejected)} refused; {report.passages} passages, {encoded} encoded"
        )
    return report_rejections(session, list(report.rejected))


@click.command(epilog="Example: kiwi sync --to user, or kiwi sync .ai/knowledge --to user")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--to", "target", type=click.Choice(["user"]), default="user", show_default=True)
@click.option("--force", is_flag=True, help="Overwrite an item of the same id that has other content.")
@with_services
async def sync(session: Session, app: Services, paths: tuple[Path, ...], target: str, force: bool) -> int:
    """Copy signed project items, all or those below PATHS, to the user tier, and index them there."""
    if problem := await fetch_revocations(app):
        session.notify(problem)
    acknowledged = acknowledge(session)
    count, refused = await add.copy_to_tier(
        app, paths, target, lambda admission: acknowledged(f"copied  {admission.ref}"), overwrite=force
    )
    if refused:
        session.notify(f"nothing was copied: {len(refused)} of {count} items were refused")
    return report_rejections(session, refused)
