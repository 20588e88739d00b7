"""Retries calls that fail for a moment, and waits for conditions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Self, TypeVar

from kiwi_rag.errors import StoreError

_T = TypeVar("_T")

WRITING = (0.1, 0.4, 1.0, 2.0)
"""Seconds before each further attempt to write: long enough for a server to restart, or a connection to get free."""
READING = (0.0,)
"""Of a search: one more attempt over a new connection, at once, since other tiers can answer."""


def attempts(pauses: Sequence[float] = WRITING) -> Attempts:
    """Return up to ``1 + len(pauses)`` attempts at the work in the block, which ends with the first that succeeds::

        async for attempt in attempts(READING):
            with attempt:
                return await work()
        raise AssertionError("the last attempt returns or raises")

    The work must be safe to run twice: a connection may be lost after the server committed, before it said so.
    A `StoreError` leaves the block after the last attempt, or at once when it is not ``transient``, so that another
    attempt would not help; so does every other exception.
    """
    return Attempts(pauses)


class Attempts:
    """Attempts at one piece of work; see `attempts`. An object and not a generator, which an early end leaves open."""

    def __init__(self, pauses: Sequence[float]) -> None:
        self._pauses = [0.0, *pauses]  # of the attempts that are left
        self._is_due = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Self:
        if not self._is_due:
            raise StopAsyncIteration
        if pause := self._pauses.pop(0):
            await asyncio.sleep(pause)
        return self

    def __enter__(self) -> None:
        self._is_due = False

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> bool:
        self._is_due = bool(self._pauses) and isinstance(error, StoreError) and error.transient
        return self._is_due


async def retry(work: Callable[[], Awaitable[_T]], pauses: Sequence[float] = WRITING) -> _T:
    """Return what `work` returns, attempted as `attempts` says."""
    async for attempt in attempts(pauses):
        with attempt:
            return await work()
    raise AssertionError("the last attempt returns or raises")


def polls(seconds: float, pause: float = 0.005) -> Iterator[None]:
    """Yield at once, and then every `pause` seconds until `seconds` have passed, for a wait without a callback::

    is_locked = any(try_lock(file) for _ in polls(1.0))
    """
    deadline = time.monotonic() + seconds
    yield
    while time.monotonic() <= deadline:
        time.sleep(pause)
        yield


def wait_until(condition: Callable[[], object], seconds: float, pause: float = 0.005) -> bool:
    """Check `condition` every `pause` seconds; return True once it holds, False when it did not within `seconds`."""
    return any(condition() for _ in polls(seconds, pause))
