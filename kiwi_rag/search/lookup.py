"""Finding one item by its address, in the order of the tiers, and verifying it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from kiwi_rag.errors import NotFound, UsageError
from kiwi_rag.model import StoredItem
from kiwi_rag.refs import ITEM_TYPES, ItemRef, ItemType, check_item_id
from kiwi_rag.search.verify import VerifiedItem, verify_stored
from kiwi_rag.signing.trust import TrustPolicy
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.telemetry import span
from kiwi_rag.tiers import RANKS, Tier

_ADDRESS = re.compile(r"(?:(?P<type>\w+):)?(?P<id>[^@:]+)(?:@(?P<version>\d[^@:]*))?(?:@(?P<tier>[a-z]+))?(?::\d+)?")


@dataclass(frozen=True, slots=True)
class Address:
    """``[type:]item_id[@version][@tier][:line]``, read; the line is what a search prints, and does not count."""

    item_type: ItemType | None
    item_id: str
    version: str | None
    tier: str | None

    def refs(self) -> list[ItemRef]:
        """Return the references it may mean, one a type."""
        types = [self.item_type] if self.item_type else list(ITEM_TYPES)
        return [ItemRef(t, self.item_id, self.version) for t in types]


def parse_address(text: str) -> Address:
    """Read an address such as ``acme/deploy/staging``, ``script:acme/lag@1.2.0`` or ``acme/slo@registry``.

    Raises
    ------
    UsageError
        When it is none; an illegal id is an `InvalidItemId`.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or (match["tier"] and match["tier"] not in RANKS):
        raise UsageError(f"{text!r} is not an address", hint="[type:]item_id[@version][@project|user|registry]")
    if match["type"] and match["type"] not in ITEM_TYPES:
        raise UsageError(f"there is no item type {match['type']!r}", hint=", ".join(ITEM_TYPES))
    item_type = ItemType(match["type"]) if match["type"] else None
    return Address(item_type, check_item_id(match["id"]), match["version"], match["tier"])


async def find(
    address: Address, tiers: Sequence[Tier[VectorStore]], trust: TrustPolicy, audience: str
) -> tuple[Tier[VectorStore], VerifiedItem]:
    """Return the item an address means, from the first tier that holds it, verified.

    Raises
    ------
    NotFound
        When no asked tier holds it; `Yanked` when a registry took it back.
    UsageError
        When it means several items of that tier.
    Refused
        When it does not verify, or contradicts what a registry said before.
    """
    for tier in tiers:
        # Fully, and before anything is taken: a registry that cannot be asked who was revoked gives nothing.
        look = await tier.witness.look(fully=True) if tier.witness else None
        found = [stored async for stored in _held(address, tier)]
        if len(found) > 1:
            names = ", ".join(f"{stored.ref.item_type}:{stored.ref.item_id}" for _, stored in found)
            raise UsageError(f"{address.item_id} is several items: {names}", hint="put the type in front")
        for ref, stored in found:
            counting = look.narrow(trust) if look else trust
            item = verify_stored(stored, ref, counting, audience, tier.policy)
            if look:
                await look.vet(stored, item.verified.signer.key_id, newest=address.version is None)
                await asyncio.to_thread(look.keep)
            return tier, item
        if look:
            for ref in address.refs():
                await look.check_missing(ref)
    asked = ", ".join(tier.name for tier in tiers)
    raise NotFound(f"no item {address.item_id} in {asked or 'any tier'}", hint=f"kiwi search {address.item_id!r}")


async def _held(address: Address, tier: Tier[VectorStore]) -> AsyncIterator[tuple[ItemRef, StoredItem]]:
    for ref in address.refs():
        with span("kiwi.store", tier=tier.name, step="get"):
            stored = await tier.store.get(ref)
        if stored is None and tier.witness:
            stored = await tier.witness.yanked(ref)
        if stored is not None:
            yield ref, stored
