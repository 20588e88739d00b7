"""Resources are listed page by page, each exactly once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from kiwi_rag.errors import StoreError
from kiwi_rag.mcp import server
from kiwi_rag.mcp.toolsets import Toolset
from kiwi_rag.model import Filters, ItemRef, ItemType

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

    async def listed(_app: Any, _filters: Filters, begin: int, limit: int) -> tuple[list[tuple[str, Any]], bool]:
        there = [n for n in range(begin, min(begin + limit, count)) if n not in refused]
        refs = [ItemRef(ItemType.SCRIPT, f"acme/n{n}", "1.0.0") for n in there]
        items = [SimpleNamespace(signed=SimpleNamespace(ref=ref, metadata={})) for ref in refs]
        return [("user", item) for item in items], begin + limit < count

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
    async def fails(_app: Any, _filters: Filters, _begin: int, _limit: int) -> Any:
        raise error

    async with list_with(monkeypatch, fails) as client:
        with pytest.raises(MCPError, match=told) as failed:
            await client.list_resources()
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize(
    ("names", "prompts", "resources"),
    [("items workspace", True, True), ("skills", False, True), ("workspace", False, False)],
)  # fmt: skip
async def test_only_the_toolsets_items_and_skills_have_resources(names: str, prompts: bool, resources: bool) -> None:
    async with Client(server.build(ServerContext(), Toolset(names.split(), ()))) as client:  # type: ignore[arg-type]
        capabilities = client.server_capabilities
        assert (bool(capabilities.prompts), bool(capabilities.resources)) == (prompts, resources)
        assert bool(capabilities.extensions) is ("skills" in names)
        assert capabilities.tools
