"""Whether a verified item's file is the one that was signed, and whether its version was yanked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from kiwi_rag.errors import SourceUnreadable
from kiwi_rag.formats import path_of, read_source
from kiwi_rag.model import ItemState, sha256_hex
from kiwi_rag.search.verify import VerifiedItem
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.tiers import Tier


def states_of(items: Sequence[tuple[VerifiedItem, Tier[VectorStore]]]) -> list[ItemState]:
    """Return the state of each item, given with its tier. Reads their files: blocking."""
    tiers = {tier.name: tier for _, tier in items}
    yanked: set[str] = set()
    for tier in tiers.values():
        yanked |= tier.yanked([item.stored.digest for item, own in items if own.name == tier.name])
    return [state_of(item, tier.root, yanked) for item, tier in items]


def state_of(item: VerifiedItem, root: Path | None, yanked: Collection[str]) -> ItemState:
    """Return the state of an item below the ``.ai`` folder `root`; `yanked` are digests of yanked versions."""
    stored = item.stored
    return ItemState(_difference(item, root), stored.yanked_at is not None or stored.digest in yanked)


def _difference(item: VerifiedItem, root: Path | None) -> str:
    """Say how an item's file differs from what was signed; empty where it does not, or where there is no file."""
    if root is None or not item.stored.path:
        return ""
    path = path_of(root, item.verified.statement.ref)  # the index's own word for it is not signed
    try:
        data = read_source(path, root)
    except SourceUnreadable as error:
        return error.message
    same = sha256_hex(data) == item.stored.content_sha256
    return "" if same else f"{path} was edited since it was indexed: kiwi add {path} --bump patch"
