"""Long work as a job: one call starts it, others wait for it with progress reports, query its state or cancel it."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar
from weakref import WeakSet

from kiwi_rag.errors import KiwiError, NotFound, StoreBusy
from kiwi_rag.sources.source import SyncReport

State = Literal["running", "done", "failed", "cancelled"]
STEP_SECONDS = 1.0
"""Time between two progress reports."""
CANCEL_SECONDS = 5.0
"""How long to wait for the end of a cancelled job; a call that hangs in a thread cannot be stopped."""
ReportProgress = Callable[[str], Awaitable[None]]
"""Called with a progress message; sent to a client that requested progress."""
MAX_KEPT = 32
"""Jobs that are kept, with their results."""
_POLL_SECONDS = 0.05
_UNEXPECTED = "an error that Kiwi did not expect"
_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Job:
    """One piece of long work. ``done`` of ``total`` steps are done; ``result`` or ``error`` is set at its end.

    The steps are those of one stage, which began at ``since`` (monotonic seconds); ``unit`` is what they are: files,
    then passages. ``report`` is that of an index run, which fills meanwhile.

    ``stopping`` is set once it was cancelled, even if it has not ended yet; ``threads`` run its calls.
    """

    name: str
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    total: int = 0
    done: int = 0
    unit: str = "files"
    since: float = field(default_factory=time.monotonic)
    result: Mapping[str, Any] | None = None
    error: KiwiError | None = None
    report: SyncReport | None = None
    task: asyncio.Task[None] | None = None
    stopping: bool = False
    threads: WeakSet[threading.Thread] = field(default_factory=WeakSet)

    @property
    def state(self) -> State:
        """The state; a cancelled job is running until its last thread has ended."""
        if self.task is None or not self.task.done() or any(thread.is_alive() for thread in self.threads):
            return "running"
        return "cancelled" if self.task.cancelled() else "done" if self.result is not None else "failed"

    @property
    def speed(self) -> float:
        """Steps done per second, in this stage."""
        return self.done / max(time.monotonic() - self.since, 0.001)

    def set_total(self, total: int, unit: str = "files") -> Callable[[int], None]:
        """Set the number of steps of a stage; return a function to call with the number of steps just done."""
        self.total, self.done, self.unit, self.since = total, 0, unit, time.monotonic()
        return self._advance

    def _advance(self, steps: int) -> None:
        self.done += steps


Work = Callable[[Job], Awaitable[Mapping[str, Any]]]


class Jobs:
    """The jobs of one server; one runs at a time."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    @property
    def running(self) -> Job | None:
        """The running job, if any."""
        return next((job for job in self._jobs.values() if job.state == "running"), None)

    @property
    def latest(self) -> Job | None:
        """The job that was started last, if any."""
        return next(reversed(self._jobs.values()), None)

    def start(self, name: str, work: Work, *, joins: bool = False) -> Job:
        """Start a job and return it; an exception that it raises becomes its ``error``.

        If it `joins` a running job of the same name, that one is returned.

        Raises
        ------
        StoreBusy
            When a job is running.
        """
        if running := self.running:
            if joins and running.name == name and not running.stopping:
                return running
            state = "was cancelled but has not ended yet" if running.stopping else "is running"
            hint = f'wait for it with job "{running.id}" and call again when it has ended, or cancel it'
            raise StoreBusy(f"job {running.id} ({running.name}) {state}", hint=hint)
        install_thread_pool()
        job = Job(name)
        job.task = asyncio.create_task(_run(job, work))
        self._jobs = {**dict([*self._jobs.items()][1 - MAX_KEPT :]), job.id: job}
        return job

    def get(self, job_id: str) -> Job:
        """Return a job.

        Raises
        ------
        NotFound
            When this server has no job of that id; the oldest are dropped.
        """
        if job_id not in self._jobs:
            raise NotFound(f"there is no job {job_id[:40]!r}", hint="leave out job to start a new one")
        return self._jobs[job_id]

    async def cancel(self, job: Job, seconds: float = CANCEL_SECONDS) -> None:
        """Stop a job and wait up to `seconds` for its end; what it has stored is kept."""
        if job.task and not job.task.done():
            job.stopping = True
            job.task.cancel()
        await wait(job, seconds)

    async def close(self) -> None:
        """Stop the running job."""
        if running := self.running:
            await self.cancel(running)


async def wait(job: Job, seconds: float, report: ReportProgress | None = None) -> None:
    """Wait for a job's end, up to `seconds`; report its progress every second."""
    now = time.monotonic()
    until, next_report = now + seconds, now + STEP_SECONDS
    while job.state == "running" and now < until:
        await asyncio.sleep(min(_POLL_SECONDS, until - now))  # its threads set no event of this loop
        now = time.monotonic()
        if report and now >= next_report and job.state == "running":
            next_report = now + STEP_SECONDS
            progress = f"{job.done} of {job.total} {job.unit}" if job.total else "listing files"
            await report(f"{job.name}: {progress}")


async def _run(job: Job, work: Work) -> None:
    _JOB_THREADS.set(job.threads)
    try:
        job.result = await work(job)
    except KiwiError as error:
        job.error = error
    except Exception as error:  # noqa: BLE001  # from any library; its message may quote a file, so it is not shown
        job.error = KiwiError(_UNEXPECTED, hint="kiwi status shows what failed; start the job again")
        # A traceback would show the text of files.
        _LOG.error(_UNEXPECTED, extra={"tool": job.name, "outcome": "failed", "code": type(error).__name__})


_Result = TypeVar("_Result")

_JOB_THREADS: ContextVar[WeakSet[threading.Thread] | None] = ContextVar("job_threads", default=None)
"""Inside a job: the threads of its calls. The thread of a cancelled call runs on until the call returns."""


class JobThreadPool(ThreadPoolExecutor):
    """A thread pool that runs the calls of a job in daemon threads of their own, so that they cannot block its exit."""

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Run a call: in a thread of the pool, or, inside a job, in a new daemon thread."""
        threads = _JOB_THREADS.get()
        if threads is None:
            return super().submit(fn, *args, **kwargs)
        future: Future[_Result] = Future()
        call = partial(fn, *args, **kwargs)
        thread = threading.Thread(target=_run_in_thread, args=(call, future), name="kiwi-job", daemon=True)
        threads.add(thread)
        thread.start()
        return future


def install_thread_pool() -> None:
    """Make a `JobThreadPool` the default executor of the running event loop, if it is not yet."""
    loop: Any = asyncio.get_running_loop()
    if not isinstance(getattr(loop, "_default_executor", None), JobThreadPool):
        loop.set_default_executor(JobThreadPool(thread_name_prefix="asyncio"))


def _run_in_thread(call: Callable[[], _Result], future: Future[_Result]) -> None:
    try:
        if future.set_running_or_notify_cancel():
            future.set_result(call())
    except BaseException as error:  # noqa: BLE001  # raised to the caller that awaits, as by any executor
        future.set_exception(error)
