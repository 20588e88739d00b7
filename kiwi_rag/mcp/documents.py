"""Toolset **documents**: the Markdown of a repository as a knowledge base, and jobs that bring its index up to date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kiwi_rag import render
from kiwi_rag.errors import KiwiError, UsageError
from kiwi_rag.mcp import workspace as schemas
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.mcp.jobs import Job, Work, wait
from kiwi_rag.mcp.tool import (
    BOOLEAN,
    INTEGER,
    OBJECT,
    OBJECTS,
    STRING,
    STRINGS,
    Effects,
    SchemaDict,
    Tell,
    Tool,
    ToolResult,
    maybe,
    record,
    text,
)
from kiwi_rag.mcp.tool import texts as texts_schema
from kiwi_rag.mcp.toolsets import Toolset
from kiwi_rag.mcp.workspace import search


def toolset() -> Toolset:
    """Return the toolset."""
    return Toolset((SEARCH, REINDEX, UPDATE))


_INDEXING, _REBUILDING, _UPDATING = "re-index documents", "rebuild the index of documents", "update files"
_COUNTED = ("indexed", "unchanged", "removed", "moved", "skipped", "failed")
SHOWN = 20
"""Files that an answer's text names; its data name all."""

_JOB: dict[str, SchemaDict] = {
    "job": text("Ask about this job in place of starting one.", maxLength=40),
    "cancel": {"type": "boolean", "default": False, "description": "Stop the job; what it has stored stays."},
    "wait_seconds": {
        "type": "number",
        "minimum": 0,
        "maximum": 300,
        "default": 20,
        "description": "How long to wait for its end before it is answered that it still runs.",
    },
}
_REINDEX: dict[str, SchemaDict] = {
    "rebuild": {"type": "boolean", "default": False, "description": "Empty the index first."},
    **_JOB,
}
_UPDATE: dict[str, SchemaDict] = {
    "paths": {
        **texts_schema("Files, or folders for all files below, under the repository's root.", 1_024, 500),
        "minItems": 1,
    },
    **_JOB,
}
_REPORT = record(
    indexed=STRINGS,
    unchanged=INTEGER,
    removed=STRINGS,
    moved=OBJECTS,
    skipped=OBJECTS,
    failed=OBJECTS,
    warnings=OBJECTS,
    passages=INTEGER,
    complete=BOOLEAN,
)
_STATE = record(
    job=STRING,
    state={"type": "string", "enum": ["running", "done", "failed", "cancelled"]},
    done=INTEGER,
    total=INTEGER,
    report=maybe(_REPORT),
    error=maybe(OBJECT),
)


async def _reindex(context: ServerContext, given: Mapping[str, Any], tell: Tell) -> ToolResult:
    return await _answered(context, given, tell, None)


async def _update(context: ServerContext, given: Mapping[str, Any], tell: Tell) -> ToolResult:
    if "job" not in given and "paths" not in given:
        raise UsageError("update_files wants paths", hint="or job, to ask about one that was started")
    return await _answered(context, given, tell, given.get("paths"))


async def _answered(
    context: ServerContext, given: Mapping[str, Any], tell: Tell, paths: Sequence[str] | None
) -> ToolResult:
    joined = False
    if given["cancel"] and "job" not in given:
        raise UsageError("cancel wants job", hint="name the job that is to be stopped")
    if "job" in given:
        job = context.jobs.get(given["job"])
    else:
        job, joined = _started(context, paths, rebuild=given.get("rebuild", False))
    if given["cancel"]:
        await context.jobs.cancel(job)
    else:
        await wait(job, given["wait_seconds"], tell)
    return _state(job, "It was running already; no other was started.\n" if joined else "")


def _started(context: ServerContext, paths: Sequence[str] | None, *, rebuild: bool) -> tuple[Job, bool]:
    """Start a job, or return the one that runs where it does the same; the flag says so."""
    name = _UPDATING if paths is not None else _REBUILDING if rebuild else _INDEXING
    running = context.jobs.running
    if running and not running.stopping and running.name == name != _UPDATING:
        return running, True
    return context.jobs.start(name, _work(context, paths, rebuild=rebuild)), False


def _work(context: ServerContext, paths: Sequence[str] | None, *, rebuild: bool) -> Work:
    place = context.workspace.config
    if rebuild and context.workspace.is_shared:
        hint = "its operator does: kiwi workspace index --rebuild"
        raise UsageError("a shared index is not emptied by an agent", hint=hint)
    named = [place.relative_path(place.root / Path(path)) for path in paths] if paths is not None else None

    async def work(job: Job) -> Mapping[str, Any]:
        from kiwi_rag.ingest.documents import ProgressCallbacks, index

        async with context.writing():
            workspace = context.workspace
            await workspace.prepare()
            writer, told = workspace.writer(), ProgressCallbacks(job.planned)
            if rebuild:
                await workspace.tier.store.clear()
            report = await index(workspace.config, workspace.tier, writer, named, told, prune=not workspace.is_shared)
            return report.as_dict()

    return work


def _state(job: Job, said: str) -> ToolResult:
    data = {
        "job": job.id,
        "state": job.state,
        "done": job.done,
        "total": job.total,
        "report": job.result,
        "error": dict(job.error.as_dict()) if job.error else None,
    }
    return ToolResult(said + _told(job), data)


def _told(job: Job) -> str:
    if job.state == "running":
        how = "was cancelled, and still has to end" if job.stopping else "is running"
        return f"Job {job.id} {how}: {job.done} of {job.total} files. Ask again with job {job.id}."
    if job.result is None or job.state == "cancelled":
        return f"Job {job.id} {job.state}." + (f"\n{_failure(job.error)}" if job.error else "")
    told = job.result
    counts = ", ".join(f"{_count(told[name])} {name}" for name in _COUNTED)
    rows = [f"failed: {row['path']}: {row['message']}" for row in told["failed"]]
    rows += [f"skipped: {row['path']}: {row['reason']}" for row in told["skipped"]]
    shown = [*rows[:SHOWN], f"and {len(rows) - SHOWN} more"] if len(rows) > SHOWN else rows
    return "\n".join([f"Job {job.id} is done: {counts}.", *([render.delimited("\n".join(shown))] if shown else [])])


def _failure(error: KiwiError) -> str:
    # What went wrong may quote a file's name, or what a file says.
    return render.delimited(error.message) + (f"\n→ {render.safe(error.hint)}" if error.hint else "")


def _count(value: int | Sequence[object]) -> int:
    return value if isinstance(value, int) else len(value)


_EFFECTS = Effects(read_only=False, destructive=False, idempotent=True)
REINDEX = Tool(
    "reindex_documents",
    "Bring the index of documents up to date",
    "Bring the index up to all files of this repository; only what changed is read and embedded. Long runs go on as a "
    "job, of which there is one at a time: ask again with its id, or cancel it.",
    _REINDEX,
    _STATE,
    _reindex,
    effects=_EFFECTS,
    rebuildable=True,
)
UPDATE = Tool(
    "update_files",
    "Bring some files' index up to date",
    "Bring the index up to some files, or to all files below some folders, after they were changed, added or deleted.",
    _UPDATE,
    _STATE,
    _update,
    aliases={"file_paths": "paths", "files": "paths"},
    effects=_EFFECTS,
    rebuildable=True,
)


_INPUTS = {name: schemas.SEARCH_SCHEMA[name] for name in ("query", "service", "domain", "path", "limit", "max_tokens")}
_ALIASES = {alias: name for alias, name in schemas.ALIASES.items() if name in _INPUTS}


async def _search(context: ServerContext, given: Mapping[str, Any], tell: Tell) -> ToolResult:
    return await search(context, {**given, "file_type": "markdown"}, tell)


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
