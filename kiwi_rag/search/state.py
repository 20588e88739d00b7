"""Whether a verified item's file is the one that was signed, and whether its version was yanked."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence

from kiwi_rag.collection import Tier
from kiwi_rag.errors import SourceUnreadable
from kiwi_rag.formats import path_of, read_source
from kiwi_rag.model import ItemState, StoredItem, VersionConflict, sha256_hex
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.search.verify import VerifiedItem
from kiwi_rag.stores.base import VectorStore


def read_states(items: Sequence[tuple[VerifiedItem, Tier[VectorStore]]]) -> list[ItemState]:
    """Return the state of each pair of an item and its tier. Reads the items' files: blocking."""
    tiers = {tier.name: tier for _, tier in items}
    yanked: set[str] = set()
    for tier in tiers.values():
        yanked |= tier.yanked([item.stored.digest for item, its_tier in items if its_tier.name == tier.name])
    return [read_state(item, tier, yanked) for item, tier in items]


def read_state(item: VerifiedItem, tier: Tier[VectorStore], yanked: Collection[str]) -> ItemState:
    """Return the state of an item of a tier; `yanked` are digests of yanked versions."""
    stored = item.stored
    return ItemState(_difference(item, tier), stored.yanked_at is not None or stored.digest in yanked)


def _difference(item: VerifiedItem, tier: Tier[VectorStore]) -> str:
    """Describe how an item's file differs from what was signed; empty where it does not, or where there is no file."""
    if tier.root is None or not item.stored.path:
        return ""
    path = path_of(tier.root, item.verified.statement.ref)  # the path in the index is not signed
    try:
        data = read_source(path, tier.root)
    except SourceUnreadable as error:
        return error.message
    if sha256_hex(data) == item.stored.content_sha256:
        return ""
    where = " --tier user" if tier.name == "user" else ""
    return f"{path} was edited since it was indexed: kiwi add {shlex.quote(str(path))}{where} --bump patch"


async def find_version_conflicts(
    local: Sequence[tuple[Tier[VectorStore], Sequence[StoredItem]]], registry: Tier[VectorStore] | None
) -> list[VersionConflict]:
    """Return the versions that have different contents in two tiers.

    Parameters
    ----------
    local
        The local tiers, nearest first, each with the items to compare.
    registry
        The registry, which is queried for the published versions of each of these items.
    """
    contents: dict[ItemRef, list[tuple[Tier[VectorStore], str]]] = {}
    for tier, items in local:
        for item in items:
            if not item.problem:
                contents.setdefault(item.ref, []).append((tier, item.content_sha256))
    found = []
    for ref, of_ref in contents.items():
        if registry:
            published = (await registry.store.history(ref)).get(ref.version or "")
            of_ref.extend([(registry, published)] if published else [])
        if conflict := find_conflict(ref, of_ref):
            found.append(conflict)
    return found


def find_conflict(ref: ItemRef, contents: Sequence[tuple[Tier[VectorStore], str]]) -> VersionConflict | None:
    """Return the conflict between the contents (hex SHA-256) of one version, nearest tier first; None if all agree."""
    digests: Mapping[str, str] = {tier.name: content for tier, content in contents}
    if len(set(digests.values())) < 2:
        return None
    nearest = min((tier for tier, _ in contents), key=lambda tier: tier.rank)
    return VersionConflict(ref, digests, _resolving_command(ref, nearest))


def _resolving_command(ref: ItemRef, tier: Tier[VectorStore]) -> str:
    """Return the command that gives the item of the nearest tier another version."""
    path = shlex.quote(str(path_of(tier.root, ref))) if tier.root else "PATH"
    return f"kiwi add {path}{' --tier user' if tier.name == 'user' else ''} --bump patch"
