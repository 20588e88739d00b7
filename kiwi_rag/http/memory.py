"""The conversation memory over REST: the tools that agents have, lists, and the export as a stream.

It is the memory of the service's own project, or of the user where it has none; no address names another. Only an admin
reaches it: what was said is shown to nobody who may search documents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from kiwi_rag.mcp import memory
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.mcp.jobs import ReportProgress
from kiwi_rag.mcp.toolsets import Schema, Tool, number, text, tool
from kiwi_rag.render import counted
from kiwi_rag.render.agents import Answer
from kiwi_rag.sources.memory.exchanges import Selection
from kiwi_rag.usecases.memory import export_lines, session_json

_PAGE: dict[str, Schema] = {
    "limit": number("integer", 1, 1000, "", default=50),
    "offset": number("integer", 0, 1_000_000_000, "", default=0),
}
_NARROWED = {name: text("", default="", maxLength=200) for name in ("id", "session_id", "thread_id")}


@tool("Exchanges", {**_NARROWED, **_PAGE}, "exchanges")
async def list_exchanges(context: ServerContext, arguments: Mapping[str, Any], _report: ReportProgress) -> Answer:
    """Return exchanges as they are stored, the oldest first: of a session, of a thread, or one by its id."""
    ids = (arguments["id"],) if arguments["id"] else ()
    selection = Selection(ids, arguments["session_id"], arguments["thread_id"])
    page = arguments["limit"], arguments["offset"]
    found = await asyncio.to_thread(context.memory.table.select, selection, *page)
    return Answer(counted(len(found), "exchanges"), {"exchanges": [one.as_dict() for one in found]})


@tool("Sessions", _PAGE, "sessions")
async def list_sessions(context: ServerContext, arguments: Mapping[str, Any], _report: ReportProgress) -> Answer:
    """Return the sessions, the last one first, each with its number of exchanges, its threads, and since when."""
    found = await asyncio.to_thread(context.memory.table.sessions, arguments["limit"], arguments["offset"])
    return Answer(counted(len(found), "sessions"), {"sessions": [*map(session_json, found)]})


TOOLS: dict[str, Tool] = {
    "GET memory/exchanges": list_exchanges, "POST memory/exchanges": memory.remember_exchange,
    "GET memory/sessions": list_sessions, "memory/search": memory.search_exchanges,
    "memory/context": memory.get_relevant_context, "memory/forget": memory.forget,
}  # fmt: skip
"""Path below the root of REST → tool; a method before it is the only one."""
EXPORT = "memory/export"
EXPORT_OPERATION = {
    "get": {
        "operationId": "get_export",
        "summary": "Export",
        "description": "Return all exchanges as lines of JSON.",
        "responses": {"200": {"description": "Exchanges", "content": {"application/x-ndjson": {}}}},
    }
}
"""Its description in OpenAPI."""


async def export(context: ServerContext, _request: Request) -> Response:
    """Answer with all exchanges as lines of JSON, which `kiwi memory import` reads."""
    return StreamingResponse(export_lines(context.memory), media_type="application/x-ndjson")
