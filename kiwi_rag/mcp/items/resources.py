"""Items as resources: ``kiwi://{tier}/{item_type}/{+item_id}``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kiwi_rag.errors import KiwiError
from kiwi_rag.mcp.house import House
from kiwi_rag.mcp.toolsets import Listed, ResourceTemplate
from kiwi_rag.model import Filters
from kiwi_rag.refs import ItemType
from kiwi_rag.services import find_item

if TYPE_CHECKING:
    from kiwi_rag.app import App
    from kiwi_rag.model import StoredItem
    from kiwi_rag.stores.base import FileStore
    from kiwi_rag.tiers import Tier

_MIME = {ItemType.SCRIPT: "text/x-python"}


async def _read(house: House, named: Mapping[str, str]) -> tuple[str, str]:
    from kiwi_rag.search.lookup import parse_address

    app = house.app
    address = parse_address(f"{named['item_type']}:{named['item_id']}@{named['tier']}")
    _, item = await find_item(app, address, [named["tier"]])
    signed = item.verified.statement
    return signed.content, _MIME.get(signed.ref.item_type, "text/markdown")


async def _list(house: House, begin: int, count: int) -> tuple[Sequence[Listed], bool]:
    """Return what verifies of the local tiers' items; a registry's are found by searching."""
    app = house.app
    tiers = [app.local(name) for name in app.source_names("local")]
    held = [(tier, stored) for tier in tiers for stored in await tier.store.list(Filters())]
    page = held[begin : begin + count]
    return await asyncio.to_thread(_verified, app, page), begin + count < len(held)


def _verified(app: App, held: Sequence[tuple[Tier[FileStore], StoredItem]]) -> Sequence[Listed]:
    from kiwi_rag.search.verify import verify_stored

    listed = []
    for tier, stored in held:
        ref = stored.ref
        with contextlib.suppress(KiwiError):  # what does not verify is not shown
            verify_stored(stored, ref, app.trust, app.settings.registry_name, tier.policy)
            uri = f"kiwi://{tier.name}/{ref.item_type.value}/{ref.item_id}"
            listed.append(Listed(uri, f"{ref.item_id}@{ref.version}", _MIME.get(ref.item_type, "text/markdown")))
    return listed


ITEMS = ResourceTemplate(
    "kiwi://{tier}/{item_type}/{+item_id}",
    "item",
    "A verified item",
    "A directive, script or knowledge entry as it was signed. tier: project, user or registry.",
    _read,
    _list,
)
