"""``kiwi keys``: private keys, always encrypted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from kiwi_rag.cli.session import Session, ask_passphrase
from kiwi_rag.errors import NotFound, SourceUnreadable, UsageError
from kiwi_rag.services import Services
from kiwi_rag.signing import keys as kept
from kiwi_rag.signing import trust_file
from kiwi_rag.signing.statement import format_time
from kiwi_rag.signing.trust import Signer, SignerStatus, check_pattern, check_principal


@click.group()
def keys() -> None:
    """Make, list, show, export, import and retire signing keys."""


@keys.command(epilog="Example: kiwi keys new --principal ada@acme.example --items 'acme/*'")
@click.argument("name", default="default")
@click.option("--principal", default="", help="Who you are; default: user@host.")
@click.option("--items", "patterns", multiple=True, help="Items it may sign; default: all. Repeatable.")
@click.pass_obj
def new(session: Session, name: str, principal: str, patterns: tuple[str, ...]) -> None:
    """Make a key, keep it encrypted in ~/.ai/keys, and trust it for this user."""
    app = session.app()
    for pattern in patterns:
        check_pattern(pattern)
    who = _who(app, principal)
    key = kept.generate(name)
    path = kept.save(key, app.keys_dir, _passphrase(app, confirm=True))
    signer = _trust(app, key.public_key, who, patterns)
    _show_key(session, app, name)
    session.say(f"key {name!r} of {signer.principal} is in {path}; it may sign {', '.join(signer.patterns)}")


@keys.command("list", epilog="Example: kiwi keys list")
@click.pass_obj
def list_keys(session: Session) -> None:
    """List the private keys kept here, with principal and status."""
    app = session.app()
    rows = [_row(app, name) for name in kept.names(app.keys_dir)]
    if session.as_json:
        session.data(rows)
        return
    for row in rows:
        session.out(f"{row['name']}  {row['status']}  {row['principal']}  {labelled(row)}")
    if not rows:
        session.say("there is no key yet: kiwi keys new")


@keys.command(epilog="Example: kiwi keys show default")
@click.argument("name", default="")
@click.pass_obj
def show(session: Session, name: str) -> None:
    """Show a key's public half, id and status."""
    app = session.app()
    _show_key(session, app, app.key_name(name))


@keys.command(epilog="Example: kiwi keys export default --private > default.pem")
@click.argument("name", default="")
@click.option("--private", is_flag=True, help="The encrypted private key instead of the public one.")
@click.pass_obj
def export(session: Session, name: str, private: bool) -> None:
    """Print a key: the public half as hex, or the private one as encrypted PEM."""
    app = session.app()
    chosen = app.key_name(name)
    if not private:
        session.out(kept.public_key(chosen, app.keys_dir).hex())
        return
    passphrase = _passphrase(app, confirm=False)
    session.out(kept.load(chosen, app.keys_dir, passphrase).pem(passphrase).decode().rstrip())


@keys.command("import", epilog="Example: kiwi keys import work.pem --name work")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--name", default="", help="Name to keep it under; default: the file's.")
@click.option("--principal", default="", help="Whose key it is; default: user@host.")
@click.option("--items", "patterns", multiple=True, help="Items it may sign; default: all. Repeatable.")
@click.pass_obj
def import_key(session: Session, file: Path, name: str, principal: str, patterns: tuple[str, ...]) -> None:
    """Keep a PEM private key (Ed25519, PKCS8), and trust it for this user."""
    app = session.app()
    try:
        pem = file.read_bytes()
    except OSError as error:
        raise SourceUnreadable(f"cannot read {file}: {error.strerror}") from error
    who, passphrase = _who(app, principal), _passphrase(app, confirm=False)
    encrypted = b"ENCRYPTED" in pem.split(b"\n", 1)[0]
    key = kept.from_pem(name or file.stem, pem, passphrase if encrypted else None)
    kept.save(key, app.keys_dir, passphrase)
    _trust(app, key.public_key, who, tuple(map(check_pattern, patterns)))
    _show_key(session, app, key.name)


@keys.command(epilog="Example: kiwi keys retire old --compromised")
@click.argument("name")
@click.option("--compromised", is_flag=True, help="Someone else may have it: nothing that it signed is valid any more.")
@click.pass_obj
def retire(session: Session, name: str, compromised: bool) -> None:
    """Stop trusting new signatures of a key; what it signed before stays valid unless it is compromised."""
    app = session.app()
    key_id = kept.key_id_of(kept.public_key(name, app.keys_dir))
    content = trust_file.load(app.user_trust)
    signer = next((s for s in content.signers if s.key_id == key_id), None)
    if signer is None:
        raise NotFound(f"key {name!r} is not in {app.user_trust}", hint="kiwi trust list")
    status = SignerStatus.COMPROMISED if compromised else SignerStatus.RETIRED
    moment = datetime.now(UTC).replace(microsecond=0)
    trust_file.save(app.user_trust, content.with_signer(replace(signer, status=status, valid_before=moment)))
    session.say(f"key {name!r} is {status} since {format_time(moment)}")


def _who(app: Services, principal: str) -> str:
    return check_principal(principal or app.principal)


def _trust(app: Services, public_key: bytes, principal: str, patterns: tuple[str, ...]) -> Signer:
    """Trust a key of this user's; one that is known keeps what it has, its status too."""
    content = trust_file.load(app.user_trust)
    known = content.signer(public_key)
    signer = known.extended(patterns, ()) if known else Signer(principal, public_key, patterns or ("*",))
    trust_file.save(app.user_trust, content.with_signer(signer))
    app.refresh_trust()
    return signer


def _show_key(session: Session, app: Services, name: str) -> None:
    """Print a key's public half with its id, each by its name, and how a teammate trusts it."""
    row, public = _row(app, name), kept.public_key(name, app.keys_dir)
    if session.as_json:
        session.data(row)
        return
    for label, value in row.items():
        session.out(f"{label.replace('_', ' ')}: {value}")
    signer = app.trust.by_key.get(kept.key_id_of(public)) or Signer(app.principal, public)
    session.say(f"a teammate trusts it with: {signer.trust_command()}")


def labelled(row: Mapping[str, str]) -> str:
    """Return a key's public half and the start of its id, each by its name."""
    return f"public key {row['public_key']}  key id {row['key_id'][:16]}…"


def _row(app: Services, name: str) -> dict[str, str]:
    public = kept.public_key(name, app.keys_dir)
    signer = app.trust.by_key.get(kept.key_id_of(public))
    return {
        "name": name,
        "principal": signer.principal if signer else "",
        "status": signer.status.value if signer else "not trusted",
        "items": ", ".join(signer.patterns) if signer else "",
        "public_key": public.hex(),
        "key_id": kept.key_id_of(public),
    }


def _passphrase(app: Services, *, confirm: bool) -> str:
    passphrase = app.settings.key_passphrase or ask_passphrase(confirm=confirm)
    if not passphrase:
        raise UsageError(
            "a private key needs a passphrase, and there is no terminal to ask", hint="set KIWI_KEY_PASSPHRASE"
        )
    return passphrase
