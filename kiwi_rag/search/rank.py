"""Passages into items, and items into an order: best passage, then precedence of tiers. Pure."""

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
    """Group scored passages (best first) by item: one entry a tier, its best passage, tiers in their order."""
    best: dict[object, dict[str, Scored]] = {}
    for entry in scored:
        key = entry.found.candidate.ref.key
        best.setdefault(key, {}).setdefault(entry.found.tier, entry)
    return [Group(tuple(sorted(tiers.values(), key=lambda s: s.found.rank))) for tiers in best.values()]


def order(entry: Scored) -> tuple[float, str, str]:
    """Return the sort key of an item: score descending, then type and id."""
    ref = entry.found.candidate.ref
    return -entry.score, ref.item_type.value, ref.item_id
