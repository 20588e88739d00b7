"""Retries calls that fail for a moment, and waits for conditions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kiwi_rag.errors import StoreBusy, StoreError

_T = TypeVar("_T")
WRITING = (0.1, 0.4, 1.0, 2.0)
"""Seconds before each further attempt to write: long enough for a server to restart, or a connection to get free."""
READING = (0.0,)
"""Of a search: one more attempt over a new connection, at once, since other tiers can answer."""


def attempts(pauses: Sequence[float] = WRITING) -> Iterator[AbstractAsyncContextManager[None]]:
    """Yield up to ``1 + len(pauses)`` attempts, until one does not fail::

        for attempt in attempts():
            async with attempt:
                ...

    The block must be safe to run twice: a connection may be lost after the server committed, before it said so. The
    `StoreError` of the last attempt is raised, and one that is neither ``transient`` nor a `StoreBusy` at once, since
    another attempt would not help.
    """
    for pause in (*pauses, None):
        failures: list[StoreError] = []
        yield _attempt(pause, failures)
        if not failures:
            return


@asynccontextmanager
async def _attempt(pause: float | None, failures: list[StoreError]) -> AsyncIterator[None]:
    """Suppress an error that another attempt may not meet, and pause, unless this is the last attempt."""
    try:
        yield
    except StoreError as error:
        if pause is None or not (error.transient or isinstance(error, StoreBusy)):
            raise
        failures.append(error)
        await asyncio.sleep(pause)


@dataclass(slots=True)
class CallLimit:
    """When the caller of a store began, and when it gives a call up, by `time.monotonic`.

    ``reasons`` are functions that return the error which says for what the call waits.
    """

    begun: float
    until: float
    reasons: list[Callable[[], StoreError]] = field(default_factory=list)

    def start(self, call: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Start a call that knows this limit."""
        context = copy_context()
        context.run(_call_limit.set, self)
        return asyncio.get_running_loop().create_task(call, context=context)

    def error(self) -> Exception:
        """Return the error of a call that was given up."""
        return self.reasons[-1]() if self.reasons else TimeoutError()


_call_limit: ContextVar[CallLimit | None] = ContextVar("call_limit", default=None)


def current_limit(seconds: float) -> CallLimit:
    """Return the limit of the present call; if it has none, one of `seconds` from now on."""
    now = time.monotonic()
    return _call_limit.get() or CallLimit(now, now + seconds)


def polls(seconds: float, pause: float = 0.005) -> Iterator[None]:
    """Yield at once, and then every `pause` seconds until `seconds` have passed, for a wait without a callback::

    is_locked = any(try_lock(file) for _ in polls(1.0))
    """
    deadline = time.monotonic() + seconds
    yield
    while time.monotonic() <= deadline:
        time.sleep(pause)
        yield
