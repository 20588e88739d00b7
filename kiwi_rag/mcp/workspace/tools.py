"""The tools that read a workspace's index: ``workspace_search``, ``workspace_index_stats``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kiwi_rag import present
from kiwi_rag.errors import NotFound
from kiwi_rag.mcp.house import House
from kiwi_rag.mcp.tool import Answer, Tell, Tool
from kiwi_rag.mcp.workspace import schemas
from kiwi_rag.model import Filters
from kiwi_rag.model.documents import DocumentQuery
from kiwi_rag.present import documents
from kiwi_rag.wordpieces import estimate_tokens

if TYPE_CHECKING:
    from kiwi_rag.workspace.searching import WorkspaceSearcher

INDEX = "reindex_documents (toolset documents), or kiwi workspace index"
"""What brings an index up to date, for an agent: whether it has the tool, it sees itself."""
_FILTERS = ("file_type", "service", "domain", "path")


async def search(house: House, given: Mapping[str, Any], tell: Tell) -> Answer:
    """Search a workspace's documents with the arguments of ``workspace_search``."""
    await house.ready(tell)
    filters = Filters(**{name: given[name] for name in _FILTERS if name in given})
    reply = await _searcher(house).search(DocumentQuery(given["query"], filters, given["limit"]))
    text, data = documents.documents_page(reply, given["max_tokens"], estimate_tokens, INDEX)
    return Answer(text, data)


def _searcher(house: House) -> WorkspaceSearcher:
    workspace = house.workspace
    if not workspace.is_indexed:
        raise NotFound(f"{workspace.place.root} is not indexed yet", hint=INDEX)
    return workspace.searcher


async def _stats(house: House, _given: Mapping[str, Any], _tell: Tell) -> Answer:
    from kiwi_rag.workspace.standing import standing

    workspace = house.workspace
    told = dict(await standing(workspace.place, workspace.tier if workspace.is_indexed else None))
    return Answer(present.delimited(documents.workspace_text(told)), told)


SEARCH = Tool(
    "workspace_search",
    "Search this repository's documents",
    "Find passages of this repository's API specifications, decisions, designs, code, diagrams and notes by meaning "
    "and by words, before you open files. Ask in plain words, or name an operation such as POST /check-ins, or ask "
    "which services call another. Every passage comes with its path and lines.",
    schemas.SEARCH,
    schemas.HITS,
    search,
    ("query",),
    schemas.ALIASES,
)
STATS = Tool(
    "workspace_index_stats",
    "How the index of this repository stands",
    "Say how many documents and passages of this repository are indexed, of which types, and whether the last run was "
    "completed.",
    {},
    schemas.STATS,
    _stats,
)
