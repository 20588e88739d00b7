"""Toolsets **workspace**, search of a repository's documents, and **documents**, jobs that update their index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from kiwi_rag import render
from kiwi_rag.errors import UsageError
from kiwi_rag.formats.documents import FILE_TYPES
from kiwi_rag.ingest.sync import Callbacks
from kiwi_rag.mcp import pagination
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.mcp.jobs import Job, ReportProgress, Work, wait
from kiwi_rag.mcp.toolsets import Schema, flag, number, text, texts, tool, undescribed
from kiwi_rag.model import SearchQuery
from kiwi_rag.render import agents
from kiwi_rag.render.agents import Answer
from kiwi_rag.render.hits import INDEX_COMMAND
from kiwi_rag.services.documents import DocumentIndex
from kiwi_rag.usecases import search_page
from kiwi_rag.usecases.status import collect_workspace_status, recorded_run

_SEARCH_INPUTS: dict[str, Schema] = {
    "query": text("Plain words; identifiers and operations too.", minLength=1, maxLength=10_000),
    "file_type": text("A type that workspace_index_stats lists.", enum=list(FILE_TYPES)),
    "service": text("As svc-check-in.", maxLength=200), "domain": text("", maxLength=200),
    "path": text("File, folder, or pattern with *.", maxLength=1_024),
    "since": text("Indexed since, ISO 8601, UTC.", maxLength=40),
    "per_file": number("integer", 0, 50, "Hits of one file; 0: any number.", default=2), **pagination.SEARCH_INPUTS,
}  # fmt: skip
_MARKDOWN = _SEARCH_INPUTS.keys() - {"file_type", "service", "domain"}
_MARKDOWN_INPUTS = undescribed({name: schema for name, schema in _SEARCH_INPUTS.items() if name in _MARKDOWN})
_HITS = (
    "query kind complete unfinished embedded close hits refused missing_files notices index corrections continuation"
)


@tool("Search this repository's documents", _SEARCH_INPUTS, _HITS, "query")
async def workspace_search(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> Answer:
    """Find passages of this repository's specifications, decisions, designs, code and notes by meaning and words,
    before you open files. Query in plain words, or with an operation such as POST /check-ins.
    """
    await context.wait_until_ready(report)
    # A hint names no tool that is not offered.
    hint = reindex_documents.name if "documents" in context.toolsets else INDEX_COMMAND
    ranking = {"limit": arguments["limit"], "alpha": arguments.get("alpha"), "per_file": arguments["per_file"]}
    query = SearchQuery(arguments["query"], filters=pagination.filters_of(arguments), **ranking)
    search = partial(search_page, partial(context.workspace.search, hint=hint), query)
    return await pagination.answer_search(search, partial(agents.documents_page, update=hint), arguments)


@tool("Search this repository's Markdown", _MARKDOWN_INPUTS, _HITS, "query")
async def search_markdown(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> Answer:
    """Find sections of this repository's Markdown."""
    return await workspace_search.run(context, {**arguments, "file_type": "markdown"}, report)


_STATS = "workspace root run store model path documents passages embedded bytes file_types complete problems"


@tool("State of this repository's index", {}, _STATS)
async def workspace_index_stats(context: ServerContext, _given: Mapping[str, Any], _report: ReportProgress) -> Answer:
    """Return how many documents are indexed, of which types, and how completely."""
    status = dict(await collect_workspace_status(context.workspace))
    return Answer(agents.delimited(render.workspace_text(status)), status)


_INDEXING, _REBUILDING, _UPDATING = "re-index documents", "rebuild the index of documents", "update files"
_COUNTED = ("indexed", "unchanged", "removed", "moved", "skipped", "failed")
PASSAGES = "passages"
SHOWN = 20
"""Files that an answer's text lists; its data list all."""

_PATHS = texts("Files, or folders for all files below.", 1_024, 500)
JOB: dict[str, Schema] = {
    "job": text("A started job to report on.", maxLength=40),
    "cancel": flag("Stop the job."),
    "wait_seconds": number("number", 0, 300, "For the job's end.", default=20),
}
REINDEX_INPUTS: dict[str, Schema] = {"rebuild": flag("Empty the index first."), **JOB}
"""Arguments of a tool that updates a whole index."""
_UPDATE_INPUTS: dict[str, Schema] = {"paths": {**_PATHS, "minItems": 1}, **undescribed(JOB)}
JOB_STATE = "job state done total unit report error"


@tool("Update the index of documents", REINDEX_INPUTS, JOB_STATE, changes="index")
async def reindex_documents(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> Answer:
    """Index this repository; only changed files are read. A long run continues as a job: call again with its id to see
    how far it is.
    """
    name = _REBUILDING if arguments["rebuild"] else _INDEXING
    return await run_job(context, arguments, report, name, lambda: _work(context, arguments), joins=True)


@tool("Index changed files", _UPDATE_INPUTS, JOB_STATE, changes="index")
async def update_files(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> Answer:
    """Index files after they were changed, added or deleted."""
    if "job" not in arguments and "paths" not in arguments:
        raise UsageError("update_files requires paths", hint="give paths, or job for a job that was started")
    return await run_job(context, arguments, report, _UPDATING, lambda: _work(context, arguments))


async def run_job(  # noqa: PLR0913  # what a job depends on
    context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress, name: str = "",
    work: Callable[[], Work] | None = None, *, joins: bool = False,
) -> Answer:  # fmt: skip
    """Start a job, or wait for or cancel the one that the arguments name; return its state.

    `work` returns what a new job does; if it `joins`, a running job of the same name is not started twice.
    """
    if arguments["cancel"] and "job" not in arguments:
        raise UsageError("cancel requires job", hint="give the id of the job to stop")
    running, note = context.jobs.running, ""
    if "job" in arguments or work is None:
        job = context.jobs.get(arguments["job"])
    else:
        job = context.jobs.start(name, work(), joins=joins)
        note = "It was running already, so no other was started.\n" if job is running else ""
    await (context.jobs.cancel(job) if arguments["cancel"] else wait(job, arguments["wait_seconds"], report))
    error = dict(job.error.as_dict()) if job.error else None
    state = {"job": job.id, "state": job.state, "done": job.done, "total": job.total, "unit": job.unit}
    return Answer(note + _job_text(job), {**state, "report": job.result, "error": error})


def _work(context: ServerContext, arguments: Mapping[str, Any]) -> Work:
    config, paths, rebuild = context.workspace.config, arguments.get("paths"), arguments.get("rebuild", False)
    check_rebuild(context.workspace, rebuild=rebuild)
    files = [config.relative_path(config.root / path) for path in paths] if paths is not None else None
    return index_work(context, context.workspace, files, rebuild=rebuild)


def check_rebuild(index: DocumentIndex, *, rebuild: bool) -> None:
    """Raise `UsageError` when an agent wants to empty an index that others read."""
    if rebuild and index.is_shared:
        hint = f"the operator of the index can: {index.index_command} --rebuild"
        raise UsageError("an agent cannot rebuild a shared index", hint=hint)


def index_work(
    context: ServerContext, workspace: DocumentIndex, paths: Sequence[str] | None = None, *, rebuild: bool = False
) -> Work:
    """Return a run over all files of an index, or those at `paths`, as the work of a job; it is recorded."""
    about = context.app.user_dir, workspace.title

    async def work(job: Job) -> Mapping[str, Any]:
        async with context.writing:
            with recorded_run(*about, named=len(paths or ()), rebuild=rebuild) as report:
                job.report = report
                embedding = partial(job.set_total, unit=PASSAGES)
                callbacks = Callbacks(job.set_total, embedding=embedding, report=lambda: report)
                await workspace.update(await workspace.writer(rebuild=rebuild), paths, callbacks)
                return report.as_dict()

    return work


def _job_text(job: Job) -> str:
    if job.state == "running":
        state = "was cancelled but has not ended yet" if job.stopping else "is running"
        found = " All files are found by words; passages get vectors now." if job.unit == PASSAGES else ""
        return f"Job {job.id} {state}: {job.done} of {job.total} {job.unit}.{found} Call again with job {job.id}."
    # An error may quote a file's name or its text.
    if job.result is None or job.state == "cancelled":
        return f"Job {job.id} {job.state}." + (f"\n{agents.error_text(job.error, quoted=True)}" if job.error else "")
    result = job.result
    counts = ", ".join(f"{n if isinstance(n := result[name], int) else len(n)} {name}" for name in _COUNTED)
    rows = [f"failed: {row['path']}: {row['message']}" for row in result["failed"]]
    rows += [f"skipped: {row['path']}: {row['reason']}" for row in result["skipped"]]
    shown = [*rows[:SHOWN], f"and {len(rows) - SHOWN} more"] if len(rows) > SHOWN else rows
    return "\n".join([f"Job {job.id} is done: {counts}.", *([agents.delimited("\n".join(shown))] if shown else [])])


# The tool without arguments is first, as clients call it to try a server.
TOOLSETS = {
    "workspace": (workspace_index_stats, workspace_search),
    "documents": (search_markdown, reindex_documents, update_files),
}
