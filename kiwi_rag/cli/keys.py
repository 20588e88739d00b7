"""``kiwi keys``: private keys, which are always stored encrypted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from kiwi_rag.cli.session import Session, ask_passphrase
from kiwi_rag.errors import NotFound, SourceUnreadable, UsageError
from kiwi_rag.services import Services
from kiwi_rag.signing import keys as key_files
from kiwi_rag.signing import trust_file
from kiwi_rag.signing.statement import format_time
from kiwi_rag.signing.trust import Signer, SignerStatus, check_pattern, check_principal


@click.group()
def keys() -> None:
    """Create, list, show, export, import and retire signing keys."""


@keys.command(epilog="Example: kiwi keys new --principal ada@acme.example --items 'acme/*'")
@click.argument("name", default="default")
@click.option("--principal", default="", help="Your name in signatures. Default: user@host.")
@click.option("--items", "patterns", multiple=True, help="Items that the key may sign. Default: all. Repeatable.")
@click.pass_obj
def new(session: Session, name: str, principal: str, patterns: tuple[str, ...]) -> None:
    """Create a key, store it encrypted in ~/.ai/keys, and trust it for this user."""
    app = session.app()
    for pattern in patterns:
        check_pattern(pattern)
    who = _principal(app, principal)
    key = key_files.generate(name)
    path = key_files.save(key, app.keys_dir, _passphrase(app, confirm=True))
    signer = _trust(app, key.public_key, who, patterns)
    _show_key(session, app, name)
    session.notify(f"created key {name!r} of {signer.principal} in {path}; it may sign {', '.join(signer.patterns)}")


@keys.command("list", epilog="Example: kiwi keys list")
@click.pass_obj
def list_keys(session: Session) -> None:
    """List your private keys, each with principal and status."""
    app = session.app()
    rows = [_row(app, name) for name in key_files.names(app.keys_dir)]
    if session.as_json:
        session.print_json(rows)
        return
    for row in rows:
        session.print(f"{row['name']}  {row['status']}  {row['principal']}  {format_key(row)}")
    if not rows:
        session.notify(f"there is no key in {app.keys_dir}; create one with: kiwi keys new")


@keys.command(epilog="Example: kiwi keys show default")
@click.argument("name", default="")
@click.pass_obj
def show(session: Session, name: str) -> None:
    """Show a key's public key, key id and status."""
    app = session.app()
    _show_key(session, app, app.key_name(name))


@keys.command(epilog="Example: kiwi keys export default --private > default.pem")
@click.argument("name", default="")
@click.option("--private", is_flag=True, help="Print the encrypted private key in place of the public key.")
@click.pass_obj
def export(session: Session, name: str, private: bool) -> None:
    """Print a public key as hex digits, or a private key as encrypted PEM."""
    app = session.app()
    chosen = app.key_name(name)
    if not private:
        session.print(key_files.public_key(chosen, app.keys_dir).hex())
        return
    passphrase = _passphrase(app, confirm=False)
    session.print(key_files.load(chosen, app.keys_dir, passphrase).pem(passphrase).decode().rstrip())


@keys.command("import", epilog="Example: kiwi keys import work.pem --name work")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--name", default="", help="Name of the key. Default: the file's name.")
@click.option("--principal", default="", help="Name of the key's owner. Default: user@host.")
@click.option("--items", "patterns", multiple=True, help="Items that the key may sign. Default: all. Repeatable.")
@click.pass_obj
def import_key(session: Session, file: Path, name: str, principal: str, patterns: tuple[str, ...]) -> None:
    """Import a private key from a PEM file (Ed25519, PKCS8), and trust it for this user."""
    app = session.app()
    try:
        pem = file.read_bytes()
    except OSError as error:
        hint = "name a PEM file that you may read"
        raise SourceUnreadable(f"cannot read {file}: {error.strerror}", hint=hint) from error
    who, passphrase = _principal(app, principal), _passphrase(app, confirm=False)
    encrypted = b"ENCRYPTED" in pem.split(b"\n", 1)[0]
    key = key_files.from_pem(name or file.stem, pem, passphrase if encrypted else None)
    key_files.save(key, app.keys_dir, passphrase)
    _trust(app, key.public_key, who, tuple(map(check_pattern, patterns)))
    _show_key(session, app, key.name)


@keys.command(epilog="Example: kiwi keys retire old --compromised")
@click.argument("name")
@click.option(
    "--compromised",
    is_flag=True,
    help="Somebody else may have the key: reject all its signatures, the earlier ones too.",
)
@click.pass_obj
def retire(session: Session, name: str, compromised: bool) -> None:
    """Reject new signatures of a key. Its earlier signatures stay valid, except with --compromised."""
    app = session.app()
    key_id = key_files.key_id_of(key_files.public_key(name, app.keys_dir))
    content = trust_file.load(app.user_trust)
    signer = next((s for s in content.signers if s.key_id == key_id), None)
    if signer is None:
        raise NotFound(f"key {name!r} is not in {app.user_trust}", hint="kiwi trust list shows the keys in it")
    status = SignerStatus.COMPROMISED if compromised else SignerStatus.RETIRED
    moment = datetime.now(UTC).replace(microsecond=0)
    trust_file.save(app.user_trust, content.with_signer(replace(signer, status=status, valid_before=moment)))
    session.notify(f"key {name!r} is {status} from {format_time(moment)} on")


def _principal(app: Services, principal: str) -> str:
    return check_principal(principal or app.principal)


def _trust(app: Services, public_key: bytes, principal: str, patterns: tuple[str, ...]) -> Signer:
    """Trust one of this user's keys; a key that the trust file has keeps its status, and its patterns are added to."""
    content = trust_file.load(app.user_trust)
    trusted = content.signer(public_key)
    signer = trusted.extended(patterns, ()) if trusted else Signer(principal, public_key, patterns or ("*",))
    trust_file.save(app.user_trust, content.with_signer(signer))
    app.refresh_trust()
    return signer


def _show_key(session: Session, app: Services, name: str) -> None:
    """Print the public key and the key id with labels, and the command with which another user trusts the key."""
    row, public = _row(app, name), key_files.public_key(name, app.keys_dir)
    if session.as_json:
        session.print_json(row)
        return
    for label, value in row.items():
        session.print(f"{label.replace('_', ' ')}: {value}")
    signer = app.trust.by_key.get(key_files.key_id_of(public)) or Signer(app.principal, public)
    session.notify(f"other users trust it with: {signer.trust_command()}")


def format_key(row: Mapping[str, str]) -> str:
    """Return the public key and the start of the key id, each with its label."""
    return f"public key {row['public_key']}  key id {row['key_id'][:16]}…"


def _row(app: Services, name: str) -> dict[str, str]:
    public = key_files.public_key(name, app.keys_dir)
    signer = app.trust.by_key.get(key_files.key_id_of(public))
    return {
        "name": name,
        "principal": signer.principal if signer else "",
        "status": signer.status.value if signer else "not trusted",
        "items": ", ".join(signer.patterns) if signer else "",
        "public_key": public.hex(),
        "key_id": key_files.key_id_of(public),
    }


def _passphrase(app: Services, *, confirm: bool) -> str:
    passphrase = app.settings.key_passphrase or ask_passphrase(confirm=confirm)
    if not passphrase:
        raise UsageError(
            "a private key needs a passphrase, and there is no terminal to prompt for it",
            hint="set KIWI_KEY_PASSPHRASE",
        )
    return passphrase
