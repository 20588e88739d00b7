"""Toolset **documents**: search of a repository's Markdown, and jobs that update the index of its documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kiwi_rag import render
from kiwi_rag.errors import KiwiError, UsageError
from kiwi_rag.mcp import workspace as schemas
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.mcp.jobs import Job, ReportProgress, Work, wait
from kiwi_rag.mcp.tool import OBJECT, Effects, SchemaDict, Tool, ToolResult, nullable, record, text
from kiwi_rag.mcp.tool import texts as texts_schema
from kiwi_rag.mcp.toolsets import Toolset
from kiwi_rag.mcp.workspace import search
from kiwi_rag.render import agents


def toolset() -> Toolset:
    """Return the toolset."""
    return Toolset((SEARCH, REINDEX, UPDATE))


_INDEXING, _REBUILDING, _UPDATING = "re-index documents", "rebuild the index of documents", "update files"
_COUNTED = ("indexed", "unchanged", "removed", "moved", "skipped", "failed")
SHOWN = 20
"""Files that an answer's text lists; its data list all."""

_JOB: dict[str, SchemaDict] = {
    "job": text("Report on this job instead of starting one.", maxLength=40),
    "cancel": {"type": "boolean", "default": False, "description": "Stop the job; what it has stored is kept."},
    "wait_seconds": {
        "type": "number",
        "minimum": 0,
        "maximum": 300,
        "default": 20,
        "description": "How long to wait for the end of the job before answering that it is still running.",
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
    strings="indexed removed",
    integer="unchanged passages",
    objects="moved skipped failed warnings",
    boolean="complete",
)
_STATE = record(
    string="job",
    state={"type": "string", "enum": ["running", "done", "failed", "cancelled"]},
    integer="done total",
    report=nullable(_REPORT),
    error=nullable(OBJECT),
)


async def _reindex(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> ToolResult:
    return await _run_job(context, arguments, report, None)


async def _update(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> ToolResult:
    if "job" not in arguments and "paths" not in arguments:
        raise UsageError("update_files requires paths", hint="give paths, or job for a job that was started")
    return await _run_job(context, arguments, report, arguments.get("paths"))


async def _run_job(
    context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress, paths: Sequence[str] | None
) -> ToolResult:
    already_running = False
    if arguments["cancel"] and "job" not in arguments:
        raise UsageError("cancel requires job", hint="give the id of the job to stop")
    if "job" in arguments:
        job = context.jobs.get(arguments["job"])
    else:
        job, already_running = _find_or_start(context, paths, rebuild=arguments.get("rebuild", False))
    if arguments["cancel"]:
        await context.jobs.cancel(job)
    else:
        await wait(job, arguments["wait_seconds"], report)
    return _job_result(job, "It was running already, so no other was started.\n" if already_running else "")


def _find_or_start(context: ServerContext, paths: Sequence[str] | None, *, rebuild: bool) -> tuple[Job, bool]:
    """Start a job, or return the running one if it does the same work, and whether it was running."""
    name = _UPDATING if paths is not None else _REBUILDING if rebuild else _INDEXING
    running = context.jobs.running
    if running and not running.stopping and running.name == name != _UPDATING:
        return running, True
    return context.jobs.start(name, _work(context, paths, rebuild=rebuild)), False


def _work(context: ServerContext, paths: Sequence[str] | None, *, rebuild: bool) -> Work:
    if rebuild and context.workspace.is_shared:
        hint = "the operator of the index can: kiwi workspace index --rebuild"
        raise UsageError("an agent cannot rebuild a shared index", hint=hint)
    config = context.workspace.config
    files = [config.relative_path(config.root / Path(path)) for path in paths] if paths is not None else None

    async def work(job: Job) -> Mapping[str, Any]:
        from kiwi_rag.ingest.sync import Callbacks
        from kiwi_rag.usecases import workspace

        async with context.lock_for_writing():
            opened = context.workspace
            writer = await workspace.open_for_writing(opened, rebuild=rebuild)
            result = await workspace.update(opened, writer, files, Callbacks(job.set_total))
            return result.as_dict()

    return work


def _job_result(job: Job, note: str) -> ToolResult:
    data = {
        "job": job.id,
        "state": job.state,
        "done": job.done,
        "total": job.total,
        "report": job.result,
        "error": dict(job.error.as_dict()) if job.error else None,
    }
    return ToolResult(note + _job_text(job), data)


def _job_text(job: Job) -> str:
    if job.state == "running":
        state = "was cancelled but has not ended yet" if job.stopping else "is running"
        return f"Job {job.id} {state}: {job.done} of {job.total} files. Call again with job {job.id}."
    if job.result is None or job.state == "cancelled":
        return f"Job {job.id} {job.state}." + (f"\n{_error_text(job.error)}" if job.error else "")
    result = job.result
    counts = ", ".join(f"{_count(result[name])} {name}" for name in _COUNTED)
    rows = [f"failed: {row['path']}: {row['message']}" for row in result["failed"]]
    rows += [f"skipped: {row['path']}: {row['reason']}" for row in result["skipped"]]
    shown = [*rows[:SHOWN], f"and {len(rows) - SHOWN} more"] if len(rows) > SHOWN else rows
    return "\n".join([f"Job {job.id} is done: {counts}.", *([agents.delimited("\n".join(shown))] if shown else [])])


def _error_text(error: KiwiError) -> str:
    # The message may quote a file's name or its text.
    return agents.delimited(error.message) + (f"\n→ {render.safe(error.hint)}" if error.hint else "")


def _count(value: int | Sequence[object]) -> int:
    return value if isinstance(value, int) else len(value)


_EFFECTS = Effects(read_only=False, destructive=False, idempotent=True)
REINDEX = Tool(
    "reindex_documents",
    "Bring the index of documents up to date",
    "Index all files of this repository; only changed files are read and embedded. A long run continues as a job, one "
    "at a time: call again with its id to see how far it is, or to cancel it.",
    _REINDEX,
    _STATE,
    _reindex,
    effects=_EFFECTS,
    rebuildable=True,
)
UPDATE = Tool(
    "update_files",
    "Index changed files",
    "Index some files, or all files below some folders, after they were changed, added or deleted.",
    _UPDATE,
    _STATE,
    _update,
    aliases={"file_paths": "paths", "files": "paths"},
    effects=_EFFECTS,
    rebuildable=True,
)


_INPUTS = {name: schemas.SEARCH_SCHEMA[name] for name in ("query", "service", "domain", "path", "limit", "max_tokens")}
_ALIASES = {alias: name for alias, name in schemas.ALIASES.items() if name in _INPUTS}


async def _search(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> ToolResult:
    return await search(context, {**arguments, "file_type": "markdown"}, report)


SEARCH = Tool(
    "search_markdown",
    "Search this repository's Markdown",
    "Find sections of this repository's Markdown documents by meaning and by words. Each hit has its path, lines and "
    "headings.",
    _INPUTS,
    schemas.HITS,
    _search,
    ("query",),
    _ALIASES,
)
