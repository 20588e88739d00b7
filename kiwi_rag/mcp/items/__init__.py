"""Toolset **items**: search, read, check and publish directives, scripts, knowledge and skills."""

from __future__ import annotations

from kiwi_rag.mcp.items.resources import ITEMS, RUN_DIRECTIVE
from kiwi_rag.mcp.items.tools import GET, PUBLISH, SEARCH, STATUS, VALIDATE
from kiwi_rag.mcp.toolsets import Toolset


def toolset() -> Toolset:
    """Return the toolset; the tool without arguments is first, as clients call it to try a server."""
    return Toolset((STATUS, SEARCH, GET, VALIDATE, PUBLISH), (ITEMS,), (RUN_DIRECTIVE,))
