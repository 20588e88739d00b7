"""A tier: a name, a rank, and what stands behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from kiwi_rag.errors import UnknownFilter
from kiwi_rag.model import StoredItem
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.signing.trust import TrustPolicy
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.validation.audit import AuditLog
from kiwi_rag.validation.policy import Policy

RANKS = {"project": 0, "user": 1, "registry": 2}
SOURCES = {
    "project": ("project",),
    "user": ("user",),
    "registry": ("registry",),
    "local": ("project", "user"),
    "all": ("project", "user", "registry"),
}


class Look(Protocol):
    """One look at a registry whose word is held against what is remembered of it."""

    def apply_revocations(self, trust: TrustPolicy) -> TrustPolicy:
        """Return `trust` less what the registry took away."""
        ...

    async def check_consistency(self, stored: StoredItem, key_id: str, *, newest: bool, found_by: str = "") -> None:
        """Return if nothing that was seen before speaks against an item that has just verified.

        Raises
        ------
        RegistryContradicted
            When something does.
        """
        ...

    def pinned_items(self) -> Sequence[ItemRef]:
        """Return every item that was seen, without versions."""
        ...

    async def check_missing(self, ref: ItemRef) -> None:
        """Return if an item that the registry does not give may be missing.

        Raises
        ------
        Yanked, WrongKey
            When it is there, and every version of it was yanked, or signed by a key that was revoked.
        RegistryContradicted
            When it was seen before, and the registry says nothing of it now.
        """
        ...

    def save(self) -> None:
        """Write what is new, if anything is."""
        ...


class Witness(Protocol):
    """What notices when a registry says other than it said before; `kiwi_rag.monitor.monitor` has the real one."""

    async def check(self, *, fully: bool = False) -> Look:
        """Ask the registry what it says of itself; `fully` asks for every key that lost trust.

        Raises
        ------
        RegistryContradicted
            When its audit log is not the one that was seen before.
        RegistryError
            When it cannot be reached, or gives no proper answer.
        """
        ...

    def add_receipt(self, ref: ItemRef, digest: str, key_id: str, head: str) -> None:
        """Take down what a receipt says."""
        ...

    async def get_yanked(self, ref: ItemRef) -> StoredItem | None:
        """Return the version that `ref` names, if it is there and was yanked."""
        ...


YankLookup = Callable[[Sequence[str]], frozenset[str]]
"""Returns which of some digests are of versions that were yanked, as far as this user knows. Blocking, short."""


def none_yanked(_digests: Sequence[str]) -> frozenset[str]:
    """Know of no version that was yanked."""
    return frozenset()


StoreT_co = TypeVar("StoreT_co", bound=VectorStore, covariant=True)


@dataclass(frozen=True)
class Tier(Generic[StoreT_co]):
    """One of project, user, registry. The lower `rank` shadows the higher.

    ``root`` is the ``.ai`` folder with the signed files, None for the registry; ``audit`` is the log on this machine.
    ``witness`` remembers what a registry said before; local tiers have none. ``yanked`` knows which versions were
    yanked by any registry.
    """

    name: str
    rank: int
    store: StoreT_co
    policy: Policy
    audit: AuditLog
    root: Path | None = None
    witness: Witness | None = None
    yanked: YankLookup = none_yanked


def tier_names(source: str) -> Sequence[str]:
    """Return the tiers that a source names.

    Raises
    ------
    UnknownFilter
        When there is no such source.
    """
    try:
        return SOURCES[source]
    except KeyError as error:
        raise UnknownFilter(f"there is no source {source!r}", hint=f"one of {', '.join(SOURCES)}") from error
