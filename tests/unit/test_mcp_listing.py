"""Resources are listed page by page over all templates, each exactly once."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from kiwi_rag.errors import StoreError
from kiwi_rag.mcp.server import build
from kiwi_rag.mcp.toolsets import ListedResource, ResourceTemplate, Toolset


class ServerContext:
    """A house in which nothing has to be opened."""

    def warm(self) -> None:
        pass


def template(name: str, count: int, refused: frozenset[int] = frozenset()) -> ResourceTemplate:
    async def listed(_house: Any, begin: int, limit: int) -> tuple[list[ListedResource], bool]:
        there = range(begin, min(begin + limit, count))
        return [
            ListedResource(f"{name}://{n}", str(n), "text/plain") for n in there if n not in refused
        ], begin + limit < count

    async def read(_house: Any, _named: Any) -> tuple[str, str]:
        raise AssertionError("nothing is read")

    return ResourceTemplate(f"{name}://{{n}}", name, name, name, read, listed)


async def test_every_page_is_followed_by_the_next_over_all_templates() -> None:
    refused = frozenset(range(100, 200))  # a whole page of which nothing verifies is not the end
    offered = Toolset((), (template("a", 250, refused), template("b", 0), template("c", 101)))
    async with Client(build(ServerContext(), offered)) as client:  # type: ignore[arg-type]
        uris, cursor, pages = [], None, 0
        while pages == 0 or cursor:
            page = await client.list_resources(cursor=cursor)
            uris += [str(one.uri) for one in page.resources]
            cursor, pages = page.next_cursor, pages + 1
    assert pages == 6
    assert uris == [f"a://{n}" for n in range(250) if n not in refused] + [f"c://{n}" for n in range(101)]


async def test_a_store_that_fails_is_an_error_and_no_empty_list() -> None:
    async def fails(_house: Any, _begin: int, _limit: int) -> tuple[list[ListedResource], bool]:
        raise StoreError("the catalog cannot be read", hint="kiwi doctor")

    broken = ResourceTemplate("a://{n}", "a", "a", "a", template("a", 0).read, fails)
    async with Client(build(ServerContext(), Toolset((), (broken,)))) as client:  # type: ignore[arg-type]
        with pytest.raises(MCPError, match="kiwi doctor"):
            await client.list_resources()
