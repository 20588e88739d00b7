"""Libraries over REST: what only an admin does with them, and the addresses under which each tool is called.

A library is addressed by its id: ``/api/v1/libraries/fastapi/fastapi@0.121.0``. Ids have at least two parts, so none is
taken for one of the other addresses. A caller of the service may add folders of this machine below an allowed root,
without hidden ones.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from kiwi_rag.errors import Refused, UsageError
from kiwi_rag.mcp import library
from kiwi_rag.mcp.context import ServerContext, require_idle
from kiwi_rag.mcp.jobs import Job, ReportProgress, Work
from kiwi_rag.mcp.toolsets import Tool, flag, text, texts, tool
from kiwi_rag.mcp.workspace import JOB, JOB_STATE, index_work, run_job
from kiwi_rag.render.agents import Answer
from kiwi_rag.sources.library.package import parse_origin
from kiwi_rag.sources.library.record import PATH
from kiwi_rag.usecases.library import Addition

_PROJECT = {"projectId": text("/owner/name@version.", minLength=1, maxLength=500)}
_ADDED = {
    "origin": text("A folder, npm:NAME[@V] or pypi:NAME[@V].", minLength=1, maxLength=1_024),
    "id": text("As /owner/name; its own by default.", maxLength=500),
    "version": text("Its own by default.", maxLength=100),
    "include": texts("Only the files below these folders of it.", 1_024),
    "code": flag("Also source code that has documentation in it."),
    "wait_seconds": JOB["wait_seconds"],
    **_PROJECT,
}


@tool("Add a library", _ADDED, JOB_STATE, "origin", changes="index")
async def add_library(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> Answer:
    """Store the documentation of a library and index it, as a job, whose report names the library. projectId, which is
    in the address of PUT, stands for id and version; what is there under them is replaced. A folder must be one that
    the page Add of the web interface offers.
    """
    addition = parse_addition(context, arguments)
    work = partial(addition_work, context, addition)
    return await run_job(context, {**arguments, "cancel": False}, report, f"add {addition.origin}", work)


def parse_addition(context: ServerContext, given: Mapping[str, Any]) -> Addition:
    """Return what a caller wants to add; the installed packages are those of the service's workspace.

    Raises
    ------
    UsageError
        When the name of the package, the id or the version is not allowed.
    Refused
        When it is a folder that may not be added.
    """
    about: dict[str, Any] = {name: given[name] for name in ("id", "version", "include", "code") if name in given}
    if "projectId" in given:
        about["id"], _, about["version"] = given["projectId"].rpartition("@")
    origin = given["origin"].strip()
    if parse_origin(origin)[0] == PATH:
        origin = str(check_folder(origin, allowed_roots(context)))
    return Addition(origin, context.workspace.root, **about)


def allowed_roots(context: ServerContext) -> Sequence[Path]:
    """Return the user's home and the folder of the service's workspace."""
    return [*dict.fromkeys([Path.home().resolve(), context.workspace.config.root.resolve()])]


def folders_below(folder: Path, roots: Sequence[Path]) -> Sequence[Path]:
    """Return the folders in one, without hidden ones and links to elsewhere."""
    found = sorted(path for path in folder.iterdir() if path.name.isprintable() and path.name[0] != ".")
    # Path.is_dir raises where a link leads through a folder that this user may not enter.
    return [path for path in found if os.path.isdir(path) and _is_allowed(path.resolve(), roots)]  # noqa: PTH112


def check_folder(given: str, roots: Sequence[Path]) -> Path:
    """Return the folder that a caller names, with links resolved.

    Raises
    ------
    Refused
        When it is not below an allowed root, or cannot be read. One that does not exist gets the same message.
    """
    with suppress(OSError, ValueError, RuntimeError):
        folder = Path(given).resolve(strict=True)
        if folder.is_dir() and _is_allowed(folder, roots) and os.access(folder, os.R_OK | os.X_OK):
            return folder
    hint = f"choose one below {' or '.join(map(str, roots))}"
    raise Refused(f"{given[:200]!r} is no folder that can be added", hint=hint)


def _is_allowed(folder: Path, roots: Sequence[Path]) -> bool:
    below = [folder.relative_to(root).parts for root in roots if folder.is_relative_to(root)]
    return any(not any(part.startswith(".") for part in parts) for parts in below)


def addition_work(context: ServerContext, addition: Addition) -> Work:
    """Return storing and indexing a library as the work of a job, whose result names the library."""

    async def work(job: Job) -> Mapping[str, Any]:
        progress = partial(job.set_total, unit="bytes")
        added, notice = await asyncio.to_thread(addition.save, context.libraries, context.app.consent.require, progress)
        job.name, job.total = library.job_name(added), 0
        with context.libraries.scope(added) as index:
            indexed = await index_work(context, index)(job)
        return {"library": added.canonical, "notice": notice, **indexed}

    return work


@tool("Remove a library", _PROJECT, "removed", "projectId", changes="index")
async def remove_library(context: ServerContext, arguments: Mapping[str, Any], _report: ReportProgress) -> Answer:
    """Delete the index of one version of a library, and what was unpacked for it. A folder of the user stays."""
    found = (await library.resolve_library(context, wanted := arguments["projectId"])).library
    if found.canonical != wanted:  # never another version than the one that was meant
        raise UsageError(f"{wanted[:80]} is not the id of one version", hint=f"name it: {found.canonical}")
    require_idle(context)
    async with context.writing:
        await context.libraries.remove(found)
    return Answer(f"removed {found.canonical}", {"removed": found.canonical})


_WAIT = {**JOB["wait_seconds"], "default": 0}


@tool("State of a job", {"job": JOB["job"], "wait_seconds": _WAIT}, JOB_STATE, "job")
async def job_state(context: ServerContext, arguments: Mapping[str, Any], report: ReportProgress) -> Answer:
    """Return how far a job is, after waiting for its end."""
    return await run_job(context, {**arguments, "cancel": False}, report)


TOOLS: dict[str, Tool] = {
    "GET libraries": library.list_projects, "POST libraries": add_library,
    "libraries/docs": library.get_library_docs, "libraries/resolve": library.resolve_library_id,
    "libraries/reindex": library.reindex_project, "GET libraries/{projectId:path}": library.project_status,
    "PUT libraries/{projectId:path}": add_library, "DELETE libraries/{projectId:path}": remove_library,
    "GET jobs/{job}": job_state,
}  # fmt: skip
"""Path below the root of REST → tool; a method before it is the only one."""
