"""Private keys: generated, stored encrypted (PKCS8, mode 0600), and used to sign."""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kiwi_rag.errors import KeyUnavailable, KiwiError, NotFound, SourceUnreadable, UsageError
from kiwi_rag.model import Document, Envelope, Item, Passage, sha256_hex
from kiwi_rag.signing import dsse, statement
from kiwi_rag.storage.atomic import atomic_write, link_new
from kiwi_rag.storage.safe_open import read_regular
from kiwi_rag.system import is_open_to_others

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

MAX_BYTES = 1 << 16
"""Size of a key's file; more is not read."""
NEW, KNOWN = ".new", ".known"
"""Suffixes of a key that is being stored: one that gets an entry in the trust file, and one that may have it before."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class SigningKey:
    """An unlocked Ed25519 key pair."""

    name: str
    _private: Ed25519PrivateKey = field(repr=False)

    @property
    def public_key(self) -> bytes:
        """The 32 raw bytes of the public key."""
        return self._private.public_key().public_bytes_raw()

    @property
    def key_id(self) -> str:
        """The key's id: hex SHA-256 of the 32 raw bytes of the public key."""
        return sha256_hex(self.public_key)

    def sign(self, item: Item, registry: str, signed_at: datetime | None = None) -> Envelope:
        """Return the signed envelope of `item` for the audience `registry`; `signed_at` is the present by default."""
        return self.sign_payload(statement.item_payload(item, registry, signed_at or datetime.now(UTC)))

    def sign_payload(self, payload: bytes) -> Envelope:
        """Return the signed envelope of a statement in canonical form."""
        signature = self._private.sign(dsse.pae(dsse.PAYLOAD_TYPE, payload))
        return Envelope(dsse.PAYLOAD_TYPE, payload, ((self.key_id, signature),))

    def pem(self, passphrase: str) -> bytes:
        """Return the private key as encrypted PKCS8 PEM.

        Raises
        ------
        UsageError
            When the passphrase is empty: Kiwi never writes an unencrypted private key.
        """
        from cryptography.hazmat.primitives import serialization as s

        if not passphrase:
            hint = "set KIWI_KEY_PASSPHRASE, or type one at the prompt"
            raise UsageError("a private key needs a passphrase", hint=hint)
        encryption = s.BestAvailableEncryption(passphrase.encode())
        return self._private.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, encryption)


@dataclass(frozen=True, slots=True)
class Indexer:
    """Signs the documents of a ``collection``, such as a workspace, for the audience ``registry``."""

    key: SigningKey
    registry: str
    collection: str

    def sign(self, document: Document, passages: Sequence[Passage], at: datetime) -> Envelope:
        """Return the signed envelope of a document that was split into `passages`.

        Raises
        ------
        MalformedEnvelope
            When canonical JSON cannot represent it, or it has too many passages.
        """
        return self.key.sign_payload(statement.index_payload(document, passages, self.registry, self.collection, at))


def generate(name: str) -> SigningKey:
    """Generate a key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return SigningKey(check_name(name), Ed25519PrivateKey.generate())


def derived(name: str, secret: bytes, purpose: bytes) -> SigningKey:
    """Derive a key from a secret and a purpose, always the same one: HKDF-SHA256 (RFC 5869), 32 bytes as the seed.

    For signatures that are made without a user who could type a passphrase. The key is as safe as the secret.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    seed = HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(secret)
    return SigningKey(name, Ed25519PrivateKey.from_private_bytes(seed))


def from_pem(name: str, pem: bytes, passphrase: str | None) -> SigningKey:
    """Unlock a PEM private key.

    Raises
    ------
    KeyUnavailable
        When the passphrase is missing or wrong, or the PEM holds no Ed25519 private key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        private = load_pem_private_key(pem, passphrase.encode() if passphrase else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        hint = "set KIWI_KEY_PASSPHRASE" if not passphrase else "check the passphrase"
        raise KeyUnavailable(f"private key {name!r} cannot be unlocked", hint=hint) from error
    if not isinstance(private, Ed25519PrivateKey):
        raise KeyUnavailable(f"private key {name!r} is not an Ed25519 key", hint="kiwi keys new")
    return SigningKey(name, private)


def check_unused(name: str, folder: Path) -> Path:
    """Return the path of a key that there is not yet; raise `KeyUnavailable` if there is one of this name."""
    path = folder / f"{check_name(name)}.pem"
    if os.path.lexists(path):
        raise KeyUnavailable(f"a key named {name!r} exists already", hint="choose another: kiwi keys new NAME")
    return path


def save(key: SigningKey, folder: Path, passphrase: str, trust: Callable[[], _T], suffix: str = NEW) -> tuple[Path, _T]:
    """Write the key to ``<folder>/<name>.pem`` (encrypted, 0600) and its public half beside it; never overwrite.

    The private key is there once the rest is: its public half, and what `trust` does and returns. Until then it has
    another name, by which `unfinished` finds it after a failure. One process at a time may call this.

    Raises
    ------
    KeyUnavailable
        When a key of that name exists.
    OSError
        When a file cannot be written.
    """
    path, pem = check_unused(key.name, folder), key.pem(passphrase)
    draft = folder / f".{key.public_key.hex()}{suffix}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_write(draft, pem)
    atomic_write(path.with_suffix(".pub"), f"{key.public_key.hex()}\n".encode(), mode=0o644)
    trusted = trust()
    link_new(draft, path)
    draft.unlink(missing_ok=True)
    return path, trusted


def unfinished(folder: Path) -> Iterator[tuple[bytes, Path]]:
    """Yield the public halves and files of keys that a process began to store, and did not; each is then removed."""
    for draft in [*folder.glob(f".*{NEW}"), *folder.glob(f".*{KNOWN}")]:
        publics = [path for path in folder.glob("*.pub") if path.read_bytes().strip() == draft.stem[1:].encode()]
        if not any(path.with_suffix(".pem").exists() for path in publics):
            yield bytes.fromhex(draft.stem[1:]), draft
            for path in publics:
                path.unlink()
        draft.unlink(missing_ok=True)


def load(name: str, folder: Path, passphrase: str | None) -> SigningKey:
    """Read and unlock ``<folder>/<name>.pem``.

    Raises
    ------
    NotFound
        When there is no such key.
    KeyUnavailable
        When it cannot be read or unlocked, or its mode lets other users read it.
    """
    return from_pem(name, _read(name, folder), passphrase)


def _read(name: str, folder: Path) -> bytes:
    path = folder / f"{check_name(name)}.pem"
    aside = f"restore it, or move it away: mv {shlex.quote(str(path))} {shlex.quote(f'{path}.broken')}"
    try:
        pem, entry = read_regular(path, MAX_BYTES, follow_links=True)
    except FileNotFoundError as error:
        if not path.is_symlink():
            hint = "kiwi keys list; kiwi keys new"
            raise NotFound(f"there is no key named {name!r} in {folder}", hint=hint) from error
        raise KeyUnavailable(f"{path} is a link to nowhere", hint=aside) from error
    except (OSError, SourceUnreadable) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise KeyUnavailable(f"cannot read {path}: {reason}", hint=aside) from error
    if is_open_to_others(entry.st_mode):
        raise KeyUnavailable(f"other users can read the private key {path}", hint=f"chmod 600 {shlex.quote(str(path))}")
    if what := _foreign_kind(pem):
        raise KeyUnavailable(f"{path} {what}", hint=aside)
    return pem


def _foreign_kind(pem: bytes) -> str:
    """Return what makes a file none of Kiwi's keys, as far as it shows without the passphrase; else an empty text."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        is_own = isinstance(load_pem_private_key(pem, None), Ed25519PrivateKey)
    except TypeError:  # it is encrypted
        is_own = b"-----BEGIN ENCRYPTED PRIVATE KEY-----" in pem
    except (ValueError, UnsupportedAlgorithm):
        return "holds no private key"
    return "" if is_own else "is not an Ed25519 key in PKCS8"


def problem(name: str, folder: Path) -> KiwiError | None:
    """Return why a stored key cannot be used, as far as that shows without its passphrase; None where it can."""
    try:
        _read(name, folder)
        public_key(name, folder)
    except KiwiError as error:
        return error
    return None


def names(folder: Path) -> tuple[str, ...]:
    """Return the names of the keys in `folder`, sorted."""
    return tuple(sorted(path.stem for path in folder.glob("*.pem")))


def only_name(folder: Path, inactive: Container[bytes] = ()) -> str:
    """Return the name of the one key in `folder`, or of the one whose public key is not among the `inactive`.

    Raises
    ------
    NotFound
        When there is none.
    UsageError
        When there are several.
    """
    existing = names(folder)
    if not existing:
        raise NotFound("there is no key to sign with", hint="kiwi keys new")
    if len(existing) > 1:
        broken = {name: found for name in existing if (found := problem(name, folder))}
        for name, found in broken.items() if len(broken) < len(existing) else ():
            _log.warning("the key %s is not used: %s (%s)", name, found.message, found.hint)
        existing = tuple(name for name in existing if name not in broken) or existing
        existing = tuple(name for name in existing if public_key(name, folder) not in inactive) or existing
    if len(existing) > 1:
        raise UsageError(f"there are several keys: {', '.join(existing)}", hint="choose one with --key NAME")
    return existing[0]


def public_key(name: str, folder: Path) -> bytes:
    """Return the 32 raw bytes of the public half of a stored key; needs no passphrase.

    Raises
    ------
    NotFound
        When there is no such key.
    """
    try:
        return parse_public((folder / f"{check_name(name)}.pub").read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError, UsageError) as error:
        again = f"kiwi keys import {shlex.quote(str(folder / f'{name}.pem'))} --name {name}-2"
        raise NotFound(f"there is no public key for {name!r} in {folder}", hint=again) from error


def public_keys(folder: Path) -> dict[str, bytes]:
    """Return the public halves of the stored keys by name, of those that have one."""
    found = {}
    for name in names(folder):
        with suppress(KiwiError):
            found[name] = public_key(name, folder)
    return found


def parse_public(text: str) -> bytes:
    """Parse a public key from its 64 hex digits, strictly.

    Raises
    ------
    UsageError
        When it is not a hex Ed25519 key.
    SignatureRefused
        When it is a weak or non-canonical key.
    """
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text.strip()):
        raise UsageError("a public key is 64 hex digits", hint="kiwi keys show NAME prints it")
    return dsse.check_public_key(bytes.fromhex(text.strip()))


def public_key_of(pem: bytes) -> bytes:
    """Return the public key in a PEM file, strictly.

    Raises
    ------
    UsageError
        When it holds something else, such as a private key.
    SignatureRefused
        When it is a weak or non-canonical key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    with suppress(ValueError, UnsupportedAlgorithm):
        if isinstance(key := load_pem_public_key(pem), Ed25519PublicKey):
            return dsse.check_public_key(key.public_bytes_raw())
    raise UsageError("the PEM file holds no Ed25519 public key", hint="kiwi keys export prints the public key")


def check_name(name: str) -> str:
    """Return `name` if it can name a key file.

    Raises
    ------
    UsageError
        When it cannot.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no valid name for a key", hint="use letters, digits, '.', '-' and '_'")
    return name
