"""Toolset **documents**: the Markdown of a repository as a knowledge base, and jobs that bring its index up to date."""

from __future__ import annotations

from kiwi_rag.mcp.documents.indexing import REINDEX, UPDATE
from kiwi_rag.mcp.documents.markdown import SEARCH
from kiwi_rag.mcp.toolsets import Toolset


def toolset() -> Toolset:
    """Return the toolset."""
    return Toolset((SEARCH, REINDEX, UPDATE))
