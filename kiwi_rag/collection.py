"""A tier as searches and index runs see it: its name, rank, store, policy, audit log and registry monitor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from kiwi_rag.errors import UnknownFilter
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.validation.audit import AuditLog
from kiwi_rag.validation.policy import Policy

if TYPE_CHECKING:
    from kiwi_rag.monitor.monitor import RegistryMonitor

RANKS = {"project": 0, "user": 1, "registry": 2}
SOURCES = {
    "project": ("project",),
    "user": ("user",),
    "registry": ("registry",),
    "local": ("project", "user"),
    "all": ("project", "user", "registry"),
}


YankLookup = Callable[[Sequence[str]], frozenset[str]]
"""Returns those of some digests whose versions were yanked, as far as this user knows. Blocks for a short time."""


StoreT_co = TypeVar("StoreT_co", bound=VectorStore, covariant=True)


@dataclass(frozen=True)
class Tier(Generic[StoreT_co]):
    """One of project, user, registry. Items of a lower `rank` shadow those of a higher one.

    ``root`` is the ``.ai`` folder with the signed files, None for the registry. ``audit`` is the log on this machine.
    ``monitor`` compares a registry's answers with its pinned state; local tiers have none. ``yanked`` returns which
    versions any registry yanked.
    """

    name: str
    rank: int
    store: StoreT_co
    policy: Policy
    audit: AuditLog
    root: Path | None = None
    monitor: RegistryMonitor | None = None
    yanked: YankLookup = lambda _: frozenset()


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
