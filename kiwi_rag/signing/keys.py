"""Private keys: generated, stored encrypted (PKCS8, mode 0600), and used to sign."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kiwi_rag.errors import KeyUnavailable, NotFound, UsageError
from kiwi_rag.model import Document, Envelope, Item, Passage, sha256_hex
from kiwi_rag.signing import dsse, statement
from kiwi_rag.storage.atomic import atomic_write, create_file
from kiwi_rag.system import is_open_to_others

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

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


def save(key: SigningKey, folder: Path, passphrase: str) -> Path:
    """Write the key to ``<folder>/<name>.pem`` (encrypted, 0600) and its public half beside it; never overwrite.

    Raises
    ------
    KeyUnavailable
        When a key of that name exists, or its file cannot be written.
    """
    path = folder / f"{check_name(key.name)}.pem"
    try:
        if not create_file(path, key.pem(passphrase)):
            raise KeyUnavailable(f"a key named {key.name!r} exists already", hint="choose another: kiwi keys new NAME")
        atomic_write(path.with_suffix(".pub"), f"{key.public_key.hex()}\n".encode(), mode=0o644)
    except OSError as error:
        raise KeyUnavailable(f"cannot write {path}: {error.strerror}") from error
    return path


def load(name: str, folder: Path, passphrase: str | None) -> SigningKey:
    """Read and unlock ``<folder>/<name>.pem``.

    Raises
    ------
    NotFound
        When there is no such key.
    KeyUnavailable
        When it cannot be read or unlocked, or its mode lets other users read it.
    """
    path = folder / f"{check_name(name)}.pem"
    try:
        mode = path.stat().st_mode
        pem = path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"there is no key named {name!r} in {folder}", hint="kiwi keys list; kiwi keys new") from error
    except OSError as error:
        raise KeyUnavailable(f"cannot read {path}: {error.strerror}") from error
    if is_open_to_others(mode):
        raise KeyUnavailable(f"other users can read the private key {path}", hint=f"chmod 600 {path}")
    return from_pem(name, pem, passphrase)


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
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(f"there is no public key for {name!r} in {folder}", hint="kiwi keys list") from error


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
