"""``kiwi validate``, ``sign`` and ``add``: from a file to a signed, indexed item."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kiwi_rag import render
from kiwi_rag.cli.session import DONE, REFUSED, Session, ask_passphrase
from kiwi_rag.errors import KiwiError, Rejected
from kiwi_rag.model import Finding
from kiwi_rag.services import Services

if TYPE_CHECKING:
    from kiwi_rag.usecases.sign import Draft

PATHS = click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
TIER = click.option(
    "--tier", type=click.Choice(["project", "user"]), default="project", show_default=True, help="Whose .ai folder."
)


@click.command(epilog="Example: kiwi validate .ai, or kiwi validate .ai/directives/acme/deploy/staging.md")
@PATHS
@TIER
@click.pass_obj
def validate(session: Session, paths: tuple[Path, ...], tier: str) -> int:
    """Check items by steps 0-6 of the gate; nothing is signed, stored or recorded."""
    from kiwi_rag.formats import read_source
    from kiwi_rag.ingest import display_path
    from kiwi_rag.usecases.sign import sources_of
    from kiwi_rag.validation.policy import policy_of
    from kiwi_rag.validation.signature import ItemCandidate

    app = session.app()
    root, rows = app.root(tier), []
    for source in sources_of(paths, root):
        if source.problem or source.item_id is None:
            findings: tuple[Finding, ...] = (source.problem,) if source.problem else ()
        else:
            data = read_source(source.path, root)
            candidate = ItemCandidate(source.item_type, source.item_id, data, path=display_path(source.path))
            findings = app.gate.inspect(candidate, policy_of(tier)).findings
        rows.append((source, findings))
        if findings and not session.as_json:
            session.out(render.findings_text(findings, session.style))
    refused = sum(any(f.is_error for f in findings) for _, findings in rows)
    if session.as_json:
        session.data([{"path": str(s.path), "findings": [f.as_dict() for f in found]} for s, found in rows])
    session.say(f"{len(rows) - refused} of {len(rows)} items would be admitted, once signed by a trusted key")
    return REFUSED if refused else DONE


@click.command(epilog="Example: kiwi sign .ai, or kiwi sign .ai/knowledge/acme/slo.md --bump patch")
@PATHS
@TIER
@click.option("--key", default="", help="Name of the key to sign with.")
@click.option(
    "--bump",
    type=click.Choice(["patch", "minor", "major"]),
    help="First raise the version of what was edited; add one where there is none.",
)
@click.option("--force", is_flag=True, help="Sign again what has a valid signature.")
@click.pass_obj
def sign(session: Session, paths: tuple[Path, ...], tier: str, key: str, bump: str | None, force: bool) -> int:
    """Sign items that pass the gate's content checks: writes FILE.sig beside each file."""
    return session.run(lambda app: _sign(session, app, paths, tier, key, bump, force))


@click.command(epilog="Example: kiwi add .ai/directives/acme/deploy/staging.md")
@PATHS
@TIER
@click.option("--key", default="", help="Name of the key to sign with.")
@click.option(
    "--bump",
    type=click.Choice(["patch", "minor", "major"]),
    help="First raise the version of what was edited; add one where there is none.",
)
@click.pass_obj
def add(session: Session, paths: tuple[Path, ...], tier: str, key: str, bump: str | None) -> int:
    """Validate, sign and index files in one step."""
    return session.run(lambda app: _add(session, app, paths, tier, key, bump))


async def _sign(
    session: Session, app: Services, paths: tuple[Path, ...], tier: str, key: str, bump: str | None, force: bool
) -> int:
    drafts, refused = await _drafts(session, app, paths, tier, key, bump, force)
    for draft in drafts:
        draft.write()
        _say_line(session, draft)
    if session.as_json:
        session.data({"signed": [_row(draft) for draft in drafts], "refused": [r.as_dict() for r in refused]})
    else:
        for draft in drafts:
            session.out(f"{'signed' if draft.fresh else 'already signed'}  {draft.ref}")
    fresh = sum(draft.fresh for draft in drafts)
    session.say(f"{fresh} signed, {len(drafts) - fresh} were already")
    return report_rejections(session, refused)


async def _add(session: Session, app: Services, paths: tuple[Path, ...], tier: str, key: str, bump: str | None) -> int:
    from kiwi_rag import ingest

    place = app.local(tier)
    drafts, refused = await _drafts(session, app, paths, tier, key, bump)
    added = []
    async with place.store.writing():
        for draft in drafts:
            try:
                admission = await ingest.admit(draft.candidate, place, app.gate)
                draft.write()
                _say_line(session, draft)
                await ingest.store(draft.source, draft.candidate, admission, place, app.writer)
                added.append(admission)
                acknowledge(session)(f"added  {admission.ref}")
            except Rejected as rejection:
                refused.append(rejection)
    if session.as_json:
        rows = [{"ref": str(a.ref), "digest": a.digest, "signer": a.principal} for a in added]
        session.data({"added": rows, "refused": [r.as_dict() for r in refused]})
    return report_rejections(session, refused)


async def _drafts(
    session: Session, app: Services, paths: Sequence[Path], tier: str, key: str, bump: str | None, force: bool = False
) -> tuple[list[Draft], list[Rejected]]:
    """Judge and sign in memory what `paths` name; nothing is written."""
    from kiwi_rag.usecases import sign as authoring

    sources = authoring.sources_of(paths, app.root(tier))
    histories = authoring.version_histories(app)
    author = authoring.Author(app.local(tier), app.gate, app.signing_key(key, ask_passphrase), histories, app.principal)
    drafts, refused = await author.drafts(sources, bump=bump, force=force)
    if histories.registry_problem:
        session.say(
            f"{histories.registry_problem}; its versions were not compared with these files, kiwi publish does it"
        )
    return drafts, refused


def _say_line(session: Session, draft: Draft) -> None:
    if draft.wrote:
        session.say(f"wrote  {draft.wrote}")


def _row(draft: Draft) -> dict[str, Any]:
    row = {"ref": str(draft.ref), "path": str(draft.source.path), "fresh": draft.fresh}
    return {**row, "wrote": draft.wrote} if draft.wrote else row


def acknowledge(session: Session) -> Callable[[str], None]:
    """Return what to call with a line as soon as the thing it tells of is durable."""
    return (lambda _: None) if session.as_json else session.out


def report_rejections(session: Session, refused: Sequence[KiwiError]) -> int:
    """Show every refusal on stderr, unless it is in the JSON on stdout, and return the exit code."""
    if not session.as_json:
        for refusal in refused:
            session.failed(refusal)
    return REFUSED if refused else DONE
