"""The trust files ``trust.toml`` of the user and of a project, parsed strictly and written atomically.

Also trust lines, ``kiwi:trust:1:…``, by which one user gives a signer to another: base64url of canonical JSON, and a
checksum.

A project's file comes with its repository, so it counts only after this user pinned its digest
(``kiwi trust project``). A pin is an entry in the user's file.
"""

from __future__ import annotations

import base64
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kiwi_rag.errors import ConfigError, KiwiError, SourceUnreadable, UsageError
from kiwi_rag.model import ItemType, sha256_hex
from kiwi_rag.signing import dsse
from kiwi_rag.signing.keys import parse_public, public_key_of
from kiwi_rag.signing.statement import canonical, format_time, parse_time
from kiwi_rag.signing.trust import Signer, SignerStatus, TrustPolicy, check_pattern, check_principal
from kiwi_rag.storage.atomic import write_user_files
from kiwi_rag.storage.safe_open import NotRegularFile, read_regular

MAX_BYTES = 1 << 20
LINE = "kiwi:trust:"
"""What a trust line begins with; the version of its form follows."""
_LINE = re.compile(rf"{LINE}1:([A-Za-z0-9_-]{{1,4000}})\.([0-9a-f]{{8}})")
_TIMES = ("valid_after", "valid_before")


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
    write_user_files({path: tomlkit.dumps(document).encode()})


def shared_line(signer: Signer) -> str:
    """Return the trust line of a signer, for another user: principal, key, items, types and times."""
    table = _signer_table(replace(signer, status=SignerStatus.ACTIVE))
    del table["status"]
    data = canonical(table | {name: format_time(table[name]) for name in _TIMES if name in table})
    return f"{LINE}1:{base64.urlsafe_b64encode(data).decode().rstrip('=')}.{sha256_hex(data)[:8]}"


def parse_shared(line: str) -> Signer:
    """Return the signer in a trust line.

    Raises
    ------
    UsageError
        When it is another text, an altered or incomplete line, or says anything else.
    """
    hint = "copy the whole line that kiwi keys show --share prints"
    found = _LINE.fullmatch(line)
    if found is None:
        raise UsageError(f"a line that begins with {LINE} is not complete, or of another version of Kiwi", hint=hint)
    try:
        data = base64.urlsafe_b64decode(found[1] + "=" * (-len(found[1]) % 4))
        table = dict(dsse.strict_json(data, "a shared signer"))
        times = {name: parse_time(table[name]) for name in _TIMES if name in table}
        signer = _signer({**_only(table, set(_SIGNER_KEYS) - {"status"}), **times})
    except (KeyError, ValueError, TypeError, AttributeError, KiwiError) as error:
        raise UsageError(f"the line is not valid: {error}", hint=hint) from error
    if shared_line(signer) != line:
        raise UsageError("the line was altered: its checksum or its form is wrong", hint=hint)
    return signer


def read_shared(path: Path) -> tuple[Signer, ...]:
    """Return the signers in a file: a trust file, trust lines, or a public key as PEM or hex.

    A bare key has an empty principal.

    Raises
    ------
    UsageError, SourceUnreadable
        When it is none of these.
    """
    try:
        data = _bytes_of(path)
        lines = [line.strip() for line in data.decode().splitlines() if line.strip() and line[0] != "#"]
    except (OSError, UnicodeDecodeError) as error:
        raise SourceUnreadable(f"cannot read {path}: it is no text that this user may read") from error
    if any(line.startswith(LINE) for line in lines):
        return tuple(map(parse_shared, lines))
    if len(lines) == 1 or "-----BEGIN" in data.decode():
        return (Signer("", parse_public(lines[0]) if len(lines) == 1 else public_key_of(data)),)
    return load(path).signers


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
        pins = {str(_only(t, ("path", "sha256"))["path"]): str(t["sha256"]) for t in document.get("project", ())}
    except (KeyError, ValueError, TypeError, AttributeError, KiwiError) as error:
        raise ConfigError(f"{path}: a signer or project entry is not valid: {error}") from error
    return TrustFile(signers, pins)


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise TypeError("expected a list of texts")
    return value


def _moment(value: object) -> datetime:
    if not isinstance(value, datetime):
        raise TypeError("expected a date-time such as 2026-01-31T00:00:00Z")
    return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


# Key in the file → field of `Signer`, and its value from what the file says.
_SIGNER_KEYS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "principal": ("principal", lambda value: check_principal(str(value))),
    "public_key": ("public_key", lambda value: parse_public(str(value))),
    "items": ("patterns", lambda value: tuple(map(check_pattern, _texts(value)))),
    "types": ("types", lambda value: tuple(map(ItemType, _texts(value)))),
    "status": ("status", SignerStatus),
    "valid_after": ("valid_after", _moment),
    "valid_before": ("valid_before", _moment),
}


def _signer(table: Mapping[str, Any]) -> Signer:
    fields = {_SIGNER_KEYS[key][0]: _SIGNER_KEYS[key][1](value) for key, value in _only(table, _SIGNER_KEYS).items()}
    return Signer(**fields)


def _signer_table(signer: Signer) -> dict[str, Any]:
    values = {key: getattr(signer, name) for key, (name, _) in _SIGNER_KEYS.items()}
    return {key: _toml_value(value) for key, value in values.items() if value is not None}


def _toml_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return [str(part) for part in value] if isinstance(value, tuple) else value


def _only(table: Mapping[str, Any], allowed: Collection[str]) -> Mapping[str, Any]:
    if unknown := sorted(set(table) - set(allowed)):
        raise ValueError(f"unknown key {unknown[0]!r}")
    return table
