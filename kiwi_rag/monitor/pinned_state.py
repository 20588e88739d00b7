"""The state that a client pins of a registry, and the checks of the registry's answers against it, without I/O.

The owner of a database can remove every protection in it, but cannot change what a client has pinned: the head of the
audit log, the digest of each version, the highest version of each item, which versions were yanked and which keys were
revoked. The Update Framework's clients do the same (theupdateframework.github.io/specification, §1.5.2: rollback,
freeze and mix-and-match attacks).
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


@dataclass(frozen=True, slots=True)
class RegistryIdentity:
    """The identity of a registry: its name and its address, without user and password."""

    name: str
    address: str

    def __str__(self) -> str:
        return f"{self.name} at {self.address}"


@dataclass(frozen=True, slots=True)
class SeenVersion:
    """One version of an item, as it was when it last verified.

    ``found_by`` is the fingerprint of the embedding model with which a search found it, empty when none did. ``number``
    counts the pinned versions in their order; it is 0 for one that is not pinned yet.
    """

    version: str
    digest: str
    key_id: str
    yanked: bool = False
    found_by: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class VersionState:
    """The registry's present state of one version."""

    digest: str
    yanked: bool
    revoked: bool
    passages: int


def database_address(url: str) -> str:
    """Return the address of a database from its URL: host, port and name, without user, password and options.

    Raises
    ------
    RegistryUnreachable
        When the URL is not a valid one.
    """
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(checked_url(url))
    host = str(parts.get("host") or parts.get("hostaddr") or "localhost").lower()
    return f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or ''}"


def follow(pinned: AuditHead, checkpoint: Checkpoint) -> AuditHead:
    """Return the registry's head, if its log contains the pinned one.

    Raises
    ------
    ChainShortened
        When the log ends before the pinned head.
    ChainForked
        When its record with the number of the pinned head is another one.
    """
    if checkpoint.head.seq < pinned.seq:
        raise ChainShortened(
            f"the registry's audit log ends at record {checkpoint.head.seq}, but record {pinned.seq} was seen",
            hint=ACCEPT,
        )
    hash_at_pinned = checkpoint.head.hash if checkpoint.head.seq == pinned.seq else checkpoint.known_hash
    if pinned.seq and hash_at_pinned != pinned.hash:
        raise ChainForked(
            f"the registry's audit log was rewritten: record {pinned.seq} is another one than was seen", hint=ACCEPT
        )
    return checkpoint.head


def check_seen(ref: ItemRef, digest: str, before: SeenVersion | None, *, yanked: bool) -> None:
    """Check a version against its pinned state `before`, if there is one.

    Raises
    ------
    VersionChanged, YankUndone
        When it contradicts that.
    """
    if before and before.digest != digest:
        raise VersionChanged(
            f"{ref} was seen with other bytes (digest {before.digest[:16]}…, now {digest[:16]}…)",
            hint=_accept_hint(ref),
        )
    if before and before.yanked and not yanked:
        raise YankUndone(f"{ref} was yanked, and the registry serves it again as not yanked", hint=_accept_hint(ref))


def newer(version: str, seen: Iterable[SeenVersion], revoked: Iterable[str]) -> Sequence[SeenVersion]:
    """Return the versions in `seen` that contradict serving `version` as the newest, highest first.

    Those are the higher ones that were not yanked, and whose key is not in `revoked`.
    """
    revoked, served = set(revoked), _order(version)
    above = [s for s in seen if not s.yanked and s.key_id not in revoked and _order(s.version) > served]
    return sorted(above, key=lambda s: _order(s.version), reverse=True)


def check_rollback(
    ref: ItemRef, above: SeenVersion, state: VersionState | None, found_by: str
) -> Literal["yanked", "unindexed"]:
    """Return why the registry may serve `ref` as the newest though `above` was seen, by the present `state` of that.

    It was yanked, or a search with the model `found_by` cannot find it because it is not indexed yet. The latter does
    not hold for a version that a search with this model has found before.

    Raises
    ------
    RolledBack
        When there is no such reason.
    """
    if state and state.digest == above.digest:
        if state.yanked:
            return "yanked"
        if found_by and state.passages == 0 and above.found_by != found_by:
            return "unindexed"
    raise RolledBack(
        f"the registry serves {ref} as the newest, but {above.version} was seen and was not yanked",
        hint=_accept_hint(ref),
    )


def missing_version(ref: ItemRef, seen: SeenVersion) -> RolledBack:
    """Return the error for a version that was seen, and that the registry does not have now."""
    return RolledBack(
        f"{replace(ref, version=seen.version)} was seen, and the registry does not have it now", hint=_accept_hint(ref)
    )


def no_version_left(ref: ItemRef, states: Mapping[str, VersionState]) -> KiwiError:
    """Return the error for an item whose versions were all yanked or revoked; `states` begins with the highest."""
    if not all(state.yanked for state in states.values()):
        return WrongKey(
            f"{ref}: the key that signed it was revoked, and no other key signed a version",
            hint="ask its author to sign it with another key and to publish it again",
        )
    versioned = replace(ref, version=next(iter(states)))
    return Yanked(f"{ref} was yanked, in all its versions", hint=f"kiwi get {versioned}@registry")


def _accept_hint(ref: ItemRef) -> str:
    item = f"{ref.item_type}:{ref.item_id}"
    return f"ask the registry's operator why; to accept what it says now: kiwi registry accept {item}"


def _order(version: str) -> semver.Version:
    try:
        return semver.Version.parse(version)
    except ValueError as error:  # an item can be signed without Kiwi, and then its version is not checked
        raise MalformedEnvelope(f"{version[:40]!r} is not a SemVer version") from error
