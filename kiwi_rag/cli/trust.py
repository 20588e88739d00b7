"""``kiwi trust``: the signers whose signatures are accepted."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from kiwi_rag import render
from kiwi_rag.cli.keys import format_key
from kiwi_rag.cli.session import Session, confirm
from kiwi_rag.model.refs import ITEM_TYPES, ItemType
from kiwi_rag.signing.statement import format_time
from kiwi_rag.signing.trust import Signer, SignerStatus, check_pattern, check_principal
from kiwi_rag.usecases import trust as use_case

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
    signer = Signer(
        check_principal(principal),
        use_case.parse_public_key(app, public_key),
        tuple(map(check_pattern, patterns)) or ("*",),
        tuple(map(ItemType, types)) or ITEM_TYPES,
        _utc(valid_after),
        _utc(valid_before),
        SignerStatus(status or "active"),
    )
    given = use_case.Given(bool(patterns), bool(types), bool(status))
    entry = use_case.plan_entry(app, signer, given, replaces=replaces)
    for loss in entry.losses:
        session.notify(f"  {entry.trusted} loses: {loss}")
    if entry.losses:
        confirm("Remove these permissions?", f"{use_case.command(signer)} --replace", yes=yes)
    use_case.save_signer(app, entry.signer)
    _show_entry(session, entry.signer)
    for notice in app.notices():
        if notice.key_id == signer.key_id and not notice.overruled:
            session.notify(
                f"the key was {notice} and stays untrusted; to trust it nevertheless: kiwi trust overrule {principal}"
            )


def _show_entry(session: Session, signer: Signer) -> None:
    row = _row(signer)
    if session.as_json:
        session.print_json(row)
        return
    session.print(f"public key: {row['public_key']}")
    session.print(f"key id: {row['key_id']}")
    session.notify(f"{signer.principal} is {signer.status}, may sign {', '.join(signer.patterns)} ({row['types']})")
    session.notify(f"other users trust it with: {signer.trust_command()}")


@trust.command(epilog="Example: kiwi trust remove ada@acme.example")
@click.argument("who")
@click.pass_obj
def remove(session: Session, who: str) -> None:
    """Stop trusting a signer, named by principal, public key or the start of a key id."""
    removed = use_case.remove_signer(session.app(), who)
    session.notify(f"{removed.principal} (key id {removed.key_id[:16]}…) is no longer trusted")


@trust.command(epilog="Example: kiwi trust project --yes")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def project(session: Session, yes: bool) -> None:
    """Pin this project's .ai/trust.toml: accept its signers in this project, as long as the file is unchanged."""
    app = session.app()
    found = use_case.read_project_trust(app)
    for signer in found.signers:
        session.notify(
            f"  {signer.principal}  {signer.status}  {', '.join(signer.patterns)}  key id {signer.key_id[:16]}…"
        )
    confirm("Trust these signers in this project?", "kiwi trust project", yes=yes)
    use_case.pin_project(app, found)
    session.notify(f"pinned {found.path}; after each change of the file run kiwi trust project again")


@trust.command(epilog="Example: kiwi trust overrule ada@acme.example")
@click.argument("who")
@click.option("--undo", is_flag=True, help="Follow the registry's revocation again.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def overrule(session: Session, who: str, undo: bool, yes: bool) -> None:
    """Trust a key although a registry revoked or retired it. Name it by principal or the start of its key id.

    This has an effect for you only, and does not change your trust file.
    """
    app = session.app()
    notices = use_case.notices_of(app, who)
    for notice in notices:
        session.notify(f"  {notice.principal}  key id {notice.key_id[:16]}…  {notice}")
    confirm("Trust these keys nevertheless?", f"kiwi trust overrule {who}", yes=yes or undo)
    count = use_case.overrule(app, notices, overruled=not undo)
    session.notify(f"{count} notice{'' if count == 1 else 's'} {'followed again' if undo else 'overruled'}")


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
