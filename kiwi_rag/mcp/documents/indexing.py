"""``reindex_documents`` and ``update_files``: jobs that bring the index up to the repository's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kiwi_rag import present
from kiwi_rag.errors import UsageError
from kiwi_rag.mcp.house import House
from kiwi_rag.mcp.jobs import Job, wait
from kiwi_rag.mcp.schemas import BOOLEAN, INTEGER, OBJECT, OBJECTS, STRING, STRINGS, Schema, maybe, record, text
from kiwi_rag.mcp.schemas import texts as texts_schema
from kiwi_rag.mcp.tool import Answer, Effects, Tell, Tool

_JOB: dict[str, Schema] = {
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
_REINDEX: dict[str, Schema] = {
    "rebuild": {"type": "boolean", "default": False, "description": "Empty the index first."},
    **_JOB,
}
_UPDATE: dict[str, Schema] = {
    "paths": {**texts_schema("Files to bring up to date, below the repository's root.", 1_024, 500), "minItems": 1},
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


async def _reindex(house: House, given: Mapping[str, Any], tell: Tell) -> Answer:
    return await _answered(house, given, tell, None)


async def _update(house: House, given: Mapping[str, Any], tell: Tell) -> Answer:
    if "job" not in given and "paths" not in given:
        raise UsageError("update_files wants paths", hint="or job, to ask about one that was started")
    return await _answered(house, given, tell, given.get("paths"))


async def _answered(house: House, given: Mapping[str, Any], tell: Tell, paths: Sequence[str] | None) -> Answer:
    if "job" in given:
        job = house.jobs.get(given["job"])
    else:
        job = _started(house, paths, rebuild=given.get("rebuild", False))
    if given["cancel"]:
        await house.jobs.cancel(job)
    await wait(job, given["wait_seconds"], tell)
    return _state(job)


def _started(house: House, paths: Sequence[str] | None, *, rebuild: bool) -> Job:
    place = house.workspace.place
    named = [place.relative(place.root / Path(path)) for path in paths] if paths is not None else None

    async def work(job: Job) -> Mapping[str, Any]:
        from kiwi_rag.workspace.indexing import Listener, index

        async with house.writing():
            workspace = house.workspace
            await workspace.prepare()
            if rebuild:
                await workspace.tier.store.clear()
            writer, told = workspace.writer(), Listener(job.planned)
            report = await index(workspace.place, workspace.tier, writer, named, told, prune=not workspace.is_shared)
            return report.as_dict()

    return house.jobs.start("update files" if paths is not None else "re-index documents", work)


def _state(job: Job) -> Answer:
    data = {
        "job": job.id,
        "state": job.state,
        "done": job.done,
        "total": job.total,
        "report": job.result,
        "error": dict(job.error.as_dict()) if job.error else None,
    }
    return Answer(_told(job), data)


def _told(job: Job) -> str:
    if job.state == "running":
        return f"Job {job.id} is running: {job.done} of {job.total} files. Ask again with job {job.id}."
    if job.state == "cancelled" or job.result is None:
        return f"Job {job.id} {job.state}." + (f" {present.safe(str(job.error))}" if job.error else "")
    told = job.result
    counts = ", ".join(
        f"{_count(told[name])} {name}" for name in ("indexed", "unchanged", "removed", "moved", "failed")
    )
    problems = [f"{row['path']}: {row['message']}" for row in told["failed"][:20]]
    return "\n".join(
        [f"Job {job.id} is done: {counts}.", *([present.delimited("\n".join(problems))] if problems else [])]
    )


def _count(value: int | Sequence[object]) -> int:
    return value if isinstance(value, int) else len(value)


_EFFECTS = Effects(read_only=False, destructive=False, idempotent=True)
REINDEX = Tool(
    "reindex_documents",
    "Bring the index of documents up to date",
    "Bring the index up to all files of this repository; only what changed is read and embedded. Long runs go on as a "
    "job: ask again with its id, or cancel it.",
    _REINDEX,
    _STATE,
    _reindex,
    effects=_EFFECTS,
    rebuildable=True,
)
UPDATE = Tool(
    "update_files",
    "Bring some files' index up to date",
    "Bring the index up to the files at some paths, after they were changed, added or deleted.",
    _UPDATE,
    _STATE,
    _update,
    aliases={"file_paths": "paths", "files": "paths"},
    effects=_EFFECTS,
    rebuildable=True,
)
