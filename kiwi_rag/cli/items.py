"""What is done with item files (``kiwi add``, ``index``, ``publish``, …) and with items (``get``, ``show``, …)."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import click

from kiwi_rag import render
from kiwi_rag.cli.search import ITEM_TYPE, NAMESPACE, SOURCE
from kiwi_rag.cli.session import DONE, PARTLY, REFUSED, YES, Session, ask_passphrase, command, confirm, option
from kiwi_rag.errors import NotFound, RegistryUnreachable, Rejected, UsageError
from kiwi_rag.formats.source import SourceFile, display_path
from kiwi_rag.ingest.publication import NotPublished, PublishRun
from kiwi_rag.ingest.sync import Callbacks
from kiwi_rag.model import Admission, Visibility
from kiwi_rag.render import counted
from kiwi_rag.services import Services
from kiwi_rag.usecases import add as use_case
from kiwi_rag.usecases import filters_of, items
from kiwi_rag.usecases.items import FoundItem
from kiwi_rag.usecases.project_trust import next_step, share_hint
from kiwi_rag.usecases.sign import Draft
from kiwi_rag.usecases.trust import fetch_revocations

REF = click.argument("ref")
JOBS = 2  # the default of ingest.index, repeated here so that --help does not import kiwi_rag.ingest
PATHS = click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
LOCAL = ("project", "user")
TIER = option("--tier", choices=LOCAL, default="project", help="The tier: .ai of the project, or ~/.ai of the user.")
KEY = option("--key", default="", help="Name of the key to sign with. Default: the only one you have.")
PARTS = ("patch", "minor", "major")
BUMP = option("--bump", choices=PARTS, help="Raise versions of edited items; add missing ones.")


@command(epilog="Example: kiwi validate .ai, or kiwi validate .ai/directives/acme/deploy/staging.md")
@PATHS
@TIER
def validate(session: Session, paths: tuple[Path, ...], tier: str) -> int:
    """Check items by steps 0-6 of the gate, without signing, storing or recording anything.

    Files that belong to no item are named with a warning.
    """
    app = session.app()
    others = {path: [finding] for path, finding in use_case.find_strays(app, paths, tier)}
    named = [path for path in paths if path.absolute() not in others]
    checked = list(use_case.check_files(app, named, tier))
    rows = [(source.path, found) for source, found, _ in checked]
    shown = [*rows, *others.items()]
    data = [{"path": str(path), "findings": [f.as_dict() for f in found]} for path, found in shown]
    session.print_data(data, (render.findings_text(found, session.style) for _, found in shown if found))
    good = sum(not any(f.is_error for f in found) for _, found in rows)
    unsigned = good - sum(signed and not any(f.is_error for f in found) for _, found, signed in checked)
    number = "" if unsigned == good else f"{unsigned} of them "
    condition = f", {number}once signed by a trusted key" if unsigned or not good else ", as signed by a trusted key"
    session.notify(f"{good} of {counted(len(rows), 'items')} would be admitted{condition}")
    return DONE if good == len(rows) else REFUSED


@command(epilog="Example: kiwi sign .ai, or kiwi sign .ai/knowledge/acme/slo.md --bump patch")
@PATHS
@TIER
@KEY
@BUMP
@option("--force", is_flag=True, help="Also sign items that have a valid signature.")
async def sign(session: Session, app: Services, **given: Any) -> int:
    """Sign items that pass the gate's content checks: write FILE.sig beside each file."""
    drafts, refused = await use_case.make_drafts(app, ask_passphrase=ask_passphrase, report=session.notify, **given)
    for draft in drafts:
        draft.write()
        report_draft(session, draft, show_ref=False)
    rows = [{"ref": str(d.ref), "path": str(d.source.path), "fresh": d.fresh, "wrote": d.wrote} for d in drafts]
    lines = (f"{'signed' if draft.fresh else 'already signed'}  {draft.ref}" for draft in drafts)
    session.print_data({"signed": rows, "refused": [r.as_dict() for r in refused]}, lines)
    fresh = sum(draft.fresh for draft in drafts)
    session.notify(f"{fresh} signed, {len(drafts) - fresh} were signed already")
    return session.report_refusals(refused)


def report_draft(session: Session, draft: Draft, *, show_ref: bool = True) -> None:
    """Print on stderr the version that was written, the warnings about a new signature, and what was signed."""
    session.notify(draft.wrote and f"wrote  {draft.wrote}")
    if draft.fresh:
        session.notify(render.findings_text(draft.item.findings), f"signed  {draft.ref}" if show_ref else "")


@command(epilog="Example: kiwi add .ai/directives/acme/deploy/staging.md")
@PATHS
@TIER
@KEY
@BUMP
async def add(session: Session, app: Services, **given: Any) -> int:
    """Check, sign and index items in one step. Nothing is written for a refused item.

    On a terminal you are asked by how much to raise the version of an edited item; elsewhere --bump says it.
    """
    given["ask_passphrase"] = cache(ask_passphrase)
    drafts, rejected = await use_case.make_drafts(app, report=session.notify, **given)
    if not given["bump"] and (raised := await _ask_and_raise(session, app, use_case.edited_paths(rejected), given)):
        drafts, rejected = [*drafts, *raised], [one for one in rejected if not use_case.edited_paths([one])]
    is_first = given["tier"] == "project" and not app.has_project_index
    rows, refused = await _store(session, app, drafts, given["tier"])
    session.notify(share_hint(app) if is_first and rows else "")
    refused = [use_case.name_command(one, "add") for one in (*rejected, *refused)]
    session.print_data({"added": rows, "refused": [r.as_dict() for r in refused]})
    return session.report_refusals(refused)


async def _ask_and_raise(
    session: Session, app: Services, edited: Sequence[Path], given: Mapping[str, Any]
) -> Sequence[Draft]:  # fmt: skip
    """Ask on a terminal by how much to raise the versions of edited items; return them as they are to be written."""
    if not edited or not sys.stdin.isatty():
        return ()
    given = {**given, "paths": edited, "report": session.notify}
    drafts, rejected = await use_case.make_drafts(app, **{**given, "bump": "patch"})
    for ref in (draft.ref for draft in drafts):
        session.notify(f"{ref.item_id} is not what was signed; patch makes it {ref.version}")
    part = click.prompt("Raise the version", type=click.Choice([*PARTS, "no"]), default="patch", err=True)
    if part in PARTS[1:]:
        drafts, rejected = await use_case.make_drafts(app, **{**given, "bump": part})
    return () if rejected or part == "no" else drafts


async def _store(
    session: Session, app: Services, drafts: Sequence[Draft], tier: str
) -> tuple[list[dict[str, Any]], list[Rejected]]:
    """Write and index drafts, and print a line for each; return the rows, and the rejections."""
    refused, rows = list[Rejected](), list[dict[str, Any]]()
    async with aclosing(use_case.store(app, drafts, tier)) as outcomes:
        async for outcome in outcomes:
            if isinstance(outcome, Rejected):
                refused.append(outcome)
            elif isinstance(outcome, Draft):
                session.notify(outcome.wrote and f"wrote  {outcome.wrote}")
            else:
                done, known = outcome
                rows.append({"ref": str(done.ref), "digest": done.digest, "signer": done.principal, "unchanged": known})
                session.print_receipt(f"{'unchanged' if known else 'added'}  {done.ref}")
    return rows, refused


@command(epilog="Example: kiwi index, or kiwi index --tier user")
@TIER
@option("--rebuild", is_flag=True, help="Empty the index first. Recorded versions and the audit log are kept.")
@option("--jobs", type=click.IntRange(min=1), default=JOBS, help="Batches of 64 passages to embed at the same time.")
@option("--watch", is_flag=True, help="Run until stopped: check each item when it is saved, and index signed ones.")
@option("--sign", is_flag=True, help="With --watch: sign each item that is saved; the key must need no prompt.")
@KEY
async def index(
    session: Session, app: Services, tier: str, rebuild: bool, jobs: int, watch: bool, sign: bool, key: str
) -> int:
    """Update a tier's index: admit and embed changed files, and remove deleted ones. Can be stopped and run again.

    More --jobs are faster with an embedding server only. --sign signs whatever is written below .ai while it runs.
    """
    if (sign and not watch) or (watch and rebuild):
        hint = f"kiwi index --watch{' --sign' if sign else ''}"
        raise UsageError("--sign works with --watch only, and --watch without --rebuild", hint=hint)
    if watch:
        from kiwi_rag.cli.workspace import watch_items

        signer = app.signing_key(key) if sign else None
        return await watch_items(session, app, tier, signer, partial(report_draft, session))
    session.notify_old_index(app.old_catalog(app.root(tier)))

    queries: list[str] = []

    def report_stored(admission: Admission) -> None:
        words = str(admission.item.metadata.get("description") or admission.item.title).split()
        queries.append(" ".join(words[:6]).rstrip(".,:;"))
        if not session.shows_progress:
            session.print_receipt(f"stored  {admission.ref}")

    with session.progress_bar(f"index {tier}", "files") as planned:
        callbacks = Callbacks(planned, report_stored)
        report = await use_case.update_index(app, tier, callbacks, jobs, rebuild=rebuild)
    encoded = getattr(app.embed, "encoded", None)
    counts = (
        f"{len(report.admitted)} admitted, {report.unchanged} unchanged, {len(report.removed)} removed, "
        f"{len(report.rejected)} refused; {counted(report.passages, 'passages')}, {encoded} encoded"
    )
    data = {
        "admitted": [*map(str, report.admitted)], "removed": [*map(str, report.deleted)],
        "unchanged": report.unchanged, "refused": [error.as_dict() for error in report.rejected],
        "passages": report.passages, "encoded": encoded,
    }  # fmt: skip
    session.print_data(data, [counts])
    step, is_first = next_step(app), queries and report.unchanged == 0
    refused, signers = use_case.without_signer_hints(report.rejected)
    code = session.report_refusals(refused)
    session.notify(*(() if step else signers))
    session.notify(step or (f"next: kiwi search {shlex.quote(queries[0])}" if is_first else ""))
    return code


@command(epilog="Example: kiwi sync --to user, or kiwi sync .ai/knowledge --to user")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@option("--to", "target", choices=["user"], default="user")
@option("--force", is_flag=True, help="Overwrite an item of the same id that has other content.")
async def sync(session: Session, app: Services, paths: tuple[Path, ...], target: str, force: bool) -> int:
    """Copy signed project items, all or those below PATHS, to the user tier, and index them there."""
    session.notify(await fetch_revocations(app))
    count, refused = await use_case.copy_to_tier(
        app, paths, target, lambda admission: session.print_receipt(f"copied  {admission.ref}"), overwrite=force
    )
    session.notify(f"nothing was copied; refused: {len(refused)} of {counted(count, 'items')}" if refused else "")
    return session.report_refusals(refused)


@command(epilog="Example: kiwi publish --all, or kiwi publish .ai/directives/acme/deploy")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@option("--all", "everything", is_flag=True, help="Publish all signed items of the tier.")
@option("--private", "visibility", flag_value="private", help="Make new items visible to their owner only.")
@option("--public", "visibility", flag_value="public", help="Make items visible to everybody. This cannot be undone.")
@TIER
@KEY
@BUMP
async def publish(
    session: Session, app: Services, everything: bool, visibility: Visibility | None, **given: Any
) -> int:
    """Publish signed items and make them searchable for everyone who trusts their signer.

    Each line on stdout is a receipt: the item is in the registry. After an interruption run the command again; items
    that are published already are not changed.

    The owner of a private item is the user who is logged in (Supabase), else the database role with the name of its
    signer. Other users cannot find or read it, or learn that it exists. Without --private and --public new items are
    public, and published ones are not changed; --public makes published private items public, too.

    With --bump all items are checked, then what is new or edited is signed, with the next version, and indexed.
    """
    tier = given["tier"]
    if bool(given["paths"]) == everything:
        raise UsageError("name files or folders, or use --all", hint="kiwi publish --all")
    sources = use_case.files_at(app, given["paths"], tier)
    given |= {"paths": [source.path for source in sources], "ask_passphrase": cache(ask_passphrase)}
    run = await use_case.prepare_publication(app, tier, visibility)
    run.report = session.notify
    if given["bump"] and (rejected := await _raise_all(session, app, given)):
        session.print_data({"published": [], "refused": [r.as_dict() for r in rejected]})
        session.notify("nothing was published")
        return session.report_refusals(rejected)
    rows, failures = await _publish(session, run, sources)
    edited = use_case.edited_paths(failure.error for failure in failures)
    if raised := await _ask_and_raise(session, app, edited, given):
        await _store(session, app, raised, tier)
        more, still = await _publish(session, run, [draft.source for draft in raised])
        failures = [one for one in failures if not use_case.edited_paths([one.error])] + still
        rows += more
    failures = [replace(one, error=use_case.name_command(one.error, "publish")) for one in failures]
    session.print_data({"published": rows, "refused": [f.error.as_dict() for f in failures]})
    new = sum(not row["already_published"] for row in rows)
    public = sum(not row["private"] for row in rows) if visibility == "private" else 0
    if public:
        session.notify(f"{public} were public already and stay public: what was published cannot be made private")
    refused = [f.error for f in failures if not isinstance(f.error, RegistryUnreachable)]
    session.notify(f"{new} published, {len(rows) - new} were published already, {len(refused)} refused")
    if run.not_indexed:
        session.notify(f"not searchable yet, until an indexer runs kiwi registry index: {run.not_indexed.message}")
    session.notify(share_hint(app) if new and tier == "project" else "")
    worst = session.report_refusals(refused)
    if not run.unreachable:
        return worst or (PARTLY if public else DONE)
    session.notify(f"{len(failures) - len(refused)} not published; run the command again to continue")
    session.report_error(run.unreachable)
    return PARTLY


async def _raise_all(session: Session, app: Services, given: Mapping[str, Any]) -> Sequence[Rejected]:
    """Sign and index what is new or edited, with raised versions; return the rejections, for which none is written."""
    unknown: list[str] = []
    drafts, rejected = await use_case.make_drafts(app, report=unknown.append, **given)
    if unknown:
        raise RegistryUnreachable(f"{unknown[0]}; nothing was changed", hint="kiwi registry status")
    return rejected or (await _store(session, app, [draft for draft in drafts if draft.fresh], given["tier"]))[1]


async def _publish(
    session: Session, run: PublishRun, sources: Sequence[SourceFile]
) -> tuple[list[dict[str, Any]], list[NotPublished]]:
    """Publish, and print a line for each durable item. Return the rows, and the items that were not published."""
    rows, failures = list[dict[str, Any]](), list[NotPublished]()
    with session.progress_bar("publish", "items") as planned:
        progress = planned(len(sources))
        async for outcome in run.publish(sources):
            progress(1)
            if isinstance(outcome, NotPublished):
                failures.append(outcome)
                continue
            receipt = outcome.receipt
            rows.append({"ref": str(outcome.ref), **asdict(receipt), "waits_for_index": outcome.waits})
            done = "already published" if receipt.already_published else "published"
            change = "made public" if receipt.made_public else done
            state = "  private" if receipt.private else "  yanked" if receipt.yanked else ""
            session.print_receipt(f"{change}  {outcome.ref}  #{receipt.sequence}  {receipt.digest[:16]}{state}")
    return rows, failures


@command(epilog="Example: kiwi get acme/deploy/staging, or kiwi get acme/slo@1.2.0@registry --to user")
@REF
@option("--to", "target", choices=LOCAL, default="project")
@option("--force", is_flag=True, help="Overwrite an item of the same id that has other content.")
async def get(session: Session, app: Services, ref: str, target: str, force: bool) -> None:
    """Copy an item from another tier: verify it, write its file and signature, and index it."""
    found = await items.find(app, ref, [name for name in ("user", "registry") if name != target])
    warn(session, app, found)
    admission, path = await items.copy(app, found, target, overwrite=force)
    state = {**render.state_json(found.state), **render.yank_json(found.stored)}
    line = f"{admission.ref} from {found.tier.name}, signed by {admission.principal}: {display_path(path)}"
    session.print_data({"ref": str(admission.ref), "path": str(path), "from": found.tier.name, **state}, [line])


@command(epilog="Example: kiwi show directive:acme/deploy/staging")
@REF
@SOURCE
@option("--statement", is_flag=True, help="Print the signed statement in place of the content.")
@option("--file", default="", help="Print this file of a skill in place of SKILL.md.")
async def show(session: Session, app: Services, ref: str, source: str | None, statement: bool, file: str) -> None:
    """Print the signed content of an item, from the nearest tier that has it; of a skill SKILL.md, and its files."""
    found = await items.find(app, ref, app.source_names(source or "all"))
    warn(session, app, found)
    signed, signer = found.signed, found.signer
    if statement:
        payload = json.loads(found.stored.envelope.payload)
        session.print_data(payload, [render.safe(json.dumps(payload, ensure_ascii=False, indent=2))])
        return
    if session.as_json:
        row = render.item_json(found.stored, {"signer": signer.principal, "key_id": signer.key_id})
        row = {"tier": found.tier.name, **row, **render.state_json(found.state)}
        row |= {"metadata": dict(signed.metadata), "files": dict(signed.digests), "executables": signed.executables}
        session.print_json({**row, "content": _text_of(found, file)})
        return
    by = render.signed_by(signer.principal, found.state)
    session.notify(f"{signed.ref} from {found.tier.name}, signed by {by}, digest {found.stored.digest}")
    if len(signed.digests) > 1 and not file:
        session.notify(*render.file_tree(found.stored.files, signed.executables))
    session.print(render.safe(_text_of(found, file).rstrip("\n")))


def _text_of(found: FoundItem, file: str) -> str:
    """Return the text of a file of an item, of the main file where none is named."""
    name, ref = file or found.signed.main, found.signed.ref
    if name not in found.stored.files:
        raise NotFound(f"{ref} has no file {name!r}", hint=f"kiwi show {ref}")
    try:
        return found.stored.files[name].decode()
    except UnicodeDecodeError as error:
        message = f"{name} of {ref} is a binary file of {counted(len(found.stored.files[name]), 'bytes')}"
        raise UsageError(message, hint=f"kiwi install {ref.item_id}") from error


def warn(session: Session, app: Services, found: FoundItem) -> None:
    """Print warnings about a yanked version, a changed file, and what scripts use without declaring it."""
    session.notify(render.findings_text(items.permission_warnings(app, found)))
    session.notify(*(f"warning: {line}" for line in items.state_warnings(found)))


@command("list", epilog="Example: kiwi list --type script --source all")
@SOURCE
@ITEM_TYPE
@NAMESPACE
async def list_items(session: Session, app: Services, source: str | None, **given: str | None) -> int:
    """List the indexed items."""
    tiers = await items.list_items(app, source or "local", filters_of(given))
    session.notify(*(f"{tier.tier}: {problem}" for tier in tiers for problem in tier.problems))
    rows = [{"tier": tier.tier, **render.item_json(item, {})} for tier in tiers for item in tier.items]
    session.print_data(rows, map(_line, rows), empty="no items; index a tier's files with: kiwi index")
    return PARTLY if any(tier.problems for tier in tiers) else DONE


def _line(row: Mapping[str, Any]) -> str:
    where = row["path"] or ("private" if row["private"] else "")
    return render.safe(f"{row['tier']}  {row['item_type']}  {row['item_id']}@{row['version']}  {where}")


@command(epilog="Example: kiwi delete acme/deploy/old --yes")
@REF
@TIER
@YES
async def delete(session: Session, app: Services, ref: str, tier: str, yes: bool) -> None:
    """Delete an item from a local tier: file, signature and index entry. Its versions stay recorded."""
    target, item, stored, path = await items.find_local(app, ref, tier)
    confirm(f"Delete {item} and {path}?", f"kiwi delete {ref}", yes=yes, undone="nothing was deleted")
    await items.delete(target, item, stored, path)
    session.print(f"deleted  {item}  {path}")
