"""A tier: a name, a rank, and what stands behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from kiwi_rag.errors import UnknownFilter
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


StoreT_co = TypeVar("StoreT_co", bound=VectorStore, covariant=True)


@dataclass(frozen=True)
class Tier(Generic[StoreT_co]):
    """One of project, user, registry. The lower `rank` shadows the higher.

    ``root`` is the ``.ai`` folder with the signed files, None for the registry; ``audit`` is the log on this machine.
    """

    name: str
    rank: int
    store: StoreT_co
    policy: Policy
    audit: AuditLog
    root: Path | None = None


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
