"""``search_markdown``: the knowledge base in a repository's Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kiwi_rag.mcp.house import House
from kiwi_rag.mcp.tool import Answer, Tell, Tool
from kiwi_rag.mcp.workspace import schemas
from kiwi_rag.mcp.workspace.tools import search

_INPUTS = {name: schemas.SEARCH[name] for name in ("query", "service", "domain", "path", "limit", "max_tokens")}
_ALIASES = {alias: name for alias, name in schemas.ALIASES.items() if name in _INPUTS}


async def _search(house: House, given: Mapping[str, Any], tell: Tell) -> Answer:
    return await search(house, {**given, "file_type": "markdown"}, tell)


SEARCH = Tool(
    "search_markdown",
    "Search this repository's Markdown",
    "Find sections of this repository's Markdown documents by meaning and by words. Each comes with its path, its "
    "lines and the headings that it stands under.",
    _INPUTS,
    schemas.HITS,
    _search,
    ("query",),
    _ALIASES,
)
