"""Toolset **library**: the documentation of libraries, under the tool names of Context7 and under those of projects."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from kiwi_rag.errors import KiwiError, UsageError
from kiwi_rag.mcp import pagination
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.mcp.jobs import ReportProgress
from kiwi_rag.mcp.toolsets import number, text, tool
from kiwi_rag.mcp.workspace import JOB_STATE, REINDEX_INPUTS, check_rebuild, index_work, run_job
from kiwi_rag.render import agents
from kiwi_rag.render.agents import Answer
from kiwi_rag.sources.library.record import Library
from kiwi_rag.sources.library.versions import Resolution, rank
from kiwi_rag.usecases.library import MIN_TOKENS, collect_library_status, get_docs

_ID = text("/owner/name or /owner/name@version.", minLength=1, maxLength=500)
_NAME = text("Of a library or package.", minLength=1, maxLength=200)
_QUERY = text("What to find, in plain words.", maxLength=10_000)
_TOKENS = number("integer", MIN_TOKENS, 100_000, "Of the whole answer, at most.", default=5_000)
_PATH = text("A file of this project, whose lock files name the version.", maxLength=1_024)
_CHUNKS = "library version chunks notices close continuationToken"


@tool("Find a library's id", {"libraryName": _NAME, "query": _QUERY}, "libraries problems", "libraryName")
async def resolve_library_id(context: ServerContext, arguments: Mapping[str, Any], _report: ReportProgress) -> Answer:
    """Return the ids of libraries whose documentation is here, the best match first."""
    found, damaged = await asyncio.to_thread(context.libraries.records.list)
    named = await asyncio.to_thread(rank, found, arguments["libraryName"])
    rows = [{"id": one.canonical, "title": one.title, "version": one.version} for one in named]
    return _list("libraries", rows, damaged)


def _list(name: str, rows: Sequence[Mapping[str, Any]], damaged: Sequence[KiwiError]) -> Answer:
    """Return libraries, and which records of libraries cannot be read."""
    problems = [f"{error.message}: {error.hint}" for error in damaged]
    lines = [*(f"{row['id']}  {row['title']}" for row in rows), *problems]
    text = agents.delimited("\n".join(lines)) if lines else "No such library is indexed here."
    return Answer(text, {name: rows, "problems": problems})


_DOCS_INPUTS = {
    "libraryId": _ID, "topic": _QUERY, "tokens": _TOKENS, "pathContext": _PATH,
    "continuationToken": pagination.CONTINUATION,
}  # fmt: skip


@tool("Read a library's documentation", _DOCS_INPUTS, _CHUNKS, "libraryId")
async def get_library_docs(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> Answer:
    """Return the parts of a library's documentation that are about a topic, verified, each with file and lines."""
    await context.wait_until_ready(report)
    resolved = await resolve_library(context, arguments["libraryId"], arguments.get("pathContext", ""))
    page = {"tokens": arguments["tokens"], "continuation": arguments["continuationToken"]}
    return await get_docs(context.app, context.libraries, resolved, arguments.get("topic", ""), **page)


@tool(
    "Search a library's documentation", {"libraryId": _ID, "query": _QUERY}, _CHUNKS, "libraryId", "query", dashed=True
)
async def query_docs(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> Answer:
    """The same as get_library_docs for a question, in one answer."""
    given = {"libraryId": arguments["libraryId"], "topic": arguments["query"]}
    return await get_library_docs.run(context, get_library_docs.parse_arguments(given), report)


async def resolve_library(context: ServerContext, ref: str, path: str = "") -> Resolution:
    """Return the library that a caller names.

    Raises
    ------
    NoSuchLibrary, VersionNotIndexed
        When there is none.
    UsageError
        When the path is outside of this server's workspace.
    """
    file = None
    if path:
        root = context.workspace.root.resolve()
        with suppress(ValueError, RuntimeError):  # a NUL, and a ring of links
            file = (root / path).resolve()
        if file is None or not file.is_relative_to(root):
            raise UsageError("pathContext is not in this server's workspace", hint="give a path below its root")
    return await asyncio.to_thread(context.libraries.resolve, ref, file)


_PROJECT = {"projectId": _ID}
_STATE = "id title version status last_indexed commit origin aliases root stats"


@tool("Libraries", {}, "projects problems")
async def list_projects(context: ServerContext, _arguments: Mapping[str, Any], _report: ReportProgress) -> Answer:
    """Return the libraries whose documentation is here, with version and state."""
    found, damaged = await asyncio.to_thread(context.libraries.records.list)
    return _list("projects", [await _state(context, library, brief=True) for library in found], damaged)


@tool("State of a library", _PROJECT, _STATE, "projectId")
async def project_status(context: ServerContext, arguments: Mapping[str, Any], _report: ReportProgress) -> Answer:
    """Return how much of a library is indexed, of which commit, and since when."""
    data = await _state(context, (await resolve_library(context, arguments["projectId"])).library)
    return Answer(agents.delimited("\n".join(f"{name}: {value}" for name, value in data.items())), data)


async def _state(context: ServerContext, library: Library, *, brief: bool = False) -> Mapping[str, Any]:
    with context.libraries.scope(library) as index:
        state = await collect_library_status(index, brief=brief)
    running = context.jobs.running
    return {**state, "status": "InProgress"} if running and running.name == job_name(library) else state


def job_name(library: Library) -> str:
    """Return the name of a job that indexes a library."""
    return f"index {library.canonical}"


@tool("Update a library's index", {**_PROJECT, **REINDEX_INPUTS}, JOB_STATE, "projectId", changes="index")
async def reindex_project(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> Answer:
    """Index a library's documentation again; only changed files are read. A long run continues as a job."""
    resolved = await resolve_library(context, arguments["projectId"])
    name = job_name(resolved.library)
    with context.libraries.scope(resolved.library) as index:
        check_rebuild(index, rebuild=arguments["rebuild"])
        work = partial(index_work, context, index, rebuild=arguments["rebuild"])
        return await run_job(context, arguments, report, name, work, joins=True)


TOOLSETS = {
    "library": (
        list_projects, replace(resolve_library_id, dashed=True), query_docs, resolve_library_id, get_library_docs,
        project_status, reindex_project,
    )
}  # fmt: skip
