"""``kiwi trust``: whose signatures count."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from kiwi_rag import render
from kiwi_rag.cli.keys import labelled
from kiwi_rag.cli.session import Session
from kiwi_rag.errors import NotFound, SignatureRefused, UsageError
from kiwi_rag.model.refs import ITEM_TYPES, ItemType
from kiwi_rag.services import Services
from kiwi_rag.signing import keys as kept
from kiwi_rag.signing import trust_file
from kiwi_rag.signing.ed25519 import is_on_curve
from kiwi_rag.signing.statement import format_time
from kiwi_rag.signing.trust import Signer, SignerStatus, check_pattern, check_principal

_ASK = "a public key cannot be had from its id: ask the key's owner, who prints it with: kiwi keys show"
_MOMENT = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ"])


@click.group()
def trust() -> None:
    """Decide whose signatures count here."""


@trust.command("list", epilog="Example: kiwi trust list")
@click.pass_obj
def list_signers(session: Session) -> None:
    """List the signers in force here, the user's first."""
    rows = [_row(signer) for signer in session.app().trust.by_key.values()]
    if session.as_json:
        session.data(rows)
        return
    for row in rows:
        line = f"{row['principal']}  {row['status']}  {row['items']}  {row['types']}  {labelled(row)}"
        line += f"  {row['origin']}" if row["origin"] else ""
        session.out(render.safe(line))
    if not rows:
        session.say("nobody is trusted yet: kiwi keys new, or kiwi trust add PUBLIC_KEY --principal NAME")


@trust.command(epilog="Example: kiwi trust add 3b6a27… --principal ada@acme.example --items 'acme/*' --type directive")
@click.argument("public_key")
@click.option("--principal", required=True, help="Whose key it is.")
@click.option("--items", "patterns", multiple=True, help="Items it may sign, as acme/*; default: all. Repeatable.")
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice([t.value for t in ItemType]),
    help="Types it may sign; default: items, not documents. Repeatable.",
)
@click.option("--valid-after", type=_MOMENT, help="Signatures count from then, UTC.")
@click.option("--valid-before", type=_MOMENT, help="Signatures count until then, UTC.")
@click.option("--status", type=click.Choice([s.value for s in SignerStatus]), help="Default: active.")
@click.option("--replace", "anew", is_flag=True, help="Of a known key: say anew what it may sign, not add to it.")
@click.option("--yes", is_flag=True, help="Do not ask before rights are taken away.")
@click.pass_obj
def add(
    session: Session,
    public_key: str,
    principal: str,
    patterns: tuple[str, ...],
    types: tuple[str, ...],
    valid_after: datetime | None,
    valid_before: datetime | None,
    status: str | None,
    anew: bool,
    yes: bool,
) -> None:
    """Trust a public key (64 hex digits) for this user, or add to what a known one may sign.

    With --replace the entry of a known key is written anew; what it loses is listed, and confirmed.
    """
    app = session.app()
    content = trust_file.load(app.user_trust)
    given = Signer(
        check_principal(principal),
        _public_key(app, public_key),
        tuple(map(check_pattern, patterns)) or ("*",),
        tuple(map(ItemType, types)) or ITEM_TYPES,
        _utc(valid_after),
        _utc(valid_before),
        SignerStatus(status or "active"),
    )
    known = content.signer(given.public_key)
    if known is None:
        signer = given
    elif anew:
        signer = _replaced(session, known, given, yes)
    else:
        rights = known.extended(given.patterns if patterns else (), given.types if types else ())
        signer = _extended(rights, given, status)
    trust_file.save(app.user_trust, content.with_signer(signer))
    _show_entry(session, signer)
    for notice in app.notices():
        if notice.key_id == signer.key_id and not notice.overruled:
            session.say(f"it was {notice}, and that still counts; if you know better: kiwi trust overrule {principal}")


def _extended(known: Signer, given: Signer, status: str | None) -> Signer:
    """Return a known signer with what else was asked for.

    Raises
    ------
    UsageError
        When that would take something away, or give it another name: that wants --replace.
    """
    signer = replace(
        known,
        valid_after=given.valid_after or known.valid_after,
        valid_before=given.valid_before or known.valid_before,
        status=given.status if status else known.status,
    )
    losses = _losses(known, replace(signer, principal=given.principal))
    if losses:
        hint = f"to say anew what it may sign: {_command(given)} --replace"
        raise UsageError(f"this key is known, and would lose: {'; '.join(losses)}; nothing was changed", hint=hint)
    return signer


def _replaced(session: Session, known: Signer, given: Signer, yes: bool) -> Signer:
    losses = _losses(known, given)
    for loss in losses:
        session.say(f"  {known.principal} loses: {loss}")
    if losses and not yes and not _confirm("Take this away?"):
        raise UsageError("not confirmed; nothing was changed", hint=f"{_command(given)} --replace --yes")
    return given


def _command(given: Signer) -> str:
    return given.trust_command() + ("" if given.status is SignerStatus.ACTIVE else f" --status {given.status}")


def _losses(known: Signer, after: Signer) -> list[str]:
    """Return what is lost when one entry takes another's place; a mark that a key is not to be used counts, too."""
    found = known.rights_not_in(after)
    if known.principal != after.principal:
        found.append(f"the name {known.principal}")
    if known.status is not SignerStatus.ACTIVE and after.status is SignerStatus.ACTIVE:
        found.append(f"the mark {known.status}")
    return found


def _show_entry(session: Session, signer: Signer) -> None:
    row = _row(signer)
    if session.as_json:
        session.data(row)
        return
    session.out(f"public key: {row['public_key']}")
    session.out(f"key id: {row['key_id']}")
    session.say(f"{signer.principal} is {signer.status}, may sign {', '.join(signer.patterns)} ({row['types']})")
    session.say(f"a teammate trusts it with: {signer.trust_command()}")


def _public_key(app: Services, text: str) -> bytes:
    """Return the public key that `text` is.

    Raises
    ------
    UsageError
        When it is something else; of a key id it is said so, with the way to the public key.
    """
    digits = text.strip().rstrip("….").lower()
    if re.fullmatch(r"[0-9a-f]{8,64}", digits):
        _check_no_key_id(app, digits)
    try:
        key = kept.parse_public(digits)
    except SignatureRefused as error:
        raise UsageError(f"{digits} is no public key: {error.message}", hint=_ASK) from error
    if not is_on_curve(key):
        raise UsageError(f"{digits} is no public key (no point of the curve); is it a key id?", hint=_ASK)
    return key


def _check_no_key_id(app: Services, digits: str) -> None:
    """Return unless the digits are a key id, or begin one: of a key that is known here, or that signed what is here."""
    own = [Signer(app.principal, kept.public_key(name, app.keys_dir)) for name in kept.names(app.keys_dir)]
    listed = trust_file.load(app.project_trust).signers if app.project_trust and app.project_trust.is_file() else ()
    for signer in (*app.trust.by_key.values(), *listed, *own):
        if signer.key_id.startswith(digits):
            message = f"{digits} is the key id of {signer.principal}, not a public key"
            raise UsageError(message, hint=f"its public key is {signer.public_key.hex()}: {signer.trust_command()}")
    if len(digits) < 64:
        raise UsageError(f"{digits} is no public key, but may be the start of a key id", hint=_ASK)
    if any(digits == key_id for key_id in _key_ids_seen(app)):
        raise UsageError(f"{digits} is the id of a key that signed items here, not a public key", hint=_ASK)


def _key_ids_seen(app: Services) -> Iterator[str]:
    """Yield the ids that signatures beside files name, and those that registries gave."""
    from kiwi_rag.monitor.pinned_state_file import pinned_states

    for root in filter(None, (app.project_dir, app.user_dir)):
        for side in root.rglob("*.sig"):
            if side.is_file() and side.stat().st_size <= trust_file.MAX_BYTES:
                yield from re.findall(r'"keyid"\s*:\s*"([0-9a-f]{64})"', side.read_text(errors="replace"))
    for memory in pinned_states(app.monitor_dir):
        yield from (seen.key_id for versions in memory.items().values() for seen in versions)


@trust.command(epilog="Example: kiwi trust remove ada@acme.example")
@click.argument("who")
@click.pass_obj
def remove(session: Session, who: str) -> None:
    """Stop trusting a signer, named by principal, public key or the start of a key id."""
    app = session.app()
    content = trust_file.load(app.user_trust)
    found = [s for s in content.signers if who in (s.principal, s.public_key.hex()) or s.key_id.startswith(who)]
    if len(found) != 1:
        raise NotFound(f"{len(found)} signers match {who!r}", hint="kiwi trust list shows key ids")
    trust_file.save(app.user_trust, content.without_key(found[0].key_id))
    session.say(f"{found[0].principal} (key id {found[0].key_id[:16]}…) is not trusted any more")


@trust.command(epilog="Example: kiwi trust project --yes")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def project(session: Session, yes: bool) -> None:
    """Let the signers of this project's .ai/trust.toml count for you, as the file is now."""
    app = session.app()
    path = app.root("project") / "trust.toml"
    if not path.is_file():
        raise NotFound(f"there is no {path}", hint="kiwi trust add, then copy ~/.ai/trust.toml there")
    digest = trust_file.file_digest(path)  # before they are shown: what is pinned is never more than what was seen
    for signer in trust_file.load(path).signers:
        session.say(
            f"  {signer.principal}  {signer.status}  {', '.join(signer.patterns)}  key id {signer.key_id[:16]}…"
        )
    if not yes and not _confirm("Trust these signers in this project?"):
        raise UsageError("not confirmed; nothing was changed", hint="kiwi trust project --yes")
    pinned = trust_file.load(app.user_trust).with_pin(Path(path).resolve(), digest)
    trust_file.save(app.user_trust, pinned)
    session.say(f"{path} is pinned; when it changes, it has to be pinned again")


@trust.command(epilog="Example: kiwi trust overrule ada@acme.example")
@click.argument("who")
@click.option("--undo", is_flag=True, help="Follow the registry's word again.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def overrule(session: Session, who: str, undo: bool, yes: bool) -> None:
    """Go on trusting a key that a registry revoked or retired, named by principal or the start of its key id.

    Only what registries took away is given back, and only for you: what your trust file says stays.
    """
    from kiwi_rag.monitor.pinned_state_file import pinned_states

    app = session.app()
    told = [n for n in app.notices() if who == n.principal or (len(who) >= 8 and n.key_id.startswith(who))]
    if not told:
        raise NotFound(f"no registry took trust away from {who!r}", hint="kiwi trust list")
    for notice in told:
        session.say(f"  {notice.principal}  key id {notice.key_id[:16]}…  {notice}")
    if not (yes or undo) and not _confirm("Trust these keys all the same?"):
        raise UsageError("not confirmed; nothing was changed", hint=f"kiwi trust overrule {who} --yes")
    keys = {notice.key_id for notice in told}
    count = sum(memory.overrule(key, overruled=not undo) for memory in pinned_states(app.monitor_dir) for key in keys)
    session.say(f"{count} notice{'' if count == 1 else 's'} {'followed again' if undo else 'overruled'}")


def _confirm(question: str) -> bool:
    return sys.stdin.isatty() and click.confirm(question, err=True)


def _row(signer: Signer) -> dict[str, str]:
    return {
        "principal": signer.principal,
        "status": signer.status.value,
        "items": ",".join(signer.patterns),
        "types": ",".join(signer.types),
        "valid_after": format_time(signer.valid_after) if signer.valid_after else "",
        "valid_before": format_time(signer.valid_before) if signer.valid_before else "",
        "public_key": signer.public_key.hex(),
        "key_id": signer.key_id,
        "origin": signer.origin,
    }


def _utc(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment else None
