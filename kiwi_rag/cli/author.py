"""``kiwi validate``, ``sign`` and ``add``: from a file to a signed, indexed item."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from kiwi_rag import present
from kiwi_rag.app import App
from kiwi_rag.cli.session import DONE, REFUSED, Session, ask_passphrase
from kiwi_rag.errors import KiwiError, Rejected
from kiwi_rag.model import Finding

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
    from kiwi_rag.authoring import sources_of
    from kiwi_rag.formats import read_source
    from kiwi_rag.ingest import shown
    from kiwi_rag.validation.policy import policy_of
    from kiwi_rag.validation.signature import Candidate

    app = session.app()
    root, rows = app.root(tier), []
    for source in sources_of(paths, root):
        if source.problem or source.item_id is None:
            findings: tuple[Finding, ...] = (source.problem,) if source.problem else ()
        else:
            data = read_source(source.path, root)
            candidate = Candidate(source.item_type, source.item_id, data, path=shown(source.path))
            findings = app.gate.inspect(candidate, policy_of(tier)).findings
        rows.append((source, findings))
        if findings and not session.as_json:
            session.out(present.findings_text(findings, session.style))
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
    help="First raise the declared version of what was edited.",
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
    help="First raise the declared version of what was edited.",
)
@click.pass_obj
def add(session: Session, paths: tuple[Path, ...], tier: str, key: str, bump: str | None) -> int:
    """Validate, sign and index files in one step."""
    return session.run(lambda app: _add(session, app, paths, tier, key, bump))


async def _sign(
    session: Session, app: App, paths: tuple[Path, ...], tier: str, key: str, bump: str | None, force: bool
) -> int:
    from kiwi_rag import authoring

    place = app.local(tier)
    sources = authoring.sources_of(paths, app.root(tier))
    signing_key = app.signing_key(key, ask_passphrase)
    refused: list[Rejected] = []
    if bump:
        sources, refused = authoring.raise_versions(sources, paths, place, app.gate, bump)
    signed = []
    for source in sources:
        try:
            signed.append(authoring.sign(source, place, app.gate, signing_key, force=force))
        except Rejected as rejection:
            refused.append(rejection)
    if session.as_json:
        rows = [{"ref": str(s.ref), "path": str(s.path), "fresh": s.fresh} for s in signed]
        session.data({"signed": rows, "refused": [r.as_dict() for r in refused]})
    else:
        for done in signed:
            session.out(f"{'signed' if done.fresh else 'already signed'}  {done.ref}")
    fresh = sum(s.fresh for s in signed)
    session.say(f"{fresh} signed by {signing_key.name!r}, {len(signed) - fresh} were already")
    return report_rejections(session, refused)


async def _add(session: Session, app: App, paths: tuple[Path, ...], tier: str, key: str, bump: str | None) -> int:
    from kiwi_rag import authoring, ingest

    place = app.local(tier)
    sources = authoring.sources_of(paths, app.root(tier))
    signing_key = app.signing_key(key, ask_passphrase)
    refused: list[Rejected] = []
    if bump:
        sources, refused = authoring.raise_versions(sources, paths, place, app.gate, bump)
    added = []
    async with place.store.writing():
        for source in sources:
            try:
                authoring.sign(source, place, app.gate, signing_key)
                added.append(await ingest.ingest(source, place, app.writer))
                acknowledge(session)(f"added  {added[-1].ref}")
            except Rejected as rejection:
                refused.append(rejection)
    if session.as_json:
        rows = [{"ref": str(a.ref), "digest": a.digest, "signer": a.principal} for a in added]
        session.data({"added": rows, "refused": [r.as_dict() for r in refused]})
    return report_rejections(session, refused)


def acknowledge(session: Session) -> Callable[[str], None]:
    """Return what to call with a line as soon as the thing it tells of is durable."""
    return (lambda _: None) if session.as_json else session.out


def report_rejections(session: Session, refused: Sequence[KiwiError]) -> int:
    """Show every refusal on stderr, unless it is in the JSON on stdout, and return the exit code."""
    if not session.as_json:
        for refusal in refused:
            session.failed(refusal)
    return REFUSED if refused else DONE
