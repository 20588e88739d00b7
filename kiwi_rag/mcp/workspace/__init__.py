"""Toolset **workspace**: a repository's documents, found."""

from __future__ import annotations

from kiwi_rag.mcp.toolsets import Toolset
from kiwi_rag.mcp.workspace.tools import SEARCH, STATS


def toolset() -> Toolset:
    """Return the toolset; first the tool that wants no arguments, which clients try a server with."""
    return Toolset((STATS, SEARCH))
