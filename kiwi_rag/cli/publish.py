"""``kiwi publish``: send signed items to the registry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kiwi_rag.cli.add import TIER, acknowledge, report_rejections
from kiwi_rag.cli.session import PARTLY, Session, with_services
from kiwi_rag.errors import RegistryUnreachable, UsageError
from kiwi_rag.formats import SourceFile
from kiwi_rag.ingest.publication import NotPublished, Published, PublishRun
from kiwi_rag.model import Visibility
from kiwi_rag.services import Services
from kiwi_rag.usecases import publish as use_case


@click.command(epilog="Example: kiwi publish --all, or kiwi publish .ai/directives/acme/deploy")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--all", "everything", is_flag=True, help="Publish all signed items of the tier.")
@click.option("--private", "visibility", flag_value="private", help="Make new items visible to their owner only.")
@click.option(
    "--public",
    "visibility",
    flag_value="public",
    help="Make items visible to everybody, private ones too. This cannot be undone.",
)
@TIER
@with_services
async def publish(
    session: Session,
    app: Services,
    paths: tuple[Path, ...],
    everything: bool,
    visibility: Visibility | None,
    tier: str,
) -> int:
    """Publish signed items and make them searchable for everyone who trusts their signer.

    Each line on stdout is a receipt: the item is in the registry. After an interruption run the command again; items
    that are published already are not changed.

    The owner of a private item is the user who is logged in (Supabase), else the database role with the name of its
    signer. Other users cannot find or read it, or learn that it exists. Without --private and --public new items are
    public, and published ones are not changed.
    """
    if bool(paths) == everything:
        raise UsageError("name files or folders, or use --all", hint="kiwi publish --all")
    sources = use_case.files_at(app, paths, tier)
    run = await use_case.prepare(app, tier, visibility)
    rows, failures = await _run(session, run, sources)
    if session.as_json:
        session.print_json({"published": rows, "refused": [f.error.as_dict() for f in failures]})
    new = sum(not row["already_published"] for row in rows)
    refused = [f.error for f in failures if not isinstance(f.error, RegistryUnreachable)]
    session.notify(f"{new} published, {len(rows) - new} were published already, {len(refused)} refused")
    if run.not_indexed:
        session.notify(f"not searchable yet, until an indexer runs kiwi registry index: {run.not_indexed.message}")
    worst = report_rejections(session, refused)
    if not run.unreachable:
        return worst
    session.notify(f"{len(failures) - len(refused)} not published; run the command again to continue")
    session.report_error(run.unreachable)
    return PARTLY


async def _run(
    session: Session, run: PublishRun, sources: Sequence[SourceFile]
) -> tuple[list[dict[str, Any]], list[NotPublished]]:
    """Publish, and print a line for each durable item. Return the rows, and the items that were not published."""
    print_receipt = acknowledge(session)
    rows: list[dict[str, Any]] = []
    failures: list[NotPublished] = []
    with session.progress_bar("publish", "items") as planned:
        progress = planned(len(sources))
        async for outcome in run.publish(sources):
            progress(1)
            if isinstance(outcome, NotPublished):
                failures.append(outcome)
                continue
            rows.append(_row(outcome))
            print_receipt(_line(outcome))
    return rows, failures


def _row(outcome: Published) -> dict[str, Any]:
    receipt = outcome.receipt
    return {
        "ref": str(outcome.ref),
        "sequence": receipt.sequence,
        "already_published": receipt.already_published,
        "private": receipt.private,
        "made_public": receipt.made_public,
        "yanked": receipt.yanked,
        "waits_for_index": outcome.waits,
    }


def _line(outcome: Published) -> str:
    receipt = outcome.receipt
    change = "made public" if receipt.made_public else "already published" if receipt.already_published else "published"
    state = "  private" if receipt.private else "  yanked" if receipt.yanked else ""
    return f"{change}  {outcome.ref}  #{receipt.sequence}  {receipt.digest[:16]}{state}"
