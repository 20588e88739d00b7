"""``kiwi publish``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kiwi_rag.app import App
from kiwi_rag.cli.author import TIER, acknowledge, report_rejections
from kiwi_rag.cli.session import Session
from kiwi_rag.errors import KiwiError, RegistryRefused, Rejected, UsageError

if TYPE_CHECKING:
    from kiwi_rag.formats import SourceFile


@click.command(epilog="Example: kiwi publish --all, or kiwi publish .ai/directives/acme/deploy")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--all", "everything", is_flag=True, help="All signed items of the tier.")
@TIER
@click.pass_obj
def publish(session: Session, paths: tuple[Path, ...], everything: bool, tier: str) -> int:
    """Publish signed items and make them searchable for everyone who trusts their signer.

    Each line on stdout is a receipt: the item is in the registry. Stopped half-way, run it again: what is there
    already is left as it is.
    """
    if bool(paths) == everything:
        raise UsageError("name files or folders, or use --all", hint="kiwi publish --all")
    return session.run(lambda app: _publish(session, app, paths, tier))


async def _publish(session: Session, app: App, paths: tuple[Path, ...], tier: str) -> int:
    from kiwi_rag import authoring

    root = app.root(tier)
    sources = authoring.sources_of(paths or (root,), root)
    if not sources:
        raise UsageError(f"there are no items in {root}", hint="kiwi init, then add a file below .ai/")
    await app.prepare_registry()
    rows, refused = await _publish_each(session, app, sources, tier)
    if session.as_json:
        session.data({"published": rows, "refused": [r.as_dict() for r in refused]})
    new = sum(not row["known"] for row in rows)
    session.say(f"{new} published, {len(rows) - new} were there already, {len(refused)} refused")
    return report_rejections(session, refused)


async def _publish_each(
    session: Session, app: App, sources: Sequence[SourceFile], tier: str
) -> tuple[list[dict[str, Any]], list[KiwiError]]:
    from kiwi_rag import ingest

    place, registry = app.local(tier), app.registry()
    rows: list[dict[str, Any]] = []
    refused: list[KiwiError] = []
    with session.bar("publish", "items") as planned:
        progress = planned(len(sources))
        for source in sources:
            try:
                candidate = ingest.read(source, place, app.gate)
                admission, receipt = await ingest.publish(candidate, registry, app.writer)
            except (Rejected, RegistryRefused) as refusal:
                refused.append(refusal)
            else:
                word = "known    " if receipt.known else "published"
                rows.append({"ref": str(admission.ref), "sequence": receipt.sequence, "known": receipt.known})
                acknowledge(session)(f"{word}  {admission.ref}  #{receipt.sequence}  {receipt.digest[:16]}")
            progress(1)
    return rows, refused
