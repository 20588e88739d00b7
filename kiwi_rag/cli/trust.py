"""``kiwi trust``: whose signatures count."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from kiwi_rag import present
from kiwi_rag.cli.session import Session
from kiwi_rag.errors import NotFound, UsageError
from kiwi_rag.refs import ITEM_TYPES, ItemType
from kiwi_rag.signing import keys as kept
from kiwi_rag.signing import trust_file
from kiwi_rag.signing.statement import format_time
from kiwi_rag.signing.trust import Signer, SignerStatus, check_pattern, check_principal

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
        line = f"{row['principal']}  {row['status']}  {row['items']}  {row['types']}  {row['public_key']}"
        line += f"  {row['origin']}" if row["origin"] else ""
        session.out(present.safe(line))
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
@click.option("--status", type=click.Choice([s.value for s in SignerStatus]), default="active", show_default=True)
@click.pass_obj
def add(
    session: Session,
    public_key: str,
    principal: str,
    patterns: tuple[str, ...],
    types: tuple[str, ...],
    valid_after: datetime | None,
    valid_before: datetime | None,
    status: str,
) -> None:
    """Trust a public key (64 hex digits) for this user, or change what it may sign."""
    app = session.app()
    signer = Signer(
        check_principal(principal),
        kept.parse_public(public_key),
        tuple(map(check_pattern, patterns)) or ("*",),
        tuple(map(ItemType, types)) or ITEM_TYPES,
        _utc(valid_after),
        _utc(valid_before),
        SignerStatus(status),
    )
    trust_file.save(app.user_trust, trust_file.load(app.user_trust).with_signer(signer))
    session.out(signer.key_id)
    for notice in app.notices():
        if notice.key_id == signer.key_id and not notice.overruled:
            session.say(f"it was {notice}, and that still counts; if you know better: kiwi trust overrule {principal}")


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
    session.say(f"{found[0].principal} ({found[0].key_id[:16]}…) is not trusted any more")


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
        session.say(f"  {signer.principal}  {signer.status}  {', '.join(signer.patterns)}  {signer.key_id[:16]}…")
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
    from kiwi_rag.witness.memory_file import remembered

    app = session.app()
    told = [n for n in app.notices() if who == n.principal or (len(who) >= 8 and n.key_id.startswith(who))]
    if not told:
        raise NotFound(f"no registry took trust away from {who!r}", hint="kiwi trust list")
    for notice in told:
        session.say(f"  {notice.principal}  {notice.key_id[:16]}…  {notice}")
    if not (yes or undo) and not _confirm("Trust these keys all the same?"):
        raise UsageError("not confirmed; nothing was changed", hint=f"kiwi trust overrule {who} --yes")
    keys = {notice.key_id for notice in told}
    count = sum(memory.overrule(key, overruled=not undo) for memory in remembered(app.memory_dir) for key in keys)
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
