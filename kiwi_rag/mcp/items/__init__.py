"""Toolset **items**: directives, scripts and knowledge, found, read, checked and published."""

from __future__ import annotations

from kiwi_rag.mcp.items.resources import ITEMS, RUN_DIRECTIVE
from kiwi_rag.mcp.items.tools import GET, PUBLISH, SEARCH, STATUS, VALIDATE
from kiwi_rag.mcp.toolsets import Toolset


def toolset() -> Toolset:
    """Return the toolset; first the tool that wants no arguments, which clients try a server with."""
    return Toolset((STATUS, SEARCH, GET, VALIDATE, PUBLISH), (ITEMS,), (RUN_DIRECTIVE,))
