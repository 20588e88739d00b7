"""``kiwi trust``: the signers whose signatures are accepted."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from kiwi_rag import render
from kiwi_rag.cli.keys import format_key
from kiwi_rag.cli.session import Session
from kiwi_rag.errors import NotFound, SignatureRefused, UsageError
from kiwi_rag.model.refs import ITEM_TYPES, ItemType
from kiwi_rag.services import Services
from kiwi_rag.signing import keys as key_files
from kiwi_rag.signing import trust_file
from kiwi_rag.signing.ed25519 import is_on_curve
from kiwi_rag.signing.statement import format_time
from kiwi_rag.signing.trust import Signer, SignerStatus, check_pattern, check_principal

_HINT = "a key id does not give the public key: the key's owner prints that with kiwi keys show"
_TIME = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ"])


@click.group()
def trust() -> None:
    """Choose whose signatures are accepted."""


@trust.command("list", epilog="Example: kiwi trust list")
@click.pass_obj
def list_signers(session: Session) -> None:
    """List the trusted signers: yours first, then those of the project's pinned trust file."""
    rows = [_row(signer) for signer in session.app().trust.by_key.values()]
    if session.as_json:
        session.print_json(rows)
        return
    for row in rows:
        line = f"{row['principal']}  {row['status']}  {row['items']}  {row['types']}  {format_key(row)}"
        line += f"  {row['origin']}" if row["origin"] else ""
        session.print(render.safe(line))
    if not rows:
        session.notify(
            "no signer is trusted yet; add one with: kiwi keys new, or kiwi trust add PUBLIC_KEY --principal NAME"
        )


@trust.command(epilog="Example: kiwi trust add 3b6a27… --principal ada@acme.example --items 'acme/*' --type directive")
@click.argument("public_key")
@click.option("--principal", required=True, help="Name of the key's owner.")
@click.option(
    "--items", "patterns", multiple=True, help="Items that the key may sign, as acme/*. Default: all. Repeatable."
)
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice([t.value for t in ItemType]),
    help="Types that the key may sign. Default: all item types, not documents. Repeatable.",
)
@click.option("--valid-after", type=_TIME, help="Accept signatures from this time on, UTC.")
@click.option("--valid-before", type=_TIME, help="Accept signatures until this time, UTC.")
@click.option(
    "--status", type=click.Choice([s.value for s in SignerStatus]), help="Status of the key. Default: active."
)
@click.option("--replace", "replaces", is_flag=True, help="Replace the entry of a key that is trusted already.")
@click.option("--yes", is_flag=True, help="Do not ask before permissions are removed.")
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
    replaces: bool,
    yes: bool,
) -> None:
    """Trust a public key (64 hex digits) for this user, or let a trusted key sign more.

    With --replace the entry of a trusted key is replaced; the permissions that it loses are listed, and you are asked.
    """
    app = session.app()
    content = trust_file.load(app.user_trust)
    entry = Signer(
        check_principal(principal),
        _public_key(app, public_key),
        tuple(map(check_pattern, patterns)) or ("*",),
        tuple(map(ItemType, types)) or ITEM_TYPES,
        _utc(valid_after),
        _utc(valid_before),
        SignerStatus(status or "active"),
    )
    trusted = content.signer(entry.public_key)
    if trusted is None:
        signer = entry
    elif replaces:
        signer = _replaced(session, trusted, entry, yes)
    else:
        rights = trusted.extended(entry.patterns if patterns else (), entry.types if types else ())
        signer = _extended(rights, entry, status)
    trust_file.save(app.user_trust, content.with_signer(signer))
    _show_entry(session, signer)
    for notice in app.notices():
        if notice.key_id == signer.key_id and not notice.overruled:
            session.notify(
                f"the key was {notice} and stays untrusted; to trust it nevertheless: kiwi trust overrule {principal}"
            )


def _extended(trusted: Signer, entry: Signer, status: str | None) -> Signer:
    """Return a trusted signer with the permissions, times and status of `entry` added.

    Raises
    ------
    UsageError
        When that would remove a permission or change the principal, which needs --replace.
    """
    signer = replace(
        trusted,
        valid_after=entry.valid_after or trusted.valid_after,
        valid_before=entry.valid_before or trusted.valid_before,
        status=entry.status if status else trusted.status,
    )
    losses = _losses(trusted, replace(signer, principal=entry.principal))
    if losses:
        hint = f"to replace its entry: {_command(entry)} --replace"
        message = f"this key of {trusted.principal} is trusted already and would lose: {'; '.join(losses)}"
        raise UsageError(f"{message}; nothing was changed", hint=hint)
    return signer


def _replaced(session: Session, trusted: Signer, entry: Signer, yes: bool) -> Signer:
    losses = _losses(trusted, entry)
    for loss in losses:
        session.notify(f"  {trusted.principal} loses: {loss}")
    if losses and not yes and not _confirm("Remove these permissions?"):
        raise UsageError("not confirmed; nothing was changed", hint=f"{_command(entry)} --replace --yes")
    return entry


def _command(entry: Signer) -> str:
    return entry.trust_command() + ("" if entry.status is SignerStatus.ACTIVE else f" --status {entry.status}")


def _losses(trusted: Signer, after: Signer) -> list[str]:
    """Return what is lost when `after` replaces an entry: permissions, the name, a status other than active."""
    found = trusted.rights_not_in(after)
    if trusted.principal != after.principal:
        found.append(f"the name {trusted.principal}")
    if trusted.status is not SignerStatus.ACTIVE and after.status is SignerStatus.ACTIVE:
        found.append(f"the status {trusted.status}")
    return found


def _show_entry(session: Session, signer: Signer) -> None:
    row = _row(signer)
    if session.as_json:
        session.print_json(row)
        return
    session.print(f"public key: {row['public_key']}")
    session.print(f"key id: {row['key_id']}")
    session.notify(f"{signer.principal} is {signer.status}, may sign {', '.join(signer.patterns)} ({row['types']})")
    session.notify(f"other users trust it with: {signer.trust_command()}")


def _public_key(app: Services, text: str) -> bytes:
    """Return the public key in `text`.

    Raises
    ------
    UsageError
        When it is something else. For a key id the hint says how to get the public key.
    """
    digits = text.strip().rstrip("….").lower()
    if re.fullmatch(r"[0-9a-f]{8,64}", digits):
        _check_no_key_id(app, digits)
    try:
        key = key_files.parse_public(digits)
    except SignatureRefused as error:
        raise UsageError(f"{digits} is not a public key: {error.message}", hint=_HINT) from error
    if not is_on_curve(key):
        raise UsageError(f"{digits} is not a public key (not a point of the curve); it may be a key id", hint=_HINT)
    return key


def _check_no_key_id(app: Services, digits: str) -> None:
    """Raise `UsageError` if the digits are a key id or begin one: of a trusted key, an own one, or a signer's."""
    own_keys = [
        Signer(app.principal, key_files.public_key(name, app.keys_dir)) for name in key_files.names(app.keys_dir)
    ]
    listed = trust_file.load(app.project_trust).signers if app.project_trust and app.project_trust.is_file() else ()
    for signer in (*app.trust.by_key.values(), *listed, *own_keys):
        if signer.key_id.startswith(digits):
            message = f"{digits} is the key id of {signer.principal}, not a public key"
            raise UsageError(message, hint=f"its public key is {signer.public_key.hex()}: {signer.trust_command()}")
    if len(digits) < 64:
        raise UsageError(f"{digits} is not a public key: it is too short, and may be the start of a key id", hint=_HINT)
    if any(digits == key_id for key_id in _key_ids_seen(app)):
        raise UsageError(f"{digits} is the id of a key that signed items here, not a public key", hint=_HINT)


def _key_ids_seen(app: Services) -> Iterator[str]:
    """Yield the key ids in signature files, and those in the pinned state of registries."""
    from kiwi_rag.monitor.pinned_state_file import pinned_states

    for root in filter(None, (app.project_dir, app.user_dir)):
        for path in root.rglob("*.sig"):
            if path.is_file() and path.stat().st_size <= trust_file.MAX_BYTES:
                yield from re.findall(r'"keyid"\s*:\s*"([0-9a-f]{64})"', path.read_text(errors="replace"))
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
    session.notify(f"{found[0].principal} (key id {found[0].key_id[:16]}…) is no longer trusted")


@trust.command(epilog="Example: kiwi trust project --yes")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def project(session: Session, yes: bool) -> None:
    """Pin this project's .ai/trust.toml: accept its signers in this project, as long as the file is unchanged."""
    app = session.app()
    path = app.root("project") / "trust.toml"
    if not path.is_file():
        raise NotFound(f"there is no trust file {path}", hint="kiwi trust add, then copy ~/.ai/trust.toml there")
    digest = trust_file.file_digest(path)  # before the signers are shown, so that a change after that is not pinned
    for signer in trust_file.load(path).signers:
        session.notify(
            f"  {signer.principal}  {signer.status}  {', '.join(signer.patterns)}  key id {signer.key_id[:16]}…"
        )
    if not yes and not _confirm("Trust these signers in this project?"):
        raise UsageError("not confirmed; nothing was changed", hint="kiwi trust project --yes")
    pinned = trust_file.load(app.user_trust).with_pin(Path(path).resolve(), digest)
    trust_file.save(app.user_trust, pinned)
    session.notify(f"pinned {path}; after each change of the file run kiwi trust project again")


@trust.command(epilog="Example: kiwi trust overrule ada@acme.example")
@click.argument("who")
@click.option("--undo", is_flag=True, help="Follow the registry's revocation again.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def overrule(session: Session, who: str, undo: bool, yes: bool) -> None:
    """Trust a key although a registry revoked or retired it. Name it by principal or the start of its key id.

    This has an effect for you only, and does not change your trust file.
    """
    from kiwi_rag.monitor.pinned_state_file import pinned_states

    app = session.app()
    notices = [n for n in app.notices() if who == n.principal or (len(who) >= 8 and n.key_id.startswith(who))]
    if not notices:
        raise NotFound(f"no registry revoked or retired a key of {who!r}", hint="kiwi trust list")
    for notice in notices:
        session.notify(f"  {notice.principal}  key id {notice.key_id[:16]}…  {notice}")
    if not (yes or undo) and not _confirm("Trust these keys nevertheless?"):
        raise UsageError("not confirmed; nothing was changed", hint=f"kiwi trust overrule {who} --yes")
    keys = {notice.key_id for notice in notices}
    count = sum(memory.overrule(key, overruled=not undo) for memory in pinned_states(app.monitor_dir) for key in keys)
    session.notify(f"{count} notice{'' if count == 1 else 's'} {'followed again' if undo else 'overruled'}")


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
