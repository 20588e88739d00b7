"""``kiwi yank``, ``kiwi registry retire`` and ``revoke``, and ``kiwi registry accept`` after a restore."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kiwi_rag import render
from kiwi_rag.cli.session import DONE, Session
from kiwi_rag.errors import NotFound, PinnedStateDamaged, UsageError
from kiwi_rag.model import Filters
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.services import Services
from kiwi_rag.signing.trust import SignerStatus

if TYPE_CHECKING:
    from kiwi_rag.registry.client import EnrolledSigner
    from kiwi_rag.validation.audit import AuditHead

REASON = click.option("--reason", default="", help="Reason; every reader of the registry can see it.")
YES = click.option("--yes", is_flag=True, help="Do not ask.")
WHO = click.argument("who", metavar="PRINCIPAL|KEYID")


@click.command(epilog='Example: kiwi yank acme/deploy/staging@1.2.0 --reason "deploys to the wrong cluster"')
@click.argument("ref")
@REASON
@YES
@click.pass_obj
def yank(session: Session, ref: str, reason: str, yes: bool) -> int:
    """Withdraw a published version, or all versions if REF names none: searches no longer find it.

    It is kept, and `kiwi get` still returns it by its version. Needs the role kiwi_admin, or to be the item's owner. A
    yank cannot be undone; publish a new version instead.
    """
    return session.run(lambda app: _yank(session, app, ref, reason, yes))


@click.command(epilog="Example: kiwi registry retire ada@acme.example")
@WHO
@REASON
@YES
@click.pass_obj
def retire(session: Session, who: str, reason: str, yes: bool) -> int:
    """Accept no more items signed by a key; earlier ones stay valid. Needs the role kiwi_admin."""
    return session.run(lambda app: _retire(session, app, who, reason, yes))


@click.command(epilog='Example: kiwi registry revoke ada@acme.example --reason "laptop stolen"')
@WHO
@REASON
@YES
@click.pass_obj
def revoke(session: Session, who: str, reason: str, yes: bool) -> int:
    """Declare a key compromised: nobody finds the items that it signed any more. Needs the role kiwi_admin.

    This cannot be undone. Sign its items with another key and publish them again.
    """
    return session.run(lambda app: _revoke(session, app, who, reason, yes))


@click.command(epilog="Example: kiwi registry accept, or kiwi registry accept acme/deploy/staging")
@click.argument("ref", required=False)
@YES
@click.pass_obj
def accept(session: Session, ref: str | None, yes: bool) -> int:
    """Accept the registry's present state although it contradicts the pinned one, as after a restored backup.

    With REF this forgets the pinned versions of one item. Without it, it pins the registry's present audit head and
    forgets all pinned versions. Keys that the registry revoked stay revoked.
    """
    return session.run(lambda app: _accept_item(session, app, ref, yes) if ref else _accept(session, app, yes))


def confirm(question: str, command: str, *, yes: bool) -> None:
    """Ask the user to confirm, on a terminal, unless `yes` is set.

    Raises
    ------
    UsageError
        Without a confirmation.
    """
    if not yes and not (sys.stdin.isatty() and click.confirm(render.safe(question), err=True)):
        raise UsageError("not confirmed; nothing was changed", hint=f"{command} --yes")


async def _yank(session: Session, app: Services, text: str, reason: str, yes: bool) -> int:
    from kiwi_rag.registry import client

    ref = await _published(app, text)
    what = ref if ref.version else f"every version of {ref}"
    confirm(f"Yank {what}? This cannot be undone.", f"kiwi yank {text}", yes=yes)
    async with app.registry_session() as caller:
        count = await client.yank_item(caller, ref, reason)
    await app.monitor.check()
    if session.as_json:
        session.print_json({"ref": str(ref), "yanked": count})
    elif count:
        session.print(f"yanked  {ref}" + (f"  ({count} versions)" if count > 1 else ""))
    else:
        session.notify(f"{ref} was yanked already; nothing changed")
    return DONE


async def _published(app: Services, text: str) -> ItemRef:
    """Return the published item that an address names."""
    from kiwi_rag.registry import client
    from kiwi_rag.search.verify import parse_address

    address = parse_address(text)
    if address.tier not in (None, "registry"):
        raise UsageError(
            f"{text!r} names a local tier, but only the registry can yank",
            hint="kiwi delete removes an item from a local tier",
        )
    found = []
    async with app.registry_session() as caller:
        for ref in address.refs():
            versions = {row["version"] for row in await client.item_status(caller, ref)}
            found += [ref] if versions and ref.version in (None, *versions) else []
    if len(found) > 1:
        raise UsageError(f"{text} is several items: {', '.join(map(str, found))}", hint="put the type in front")
    if not found:
        raise NotFound(f"the registry has no item {text}", hint="kiwi list --source registry")
    return found[0]


async def _retire(session: Session, app: Services, who: str, reason: str, yes: bool) -> int:
    from kiwi_rag.registry import client

    signer = _chosen(await app.enrolled(), who, SignerStatus.RETIRED)
    question = f"Retire key {signer.signer.key_id[:16]}… of {signer.signer.principal}? This cannot be undone."
    confirm(question, f"kiwi registry retire {who}", yes=yes)
    async with app.registry_session() as caller:
        changed = await client.retire_signer(caller, signer.signer.key_id, reason)
    await _report(session, app, signer, "retired", changed, 0)
    return DONE


async def _revoke(session: Session, app: Services, who: str, reason: str, yes: bool) -> int:
    from kiwi_rag.registry import client

    chosen = _chosen(await app.enrolled(), who, SignerStatus.COMPROMISED)
    key_id = chosen.signer.key_id
    async with app.registry_session() as caller:
        hidden = len(await client.list_items(caller, Filters(signer=key_id)))
    question = (
        f"Revoke key {key_id[:16]}… of {chosen.signer.principal}? This cannot be undone. It hides {_items(hidden)}."
    )
    confirm(question, f"kiwi registry revoke {who}", yes=yes)
    async with app.registry_session() as caller:
        changed = await client.revoke_signer(caller, key_id, reason)
    await _report(session, app, chosen, "revoked", changed, hidden)
    return DONE


async def _report(
    session: Session, app: Services, chosen: EnrolledSigner, word: str, changed: bool, hidden: int
) -> None:
    await app.monitor.check(fully=True)  # applies it to this user's local tiers, too
    signer = chosen.signer
    if session.as_json:
        session.print_json(
            {"key_id": signer.key_id, "principal": signer.principal, "changed": changed, "items_lost": hidden}
        )
        return
    session.print(f"{word if changed else f'{word} already'}  {render.safe(signer.principal)}  {signer.key_id}")
    if hidden:
        session.notify(
            f"{_items(hidden)} signed by it can no longer be found; searches find older versions by other keys instead"
        )


def _items(count: int) -> str:
    return f"{count} item{'' if count == 1 else 's'}"


def _chosen(enrolled: Sequence[EnrolledSigner], who: str, status: SignerStatus) -> EnrolledSigner:
    """Return the enrolled key that `who` names: by principal, public key, or the start of a key id."""
    named = [e for e in enrolled if who in (e.signer.principal, e.signer.public_key.hex())]
    found = named or [e for e in enrolled if len(who) >= 8 and e.signer.key_id.startswith(who)]
    if not found:
        raise NotFound(f"the registry has no signer {who!r}", hint="kiwi registry signers")
    left = [e for e in found if e.signer.status not in (status, SignerStatus.COMPROMISED)] or found
    if len(left) > 1:
        keys = ", ".join(f"{e.signer.key_id[:16]} ({e.signer.status})" for e in left)
        raise UsageError(f"{who} has several keys: {keys}", hint="name one by the start of its key id")
    return left[0]


async def _accept_item(session: Session, app: Services, text: str, yes: bool) -> int:
    from kiwi_rag.search.verify import parse_address

    refs = parse_address(text).refs()
    confirm(f"Forget the pinned versions of {text}?", f"kiwi registry accept {text}", yes=yes)
    count = sum(app.monitor.pinned.forget(ref) for ref in refs)
    session.notify(f"forgot {count} pinned version{'' if count == 1 else 's'} of {text}")
    return DONE


async def _accept(session: Session, app: Services, yes: bool) -> int:
    pinned, current = await _heads(session, app, yes)
    if pinned == current:
        session.notify(f"nothing to accept: the registry's head is the pinned one, {_shown(current)}")
        return DONE
    session.notify(f"pinned     {_shown(pinned)}")
    session.notify(f"registry   {_shown(current)}")
    confirm("Accept the registry's head, and forget the pinned versions?", "kiwi registry accept", yes=yes)
    app.monitor.pinned.accept(current)
    await app.monitor.check(fully=True)
    session.notify("accepted the registry's head")
    return DONE


async def _heads(session: Session, app: Services, yes: bool) -> tuple[AuditHead, AuditHead]:
    """Return the pinned head and the registry's present one; a damaged pinned state is renamed."""
    from kiwi_rag.registry import client

    _set_aside_damaged(session, app, yes)
    memory = app.monitor.pinned
    async with app.registry_session() as caller:
        return memory.head(), (await client.registry_news(caller, 0, 0, memory.identity.name)).head


def _set_aside_damaged(session: Session, app: Services, yes: bool) -> None:
    """Rename the file of each pinned state that cannot be read."""
    from kiwi_rag.monitor.pinned_state_file import pinned_states

    for memory in pinned_states(app.monitor_dir):
        try:
            memory.notices()
        except PinnedStateDamaged as error:
            session.notify(error.message)
            confirm("Rename the damaged file and begin with an empty one?", "kiwi registry accept", yes=yes)
            session.notify(f"renamed to {memory.move_aside()}")
        finally:
            memory.close()


def _shown(head: AuditHead) -> str:
    return f"{head.seq} records, head {head.hash}"
