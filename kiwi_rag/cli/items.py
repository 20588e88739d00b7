"""``kiwi get``, ``show``, ``list``, ``verify`` and ``delete``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import click

from kiwi_rag import render
from kiwi_rag.cli.index import fetch_revocations
from kiwi_rag.cli.search import SOURCE
from kiwi_rag.cli.session import DONE, PARTLY, REFUSED, Session
from kiwi_rag.errors import KiwiError, NotFound, Refused, RegistryContradicted, UsageError, Yanked
from kiwi_rag.model import Filters, ItemState, StoredItem
from kiwi_rag.model.refs import ITEM_TYPES, ItemType
from kiwi_rag.services import Services
from kiwi_rag.usecases.status import find_item, item_state

if TYPE_CHECKING:
    from kiwi_rag.collection import Tier
    from kiwi_rag.model import VersionConflict
    from kiwi_rag.monitor.monitor import ConsistencyCheck
    from kiwi_rag.search.verify import VerifiedItem
    from kiwi_rag.stores.base import VectorStore

REF = click.argument("ref")


@click.command(epilog="Example: kiwi get acme/deploy/staging, or kiwi get acme/slo@1.2.0@registry --to user")
@REF
@click.option("--to", "target", type=click.Choice(["project", "user"]), default="project", show_default=True)
@click.option("--force", is_flag=True, help="Overwrite an item of the same id that has other content.")
@click.pass_obj
def get(session: Session, ref: str, target: str, force: bool) -> int:
    """Copy an item from another tier: verify it, write its file and signature, and index it."""
    return session.run(lambda app: _get(session, app, ref, target, force))


@click.command(epilog="Example: kiwi show directive:acme/deploy/staging")
@REF
@SOURCE
@click.pass_obj
def show(session: Session, ref: str, source: str | None) -> int:
    """Print the signed content of an item, from the nearest tier that has it."""
    return session.run(lambda app: _show(session, app, ref, source or "all"))


@click.command("list", epilog="Example: kiwi list --type script --source all")
@SOURCE
@click.option("--type", "item_type", type=click.Choice([t.value for t in ITEM_TYPES]), help="Only items of this type.")
@click.option("--namespace", default="", help="Only items of this namespace, the first segment of the id.")
@click.pass_obj
def list_items(session: Session, source: str | None, item_type: str | None, namespace: str) -> int:
    """List the indexed items."""
    filters = Filters(item_type=ItemType(item_type) if item_type else None, namespace=namespace)
    return session.run(lambda app: _list(session, app, source or "local", filters))


@click.command(epilog="Example: kiwi verify, or kiwi verify acme/deploy/staging --source user")
@click.argument("refs", nargs=-1)
@SOURCE
@click.pass_obj
def verify(session: Session, refs: tuple[str, ...], source: str | None) -> int:
    """Verify indexed items again, and compare them with their files and between tiers.

    Exit code 4: an item was refused. Exit code 3: a file was changed, a version was yanked, or two tiers have the same
    version with different content.
    """
    return session.run(lambda app: _verify(session, app, refs, source or "local"))


@click.command(epilog="Example: kiwi delete acme/deploy/old --yes")
@REF
@click.option("--tier", type=click.Choice(["project", "user"]), default="project", show_default=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(session: Session, ref: str, tier: str, yes: bool) -> int:
    """Delete an item from a local tier: file, signature and index entry. Its versions stay recorded."""
    return session.run(lambda app: _delete(session, app, ref, tier, yes))


async def _get(session: Session, app: Services, text: str, target: str, force: bool) -> int:
    from kiwi_rag import ingest
    from kiwi_rag.search.verify import parse_address
    from kiwi_rag.usecases import sign
    from kiwi_rag.validation.manager import candidate_of

    address = parse_address(text)
    names = [address.tier] if address.tier else [n for n in ("user", "registry") if n != target]
    tier, item = await find_item(app, address, names)
    app.refresh_trust()
    state = await item_state(tier, item)
    _warn(session, item.stored, state)
    to = app.local(target)
    async with to.store.writing():
        # Admitted before it is written: a refused item must not replace a file.
        sign.check_place(app.root(target), item.stored.envelope, overwrite=force)
        admission = await ingest.admit(candidate_of(item.stored.envelope), to, app.gate)
        placed = sign.place_item(app.root(target), item.stored.envelope, overwrite=force)
        await ingest.store(placed, ingest.read(placed, to, app.gate), admission, to, app.writer)
    if session.as_json:
        state_rows = {**render.state_json(state), **render.yank_json(item.stored)}
        session.print_json({"ref": str(admission.ref), "path": str(placed.path), "from": tier.name, **state_rows})
    else:
        session.print(
            f"{admission.ref} from {tier.name}, signed by {admission.principal}: {ingest.display_path(placed.path)}"
        )
    return DONE


async def _show(session: Session, app: Services, text: str, source: str) -> int:
    from kiwi_rag.search.verify import parse_address

    address = parse_address(text)
    tier, item = await find_item(app, address, [address.tier] if address.tier else app.source_names(source))
    state = await item_state(tier, item)
    _warn(session, item.stored, state)
    signed, signer = item.verified.statement, item.verified.signer
    if session.as_json:
        row = {**_row(tier.name, item), **render.state_json(state)}
        session.print_json({**row, "metadata": dict(signed.metadata), "content": signed.content})
        return DONE
    by = render.signed_by(signer.principal, state)
    session.notify(f"{signed.ref} from {tier.name}, signed by {by}, digest {item.stored.digest}")
    session.print(render.safe(signed.content.rstrip("\n")))
    return DONE


def _warn(session: Session, stored: StoredItem, state: ItemState) -> None:
    """Print warnings about a yanked version and a changed file."""
    if stored.yanked_at:
        reason = f": {stored.yank_reason}" if stored.yank_reason else ""
        session.notify(f"warning: {stored.ref} was yanked on {stored.yanked_at:%Y-%m-%d}{reason}")
    elif state.yanked:
        session.notify(f"warning: {stored.ref} was yanked; kiwi show {stored.ref}@registry says why")
    if state.changed:
        session.notify(f"warning: {state.changed}; this is the text that was signed")


async def _list(session: Session, app: Services, source: str, filters: Filters) -> int:
    rows: list[dict[str, Any]] = []
    failed = False
    for name in app.source_names(source):
        try:
            tier = app.tier(name)
            if tier.monitor:
                await tier.monitor.check()
            stored = await tier.store.list(filters)
        except KiwiError as error:
            failed = True
            session.notify(f"{name}: {error.message}")
        else:
            rows += [{"tier": name, **render.item_json(item, {})} for item in stored if not item.problem]
            for item in stored:
                if item.problem:
                    failed = True
                    session.notify(f"{name}: {item.ref} is not listed: {item.problem}")
    if session.as_json:
        session.print_json(rows)
    else:
        for row in rows:
            where = row["path"] or ("private" if row["private"] else "")
            line = f"{row['tier']}  {row['item_type']}  {row['item_id']}@{row['version']}  {where}"
            session.print(render.safe(line))
    if not rows:
        session.notify("no items; index a tier's files with: kiwi index")
    return PARTLY if failed else DONE


async def _verify(session: Session, app: Services, refs: tuple[str, ...], source: str) -> int:
    from kiwi_rag.search.state import find_version_conflicts
    from kiwi_rag.search.verify import parse_address

    wanted = [parse_address(ref) for ref in refs]
    await fetch_revocations(session, app)
    rows: list[dict[str, Any]] = []
    compared = []
    for name in app.source_names(source):
        tier = app.tier(name)
        look = await tier.monitor.check() if tier.monitor else None
        held = await tier.store.list(Filters())
        yanked = await asyncio.to_thread(tier.yanked, [stored.digest for stored in held])
        chosen = [s for s in held if not wanted or any(s.ref.key in [r.key for r in a.refs()] for a in wanted)]
        rows += [await _check(app, tier, stored, look, yanked) for stored in chosen]
        compared += [(tier, chosen)] if tier.root else []
        if look:
            rows += [] if wanted else await _withheld(tier, held, look)
            await asyncio.to_thread(look.save)
    registry = app.registry() if "registry" in app.source_names(source) else None
    _mark(rows, await find_version_conflicts(compared, registry))
    if wanted and not rows:
        raise NotFound(f"{', '.join(refs)}: not found in {source}", hint="kiwi list shows what is there")
    if session.as_json:
        session.print_json(rows)
    else:
        for row in rows:
            mark = "✓" if row["state"] == "verified" else "✗"
            line = f"{mark} {row['tier']}  {row['ref']}  {row['state']}  {row['signer']}{row['reason']}"
            session.print(render.safe(line))
    states = [row["state"] for row in rows]
    named = ("verified", "changed", "yanked", "refused", *(["conflict"] if "conflict" in states else []))
    session.notify(", ".join(f"{states.count(name)} {name}" for name in named))
    return REFUSED if "refused" in states else DONE if set(states) <= {"verified"} else PARTLY


def _mark(rows: Sequence[dict[str, Any]], conflicts: Sequence[VersionConflict]) -> None:
    """Set the state of each row whose version has other content in another tier to conflict, unless it is refused."""
    for conflict in conflicts:
        for row in rows:
            if row["ref"] == str(conflict.ref) and row["tier"] in conflict.digests and row["state"] != "refused":
                row |= {"state": "conflict", "reason": f"  {conflict}: {conflict.hint}", "conflict": conflict.as_dict()}


async def _withheld(
    tier: Tier[VectorStore], held: Sequence[StoredItem], look: ConsistencyCheck
) -> list[dict[str, Any]]:
    """Return a row for each item in the pinned state that the registry no longer has, without a yank."""
    there = {stored.ref.key for stored in held}
    rows = []
    for ref in look.pinned_items():
        try:
            if ref.key not in there:
                await look.check_missing(ref)
        except RegistryContradicted as error:
            reason = f"{error.code}: {error.message}"
            rows.append({"tier": tier.name, "ref": str(ref), "state": "refused", "signer": "", "reason": reason})
        except (Yanked, Refused):
            pass  # the registry reports that it was yanked
    return rows


async def _check(
    app: Services, tier: Tier[VectorStore], stored: StoredItem, look: ConsistencyCheck | None, yanked: Collection[str]
) -> dict[str, Any]:
    from kiwi_rag.search.state import read_state
    from kiwi_rag.search.verify import verify_stored

    row = {"tier": tier.name, "ref": str(stored.ref), "state": "verified", "signer": "", "reason": ""}
    try:
        item = verify_stored(stored, stored.ref, app.trust, app.settings.registry_name, tier.policy)
        if look:
            await look.check_consistency(stored, item.verified.signer.key_id, newest=True)
    except Refused as error:
        tier.audit.append("verify-refused", str(stored.ref), stored.digest, "", {"reason": error.code})
        return {**row, "state": "refused", "reason": f"{error.code}: {error.message}"}
    state = await asyncio.to_thread(read_state, item, tier, yanked)
    name = state.labels[0] if state.labels else "verified"
    reason = "".join(f"  {line}" for line in render.state_lines(stored.ref, state))
    return {**row, "state": name, "signer": item.verified.signer.principal, "reason": reason}


async def _delete(session: Session, app: Services, text: str, tier: str, yes: bool) -> int:
    from kiwi_rag.formats import SourceFile, path_of
    from kiwi_rag.search.verify import parse_address
    from kiwi_rag.usecases import sign

    target = app.local(tier)
    refs = [ref for ref in parse_address(text).refs() if await target.store.get(ref)]
    if not refs:
        raise NotFound(f"the {tier} tier has no item {text!r}", hint=f"kiwi list --source {tier}")
    if len(refs) > 1:
        raise NotFound(
            f"{text!r} is several items: {', '.join(map(str, refs))}", hint="put the type in front of the id"
        )
    stored = await target.store.get(refs[0])
    # The path is derived from the id, because a damaged index could name any of the user's files.
    path = path_of(app.root(tier), stored.ref) if stored and stored.path else None
    if not yes and not (sys.stdin.isatty() and click.confirm(f"Delete {refs[0]} and {path}?", err=True)):
        raise UsageError("not confirmed; nothing was deleted", hint=f"kiwi delete {text} --yes")
    async with target.store.writing():
        if path:
            sign.remove_files(SourceFile(path, refs[0].item_type, refs[0].item_id))
            await target.store.delete_source(stored.path if stored else "")
        await target.store.delete(refs[0])
        target.audit.append("deleted", str(refs[0]), stored.digest if stored else "", "", {})
    session.print(f"deleted  {refs[0]}")
    return DONE


def _row(tier: str, item: VerifiedItem) -> dict[str, Any]:
    signer = item.verified.signer
    return {"tier": tier, **render.item_json(item.stored, {"signer": signer.principal, "key_id": signer.key_id})}
