"""One version of an item with two contents: a version is immutable, so one of two tiers holds what it must not."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from kiwi_rag.formats import path_of
from kiwi_rag.model import StoredItem, VersionConflict
from kiwi_rag.refs import ItemRef
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.tiers import Tier


async def version_conflicts(
    held: Sequence[tuple[Tier[VectorStore], Sequence[StoredItem]]], registry: Tier[VectorStore] | None
) -> list[VersionConflict]:
    """Return the versions that stand with other content in two tiers.

    Parameters
    ----------
    held
        The local tiers, nearest first, each with the items to compare.
    registry
        The registry, which is asked for every version that it ever published of each of these.
    """
    places: dict[ItemRef, list[tuple[Tier[VectorStore], str]]] = {}
    for tier, items in held:
        for item in items:
            if not item.problem:
                places.setdefault(item.ref, []).append((tier, item.content_sha256))
    found = []
    for ref, there in places.items():
        if registry:
            published = (await registry.store.history(ref)).get(ref.version or "")
            there.extend([(registry, published)] if published else [])
        if conflict := conflict_of(ref, there):
            found.append(conflict)
    return found


def conflict_of(ref: ItemRef, places: Sequence[tuple[Tier[VectorStore], str]]) -> VersionConflict | None:
    """Return the conflict that the contents (hex SHA-256) of one version make, if any differs; nearest tier first."""
    digests: Mapping[str, str] = {tier.name: content for tier, content in places}
    if len(set(digests.values())) < 2:
        return None
    nearest = min((tier for tier, _ in places), key=lambda tier: tier.rank)
    return VersionConflict(ref, digests, _way_out(ref, nearest))


def _way_out(ref: ItemRef, tier: Tier[VectorStore]) -> str:
    """Return the command that gives the nearest of them another version."""
    path = shlex.quote(str(path_of(tier.root, ref))) if tier.root else "PATH"
    return f"kiwi add {path}{' --tier user' if tier.name == 'user' else ''} --bump patch"
