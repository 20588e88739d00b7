"""``kiwi validate``, ``sign`` and ``add``: check, sign and index item files."""

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
    "--tier",
    type=click.Choice(["project", "user"]),
    default="project",
    show_default=True,
    help="The tier: .ai of the project, or ~/.ai of the user.",
)


@click.command(epilog="Example: kiwi validate .ai, or kiwi validate .ai/directives/acme/deploy/staging.md")
@PATHS
@TIER
@click.pass_obj
def validate(session: Session, paths: tuple[Path, ...], tier: str) -> int:
    """Check items by steps 0-6 of the gate, without signing, storing or recording anything."""
    from kiwi_rag.usecases.sign import sources_of
    from kiwi_rag.validation.manager import read_candidate
    from kiwi_rag.validation.policy import policy_of

    app = session.app()
    root, rows = app.root(tier), []
    for source in sources_of(paths, root):
        candidate = read_candidate(source, root)
        if isinstance(candidate, Finding):
            findings: tuple[Finding, ...] = (candidate,)
        else:
            findings = app.gate.inspect(candidate, policy_of(tier)).findings
        rows.append((source, findings))
        if findings and not session.as_json:
            session.print(render.findings_text(findings, session.style))
    refused = sum(any(f.is_error for f in findings) for _, findings in rows)
    if session.as_json:
        session.print_json([{"path": str(s.path), "findings": [f.as_dict() for f in found]} for s, found in rows])
    session.notify(f"{len(rows) - refused} of {len(rows)} items would be admitted, once signed by a trusted key")
    return REFUSED if refused else DONE


@click.command(epilog="Example: kiwi sign .ai, or kiwi sign .ai/knowledge/acme/slo.md --bump patch")
@PATHS
@TIER
@click.option("--key", default="", help="Name of the key to sign with. Default: the only one you have.")
@click.option(
    "--bump",
    type=click.Choice(["patch", "minor", "major"]),
    help="Raise the version of edited items first; add a version to items without one.",
)
@click.option("--force", is_flag=True, help="Also sign items that have a valid signature.")
@click.pass_obj
def sign(session: Session, paths: tuple[Path, ...], tier: str, key: str, bump: str | None, force: bool) -> int:
    """Sign items that pass the gate's content checks: write FILE.sig beside each file."""
    return session.run(lambda app: _sign(session, app, paths, tier, key, bump, force))


@click.command(epilog="Example: kiwi add .ai/directives/acme/deploy/staging.md")
@PATHS
@TIER
@click.option("--key", default="", help="Name of the key to sign with. Default: the only one you have.")
@click.option(
    "--bump",
    type=click.Choice(["patch", "minor", "major"]),
    help="Raise the version of edited items first; add a version to items without one.",
)
@click.pass_obj
def add(session: Session, paths: tuple[Path, ...], tier: str, key: str, bump: str | None) -> int:
    """Check, sign and index items in one step. Nothing is written for a refused item."""
    return session.run(lambda app: _add(session, app, paths, tier, key, bump))


async def _sign(
    session: Session, app: Services, paths: tuple[Path, ...], tier: str, key: str, bump: str | None, force: bool
) -> int:
    drafts, refused = await _drafts(session, app, paths, tier, key, bump, force)
    for draft in drafts:
        draft.write()
        _report_edit(session, draft)
    if session.as_json:
        session.print_json({"signed": [_row(draft) for draft in drafts], "refused": [r.as_dict() for r in refused]})
    else:
        for draft in drafts:
            session.print(f"{'signed' if draft.fresh else 'already signed'}  {draft.ref}")
    fresh = sum(draft.fresh for draft in drafts)
    session.notify(f"{fresh} signed, {len(drafts) - fresh} were signed already")
    return report_rejections(session, refused)


async def _add(session: Session, app: Services, paths: tuple[Path, ...], tier: str, key: str, bump: str | None) -> int:
    from kiwi_rag import ingest

    target = app.local(tier)
    drafts, refused = await _drafts(session, app, paths, tier, key, bump)
    added = []
    async with target.store.writing():
        for draft in drafts:
            try:
                admission = await ingest.admit(draft.candidate, target, app.gate)
                draft.write()
                _report_edit(session, draft)
                await ingest.store(draft.source, draft.candidate, admission, target, app.writer)
                added.append(admission)
                acknowledge(session)(f"added  {admission.ref}")
            except Rejected as rejection:
                refused.append(rejection)
    if session.as_json:
        rows = [{"ref": str(a.ref), "digest": a.digest, "signer": a.principal} for a in added]
        session.print_json({"added": rows, "refused": [r.as_dict() for r in refused]})
    return report_rejections(session, refused)


async def _drafts(
    session: Session, app: Services, paths: Sequence[Path], tier: str, key: str, bump: str | None, force: bool = False
) -> tuple[list[Draft], list[Rejected]]:
    """Check and sign in memory the items that `paths` name, without writing anything."""
    from kiwi_rag.usecases import sign as authoring

    sources = authoring.sources_of(paths, app.root(tier))
    histories = authoring.version_histories(app)
    author = authoring.Author(app.local(tier), app.gate, app.signing_key(key, ask_passphrase), histories, app.principal)
    drafts, refused = await author.drafts(sources, bump=bump, force=force)
    if histories.registry_problem:
        session.notify(
            f"{histories.registry_problem}; its versions were not compared with these files, kiwi publish does it"
        )
    return drafts, refused


def _report_edit(session: Session, draft: Draft) -> None:
    if draft.wrote:
        session.notify(f"wrote  {draft.wrote}")


def _row(draft: Draft) -> dict[str, Any]:
    row = {"ref": str(draft.ref), "path": str(draft.source.path), "fresh": draft.fresh}
    return {**row, "wrote": draft.wrote} if draft.wrote else row


def acknowledge(session: Session) -> Callable[[str], None]:
    """Return the function that prints a line once an item is durable; with --json it prints nothing."""
    return (lambda _: None) if session.as_json else session.print


def report_rejections(session: Session, refused: Sequence[KiwiError]) -> int:
    """Print the refusals on stderr, except with --json, which has them on stdout. Return the exit code."""
    if not session.as_json:
        for refusal in refused:
            session.report_error(refusal)
    return REFUSED if refused else DONE
