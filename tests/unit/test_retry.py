"""Trying again: how often, after which errors; and polling for so many seconds."""

from __future__ import annotations

from itertools import islice

import pytest

from kiwi_rag.errors import StoreBusy, StoreError, StoreUnreachable
from kiwi_rag.retry import attempts, polls


class Work:
    """Fails so many times, then returns how often it was called."""

    def __init__(self, failures: list[Exception]) -> None:
        self.failures, self.calls = failures, 0

    async def __call__(self) -> int:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return self.calls


async def attempted(work: Work, *pauses: float) -> int:
    for attempt in attempts(pauses):
        async with attempt:
            return await work()
    raise AssertionError("the last attempt returns or raises")


async def test_a_block_is_attempted_until_it_succeeds_or_the_pauses_are_used_up() -> None:
    passing = [StoreUnreachable("away", transient=True) for _ in range(3)]
    assert await attempted(Work([])) == 1
    assert await attempted(Work(passing[:2]), 0.0, 0.001) == 3
    assert await attempted(Work([StoreBusy("another process writes")]), 0.0) == 2
    work = Work(passing[:])
    with pytest.raises(StoreUnreachable):
        await attempted(work, 0.0, 0.0)
    assert work.calls == 3


@pytest.mark.parametrize("error", [StoreError("no"), StoreUnreachable("no"), ValueError("no")])
async def test_a_block_that_fails_for_good_is_attempted_once(error: Exception) -> None:
    work = Work([error])
    with pytest.raises(type(error)):
        await attempted(work, 0.0, 0.0)
    assert work.calls == 1


async def test_a_block_that_ends_without_a_return_is_not_run_again() -> None:
    runs = 0
    for attempt in attempts((0.0, 0.0)):
        async with attempt:
            runs += 1
    assert runs == 1


def test_polls_end_with_the_loop_or_with_the_time() -> None:
    answers = [False, False, True, True]
    assert any(answers.pop(0) for _ in polls(60, pause=0.0))
    assert answers == [True]
    assert len(list(polls(-1.0))) == 1
    assert len(list(islice(polls(60, pause=0.0), 3))) == 3
