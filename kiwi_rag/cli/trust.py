"""``kiwi keys`` and ``kiwi trust``: your private keys, always stored encrypted, and whose signatures are accepted."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from kiwi_rag import render
from kiwi_rag.cli.session import TIME, YES, Group, Session, ask_passphrase, confirm, option
from kiwi_rag.errors import SourceUnreadable, UsageError
from kiwi_rag.formats.source import display_path
from kiwi_rag.model import ItemType, sha256_hex
from kiwi_rag.services import Services
from kiwi_rag.signing import keys as key_files
from kiwi_rag.signing.statement import format_time
from kiwi_rag.signing.trust import Signer, SignerStatus, check_new_principal, check_pattern, skeleton
from kiwi_rag.usecases import project_trust
from kiwi_rag.usecases import trust as use_case

PRINCIPAL = option("--principal", default="", help="Name of the key's owner in signatures. Default: user@host.")
ITEMS = option("--items", "patterns", multiple=True, help="Items a key may sign, as acme/*. Default: all. Repeatable.")


@click.group(cls=Group)
def keys() -> None:
    """Create, list, show, export, import and retire signing keys."""


@keys.command(epilog="Example: kiwi keys new --principal ada@acme.example --items 'acme/*'")
@click.argument("name", default="default")
@PRINCIPAL
@ITEMS
def new(session: Session, app: Services, name: str, principal: str, patterns: tuple[str, ...]) -> None:
    """Create a key, store it encrypted in ~/.ai/keys, and trust it for this user."""
    path, signer = use_case.create_key(app, name, principal, patterns, lambda: _passphrase(app, confirm=True))
    _show_key(session, app, name)
    session.notify(f"created key {name!r} of {signer.principal} in {path}; it may sign {', '.join(signer.patterns)}")


@keys.command("list", epilog="Example: kiwi keys list")
def list_keys(session: Session, app: Services) -> None:
    """List your private keys, each with principal and status."""
    rows = [_key_row(app, name) for name in key_files.names(app.keys_dir)]
    lines = (render.safe(f"{row['name']}  {row['status']}  {row['principal']}  {_format_key(row)}") for row in rows)
    session.print_data(rows, lines, empty=f"there is no key in {app.keys_dir}; create one with: kiwi keys new")


@keys.command(epilog="Example: kiwi keys show default, or kiwi keys show --share")
@click.argument("name", default="")
@option("--share", is_flag=True, help="Print one line, with which a teammate trusts the key: kiwi trust add LINE.")
def show(session: Session, app: Services, name: str, share: bool) -> None:
    """Show a key's public key, key id and status."""
    chosen = app.key_name(name)
    if not share:
        _show_key(session, app, chosen)
        return
    line = use_case.share_key(app, chosen)
    session.print_data({"line": line}, [line])
    session.notify("a teammate trusts the key with: kiwi trust add LINE, with this line for LINE")


@keys.command(epilog="Example: kiwi keys export default --private > default.pem")
@click.argument("name", default="")
@option("--private", is_flag=True, help="Print the encrypted private key in place of the public key.")
def export(session: Session, app: Services, name: str, private: bool) -> None:
    """Print a public key as hex digits, or a private key as encrypted PEM."""
    chosen, folder = app.key_name(name), app.keys_dir
    if private:
        passphrase = _passphrase(app, confirm=False)
        session.print(key_files.load(chosen, folder, passphrase).pem(passphrase).decode().rstrip())
    else:
        session.print(key_files.public_key(chosen, folder).hex())


@keys.command("import", epilog="Example: kiwi keys import work.pem --name work")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@option("--name", default="", help="Name of the key. Default: the file's name.")
@PRINCIPAL
@ITEMS
def import_key(session: Session, app: Services, file: Path, name: str, principal: str, patterns: Sequence[str]) -> None:
    """Import a private key from a PEM file (Ed25519, PKCS8), and trust it for this user."""
    who, may_sign = check_new_principal(principal or app.principal), tuple(map(check_pattern, patterns))
    try:
        pem = file.read_bytes()
    except OSError as error:
        hint = "name a PEM file that you may read"
        raise SourceUnreadable(f"cannot read {file}: {error.strerror}", hint=hint) from error
    passphrase = _passphrase(app, confirm=False)
    encrypted = b"ENCRYPTED" in pem.split(b"\n", 1)[0]
    key = key_files.from_pem(name or file.stem, pem, passphrase if encrypted else None)
    use_case.store_key(app, key, who, may_sign, passphrase)
    _show_key(session, app, key.name)


@keys.command(epilog="Example: kiwi keys retire old --compromised")
@click.argument("name")
@option("--compromised", is_flag=True, help="Somebody else may have the key: reject its earlier signatures, too.")
def retire(session: Session, app: Services, name: str, compromised: bool) -> None:
    """Reject new signatures of a key. Its earlier signatures stay valid, except with --compromised."""
    signer = use_case.retire_own_key(app, name, compromised=compromised)
    session.notify(f"key {name!r} is {signer.status} from {_text(signer.valid_before)} on")


def _show_key(session: Session, app: Services, name: str) -> None:
    """Print the public key and the key id with labels, and the command that prints the line for a teammate."""
    row = _key_row(app, name)
    key_files.public_key(name, app.keys_dir)  # raises where there is none
    session.print_data(row, (f"{label.replace('_', ' ')}: {value}" for label, value in row.items()))
    named = f"{shlex.quote(name)} " if len(key_files.names(app.keys_dir)) > 1 else ""
    session.notify(f"a line with which a teammate trusts it: kiwi keys show {named}--share")


def _format_key(row: Mapping[str, str]) -> str:
    """Return the public key and the start of the key id, each with its label."""
    return f"public key {row['public_key']}  key id {row['key_id'][:16]}…" if row["public_key"] else ""


def _key_row(app: Services, name: str) -> dict[str, str]:
    public, problem = key_files.public_keys(app.keys_dir).get(name, b""), key_files.problem(name, app.keys_dir)
    signer = app.trust.by_key.get(sha256_hex(public))
    about = (signer.principal, signer.status.value, ", ".join(signer.patterns)) if signer else ("", "not trusted", "")
    principal, status, items = about
    status = f"unusable: {problem.message} ({problem.hint})" if problem else status
    row = {"name": name, "principal": principal, "status": status, "items": items}
    return {**row, "public_key": public.hex(), "key_id": sha256_hex(public) if public else ""}


def _passphrase(app: Services, *, confirm: bool) -> str:
    passphrase = app.settings.key_passphrase or ask_passphrase(confirm=confirm)
    if not passphrase:
        hint = "set KIWI_KEY_PASSPHRASE"
        raise UsageError("a private key needs a passphrase, and there is no terminal to prompt for it", hint=hint)
    return passphrase


@click.group(cls=Group)
def trust() -> None:
    """Choose whose signatures are accepted."""


@trust.command("list", epilog="Example: kiwi trust list")
def list_signers(session: Session) -> None:
    """List the trusted signers: yours first, then those of the project's pinned trust file."""
    rows = [signer_row(signer) for signer in session.app().trust.by_key.values()]
    none = "no signer is trusted yet: kiwi keys new, or kiwi trust add PUBLIC_KEY --principal NAME"
    session.print_data(rows, map(_signer_line, rows), empty=none)


@trust.command(epilog="Example: kiwi trust add 3b6a27… --principal ada@acme.example --items 'acme/*' --type directive")
@click.argument("what", metavar="PUBLIC_KEY|LINE|FILE")
@option("--principal", default="", help="Name of the key's owner. Required for a public key, which does not name it.")
@ITEMS
@option("--type", "types", multiple=True, choices=ItemType, help="Only these types. Default: all items. Repeatable.")
@option("--valid-after", type=TIME, help="Accept signatures from this time on, UTC.")
@option("--valid-before", type=TIME, help="Accept signatures until this time, UTC.")
@option("--status", choices=SignerStatus, help="Status of the key. Default: active.")
@option("--replace", "replaces", is_flag=True, help="Replace the entry of a key that is trusted already.")
@option("--yes", is_flag=True, help="Do not ask before shared signers are trusted, or rights are removed.")
def add(session: Session, what: str, principal: str, replaces: bool, yes: bool, **given: Any) -> None:
    """Trust a public key (64 hex digits) for this user, or let a trusted key sign more.

    In place of the public key: a line that its owner got from `kiwi keys show --share`, or a file with such lines, a
    public key (PEM or hex digits) or a trust.toml. What these say is shown, and you are asked; keys in them that are
    not active are skipped. Hex digits are never read as the name of a file: write ./ before such a name.

    With --replace the entry of a trusted key is replaced; the rights that it loses are listed, and you are asked.
    """
    app = session.app()
    given["patterns"] = tuple(map(check_pattern, given["patterns"]))
    fields = {name: value for name, value in given.items() if value}
    offered = use_case.offered_signers(app, what, principal, fields, session.notify)
    planned = [use_case.plan_entry(app, signer, names, replaces=replaces) for signer, names in offered]
    losses, first = [loss for _, lost in planned for loss in lost], offered[0][0]
    is_shared = first.public_key.hex() != what.strip().lower()
    if is_shared:
        _list_signers(session, app, (signer for signer, _ in offered))
    session.notify(*(f"  {loss}" for loss in losses))
    if losses or is_shared:
        question = "Remove these rights?" if losses else "Trust these signers?"
        again = "repeat the command with" if is_shared else f"{use_case.command(first)} --replace"
        confirm(question, again, yes=yes)
    known = set(app.trust.by_key)
    use_case.save_signers(app, *(entry for entry, _ in planned))
    _show_entries(session, [entry for entry, _ in planned], known)
    names = {one.key_id: shlex.quote(one.principal) for one, _ in planned}
    session.notify(*(
        f"the key was {one} and stays untrusted; to trust it nevertheless: kiwi trust overrule {names[one.key_id]}"
        for one in app.notices()
        if one.key_id in names and not one.overruled
    ))  # fmt: skip


def _list_signers(session: Session, app: Services, signers: Iterable[Signer]) -> None:
    """List signers before they are trusted: what Kiwi knows, then on a line of its own what they call themselves."""
    trusted = app.trust.by_key
    doubt = "is trusted with another key already; ask its owner about this one before you accept it"
    for one in signers:
        session.notify(f"  {one.rights}  key id {one.key_id[:16]}…", f'    principal: "{one.principal}"')
        if one.key_id not in trusted:
            alike = {s.principal for s in trusted.values() if skeleton(s.principal) == skeleton(one.principal)}
            session.notify(*(f"    {name} {doubt}" for name in sorted(alike)))
        elif one.status is SignerStatus.COMPROMISED is not trusted[one.key_id].status:
            session.notify(f"    you lose in this project what {trusted[one.key_id].principal} signed with this key")


def _show_entries(session: Session, signers: Sequence[Signer], known: Container[str]) -> None:
    rows = [signer_row(signer) for signer in signers]
    lines = (f"{name.replace('_', ' ')}: {row[name]}" for row in rows for name in ("public_key", "key_id"))
    session.print_data(rows if len(rows) > 1 else rows[0], lines)
    for one in signers:
        known_already = "this key was trusted already" if one.key_id in known else ""
        session.notify(f"{one.principal} is {one.rights}", known_already)


@trust.command(epilog="Example: kiwi trust remove ada@acme.example")
@click.argument("who")
def remove(session: Session, who: str) -> None:
    """Stop trusting a signer, named by principal, public key or the start of a key id."""
    removed = use_case.remove_signer(session.app(), who)
    session.notify(f"{removed.principal} (key id {removed.key_id[:16]}…) is no longer trusted")


@trust.command(epilog="Example: kiwi trust project --yes")
@YES
def project(session: Session, app: Services, yes: bool) -> None:
    """Pin this project's .ai/trust.toml: accept its signers in this project, as long as the file is unchanged."""
    path, digest, signers = project_trust.read_project_trust(app)
    _list_signers(session, app, signers)
    confirm("Trust these signers in this project?", "kiwi trust project", yes=yes)
    _pin(session, app, path, digest)


@trust.command(epilog="Example: kiwi trust share")
@click.argument("name", default="")
def share(session: Session, app: Services, name: str) -> None:
    """Write the key NAME, by default your only one, to this project's .ai/trust.toml, for everybody who clones it.

    What else the file lists is kept, without its comments. Others accept it with `kiwi trust project`.
    """
    path, signer = project_trust.share_in_project(app, app.key_name(name))
    session.print_data(
        {"path": str(path), **signer_row(signer)}, [f"{display_path(path)}  {signer.principal} is {signer.rights}"]
    )
    session.notify("commit this file; who clones the project accepts its signers with: kiwi trust project")


def _pin(session: Session, app: Services, path: Path, digest: str) -> None:
    project_trust.pin_project(app, path, digest)
    session.notify(f"pinned {path}; after each change of the file run kiwi trust project again", "next: kiwi index")


def propose_project_trust(session: Session, app: Services) -> None:
    """Pin the project's trust file after a confirmation, which only a terminal can give; else print the command."""
    if project_trust.project_trust_problem(app):
        path, digest, signers = project_trust.read_project_trust(app)
        session.notify(f"{path} lists signers of this project:")
        _list_signers(session, app, signers)
        if sys.stdin.isatty() and click.confirm("Trust these signers in this project?", err=True):
            _pin(session, app, path, digest)
            return
    session.notify(project_trust.next_step(app))


@trust.command(epilog="Example: kiwi trust overrule ada@acme.example")
@click.argument("who")
@option("--undo", is_flag=True, help="Follow the registry's revocation again.")
@YES
def overrule(session: Session, app: Services, who: str, undo: bool, yes: bool) -> None:
    """Trust a key although a registry revoked or retired it. Name it by principal or the start of its key id.

    This has an effect for you only, and does not change your trust file.
    """
    notices = use_case.notices_of(app, who)
    session.notify(*(f"  {one.principal}  key id {one.key_id[:16]}…  {one}" for one in notices))
    confirm("Trust these keys nevertheless?", f"kiwi trust overrule {who}", yes=yes or undo)
    count = use_case.overrule(app, notices, overruled=not undo)
    session.notify(f"{render.counted(count, 'notices')} {'followed again' if undo else 'overruled'}")


def _signer_line(row: Mapping[str, str]) -> str:
    line = f"{row['principal']}  {row['status']}  {row['items']}  {row['types']}  {_format_key(row)}"
    return render.safe(f"{line}  {row['origin']}".rstrip())


_SIGNER = ("valid_after", "valid_before", "public_key", "key_id", "origin")


def signer_row(signer: Signer, *names: str) -> dict[str, str]:
    """Return a signer, JSON-ready: what it may sign, and these attributes; by default all."""
    row = {"principal": signer.principal, "status": signer.status.value}
    row |= {"items": ",".join(signer.patterns), "types": ",".join(signer.types)}
    return row | {name: _text(getattr(signer, name)) for name in names or _SIGNER}


def _text(value: str | bytes | datetime | None) -> str:
    if isinstance(value, datetime):
        return format_time(value)
    return value.hex() if isinstance(value, bytes) else value or ""
