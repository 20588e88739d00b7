"""The trust files ``trust.toml`` of the user and of a project, parsed strictly and written atomically.

A project's file comes with its repository, so it counts only after this user pinned its digest
(``kiwi trust project``). A pin is an entry in the user's file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kiwi_rag.errors import ConfigError, KiwiError, SourceUnreadable
from kiwi_rag.model import sha256_hex
from kiwi_rag.model.refs import ITEM_TYPES, ItemType
from kiwi_rag.signing.keys import parse_public
from kiwi_rag.signing.trust import Signer, SignerStatus, TrustPolicy, check_pattern, check_principal
from kiwi_rag.storage.atomic import write_user_file
from kiwi_rag.storage.safe_open import NotRegularFile, read_regular

_SIGNER_KEYS = {"principal", "public_key", "items", "types", "valid_after", "valid_before", "status"}
_PIN_KEYS = {"path", "sha256"}
MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TrustFile:
    """The content of a trust file: signers, and the pinned files of projects (absolute path → hex SHA-256)."""

    signers: tuple[Signer, ...] = ()
    pins: Mapping[str, str] | None = None

    def signer(self, public_key: bytes) -> Signer | None:
        """Return the entry for a key, if there is one."""
        return next((s for s in self.signers if s.public_key == public_key), None)

    def with_signer(self, signer: Signer) -> TrustFile:
        """Return the file with `signer` added, in the place of an entry for the same key."""
        return replace(self, signers=(*(s for s in self.signers if s.key_id != signer.key_id), signer))

    def without_key(self, key_id: str) -> TrustFile:
        """Return the file without that key's entry."""
        return replace(self, signers=tuple(s for s in self.signers if s.key_id != key_id))

    def with_pin(self, path: Path, digest: str) -> TrustFile:
        """Return the file with a project's trust file pinned."""
        return replace(self, pins={**(self.pins or {}), str(path): digest})


def load(path: Path) -> TrustFile:
    """Read a trust file; a missing one is empty.

    Raises
    ------
    ConfigError
        When it is not TOML, or has an unknown or invalid entry.
    SourceUnreadable
        When it cannot be read.
    """
    try:
        document = tomllib.loads(_bytes_of(path).decode())
    except FileNotFoundError:
        return TrustFile()
    except OSError as error:
        raise SourceUnreadable(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    return _read(document, path)


def save(path: Path, content: TrustFile) -> None:
    """Write a trust file atomically."""
    import tomlkit

    document: dict[str, Any] = {"signer": [_signer_table(s) for s in content.signers]}
    if content.pins:
        document["project"] = [{"path": p, "sha256": d} for p, d in sorted(content.pins.items())]
    write_user_file(path, tomlkit.dumps(document).encode())


def policy(user: Path, project: Path | None) -> TrustPolicy:
    """Return the policy in force: the user's signers, then those of the project's file if its digest is pinned."""
    user_file = load(user)
    if project is None or not is_pinned(user_file, project):
        return TrustPolicy(user_file.signers)
    return TrustPolicy((*user_file.signers, *load(project).signers))


def is_pinned(user_file: TrustFile, project: Path) -> bool:
    """Return whether the user pinned exactly the bytes that the project's trust file has now."""
    try:
        digest = file_digest(project)
    except SourceUnreadable:
        return False
    return (user_file.pins or {}).get(str(project.resolve())) == digest


def file_digest(path: Path) -> str:
    """Return the hex SHA-256 of a file's bytes."""
    try:
        return sha256_hex(_bytes_of(path))
    except OSError as error:
        raise SourceUnreadable(f"cannot read {path}: {error.strerror}") from error


def _bytes_of(path: Path) -> bytes:
    """Return a file's bytes. A clone may link it to a device, a pipe or a huge file, which are not read."""
    try:
        data, _ = read_regular(path, MAX_BYTES, follow_links=True)
    except NotRegularFile as error:
        raise SourceUnreadable(error.message, hint=error.hint) from error
    if len(data) > MAX_BYTES:
        raise SourceUnreadable(f"{path} is larger than {MAX_BYTES} bytes")
    return data


def _read(document: Mapping[str, Any], path: Path) -> TrustFile:
    unknown = set(document) - {"signer", "project"}
    if unknown:
        raise ConfigError(f"{path}: unknown table {sorted(unknown)[0]!r}")
    try:
        signers = tuple(_signer(table) for table in document.get("signer", ()))
        pins = {str(_only(t, _PIN_KEYS)["path"]): str(t["sha256"]) for t in document.get("project", ())}
    except (KeyError, ValueError, TypeError, AttributeError, KiwiError) as error:
        raise ConfigError(f"{path}: a signer or project entry is not valid: {error}") from error
    return TrustFile(signers, pins)


def _signer(table: Mapping[str, Any]) -> Signer:
    _only(table, _SIGNER_KEYS)
    return Signer(
        principal=check_principal(str(table["principal"])),
        public_key=parse_public(str(table["public_key"])),
        patterns=tuple(check_pattern(p) for p in _texts(table.get("items", ["*"]))),
        types=tuple(ItemType(t) for t in _texts(table.get("types", list(ITEM_TYPES)))),
        valid_after=_moment(table.get("valid_after")),
        valid_before=_moment(table.get("valid_before")),
        status=SignerStatus(table.get("status", "active")),
    )


def _signer_table(signer: Signer) -> dict[str, Any]:
    table: dict[str, Any] = {
        "principal": signer.principal,
        "public_key": signer.public_key.hex(),
        "items": list(signer.patterns),
        "types": [t.value for t in signer.types],
        "status": signer.status.value,
        "valid_after": signer.valid_after,
        "valid_before": signer.valid_before,
    }
    return {key: value for key, value in table.items() if value is not None}


def _only(table: Mapping[str, Any], allowed: set[str]) -> Mapping[str, Any]:
    unknown = set(table) - allowed
    if unknown:
        raise ValueError(f"unknown key {sorted(unknown)[0]!r}")
    return table


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise TypeError("expected a list of texts")
    return value


def _moment(value: object) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise TypeError("expected a date-time such as 2026-01-31T00:00:00Z")
    return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
