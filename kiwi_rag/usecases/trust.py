"""Whose signatures are accepted: entries of the user's trust file, pinned projects, and what registries revoked."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from kiwi_rag.errors import (
    NotFound,
    RegistryContradicted,
    RegistryError,
    SignatureRefused,
    SourceUnreadable,
    StoreBusy,
    UsageError,
)
from kiwi_rag.model import Filters, sha256_hex
from kiwi_rag.monitor.pinned_state import PinnedState, pinned_states, read_all
from kiwi_rag.registry.calls import time_limit
from kiwi_rag.render import counted
from kiwi_rag.services import Services
from kiwi_rag.signing import keys, trust_file
from kiwi_rag.signing.dsse import is_on_curve
from kiwi_rag.signing.keys import SigningKey
from kiwi_rag.signing.trust import RevocationNotice, Signer, SignerStatus, check_new_principal, check_pattern
from kiwi_rag.storage.atomic import acquire_lock, disk_errors
from kiwi_rag.storage.safe_open import read_regular

WAIT_SECONDS = 5.0
"""How long a command on local tiers waits for the registry."""
_KEY_ID = re.compile(r'"keyid"\s*:\s*"([0-9a-f]{64})"')
_DIGITS = re.compile(r"\s*[0-9a-fA-F]+[….\s]*")
_HINT = "a key id does not give the public key: the key's owner prints that with kiwi keys show"


def parse_public_key(app: Services, text: str) -> bytes:
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
        key = keys.parse_public(digits)
    except SignatureRefused as error:
        raise UsageError(f"{digits} is not a public key: {error.message}", hint=_HINT) from error
    if not is_on_curve(key):
        raise UsageError(f"{digits} is not a public key (not a point of the curve); it may be a key id", hint=_HINT)
    return key


def _check_no_key_id(app: Services, digits: str) -> None:
    """Raise `UsageError` if the digits are a key id or begin one: of a trusted key, an own one, or a signer's."""
    own_keys = [Signer(app.principal, public) for public in keys.public_keys(app.keys_dir).values()]
    for signer in (*app.trust.by_key.values(), *own_keys):
        if signer.key_id.startswith(digits):
            message = f"{digits} is the key id of {signer.principal}, not a public key"
            raise UsageError(message, hint=f"its public key is {signer.public_key.hex()}: {signer.trust_command()}")
    if len(digits) < 64 or digits in _key_ids_seen(app):
        raise UsageError(f"{digits} is not a public key; it may be a key id or the start of a key id", hint=_HINT)


def _key_ids_seen(app: Services) -> Iterator[str]:
    """Yield the key ids in signature files, and those in the pinned state of registries."""
    for root in filter(None, (app.project_dir, app.user_dir)):
        for path in root.rglob("*.sig"):
            with suppress(OSError, SourceUnreadable):  # a clone may link it to a device, or to a pipe
                yield from _KEY_ID.findall(read_regular(path, trust_file.MAX_BYTES)[0].decode(errors="replace"))
    yield from read_all(app.monitor_dir, PinnedState.key_ids)


def offered_signers(
    app: Services, what: str, principal: str, given: Mapping[str, Any], report: Callable[[str], None]
) -> list[tuple[Signer, set[str]]]:
    """Return the signers that a public key, a shared line or a file stands for, each with the fields it sets.

    `principal` and the fields in `given` go before what is shared. Hex digits are a key and never a file: a clone may
    have a file of any name. What is shared only adds trust: `report` is told of the signers that are not active, which
    are left out.

    Raises
    ------
    UsageError, SourceUnreadable
        When it is nothing of that, or nobody says whose key it is.
    """
    if what.startswith(trust_file.LINE):
        offered: Sequence[Signer] = (trust_file.parse_shared(what),)
    elif not _DIGITS.fullmatch(what) and os.path.isfile(app.cwd / what):  # noqa: PTH113  # it may be too long for a name
        offered = trust_file.read_shared(app.cwd / what)
    else:
        offered = (Signer("", parse_public_key(app, what)),)
    found = []
    for one in offered:
        if one.status is not SignerStatus.ACTIVE:
            report(f"  skipped: key id {one.key_id[:16]}… is {one.status} in {what}, and only active keys are shared")
            continue
        parse_public_key(app, one.public_key.hex())
        if not (principal or one.principal):
            raise UsageError(f"nothing says whose key {one.public_key.hex()} is", hint="add --principal NAME")
        signer = replace(one, principal=check_new_principal(principal or one.principal), **given)
        bare = Signer("", one.public_key)
        shared = {name for name in ("valid_after", "valid_before") if getattr(one, name) != getattr(bare, name)}
        found.append((signer, {*given, *shared, *(("patterns", "types") if one.principal else ())}))
    if not found:
        raise UsageError(f"{what} lists no active signer", hint="its owner runs kiwi keys show --share")
    return found


def plan_entry(app: Services, signer: Signer, given: Container[str], *, replaces: bool) -> tuple[Signer, Sequence[str]]:
    """Return the entry that trusts a signer, and what the present entry of its key loses. Nothing is written.

    To the entry of a trusted key only the fields in `given` are added; with `replaces` it is replaced.

    Raises
    ------
    UsageError
        When a trusted key would lose a permission or change its principal, and `replaces` is not set.
    """
    trusted = trust_file.load(app.user_trust).signer(signer.public_key)
    if trusted is None:
        return signer, ()
    if replaces:
        return signer, [f"{trusted.principal} loses: {loss}" for loss in _losses(trusted, signer)]
    patterns, types = signer.patterns if "patterns" in given else (), signer.types if "types" in given else ()
    extended = trusted.extended(patterns, types)
    changed: dict[str, Any] = {n: getattr(signer, n) for n in ("valid_after", "valid_before", "status") if n in given}
    entry = replace(extended, **changed)
    if losses := _losses(trusted, replace(entry, principal=signer.principal)):
        message = f"this key of {trusted.principal} is trusted already and would lose: {'; '.join(losses)}"
        raise UsageError(f"{message}; nothing was changed", hint=f"to replace its entry: {command(signer)} --replace")
    return entry, ()


def command(signer: Signer) -> str:
    """Return the command that trusts a signer, with its status."""
    return signer.trust_command() + ("" if signer.status is SignerStatus.ACTIVE else f" --status {signer.status}")


def _losses(trusted: Signer, after: Signer) -> list[str]:
    """Return what is lost when `after` replaces an entry: permissions, the name, a status other than active."""
    found = trusted.rights_not_in(after)
    if trusted.principal != after.principal:
        found.append(f"the name {trusted.principal}")
    if trusted.status is not SignerStatus.ACTIVE and after.status is SignerStatus.ACTIVE:
        found.append(f"the status {trusted.status}")
    return found


def save_signers(app: Services, *signers: Signer) -> None:
    """Write signers to the user's trust file, each in place of the entry of its key."""
    content = trust_file.load(app.user_trust)
    for signer in signers:
        content = content.with_signer(signer)
    trust_file.save(app.user_trust, content)


def create_key(
    app: Services, name: str, principal: str, patterns: Sequence[str], passphrase: Callable[[], str]
) -> tuple[Path, Signer]:
    """Create a key, store it encrypted, and trust it for this user; return its file and its entry.

    `passphrase` is called once everything else was found valid. Without a `principal` it is this user's.

    Raises
    ------
    UsageError, KeyUnavailable
        When a value is not valid, there is a key of this name, or its file cannot be written.
    """
    who, may_sign = check_new_principal(principal or app.principal), tuple(map(check_pattern, patterns))
    keys.check_unused(name, app.keys_dir)
    return store_key(app, keys.generate(name), who, may_sign, passphrase())


def store_key(
    app: Services, key: SigningKey, principal: str, patterns: tuple[str, ...], passphrase: str
) -> tuple[Path, Signer]:
    """Store a key encrypted and trust it for this user; return its file and its entry.

    After a failure there is neither. What a killed process left is removed by the next one that stores a key.

    Raises
    ------
    UsageError, KeyUnavailable, StoreError
        When there is no passphrase, there is a key of this name, or a file cannot be written.
    """
    folder, busy = app.keys_dir, StoreBusy(f"another process is storing a key in {app.keys_dir}")
    known = trust_file.load(app.user_trust).signer(key.public_key) is not None
    with disk_errors(folder / f"{key.name}.pem", "write"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with acquire_lock(folder / "keys.lock", WAIT_SECONDS, lambda: busy):
            _discard_unfinished(app)
            try:
                trust = partial(trust_own_key, app, key.public_key, principal, patterns)
                path, signer = keys.save(key, folder, passphrase, trust, keys.KNOWN if known else keys.NEW)
            finally:
                _discard_unfinished(app)
    return path, signer


def _discard_unfinished(app: Services) -> None:
    """Remove the trust entries and files of keys that were not stored whole."""
    for public_key, draft in keys.unfinished(app.keys_dir):
        content = trust_file.load(app.user_trust)
        if draft.suffix == keys.NEW and (signer := content.signer(public_key)):
            trust_file.save(app.user_trust, content.without_key(signer.key_id))


def trust_own_key(app: Services, public_key: bytes, principal: str, patterns: tuple[str, ...]) -> Signer:
    """Trust one of this user's keys; a key that the trust file has keeps its status, and its patterns are added to."""
    trusted = trust_file.load(app.user_trust).signer(public_key)
    signer = trusted.extended(patterns, ()) if trusted else Signer(principal, public_key, patterns or ("*",))
    save_signers(app, signer)
    return signer


def retire_own_key(app: Services, name: str, *, compromised: bool) -> Signer:
    """Set the status of one of this user's keys to retired or compromised, from now on.

    Raises
    ------
    NotFound
        When the user's trust file does not have it.
    """
    signer = trust_file.load(app.user_trust).signer(keys.public_key(name, app.keys_dir))
    if signer is None:
        raise NotFound(f"key {name!r} is not in {app.user_trust}", hint="kiwi trust list shows the keys in it")
    status = SignerStatus.COMPROMISED if compromised else SignerStatus.RETIRED
    retired = replace(signer, status=status, valid_before=datetime.now(UTC).replace(microsecond=0))
    save_signers(app, retired)
    return retired


def share_key(app: Services, name: str) -> str:
    """Return the line that lets a teammate trust one of this user's keys, with the rights of its entry.

    Raises
    ------
    UsageError
        When the key is retired or compromised.
    """
    return trust_file.shared_line(shareable(app, name))


def shareable(app: Services, name: str) -> Signer:
    public = keys.public_key(name, app.keys_dir)
    signer = app.trust.by_key.get(sha256_hex(public)) or Signer(app.principal, public)
    if signer.status is not SignerStatus.ACTIVE:
        raise UsageError(f"key {name!r} is {signer.status}; nobody should trust it", hint="kiwi keys new")
    return signer


def find_signer(app: Services, who: str) -> Signer:
    """Return a signer of the user's trust file: named by principal, public key or the start of a key id.

    Raises
    ------
    NotFound
        When it names none, or several.
    """
    signers = trust_file.load(app.user_trust).signers
    found = [s for s in signers if who in (s.principal, s.public_key.hex()) or s.key_id.startswith(who)]
    if len(found) != 1:
        raise NotFound(f"{len(found)} signers match {who!r}", hint="kiwi trust list shows key ids")
    return found[0]


def remove_signer(app: Services, who: str) -> Signer:
    """Remove a signer from the user's trust file; `find_signer` says how `who` names it."""
    signer = find_signer(app, who)
    trust_file.save(app.user_trust, trust_file.load(app.user_trust).without_key(signer.key_id))
    return signer


async def describe_loss(app: Services, signer: Signer) -> str:
    """Return how many items of the local tiers are no longer shown when a key is not trusted, in words."""
    names = app.source_names("local")
    count = sum([len(await app.local(name).store.list(Filters(signer=signer.key_id))) for name in names])
    return f"{counted(count, 'items')} in the local tiers ({', '.join(names)}) will no longer be shown"


def notices_of(app: Services, who: str) -> Sequence[RevocationNotice]:
    """Return the registries' notices about a key, named by principal or the start of its key id.

    Raises
    ------
    NotFound
        When there is none.
    """
    found = [n for n in app.notices() if who == n.principal or (len(who) >= 8 and n.key_id.startswith(who))]
    if not found:
        raise NotFound(f"no registry revoked or retired a key of {who!r}", hint="kiwi trust list")
    return found


def overrule(app: Services, notices: Sequence[RevocationNotice], *, overruled: bool) -> int:
    """Trust the keys of some notices nevertheless, or follow the notices again; return how many were changed."""
    key_ids = {notice.key_id for notice in notices}
    states = pinned_states(app.monitor_dir)
    return sum(state.overrule(key_id, overruled=overruled) for state in states for key_id in key_ids)


async def fetch_revocations(app: Services) -> str:
    """Read the registry's revocations, if this user has a registry, and apply them to the trusted keys.

    If it does not answer, the pinned revocations are applied, and the text that is returned says how old they are.
    """
    if not app.registry_connection.exists:
        return ""
    try:
        async with time_limit(min(WAIT_SECONDS, app.settings.deadline)):
            await app.monitor.check(fully=True)
        return ""
    except (RegistryError, RegistryContradicted) as error:
        read_at = app.monitor.pinned.read().checked_at
        used = f"the revocations used are of {read_at:%Y-%m-%d %H:%M} UTC" if read_at else "they were never read"
        return f"{error.message}; {used}"
