"""Whether a verified item's file is the one that was signed, and whether its version was yanked."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

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
    return [state_of(item, tier, yanked) for item, tier in items]


def state_of(item: VerifiedItem, tier: Tier[VectorStore], yanked: Collection[str]) -> ItemState:
    """Return the state of an item of a tier; `yanked` are digests of yanked versions."""
    stored = item.stored
    return ItemState(_difference(item, tier), stored.yanked_at is not None or stored.digest in yanked)


def _difference(item: VerifiedItem, tier: Tier[VectorStore]) -> str:
    """Say how an item's file differs from what was signed; empty where it does not, or where there is no file."""
    if tier.root is None or not item.stored.path:
        return ""
    path = path_of(tier.root, item.verified.statement.ref)  # the index's own word for it is not signed
    try:
        data = read_source(path, tier.root)
    except SourceUnreadable as error:
        return error.message
    if sha256_hex(data) == item.stored.content_sha256:
        return ""
    where = " --tier user" if tier.name == "user" else ""
    return f"{path} was edited since it was indexed: kiwi add {shlex.quote(str(path))}{where} --bump patch"
