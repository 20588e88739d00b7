"""Toolsets **workspace**, search of a repository's documents, and **documents**, jobs that update their index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kiwi_rag.errors import UsageError
from kiwi_rag.formats.documents import FILE_TYPES
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.mcp.jobs import Job, ReportProgress, Work, wait
from kiwi_rag.mcp.toolsets import (
    BOOLEAN,
    OBJECT,
    Effects,
    SchemaDict,
    Tool,
    ToolResult,
    Toolset,
    budget,
    flag,
    nullable,
    number,
    record,
    text,
    texts,
)
from kiwi_rag.model import SearchQuery
from kiwi_rag.render import agents, documents
from kiwi_rag.usecases import filters_of
from kiwi_rag.wordpieces import estimate_tokens

_SEARCH_INPUTS: dict[str, SchemaDict] = {
    "query": text("What to find, in plain words; identifiers and operations too.", minLength=1, maxLength=10_000),
    "file_type": text("Only files of this type.", enum=list(FILE_TYPES)),
    "service": text("Only files about this service, for instance svc-check-in.", maxLength=200),
    "domain": text("Only files of this domain.", maxLength=200),
    "path": text("Only this file or folder, or paths that match this pattern with *.", maxLength=1_024),
    "limit": number("integer", 1, 50, "Passages to show.", default=5),
    "max_tokens": budget("text to return.", 4_000),
}
_ALIASES = {
    "q": "query", "text": "query", "top_k": "limit", "k": "limit", "n_results": "limit", "num_results": "limit",
    "max_results": "limit", "type": "file_type",
}  # fmt: skip

_HIT = record(
    integer="rank start_line end_line",
    string="path kind file_type title service domain last_modified git_commit signer key_id digest text",
    strings="heading",
    number="score",
    object="parts",
    changed=nullable(BOOLEAN),
    boolean="verified truncated",
)
_HITS = record(
    string="query kind",
    boolean="complete unfinished",
    hits={"type": "array", "items": _HIT},
    object="index corrections",
    objects="refused",
    strings="missing_files notices",
)
_STATS = record(
    string="workspace root run store model path",
    integer="documents passages bytes",
    object="file_types",
    boolean="complete",
    strings="problems",
)


_INDEX_HINT = "reindex_documents (toolset documents), or kiwi workspace index"
"""How an agent brings the index up to date; its client may not offer the tool."""


async def _search(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> ToolResult:
    """Search a workspace's documents with the arguments of ``workspace_search``."""
    await context.wait_until_ready(report)
    query = SearchQuery(arguments["query"], filters=filters_of(arguments), limit=arguments["limit"])
    reply = await context.workspace.search(query, _INDEX_HINT)
    text, data = documents.documents_page(reply, arguments["max_tokens"], estimate_tokens, _INDEX_HINT)
    return ToolResult(text, data)


async def _stats(context: ServerContext, _arguments: Mapping[str, Any], _report: ReportProgress) -> ToolResult:
    from kiwi_rag.usecases.status import collect_workspace_status

    status = dict(await collect_workspace_status(context.workspace))
    return ToolResult(agents.delimited(documents.workspace_text(status)), status)


SEARCH = Tool(
    "workspace_search",
    "Search this repository's documents",
    "Find passages of this repository's API specifications, decisions, designs, code, diagrams and notes by meaning "
    "and by words, before you open files. Query in plain words, or with an operation such as POST /check-ins, or ask "
    "which services call another. Every passage has its path and lines.",
    _SEARCH_INPUTS,
    _HITS,
    _search,
    ("query",),
    _ALIASES,
)
STATS = Tool(
    "workspace_index_stats",
    "State of this repository's index",
    "Return how many documents and passages of this repository are indexed, of which types, and whether the last run "
    "was completed.",
    {},
    _STATS,
    _stats,
)


_INDEXING, _REBUILDING, _UPDATING = "re-index documents", "rebuild the index of documents", "update files"
_COUNTED = ("indexed", "unchanged", "removed", "moved", "skipped", "failed")
SHOWN = 20
"""Files that an answer's text lists; its data list all."""

_JOB: dict[str, SchemaDict] = {
    "job": text("Report on this job instead of starting one.", maxLength=40),
    "cancel": flag("Stop the job; what it has stored is kept."),
    "wait_seconds": number(
        "number",
        0,
        300,
        "How long to wait for the end of the job before answering that it is still running.",
        default=20,
    ),
}
_REINDEX: dict[str, SchemaDict] = {"rebuild": flag("Empty the index first."), **_JOB}
_UPDATE: dict[str, SchemaDict] = {
    "paths": {
        **texts("Files, or folders for all files below, under the repository's root.", 1_024, 500),
        "minItems": 1,
    },
    **_JOB,
}
_REPORT = record(
    strings="indexed removed", integer="unchanged passages", objects="moved skipped failed warnings", boolean="complete"
)
_JOB_STATE = record(
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

        async with context.lock_for_writing():
            opened = context.workspace
            writer = await opened.writer(rebuild=rebuild)
            result = await opened.update(writer, files, Callbacks(job.set_total))
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
    # An error may quote a file's name or its text.
    if job.result is None or job.state == "cancelled":
        return f"Job {job.id} {job.state}." + (f"\n{agents.error_text(job.error, quoted=True)}" if job.error else "")
    result = job.result
    counts = ", ".join(f"{_count(result[name])} {name}" for name in _COUNTED)
    rows = [f"failed: {row['path']}: {row['message']}" for row in result["failed"]]
    rows += [f"skipped: {row['path']}: {row['reason']}" for row in result["skipped"]]
    shown = [*rows[:SHOWN], f"and {len(rows) - SHOWN} more"] if len(rows) > SHOWN else rows
    return "\n".join([f"Job {job.id} is done: {counts}.", *([agents.delimited("\n".join(shown))] if shown else [])])


def _count(value: int | Sequence[object]) -> int:
    return value if isinstance(value, int) else len(value)


_EFFECTS = Effects(read_only=False, destructive=False, idempotent=True)
REINDEX = Tool(
    "reindex_documents",
    "Bring the index of documents up to date",
    "Index all files of this repository; only changed files are read and embedded. A long run continues as a job, one "
    "at a time: call again with its id to see how far it is, or to cancel it.",
    _REINDEX,
    _JOB_STATE,
    _reindex,
    effects=_EFFECTS,
    rebuildable=True,
)
UPDATE = Tool(
    "update_files",
    "Index changed files",
    "Index some files, or all files below some folders, after they were changed, added or deleted.",
    _UPDATE,
    _JOB_STATE,
    _update,
    aliases={"file_paths": "paths", "files": "paths"},
    effects=_EFFECTS,
    rebuildable=True,
)


_MARKDOWN = {name: _SEARCH_INPUTS[name] for name in ("query", "service", "domain", "path", "limit", "max_tokens")}
_MARKDOWN_ALIASES = {alias: name for alias, name in _ALIASES.items() if name in _MARKDOWN}


async def _search_markdown(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> ToolResult:
    return await _search(context, {**arguments, "file_type": "markdown"}, report)


SEARCH_MARKDOWN = Tool(
    "search_markdown",
    "Search this repository's Markdown",
    "Find sections of this repository's Markdown documents by meaning and by words. Each hit has its path, lines and "
    "headings.",
    _MARKDOWN,
    _HITS,
    _search_markdown,
    ("query",),
    _MARKDOWN_ALIASES,
)

# The tool without arguments is first, as clients call it to try a server.
TOOLSETS = {"workspace": Toolset((STATS, SEARCH)), "documents": Toolset((SEARCH_MARKDOWN, REINDEX, UPDATE))}
