"""``kiwi get``, ``show``, ``list``, ``verify`` and ``delete``: one item, or all of a tier."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import click

from kiwi_rag import render
from kiwi_rag.cli.index import learn_who_lost_trust
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
@click.option("--force", is_flag=True, help="Overwrite other content of the same id.")
@click.pass_obj
def get(session: Session, ref: str, target: str, force: bool) -> int:
    """Bring an item from another tier into this one: verified, written as file and signature, and indexed."""
    return session.run(lambda app: _get(session, app, ref, target, force))


@click.command(epilog="Example: kiwi show directive:acme/deploy/staging")
@REF
@SOURCE
@click.pass_obj
def show(session: Session, ref: str, source: str | None) -> int:
    """Print an item's content as it was signed, from the first tier that holds it."""
    return session.run(lambda app: _show(session, app, ref, source or "all"))


@click.command("list", epilog="Example: kiwi list --type script --source all")
@SOURCE
@click.option("--type", "item_type", type=click.Choice([t.value for t in ITEM_TYPES]), help="Only this type.")
@click.option("--namespace", default="", help="Only ids whose first segment this is.")
@click.pass_obj
def list_items(session: Session, source: str | None, item_type: str | None, namespace: str) -> int:
    """List what the tiers' indexes hold."""
    filters = Filters(item_type=ItemType(item_type) if item_type else None, namespace=namespace)
    return session.run(lambda app: _list(session, app, source or "local", filters))


@click.command(epilog="Example: kiwi verify, or kiwi verify acme/deploy/staging --source user")
@click.argument("refs", nargs=-1)
@SOURCE
@click.pass_obj
def verify(session: Session, refs: tuple[str, ...], source: str | None) -> int:
    """Verify again what the indexes hold, and compare with the files and between tiers.

    Ends with 4 when something is refused, with 3 when a file was changed, a version yanked, or one version has two
    contents.
    """
    return session.run(lambda app: _verify(session, app, refs, source or "local"))


@click.command(epilog="Example: kiwi delete acme/deploy/old --yes")
@REF
@click.option("--tier", type=click.Choice(["project", "user"]), default="project", show_default=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(session: Session, ref: str, tier: str, yes: bool) -> int:
    """Remove an item from a local tier: file, signature and index entry. Its versions stay on record."""
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
        # Judged first: what is refused must neither lie in the folder nor take the place of a good file.
        sign.check_place(app.root(target), item.stored.envelope, overwrite=force)
        admission = await ingest.admit(candidate_of(item.stored.envelope), to, app.gate)
        placed = sign.place_item(app.root(target), item.stored.envelope, overwrite=force)
        await ingest.store(placed, ingest.read(placed, to, app.gate), admission, to, app.writer)
    if session.as_json:
        told = {**render.state_json(state), **render.yank_json(item.stored)}
        session.data({"ref": str(admission.ref), "path": str(placed.path), "from": tier.name, **told})
    else:
        session.out(
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
        session.data({**row, "metadata": dict(signed.metadata), "content": signed.content})
        return DONE
    by = render.signed_by(signer.principal, state)
    session.say(f"{signed.ref} from {tier.name}, signed by {by}, digest {item.stored.digest}")
    session.out(render.safe(signed.content.rstrip("\n")))
    return DONE


def _warn(session: Session, stored: StoredItem, state: ItemState) -> None:
    """Say what is not as it was when the item was signed."""
    if stored.yanked_at:
        reason = f": {stored.yank_reason}" if stored.yank_reason else ""
        session.say(f"warning: {stored.ref} was yanked on {stored.yanked_at:%Y-%m-%d}{reason}")
    elif state.yanked:
        session.say(f"warning: {stored.ref} was yanked: kiwi show {stored.ref}@registry says why")
    if state.changed:
        session.say(f"warning: {state.changed}; this is the text that was signed")


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
            session.say(f"{name}: {error.message}")
        else:
            rows += [{"tier": name, **render.item_json(item, {})} for item in stored if not item.problem]
            for item in stored:
                if item.problem:
                    failed = True
                    session.say(f"{name}: left out {item.ref}: {item.problem}")
    if session.as_json:
        session.data(rows)
    else:
        for row in rows:
            where = row["path"] or ("private" if row["private"] else "")
            line = f"{row['tier']}  {row['item_type']}  {row['item_id']}@{row['version']}  {where}"
            session.out(render.safe(line))
    if not rows:
        session.say("no items: kiwi index brings a tier's files in")
    return PARTLY if failed else DONE


async def _verify(session: Session, app: Services, refs: tuple[str, ...], source: str) -> int:
    from kiwi_rag.search.state import find_version_conflicts
    from kiwi_rag.search.verify import parse_address

    wanted = [parse_address(ref) for ref in refs]
    await learn_who_lost_trust(session, app)
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
        raise NotFound(f"{', '.join(refs)}: not in {source}", hint="kiwi list")
    if session.as_json:
        session.data(rows)
    else:
        for row in rows:
            mark = "✓" if row["state"] == "verified" else "✗"
            line = f"{mark} {row['tier']}  {row['ref']}  {row['state']}  {row['signer']}{row['reason']}"
            session.out(render.safe(line))
    states = [row["state"] for row in rows]
    named = ("verified", "changed", "yanked", "refused", *(["conflict"] if "conflict" in states else []))
    session.say(", ".join(f"{states.count(name)} {name}" for name in named))
    return REFUSED if "refused" in states else DONE if set(states) <= {"verified"} else PARTLY


def _mark(rows: Sequence[dict[str, Any]], conflicts: Sequence[VersionConflict]) -> None:
    """Say of each row in whose version two tiers differ that they do, unless something worse is said of it."""
    for conflict in conflicts:
        for row in rows:
            if row["ref"] == str(conflict.ref) and row["tier"] in conflict.digests and row["state"] != "refused":
                row |= {"state": "conflict", "reason": f"  {conflict}: {conflict.hint}", "conflict": conflict.as_dict()}


async def _withheld(
    tier: Tier[VectorStore], held: Sequence[StoredItem], look: ConsistencyCheck
) -> list[dict[str, Any]]:
    """Return a row for each item that the registry had when it was last seen, and does not own up to now."""
    there = {stored.ref.key for stored in held}
    rows = []
    for ref in look.pinned_items():
        try:
            if ref.key not in there:
                await look.check_missing(ref)
        except RegistryContradicted as error:
            told = {"signer": "", "reason": f"{error.code}: {error.message}"}
            rows.append({"tier": tier.name, "ref": str(ref), "state": "refused", **told})
        except (Yanked, Refused):
            pass  # it was taken back, and the registry says so
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

    place = app.local(tier)
    refs = [ref for ref in parse_address(text).refs() if await place.store.get(ref)]
    if len(refs) != 1:
        raise NotFound(f"{len(refs)} items of the {tier} tier are {text!r}", hint="kiwi list; put the type in front")
    stored = await place.store.get(refs[0])
    # Where the item's file is follows from its id; the index's word for it could name any file of the user's.
    path = path_of(app.root(tier), stored.ref) if stored and stored.path else None
    if not yes and not (sys.stdin.isatty() and click.confirm(f"Delete {refs[0]} and {path}?", err=True)):
        raise UsageError("not confirmed; nothing was deleted", hint=f"kiwi delete {text} --yes")
    async with place.store.writing():
        if path:
            sign.remove_files(SourceFile(path, refs[0].item_type, refs[0].item_id))
            await place.store.delete_source(stored.path if stored else "")
        await place.store.delete(refs[0])
        place.audit.append("deleted", str(refs[0]), stored.digest if stored else "", "", {})
    session.out(f"deleted  {refs[0]}")
    return DONE


def _row(tier: str, item: VerifiedItem) -> dict[str, Any]:
    signer = item.verified.signer
    return {"tier": tier, **render.item_json(item.stored, {"signer": signer.principal, "key_id": signer.key_id})}
