"""``kiwi yank``, ``kiwi registry retire`` and ``revoke``, and ``kiwi registry accept`` after a restore."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kiwi_rag import render
from kiwi_rag.cli.session import DONE, Session, confirm, with_services
from kiwi_rag.search.verify import parse_address
from kiwi_rag.services import Services
from kiwi_rag.signing.trust import Signer, SignerStatus
from kiwi_rag.usecases import revocation

if TYPE_CHECKING:
    from kiwi_rag.validation.audit import AuditHead

REASON = click.option("--reason", default="", help="Reason; every reader of the registry can see it.")
YES = click.option("--yes", is_flag=True, help="Do not ask.")
WHO = click.argument("who", metavar="PRINCIPAL|KEYID")


@click.command(epilog='Example: kiwi yank acme/deploy/staging@1.2.0 --reason "deploys to the wrong cluster"')
@click.argument("ref")
@REASON
@YES
@with_services
async def yank(session: Session, app: Services, ref: str, reason: str, yes: bool) -> int:
    """Withdraw a published version, or all versions if REF names none: searches no longer find it.

    It is kept, and `kiwi get` still returns it by its version. Needs the role kiwi_admin, or to be the item's owner. A
    yank cannot be undone; publish a new version instead.
    """
    found = await revocation.find_published(app, ref)
    what = found if found.version else f"every version of {found}"
    confirm(f"Yank {what}? This cannot be undone.", f"kiwi yank {ref}", yes=yes)
    count = await revocation.yank(app, found, reason)
    if session.as_json:
        session.print_json({"ref": str(found), "yanked": count})
    elif count:
        session.print(f"yanked  {found}" + (f"  ({count} versions)" if count > 1 else ""))
    else:
        session.notify(f"{found} was yanked already; nothing changed")
    return DONE


@click.command(epilog="Example: kiwi registry retire ada@acme.example")
@WHO
@REASON
@YES
@with_services
async def retire(session: Session, app: Services, who: str, reason: str, yes: bool) -> int:
    """Accept no more items signed by a key; earlier ones stay valid. Needs the role kiwi_admin."""
    signer = await revocation.find_enrolled(app, who, SignerStatus.RETIRED)
    question = f"Retire key {signer.key_id[:16]}… of {signer.principal}? This cannot be undone."
    confirm(question, f"kiwi registry retire {who}", yes=yes)
    changed = await revocation.withdraw_key(app, signer, SignerStatus.RETIRED, reason)
    _report(session, signer, "retired", changed, 0)
    return DONE


@click.command(epilog='Example: kiwi registry revoke ada@acme.example --reason "laptop stolen"')
@WHO
@REASON
@YES
@with_services
async def revoke(session: Session, app: Services, who: str, reason: str, yes: bool) -> int:
    """Declare a key compromised: nobody finds the items that it signed any more. Needs the role kiwi_admin.

    This cannot be undone. Sign its items with another key and publish them again.
    """
    signer = await revocation.find_enrolled(app, who, SignerStatus.COMPROMISED)
    hidden = await revocation.count_items_of(app, signer)
    question = f"Revoke key {signer.key_id[:16]}… of {signer.principal}? This cannot be undone. It hides"
    confirm(f"{question} {_items(hidden)}.", f"kiwi registry revoke {who}", yes=yes)
    changed = await revocation.withdraw_key(app, signer, SignerStatus.COMPROMISED, reason)
    _report(session, signer, "revoked", changed, hidden)
    return DONE


def _report(session: Session, signer: Signer, word: str, changed: bool, hidden: int) -> None:
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


@click.command(epilog="Example: kiwi registry accept, or kiwi registry accept acme/deploy/staging")
@click.argument("ref", required=False)
@YES
@with_services
async def accept(session: Session, app: Services, ref: str | None, yes: bool) -> int:
    """Accept the registry's present state although it contradicts the pinned one, as after a restored backup.

    With REF this forgets the pinned versions of one item. Without it, it pins the registry's present audit head and
    forgets all pinned versions. Keys that the registry revoked stay revoked.
    """
    await (_accept_item(session, app, ref, yes) if ref else _accept(session, app, yes))
    return DONE


async def _accept_item(session: Session, app: Services, text: str, yes: bool) -> None:
    refs = parse_address(text).refs()
    confirm(f"Forget the pinned versions of {text}?", f"kiwi registry accept {text}", yes=yes)
    count = revocation.forget_versions(app, refs)
    session.notify(f"forgot {count} pinned version{'' if count == 1 else 's'} of {text}")


async def _accept(session: Session, app: Services, yes: bool) -> None:
    for state, error in revocation.damaged_states(app):
        session.notify(error.message)
        confirm("Rename the damaged file and begin with an empty one?", "kiwi registry accept", yes=yes)
        session.notify(f"renamed to {state.move_aside()}")
    pinned, current = await revocation.read_heads(app)
    if pinned == current:
        session.notify(f"nothing to accept: the registry's head is the pinned one, {_shown(current)}")
        return
    session.notify(f"pinned     {_shown(pinned)}")
    session.notify(f"registry   {_shown(current)}")
    confirm("Accept the registry's head, and forget the pinned versions?", "kiwi registry accept", yes=yes)
    await revocation.accept_head(app, current)
    session.notify("accepted the registry's head")


def _shown(head: AuditHead) -> str:
    return f"{head.seq} records, head {head.hash}"
