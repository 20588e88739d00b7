"""Jobs: one at a time, whatever their work raises, and however long a thread of theirs hangs."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from kiwi_rag.errors import KiwiError, NotFound, StoreBusy, StoreFull
from kiwi_rag.mcp.jobs import Job, Jobs, wait
from tests.shared import ROOT

POOL = 40
"""More than a pool has threads on two cores."""


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a hanging thread waits for; open at the end, whatever a test does."""
    event = threading.Event()
    yield event
    event.set()


async def quiet(_: str) -> None:
    pass


async def done(_: Job) -> dict[str, int]:
    return {"indexed": 1}


@pytest.mark.parametrize("error", [RuntimeError("a line of a secret file"), KeyError("x"), MemoryError()])
async def test_an_error_that_nobody_expected_is_the_jobs_error_and_is_logged_without_its_words(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(_: Job) -> dict[str, int]:
        raise error

    with caplog.at_level(logging.ERROR):
        job = Jobs().start("index", work)
        await wait(job, 5, quiet)
    assert job.state == "failed"
    assert isinstance(job.error, KiwiError)
    assert job.error.message == "an error that Kiwi did not expect"
    (line,) = caplog.records
    assert line.code == type(error).__name__
    assert "secret" not in caplog.text


async def test_an_error_of_kiwis_is_told_as_it_is() -> None:
    async def work(_: Job) -> dict[str, int]:
        raise StoreFull

    job = Jobs().start("index", work)
    await wait(job, 5, quiet)
    assert (job.state, job.error and job.error.code) == ("failed", "full")


async def test_one_runs_at_a_time_and_the_next_may_when_it_has_ended() -> None:
    jobs, go = Jobs(), asyncio.Event()

    async def work(job: Job) -> dict[str, int]:
        await go.wait()
        return await done(job)

    first = jobs.start("index", work)
    with pytest.raises(StoreBusy, match=f"job {first.id} \\(index\\) is running") as refused:
        jobs.start("index", done)
    assert first.id in refused.value.hint
    go.set()
    await wait(first, 5, quiet)
    second = jobs.start("index", done)
    await wait(second, 5, quiet)
    assert [first.state, second.state] == ["done", "done"]
    for _ in range(POOL):
        await wait(jobs.start("index", done), 5, quiet)
    with pytest.raises(NotFound):  # it ended long ago
        jobs.get(second.id)


async def test_a_thread_that_hangs_holds_up_neither_the_cancelling_nor_the_calls(gate: threading.Event) -> None:
    jobs = Jobs()

    async def hangs(_: Job) -> dict[str, int]:
        await asyncio.gather(*(asyncio.to_thread(gate.wait) for _ in range(POOL)))
        return {}

    job = jobs.start("index", hangs)
    await asyncio.sleep(0.05)
    started = time.monotonic()
    await jobs.cancel(job, 0.2)
    assert time.monotonic() - started < 30
    assert (job.state, job.stopping) == ("running", True)
    with pytest.raises(StoreBusy, match="was cancelled but has not ended"):
        jobs.start("index", done)
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "answered"), 30) == "answered"
    gate.set()
    await wait(job, 5, quiet)
    assert job.state == "cancelled"
    assert jobs.start("index", done).state == "running"
    await jobs.close()


def test_a_thread_that_hangs_does_not_keep_the_process_from_ending() -> None:
    program = """
import asyncio, threading
from kiwi_rag.mcp.jobs import Jobs
async def main():
    jobs = Jobs()
    async def hangs(_):
        await asyncio.to_thread(threading.Event().wait)
    job = jobs.start("index", hangs)
    await asyncio.sleep(0.05)
    await jobs.cancel(job, 0.1)
    print(job.state, flush=True)
asyncio.run(main())
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert (done.returncode, done.stdout) == (0, "running\n"), done.stderr


async def test_a_job_that_does_not_hear_that_it_is_cancelled_is_not_waited_for(gate: threading.Event) -> None:
    jobs, heard = Jobs(), asyncio.Event()

    async def deaf(_: Job) -> dict[str, int]:
        while not gate.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                heard.set()
        return {}

    job = jobs.start("index", deaf)
    await asyncio.sleep(0)
    await asyncio.wait_for(jobs.cancel(job, 0.2), 30)
    assert heard.is_set()
    assert job.state == "running"
    gate.set()
    await wait(job, 5, quiet)
    assert job.state == "done"


async def test_what_a_jobs_thread_raises_reaches_the_job() -> None:
    def refuse() -> None:
        raise StoreFull

    async def work(_: Job) -> dict[str, int]:
        await asyncio.to_thread(refuse)
        return {}

    job = Jobs().start("index", work)
    await wait(job, 5, quiet)
    assert (job.state, job.error and job.error.code) == ("failed", "full")
