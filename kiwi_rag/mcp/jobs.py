"""Long work as a job: started by one call, asked about or cancelled by others, with progress while somebody waits."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

from kiwi_rag.errors import KiwiError, NotFound, StoreBusy

State = Literal["running", "done", "failed", "cancelled"]
STEP_SECONDS = 1.0
CANCEL_SECONDS = 5.0
"""How long a cancelled job is waited for; what hangs in a thread cannot be stopped."""
Tell = Callable[[str], Awaitable[None]]
MAX_KEPT = 32
"""Jobs that are remembered after their end."""
_LOOK_SECONDS = 0.05
_UNEXPECTED = "an error that Kiwi did not expect"
_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class Job:
    """One piece of long work. ``done`` of ``total`` steps are made; ``result`` or ``error`` is set at its end.

    ``stopping`` says that it was cancelled, which it may not have heard yet; ``calls`` are its calls in threads that
    have not ended.
    """

    name: str
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    total: int = 0
    done: int = 0
    result: Mapping[str, Any] | None = None
    error: KiwiError | None = None
    task: asyncio.Task[None] | None = None
    stopping: bool = False
    calls: set[Future[Any]] = field(default_factory=set)

    @property
    def state(self) -> State:
        """Where it stands; a cancelled one runs until its last thread has ended."""
        if self.task is None or not self.task.done() or self.calls:
            return "running"
        if self.task.cancelled():
            return "cancelled"
        return "done" if self.result is not None else "failed"

    def planned(self, total: int) -> Callable[[int], None]:
        """Note how many steps there are; return what to call as they are made."""
        self.total, self.done = total, 0

        def step(steps: int) -> None:
            self.done += steps

        return step


Work = Callable[[Job], Awaitable[Mapping[str, Any]]]


class Jobs:
    """The jobs of one server, of which one runs at a time."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    @property
    def running(self) -> Job | None:
        """The job that runs, if one does."""
        return next((job for job in self._jobs.values() if job.state == "running"), None)

    def start(self, name: str, work: Work) -> Job:
        """Start a job and return it; what it raises becomes its error.

        Raises
        ------
        StoreBusy
            When one runs: it may be the one that is wanted, or has to end first.
        """
        if running := self.running:
            state = "is being cancelled, and has not ended" if running.stopping else "is running"
            hint = f'ask about it with job "{running.id}", and call again when it has ended; or cancel it'
            raise StoreBusy(f"job {running.id} ({running.name}) {state}", hint=hint)
        install()
        job = Job(name)
        job.task = asyncio.create_task(_run(job, work))
        for old in list(self._jobs)[: max(0, len(self._jobs) - MAX_KEPT + 1)]:
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

    async def cancel(self, job: Job, seconds: float = CANCEL_SECONDS) -> None:
        """Stop a job and wait up to `seconds` for its end; what it has stored stays."""
        if job.task and not job.task.done():
            job.stopping = True
            job.task.cancel()
        await _ended(job, seconds)

    async def close(self) -> None:
        """Stop the job that runs."""
        if running := self.running:
            await self.cancel(running)


async def wait(job: Job, seconds: float, tell: Tell) -> None:
    """Wait for a job's end, up to `seconds`, telling every second how far it is."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while job.state == "running" and loop.time() < until:
        await _ended(job, min(STEP_SECONDS, until - loop.time()))
        if job.state == "running":
            await tell(f"{job.name}: {job.done} of {job.total} files" if job.total else f"{job.name}: looking at files")


async def _ended(job: Job, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    if job.task:
        await asyncio.wait([job.task], timeout=max(0.0, seconds))
    while job.state == "running" and loop.time() < until:  # noqa: ASYNC110  # its threads set no event of this loop
        await asyncio.sleep(_LOOK_SECONDS)


async def _run(job: Job, work: Work) -> None:
    OWN.set(job.calls)
    try:
        job.result = await work(job)
    except KiwiError as error:
        job.error = error
    except Exception as error:  # noqa: BLE001  # of whatever library; its words may quote anything, and are not told
        job.error = KiwiError(_UNEXPECTED, hint="kiwi status tells what failed; start it again")
        facts = {"tool": job.name, "outcome": "failed", "code": type(error).__name__}
        _LOG.error(_UNEXPECTED, extra=facts)  # a trace would show what files hold


_Result = TypeVar("_Result")

OWN: ContextVar[set[Future[Any]] | None] = ContextVar("own", default=None)
"""In a job: its calls in threads that have not ended. A cancelled call's thread goes on, and nothing can stop it."""


class Threads(ThreadPoolExecutor):
    """A pool in which a job's calls get threads beside the pool, which do not keep the process from ending."""

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Run a call: in the pool, or beside it where `OWN` is set."""
        own = OWN.get()
        if own is None:
            return super().submit(fn, *args, **kwargs)
        # Whoever asked may cancel its future at any time; the thread's end is told by another, which nobody cancels.
        future: Future[_Result] = Future()
        ended: Future[None] = Future()
        own.add(ended)
        ended.add_done_callback(own.discard)
        call = partial(fn, *args, **kwargs)
        threading.Thread(target=_run_in_thread, args=(call, future, ended), name="kiwi-job", daemon=True).start()
        return future


def install() -> None:
    """Let the running event loop use such a pool, if it does not yet."""
    loop: Any = asyncio.get_running_loop()
    if not isinstance(getattr(loop, "_default_executor", None), Threads):
        loop.set_default_executor(Threads(thread_name_prefix="asyncio"))


def _run_in_thread(call: Callable[[], _Result], future: Future[_Result], ended: Future[None]) -> None:
    try:
        if future.set_running_or_notify_cancel():
            future.set_result(call())
    except BaseException as error:  # noqa: BLE001  # whoever waits gets it, as from any executor
        future.set_exception(error)
    finally:
        ended.set_result(None)
