"""The entries of all tiers into one hit an item, and an order of them: precedence of tiers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kiwi_rag.search.fuse import Scored


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """What the tiers hold under one item id, the tier that shadows the others first."""

    entries: tuple[Scored, ...]

    @property
    def winner(self) -> Scored:
        """The entry that is shown unless it fails verification."""
        return self.entries[0]

    def without_winner(self) -> Group:
        """Return the group with the next tier's entry in front."""
        return Group(self.entries[1:])


def groups(scored: Sequence[Scored]) -> list[Group]:
    """Group scored entries, one a tier, by item; tiers in their order."""
    found: dict[object, list[Scored]] = {}
    for entry in scored:
        found.setdefault(entry.found.candidate.ref.key, []).append(entry)
    return [Group(tuple(sorted(tiers, key=lambda s: s.found.rank))) for tiers in found.values()]


def order(entry: Scored) -> tuple[float, str, str]:
    """Return the sort key of an item: score descending, then type and id."""
    ref = entry.found.candidate.ref
    return -entry.score, ref.item_type.value, ref.item_id
