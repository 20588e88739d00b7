"""``kiwi keys``: private keys, which are always stored encrypted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from kiwi_rag.cli.session import Session, ask_passphrase
from kiwi_rag.errors import SourceUnreadable, UsageError
from kiwi_rag.services import Services
from kiwi_rag.signing import keys as key_files
from kiwi_rag.signing.statement import format_time
from kiwi_rag.signing.trust import Signer, check_pattern, check_principal
from kiwi_rag.usecases.trust import retire_own_key, trust_own_key


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
    signer = trust_own_key(app, key.public_key, who, patterns)
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
    trust_own_key(app, key.public_key, who, tuple(map(check_pattern, patterns)))
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
    signer = retire_own_key(session.app(), name, compromised=compromised)
    since = format_time(signer.valid_before) if signer.valid_before else ""
    session.notify(f"key {name!r} is {signer.status} from {since} on")


def _principal(app: Services, principal: str) -> str:
    return check_principal(principal or app.principal)


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
