"""``kiwi publish``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kiwi_rag.app import App
from kiwi_rag.cli.author import TIER, acknowledge, report_rejections
from kiwi_rag.cli.session import Session
from kiwi_rag.errors import KiwiError, RegistryRefused, Rejected, UsageError

if TYPE_CHECKING:
    from kiwi_rag.formats import SourceFile
    from kiwi_rag.model import Admission


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
    run = _Run(session, app, tier)
    with session.bar("publish", "items") as planned:
        progress = planned(len(sources))
        for source in sources:
            await run.publish(source)
            progress(1)
    await run.sweep()
    if session.as_json:
        session.data({"published": run.rows, "refused": [r.as_dict() for r in run.refused]})
    new = sum(not row["known"] for row in run.rows)
    session.say(f"{new} published, {len(run.rows) - new} were there already, {len(run.refused)} refused")
    if not run.may_index:
        session.say("this role may not index: they are searchable once an indexer ran kiwi registry index")
    return report_rejections(session, run.refused)


class _Run:
    """One run of publishing: what it handed in, what was refused, and whether this role may index."""

    def __init__(self, session: Session, app: App, tier: str) -> None:
        self.rows: list[dict[str, Any]] = []
        self.refused: list[KiwiError] = []
        self.may_index = True
        self._app = app
        self._place = app.local(tier)
        self._registry = app.registry()
        self._acknowledge = acknowledge(session)

    async def publish(self, source: SourceFile) -> None:
        """Publish and index one file; acknowledge it once it is durable."""
        from kiwi_rag import ingest

        try:
            candidate = ingest.read(source, self._place, self._app.gate)
            admission, receipt = await ingest.publish(candidate, self._registry, self._app.gate)
        except (Rejected, RegistryRefused) as refusal:
            self.refused.append(refusal)
            return
        if not receipt.known:
            await self._index(admission)
        word = "known    " if receipt.known else "published"
        self.rows.append({"ref": str(admission.ref), "sequence": receipt.sequence, "known": receipt.known})
        self._acknowledge(f"{word}  {admission.ref}  #{receipt.sequence}  {receipt.digest[:16]}")

    async def sweep(self) -> None:
        """Index what an earlier run had published when it was stopped."""
        from kiwi_rag import ingest

        if not self.may_index:
            return
        try:
            async for _ in ingest.index_pending(self._registry, self._app.writer):
                pass  # what the gate refuses here is others' and waits for their indexer
        except RegistryRefused:
            self.may_index = False

    async def _index(self, admission: Admission) -> None:
        from kiwi_rag import ingest

        if not self.may_index:
            return
        try:
            await ingest.index_published(admission, self._registry, self._app.writer)
        except RegistryRefused:
            self.may_index = False
