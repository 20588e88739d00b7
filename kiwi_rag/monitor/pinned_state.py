"""What a client remembers of a registry, and what contradicts it. Pure: what was said goes in, a verdict comes out.

The registry's owner can drop every wall that stands in the database. What the owner cannot do is unsay what a client
has seen: the head of the audit log, which bytes stood under a version, how high the versions of an item had come, and
that one was yanked. A key's revocation stays known likewise. The idea is that of The Update Framework's clients
(theupdateframework.github.io/specification, §1.5.2: rollback, freeze and mix-and-match attacks).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import semver

from kiwi_rag.errors import (
    ChainForked,
    ChainShortened,
    KiwiError,
    MalformedEnvelope,
    RolledBack,
    VersionChanged,
    WrongKey,
    Yanked,
    YankUndone,
)
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.registry.calls import checked_url
from kiwi_rag.registry.checkpoint import Checkpoint
from kiwi_rag.validation.audit import AuditHead

ACCEPT = "ask its operator why; if it was restored or replaced on purpose: kiwi registry accept"
Excuse = Literal["yanked", "unindexed"]


@dataclass(frozen=True, slots=True)
class Identity:
    """Which registry: its name, and where it is, without user and password."""

    name: str
    place: str

    def __str__(self) -> str:
        return f"{self.name} at {self.place}"


@dataclass(frozen=True, slots=True)
class SeenVersion:
    """One version of an item, as it was when it last verified.

    ``found_by`` is the fingerprint of the embedding model under which a search found it, empty when none did;
    ``number`` counts what this client met, in order, 0 for what it is meeting now.
    """

    version: str
    digest: str
    key_id: str
    yanked: bool = False
    found_by: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class VersionState:
    """What the registry says now of one version."""

    digest: str
    yanked: bool
    revoked: bool
    passages: int


def place_of(url: str) -> str:
    """Return where a database is, from its URL: host, port and name; no user, no password, no options.

    Raises
    ------
    RegistryUnreachable
        When it is no URL of one.
    """
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(checked_url(url))
    host = str(parts.get("host") or parts.get("hostaddr") or "localhost").lower()
    return f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or ''}"


def follow(known: AuditHead, checkpoint: Checkpoint) -> AuditHead:
    """Return the registry's head, if the log that leads to it holds the one that was known.

    Raises
    ------
    ChainShortened
        When it ends before the known head.
    ChainForked
        When another record stands where the known head stood.
    """
    if checkpoint.head.seq < known.seq:
        raise ChainShortened(
            f"the registry's audit log ends at record {checkpoint.head.seq}, but record {known.seq} was seen",
            hint=ACCEPT,
        )
    at_known = checkpoint.head.hash if checkpoint.head.seq == known.seq else checkpoint.known_hash
    if known.seq and at_known != known.hash:
        raise ChainForked(
            f"the registry's audit log was rewritten: record {known.seq} is another one than was seen", hint=ACCEPT
        )
    return checkpoint.head


def check_seen(ref: ItemRef, digest: str, before: SeenVersion | None, *, yanked: bool) -> None:
    """Return if what was seen of this very version `before`, if anything, does not speak against it.

    Raises
    ------
    VersionChanged, YankUndone
        When it does.
    """
    if before and before.digest != digest:
        raise VersionChanged(
            f"{ref} was seen with other bytes (digest {before.digest[:16]}…, now {digest[:16]}…)",
            hint=accept_item(ref),
        )
    if before and before.yanked and not yanked:
        raise YankUndone(f"{ref} was yanked, and is served again as if it had not been", hint=accept_item(ref))


def newer(version: str, seen: Iterable[SeenVersion], revoked: Iterable[str]) -> Sequence[SeenVersion]:
    """Return what was seen above `version` and speaks against serving that as the newest, highest first.

    A yanked version does not, nor does one whose key is in `revoked`.
    """
    gone = set(revoked)
    own = _order(version)
    above = [s for s in seen if not s.yanked and s.key_id not in gone and _order(s.version) > own]
    return sorted(above, key=lambda s: _order(s.version), reverse=True)


def excuse(ref: ItemRef, above: SeenVersion, told: VersionState | None, found_by: str) -> Excuse:
    """Say why the registry may serve `ref` though `above` was seen, by what it says of `above` now.

    It was yanked; or, for a search with the model `found_by`, it is published but not indexed yet. That cannot be for
    one that a search with this model found before.

    Raises
    ------
    RolledBack
        When nothing excuses it.
    """
    if told and told.digest == above.digest:
        if told.yanked:
            return "yanked"
        if found_by and told.passages == 0 and above.found_by != found_by:
            return "unindexed"
    raise RolledBack(
        f"{ref} is served as the newest, but {above.version} was seen and was not taken back", hint=accept_item(ref)
    )


def withheld(ref: ItemRef, seen: SeenVersion) -> RolledBack:
    """Return the error for a version that was seen and that the registry does not know now."""
    return RolledBack(
        f"{replace(ref, version=seen.version)} was seen, and the registry does not know it now", hint=accept_item(ref)
    )


def nothing_left(ref: ItemRef, states: Mapping[str, VersionState]) -> KiwiError:
    """Return the error for an item of which all was taken back; `states` has its highest version first."""
    if not all(state.yanked for state in states.values()):
        return WrongKey(
            f"{ref}: the key that signed it was revoked, and no version by another key is left",
            hint="its author signs it again with another key and publishes that",
        )
    versioned = replace(ref, version=next(iter(states)))
    return Yanked(f"{ref} was yanked: no version of it is offered any more", hint=f"kiwi get {versioned}@registry")


def accept_item(ref: ItemRef) -> str:
    """Return what mends a contradiction about one item."""
    item = f"{ref.item_type}:{ref.item_id}"
    return f"ask the registry's operator why; to accept what it says now: kiwi registry accept {item}"


def _order(version: str) -> semver.Version:
    try:
        return semver.Version.parse(version)
    except ValueError as error:  # signed, but not by way of any gate
        raise MalformedEnvelope(f"{version[:40]!r} is not a SemVer version") from error
