"""Items as resources: ``kiwi://{tier}/{item_type}/{+item_id}``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kiwi_rag.errors import KiwiError
from kiwi_rag.mcp.house import House
from kiwi_rag.mcp.toolsets import Listed, ResourceTemplate
from kiwi_rag.model import Filters
from kiwi_rag.refs import ItemType
from kiwi_rag.services import find_item

_MIME = {ItemType.SCRIPT: "text/x-python"}


async def _read(house: House, named: Mapping[str, str]) -> tuple[str, str]:
    from kiwi_rag.search.lookup import parse_address

    app = house.app
    address = parse_address(f"{named['item_type']}:{named['item_id']}@{named['tier']}")
    _, item = await find_item(app, address, [named["tier"]])
    signed = item.verified.statement
    return signed.content, _MIME.get(signed.ref.item_type, "text/markdown")


async def _list(house: House) -> Sequence[Listed]:
    """Return what verifies of the local tiers; a registry's items are found by searching."""
    from kiwi_rag.search.verify import verify_stored

    app, listed = house.app, []
    for name in app.source_names("local"):
        tier = app.local(name)
        for stored in await tier.store.list(Filters()):
            try:
                verify_stored(stored, stored.ref, app.trust, app.settings.registry_name, tier.policy)
            except KiwiError:
                continue
            ref = stored.ref
            uri = f"kiwi://{name}/{ref.item_type.value}/{ref.item_id}"
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
