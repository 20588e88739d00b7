"""Resources are listed page by page, each exactly once."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from kiwi_rag.errors import StoreError
from kiwi_rag.mcp import server
from kiwi_rag.mcp.toolsets import Toolset
from kiwi_rag.model.refs import ItemRef, ItemType

ITEMS = Toolset(("items",), ())


class ServerContext:
    """A context in which nothing has to be opened."""

    app = None

    def warm(self) -> None:
        pass


def list_with(monkeypatch: pytest.MonkeyPatch, list_verified: Any) -> Client:
    """A client of a server whose items are those that `list_verified` returns."""
    monkeypatch.setattr(server.items, "list_verified", list_verified)
    return Client(server.build(ServerContext(), ITEMS))  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, 1, 100, 101, 250])
async def test_every_page_is_followed_by_the_next(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = range(100, 200)  # a whole page of which nothing verifies is not the end

    async def listed(_app: Any, begin: int, limit: int) -> tuple[list[tuple[str, ItemRef]], bool]:
        there = [n for n in range(begin, min(begin + limit, count)) if n not in refused]
        return [("user", ItemRef(ItemType.SCRIPT, f"acme/n{n}", "1.0.0")) for n in there], begin + limit < count

    async with list_with(monkeypatch, listed) as client:
        uris, cursor, pages = [], None, 0
        while pages == 0 or cursor:
            page = await client.list_resources(cursor=cursor)
            uris += [str(one.uri) for one in page.resources]
            cursor, pages = page.next_cursor, pages + 1
    assert pages == max(1, -(-count // 100))
    assert uris == [f"kiwi://user/script/acme/n{n}" for n in range(count) if n not in refused]


@pytest.mark.parametrize(
    ("error", "told"), [(StoreError("the catalog cannot be read", hint="kiwi doctor"), "kiwi doctor"),
                        (ValueError("a line of a secret file"), "an error that Kiwi did not expect")]
)  # fmt: skip
async def test_a_store_that_fails_is_an_error_and_no_empty_list(
    error: Exception, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_app: Any, _begin: int, _limit: int) -> Any:
        raise error

    async with list_with(monkeypatch, fails) as client:
        with pytest.raises(MCPError, match=told) as failed:
            await client.list_resources()
    assert "secret" not in str(failed.value)


async def test_only_the_toolset_items_has_resources_and_prompts() -> None:
    for names, there in ((("items", "workspace"), True), (("workspace",), False)):
        async with Client(server.build(ServerContext(), Toolset(names, ()))) as client:  # type: ignore[arg-type]
            capabilities = client.server_capabilities
            assert bool(capabilities.resources) is bool(capabilities.prompts) is there
            assert capabilities.tools
