"""Long work as a job: started by one call, asked about or cancelled by others, with progress while somebody waits."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kiwi_rag.errors import KiwiError, NotFound

State = Literal["running", "done", "failed", "cancelled"]
STEP_SECONDS = 1.0
Tell = Callable[[str], Awaitable[None]]
MAX_KEPT = 32
"""Jobs that are remembered after their end."""


@dataclass(slots=True)
class Job:
    """One piece of long work. ``done`` of ``total`` steps are made; ``result`` and ``error`` are set at its end."""

    name: str
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    total: int = 0
    done: int = 0
    result: Mapping[str, Any] | None = None
    error: KiwiError | None = None
    task: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        """Where it stands."""
        if self.task is None or not self.task.done():
            return "running"
        if self.task.cancelled():
            return "cancelled"
        return "failed" if self.error else "done"

    def planned(self, total: int) -> Callable[[int], None]:
        """Note how many steps there are; return what to call as they are made."""
        self.total, self.done = total, 0

        def step(steps: int) -> None:
            self.done += steps

        return step


Work = Callable[[Job], Awaitable[Mapping[str, Any]]]


class Jobs:
    """The jobs of one server."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def start(self, name: str, work: Work) -> Job:
        """Start a job and return it; what it raises becomes its error."""
        job = Job(name)
        job.task = asyncio.create_task(_run(job, work))
        ended = [other.id for other in self._jobs.values() if other.state != "running"]
        for old in ended[: max(0, len(ended) - MAX_KEPT + 1)]:
            del self._jobs[old]
        self._jobs[job.id] = job
        return job

    def get(self, job_id: str) -> Job:
        """Return a job.

        Raises
        ------
        NotFound
            When there is none of that id: it ended long ago, or another server had it.
        """
        try:
            return self._jobs[job_id]
        except KeyError as error:
            raise NotFound(f"there is no job {job_id[:40]!r}", hint="leave out job to start one") from error

    async def cancel(self, job: Job) -> None:
        """Stop a job and wait for its end; what it has stored stays."""
        if job.task and not job.task.done():
            job.task.cancel()
            await asyncio.wait([job.task])

    async def close(self) -> None:
        """Stop all jobs."""
        for job in list(self._jobs.values()):
            await self.cancel(job)


async def wait(job: Job, seconds: float, tell: Tell) -> None:
    """Wait for a job's end, up to `seconds`, telling every second how far it is."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while job.task and not job.task.done() and loop.time() < until:
        await asyncio.wait([job.task], timeout=min(STEP_SECONDS, max(0.0, until - loop.time())))
        if not job.task.done():
            await tell(f"{job.name}: {job.done} of {job.total} files" if job.total else f"{job.name}: looking at files")


async def _run(job: Job, work: Work) -> None:
    with contextlib.suppress(KiwiError):
        try:
            job.result = await work(job)
        except KiwiError as error:
            job.error = error
            raise
