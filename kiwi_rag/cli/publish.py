"""``kiwi publish``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kiwi_rag.cli.session import PARTLY, Session
from kiwi_rag.cli.sign import TIER, acknowledge, report_rejections
from kiwi_rag.errors import RegistryUnreachable, UsageError
from kiwi_rag.services import Services

if TYPE_CHECKING:
    from kiwi_rag.formats import SourceFile
    from kiwi_rag.ingest.publication import NotPublished, Published, PublishRun
    from kiwi_rag.model import Visibility

_PREPARING_SECONDS = 300.0  # a migration of a large registry included


@click.command(epilog="Example: kiwi publish --all, or kiwi publish .ai/directives/acme/deploy")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--all", "everything", is_flag=True, help="All signed items of the tier.")
@click.option("--private", "visibility", flag_value="private", help="For their owner alone.")
@click.option("--public", "visibility", flag_value="public", help="For all, for good; opens what was private.")
@TIER
@click.pass_obj
def publish(
    session: Session, paths: tuple[Path, ...], everything: bool, visibility: Visibility | None, tier: str
) -> int:
    """Publish signed items and make them searchable for everyone who trusts their signer.

    Each line on stdout is a receipt: the item is in the registry. Stopped half-way, run it again: what is there
    already is left as it is.

    A private item is its owner's: of who is logged in (Supabase), else of the database role that is named like its
    signer. Nobody else finds it, gets it, or learns that it is there. Without --private or --public new items are
    public, and those that are there stay what they are.
    """
    if bool(paths) == everything:
        raise UsageError("name files or folders, or use --all", hint="kiwi publish --all")
    return session.run(lambda app: _publish(session, app, paths, tier, visibility))


async def _publish(
    session: Session, app: Services, paths: tuple[Path, ...], tier: str, visibility: Visibility | None
) -> int:
    from kiwi_rag.ingest.publication import PublishRun
    from kiwi_rag.registry.calls import with_retries
    from kiwi_rag.usecases import sign

    root = app.root(tier)
    sources = sign.sources_of(paths or (root,), root)
    if not sources:
        raise UsageError(f"there are no items in {root}", hint="kiwi init, then add a file below .ai/")
    await with_retries(app.prepare_registry, seconds=_PREPARING_SECONDS)
    run = PublishRun(app.local(tier), app.registry(), app.writer, visibility)
    rows, failures = await _run(session, run, sources)
    if session.as_json:
        session.data({"published": rows, "refused": [f.error.as_dict() for f in failures]})
    new = sum(not row["already_published"] for row in rows)
    refused = [f.error for f in failures if not isinstance(f.error, RegistryUnreachable)]
    session.say(f"{new} published, {len(rows) - new} were there already, {len(refused)} refused")
    if run.not_indexed:
        session.say(f"not searchable yet, until an indexer ran kiwi registry index: {run.not_indexed.message}")
    worst = report_rejections(session, refused)
    if not run.unreachable:
        return worst
    session.say(f"{len(failures) - len(refused)} not published: run it again to go on where it stopped")
    session.failed(run.unreachable)
    return PARTLY


async def _run(
    session: Session, run: PublishRun, sources: Sequence[SourceFile]
) -> tuple[list[dict[str, Any]], list[NotPublished]]:
    """Publish, acknowledging each item once it is durable; return the rows, and what was not published."""
    from kiwi_rag.ingest.publication import NotPublished

    told = acknowledge(session)
    rows: list[dict[str, Any]] = []
    failures: list[NotPublished] = []
    with session.bar("publish", "items") as planned:
        progress = planned(len(sources))
        async for outcome in run.publish(sources):
            progress(1)
            if isinstance(outcome, NotPublished):
                failures.append(outcome)
                continue
            rows.append(_row(outcome))
            told(_line(outcome))
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
        "waits": outcome.waits,
    }


def _line(outcome: Published) -> str:
    receipt = outcome.receipt
    change = "made public" if receipt.made_public else "unchanged" if receipt.already_published else "published"
    state = "  private" if receipt.private else "  yanked" if receipt.yanked else ""
    return f"{change:11}  {outcome.ref}  #{receipt.sequence}  {receipt.digest[:16]}{state}"
