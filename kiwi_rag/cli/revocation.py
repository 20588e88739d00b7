"""Taking back: ``kiwi yank``, ``kiwi registry retire``, ``revoke``, and ``accept`` after a registry was restored."""

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

REASON = click.option("--reason", default="", help="Why; everybody who reads the registry sees it.")
YES = click.option("--yes", is_flag=True, help="Do not ask.")
WHO = click.argument("who", metavar="PRINCIPAL|KEYID")


@click.command(epilog='Example: kiwi yank acme/deploy/staging@1.2.0 --reason "deploys to the wrong cluster"')
@click.argument("ref")
@REASON
@YES
@click.pass_obj
def yank(session: Session, ref: str, reason: str, yes: bool) -> int:
    """Take a published version back (all versions when none is named): kept, gettable by version, no longer found.

    Needs kiwi_admin, or to be the item's owner. A yank cannot be undone: publish a new version instead.
    """
    return session.run(lambda app: _yank(session, app, ref, reason, yes))


@click.command(epilog="Example: kiwi registry retire ada@acme.example")
@WHO
@REASON
@YES
@click.pass_obj
def retire(session: Session, who: str, reason: str, yes: bool) -> int:
    """Take a key out of use at the registry: it signs no more, and what was received before stays. Needs kiwi_admin."""
    return session.run(lambda app: _retire(session, app, who, reason, yes))


@click.command(epilog='Example: kiwi registry revoke ada@acme.example --reason "laptop stolen"')
@WHO
@REASON
@YES
@click.pass_obj
def revoke(session: Session, who: str, reason: str, yes: bool) -> int:
    """Mark a key compromised: all that it ever signed vanishes from search, for everybody. Needs kiwi_admin.

    This cannot be undone: the key never counts again, and its items have to be signed with another and published anew.
    """
    return session.run(lambda app: _revoke(session, app, who, reason, yes))


@click.command(epilog="Example: kiwi registry accept, or kiwi registry accept acme/deploy/staging")
@click.argument("ref", required=False)
@YES
@click.pass_obj
def accept(session: Session, ref: str | None, yes: bool) -> int:
    """Accept what the registry says now, though you saw otherwise: after a restore, and once you know why.

    For one item when REF names it, else for the whole registry: its audit head is taken as it is, and versions seen are
    forgotten. Keys that the registry revoked stay revoked.
    """
    return session.run(lambda app: _accept_item(session, app, ref, yes) if ref else _accept(session, app, yes))


def confirm(question: str, command: str, *, yes: bool) -> None:
    """Return if the user says yes, by the flag or on a terminal.

    Raises
    ------
    UsageError
        When not.
    """
    if not yes and not (sys.stdin.isatty() and click.confirm(render.safe(question), err=True)):
        raise UsageError("not confirmed; nothing was changed", hint=f"{command} --yes")


async def _yank(session: Session, app: Services, text: str, reason: str, yes: bool) -> int:
    from kiwi_rag.registry import client

    ref = await _published(app, text)
    what = ref if ref.version else f"every version of {ref}"
    confirm(f"Yank {what}, for good?", f"kiwi yank {text}", yes=yes)
    async with app.registry_session() as caller:
        count = await client.yank_item(caller, ref, reason)
    await app.monitor.check()
    if session.as_json:
        session.data({"ref": str(ref), "yanked": count})
    elif count:
        session.out(f"yanked  {ref}" + (f"  ({count} versions)" if count > 1 else ""))
    else:
        session.say(f"{ref} was yanked already; nothing changed")
    return DONE


async def _published(app: Services, text: str) -> ItemRef:
    """Return the one published item that an address means."""
    from kiwi_rag.registry import client
    from kiwi_rag.search.verify import parse_address

    address = parse_address(text)
    if address.tier not in (None, "registry"):
        raise UsageError(f"{text!r} is not in the registry", hint="kiwi delete removes an item from a local tier")
    found = []
    async with app.registry_session() as caller:
        for ref in address.refs():
            versions = {row["version"] for row in await client.item_status(caller, ref)}
            found += [ref] if versions and ref.version in (None, *versions) else []
    if len(found) > 1:
        raise UsageError(f"{text} is several items: {', '.join(map(str, found))}", hint="put the type in front")
    if not found:
        raise NotFound(f"the registry has no {text}", hint="kiwi list --source registry")
    return found[0]


async def _retire(session: Session, app: Services, who: str, reason: str, yes: bool) -> int:
    from kiwi_rag.registry import client

    signer = _chosen(await app.enrolled(), who, SignerStatus.RETIRED)
    question = f"Retire key {signer.signer.key_id[:16]}… of {signer.signer.principal} for good?"
    confirm(question, f"kiwi registry retire {who}", yes=yes)
    async with app.registry_session() as caller:
        changed = await client.retire_signer(caller, signer.signer.key_id, reason)
    await _tell(session, app, signer, "retired", changed, 0)
    return DONE


async def _revoke(session: Session, app: Services, who: str, reason: str, yes: bool) -> int:
    from kiwi_rag.registry import client

    chosen = _chosen(await app.enrolled(), who, SignerStatus.COMPROMISED)
    key_id = chosen.signer.key_id
    async with app.registry_session() as caller:
        lost = len(await client.list_items(caller, Filters(signer=key_id)))
    question = f"Revoke key {key_id[:16]}… of {chosen.signer.principal} for good? {_items(lost)} of it will vanish."
    confirm(question, f"kiwi registry revoke {who}", yes=yes)
    async with app.registry_session() as caller:
        changed = await client.revoke_signer(caller, key_id, reason)
    await _tell(session, app, chosen, "revoked", changed, lost)
    return DONE


async def _tell(session: Session, app: Services, chosen: EnrolledSigner, word: str, changed: bool, lost: int) -> None:
    await app.monitor.check(fully=True)  # this user's own tiers follow at once
    signer = chosen.signer
    if session.as_json:
        session.data({"key_id": signer.key_id, "principal": signer.principal, "changed": changed, "items_lost": lost})
        return
    session.out(f"{word if changed else f'{word} already'}  {render.safe(signer.principal)}  {signer.key_id}")
    if lost:
        session.say(
            f"{_items(lost)} of it left search; where an older version by another key exists, that is found now"
        )


def _items(count: int) -> str:
    return f"{count} item{'' if count == 1 else 's'}"


def _chosen(enrolled: Sequence[EnrolledSigner], who: str, status: SignerStatus) -> EnrolledSigner:
    """Return the one enrolled key that `who` means: a principal, a public key, or the start of a key id."""
    named = [e for e in enrolled if who in (e.signer.principal, e.signer.public_key.hex())]
    found = named or [e for e in enrolled if len(who) >= 8 and e.signer.key_id.startswith(who)]
    if not found:
        raise NotFound(f"no signer of the registry is {who!r}", hint="kiwi registry signers")
    left = [e for e in found if e.signer.status not in (status, SignerStatus.COMPROMISED)] or found
    if len(left) > 1:
        keys = ", ".join(f"{e.signer.key_id[:16]} ({e.signer.status})" for e in left)
        raise UsageError(f"{who} has several keys: {keys}", hint="name one by the start of its key id")
    return left[0]


async def _accept_item(session: Session, app: Services, text: str, yes: bool) -> int:
    from kiwi_rag.search.verify import parse_address

    refs = parse_address(text).refs()
    confirm(f"Forget which versions of {text} you saw?", f"kiwi registry accept {text}", yes=yes)
    count = sum(app.monitor.pinned.forget(ref) for ref in refs)
    session.say(f"{count} version{'' if count == 1 else 's'} of {text} forgotten")
    return DONE


async def _accept(session: Session, app: Services, yes: bool) -> int:
    known, now = await _heads(session, app, yes)
    if known == now:
        session.say(f"nothing to accept: the registry's head is {_shown(now)}, as you saw it")
        return DONE
    session.say(f"you saw    {_shown(known)}")
    session.say(f"it says    {_shown(now)}")
    confirm("Accept it, and forget the versions you saw?", "kiwi registry accept", yes=yes)
    app.monitor.pinned.accept(now)
    await app.monitor.check(fully=True)
    session.say("accepted")
    return DONE


async def _heads(session: Session, app: Services, yes: bool) -> tuple[AuditHead, AuditHead]:
    """Return the head that is remembered, and the registry's own now; a damaged memory is set aside."""
    from kiwi_rag.registry import client

    _set_aside_damaged(session, app, yes)
    memory = app.monitor.pinned
    async with app.registry_session() as caller:
        return memory.head(), (await client.registry_news(caller, 0, 0, memory.identity.name)).head


def _set_aside_damaged(session: Session, app: Services, yes: bool) -> None:
    """Move every registry's memory out of the way that cannot be read any more."""
    from kiwi_rag.monitor.pinned_state_file import pinned_states

    for memory in pinned_states(app.monitor_dir):
        try:
            memory.notices()
        except PinnedStateDamaged as error:
            session.say(error.message)
            confirm("Set it aside and begin anew?", "kiwi registry accept", yes=yes)
            session.say(f"set aside as {memory.move_aside()}")
        finally:
            memory.close()


def _shown(head: AuditHead) -> str:
    return f"{head.seq} records, head {head.hash}"
