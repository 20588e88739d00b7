"""``kiwi get``, ``show``, ``list``, ``verify`` and ``delete``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from kiwi_rag import render
from kiwi_rag.cli.search import ITEM_TYPE, NAMESPACE, SOURCE
from kiwi_rag.cli.session import DONE, PARTLY, REFUSED, Session, command, confirm, option
from kiwi_rag.errors import NotFound
from kiwi_rag.formats.source import display_path
from kiwi_rag.search.verify import parse_address
from kiwi_rag.services import Services
from kiwi_rag.usecases import filters_of, items
from kiwi_rag.usecases.items import FoundItem
from kiwi_rag.usecases.trust import fetch_revocations

REF = click.argument("ref")


@command(epilog="Example: kiwi get acme/deploy/staging, or kiwi get acme/slo@1.2.0@registry --to user")
@REF
@option("--to", "target", type=click.Choice(["project", "user"]), default="project")
@option("--force", is_flag=True, help="Overwrite an item of the same id that has other content.")
async def get(session: Session, app: Services, ref: str, target: str, force: bool) -> None:
    """Copy an item from another tier: verify it, write its file and signature, and index it."""
    found = await items.find(app, ref, [name for name in ("user", "registry") if name != target])
    _warn(session, app, found)
    admission, path = await items.copy(app, found, target, overwrite=force)
    tier = found.tier.name
    state = {**render.state_json(found.state), **render.yank_json(found.stored)}
    session.print_data(
        {"ref": str(admission.ref), "path": str(path), "from": tier, **state},
        [f"{admission.ref} from {tier}, signed by {admission.principal}: {display_path(path)}"],
    )


@command(epilog="Example: kiwi show directive:acme/deploy/staging")
@REF
@SOURCE
@option("--statement", is_flag=True, help="Print the signed statement in place of the content.")
async def show(session: Session, app: Services, ref: str, source: str | None, statement: bool) -> None:
    """Print the signed content of an item, from the nearest tier that has it; of a skill SKILL.md, and its files."""
    found = await items.find(app, ref, app.source_names(source or "all"))
    _warn(session, app, found)
    signed, signer = found.signed, found.signer
    if statement:
        payload = json.loads(found.stored.envelope.payload)
        session.print_data(payload, [render.safe(json.dumps(payload, ensure_ascii=False, indent=2))])
        return
    if session.as_json:
        row = render.item_json(found.stored, {"signer": signer.principal, "key_id": signer.key_id})
        row = {"tier": found.tier.name, **row, **render.state_json(found.state)}
        row |= {"metadata": dict(signed.metadata), "files": dict(signed.digests), "executables": signed.executables}
        session.print_json({**row, "content": found.item.content})
        return
    by = render.signed_by(signer.principal, found.state)
    session.notify(f"{signed.ref} from {found.tier.name}, signed by {by}, digest {found.stored.digest}")
    if len(signed.digests) > 1:
        marks = {name: " (executable)" if name in signed.executables else "" for name in signed.digests}
        session.notify("\n".join([f"{len(marks)} files:", *(f"  {name}{mark}" for name, mark in marks.items())]))
    session.print(render.safe(found.item.content.rstrip("\n")))


def _warn(session: Session, app: Services, found: FoundItem) -> None:
    """Print warnings about a yanked version, a changed file, and what scripts use without declaring it."""
    stored = found.stored
    if warnings := items.permission_warnings(app, found):
        session.notify(render.findings_text(warnings))
    if stored.yanked_at:
        reason = f": {stored.yank_reason}" if stored.yank_reason else ""
        session.notify(f"warning: {stored.ref} was yanked on {stored.yanked_at:%Y-%m-%d}{reason}")
    elif found.state.yanked:
        session.notify(f"warning: {stored.ref} was yanked; kiwi show {stored.ref}@registry says why")
    if found.state.changed:
        session.notify(f"warning: {found.state.changed}; this is the text that was signed")


@command("list", epilog="Example: kiwi list --type script --source all")
@SOURCE
@ITEM_TYPE
@NAMESPACE
async def list_items(session: Session, app: Services, source: str | None, **given: str | None) -> int:
    """List the indexed items."""
    tiers = await items.list_items(app, source or "local", filters_of(given))
    for tier in tiers:
        for problem in tier.problems:
            session.notify(f"{tier.tier}: {problem}")
    rows = [{"tier": tier.tier, **render.item_json(item, {})} for tier in tiers for item in tier.items]
    session.print_data(rows, map(_line, rows))
    if not rows:
        session.notify("no items; index a tier's files with: kiwi index")
    return PARTLY if any(tier.problems for tier in tiers) else DONE


def _line(row: Mapping[str, Any]) -> str:
    where = row["path"] or ("private" if row["private"] else "")
    return render.safe(f"{row['tier']}  {row['item_type']}  {row['item_id']}@{row['version']}  {where}")


@command(epilog="Example: kiwi verify, or kiwi verify acme/deploy/staging --source user")
@click.argument("refs", nargs=-1)
@SOURCE
async def verify(session: Session, app: Services, refs: tuple[str, ...], source: str | None) -> int:
    """Verify indexed items again, and compare them with their files and between tiers.

    Exit code 4: an item was refused. Exit code 3: a file was changed, a version was yanked, or two tiers have the same
    version with different content.
    """
    wanted, source = [parse_address(ref) for ref in refs], source or "local"
    if problem := await fetch_revocations(app):
        session.notify(problem)
    verdicts = await items.verify(app, wanted, source)
    if wanted and not verdicts:
        raise NotFound(f"{', '.join(refs)}: not found in {source}", hint="kiwi list shows what is there")
    lines = (
        f"{'✓' if one.state == 'verified' else '✗'} {one.tier}  {one.ref}  {one.state}  {one.signer}{one.reason}"
        for one in verdicts
    )
    session.print_data([verdict.as_dict() for verdict in verdicts], map(render.safe, lines))
    states = [one.state for one in verdicts]
    named = ("verified", "changed", "yanked", "refused", *(["conflict"] if "conflict" in states else []))
    session.notify(", ".join(f"{states.count(name)} {name}" for name in named))
    return REFUSED if "refused" in states else DONE if set(states) <= {"verified"} else PARTLY


@command(epilog="Example: kiwi delete acme/deploy/old --yes")
@REF
@option("--tier", type=click.Choice(["project", "user"]), default="project")
@option("--yes", is_flag=True, help="Do not ask.")
async def delete(session: Session, app: Services, ref: str, tier: str, yes: bool) -> None:
    """Delete an item from a local tier: file, signature and index entry. Its versions stay recorded."""
    found = await items.find_local(app, ref, tier)
    question = f"Delete {found.ref} and {found.path}?"
    confirm(question, f"kiwi delete {ref}", yes=yes, undone="nothing was deleted")
    await items.delete(found)
    session.print(f"deleted  {found.ref}")
