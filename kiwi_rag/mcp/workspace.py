"""Toolset **workspace**: search of a repository's documents, and the state of their index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kiwi_rag.formats.documents import FILE_TYPES
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.mcp.jobs import ReportProgress
from kiwi_rag.mcp.tool import BOOLEAN, SchemaDict, Tool, ToolResult, nullable, record, text
from kiwi_rag.mcp.toolsets import Toolset
from kiwi_rag.model import Filters, SearchQuery
from kiwi_rag.render import agents, documents
from kiwi_rag.wordpieces import estimate_tokens


def toolset() -> Toolset:
    """Return the toolset; the tool without arguments is first, as clients call it to try a server."""
    return Toolset((STATS, SEARCH))


QUERY = text("What to find, in plain words; identifiers and operations too.", minLength=1, maxLength=10_000)
LIMIT: SchemaDict = {"type": "integer", "minimum": 1, "maximum": 50, "default": 5, "description": "Passages to show."}
BUDGET: SchemaDict = {
    "type": "integer",
    "minimum": 50,
    "maximum": 100_000,
    "default": 4_000,
    "description": "About how many tokens of text the answer may have.",
}
SEARCH_SCHEMA: dict[str, SchemaDict] = {
    "query": QUERY,
    "file_type": text("Only files of this type.", enum=list(FILE_TYPES)),
    "service": text("Only files about this service, for instance svc-check-in.", maxLength=200),
    "domain": text("Only files of this domain.", maxLength=200),
    "path": text("Only this file or folder, or paths that match this pattern with *.", maxLength=1_024),
    "limit": LIMIT,
    "max_tokens": BUDGET,
}
ALIASES = {
    "q": "query", "text": "query", "top_k": "limit", "k": "limit", "n_results": "limit", "num_results": "limit",
    "max_results": "limit", "type": "file_type",
}  # fmt: skip

HIT = record(
    integer="rank start_line end_line",
    string="path kind file_type title service domain last_modified git_commit signer key_id digest text",
    strings="heading",
    number="score",
    object="parts",
    changed=nullable(BOOLEAN),
    boolean="verified truncated",
)
HITS = record(
    string="query kind",
    boolean="complete unfinished",
    hits={"type": "array", "items": HIT},
    object="index corrections",
    objects="refused",
    strings="missing_files notices",
)
STATS_SCHEMA = record(
    string="workspace root run store model path",
    integer="documents passages bytes",
    object="file_types",
    boolean="complete",
    strings="problems",
)


INDEX = "reindex_documents (toolset documents), or kiwi workspace index"
"""How an agent brings the index up to date; its client may not offer the tool."""
_FILTERS = ("file_type", "service", "domain", "path")


async def search(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> ToolResult:
    """Search a workspace's documents with the arguments of ``workspace_search``."""
    from kiwi_rag.usecases import workspace

    await context.wait_until_ready(report)
    filters = Filters(**{name: arguments[name] for name in _FILTERS if name in arguments})
    query = SearchQuery(arguments["query"], filters=filters, limit=arguments["limit"])
    reply = await workspace.search(context.workspace, query, INDEX)
    text, data = documents.documents_page(reply, arguments["max_tokens"], estimate_tokens, INDEX)
    return ToolResult(text, data)


async def _stats(context: ServerContext, _arguments: Mapping[str, Any], _report: ReportProgress) -> ToolResult:
    from kiwi_rag.usecases.workspace import collect_workspace_status

    status = dict(await collect_workspace_status(context.workspace))
    return ToolResult(agents.delimited(documents.workspace_text(status)), status)


SEARCH = Tool(
    "workspace_search",
    "Search this repository's documents",
    "Find passages of this repository's API specifications, decisions, designs, code, diagrams and notes by meaning "
    "and by words, before you open files. Query in plain words, or with an operation such as POST /check-ins, or ask "
    "which services call another. Every passage has its path and lines.",
    SEARCH_SCHEMA,
    HITS,
    search,
    ("query",),
    ALIASES,
)
STATS = Tool(
    "workspace_index_stats",
    "State of this repository's index",
    "Return how many documents and passages of this repository are indexed, of which types, and whether the last run "
    "was completed.",
    {},
    STATS_SCHEMA,
    _stats,
)
