"""Retries calls that fail for a moment, and waits for conditions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from types import TracebackType

from kiwi_rag.errors import StoreError

WRITING = (0.1, 0.4, 1.0, 2.0)
"""Seconds before each further attempt to write: long enough for a server to restart, or a connection to get free."""
READING = (0.0,)
"""Of a search: one more attempt over a new connection, at once, since other tiers can answer."""


class Attempt:
    """One attempt of several, as a context: it suppresses a transient error, and pauses, unless it is the last one."""

    def __init__(self, pause: float | None) -> None:
        self._pause = pause
        self.failed = False

    async def __aenter__(self) -> None:
        return

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.failed = self._pause is not None and isinstance(error, StoreError) and error.transient
        if self.failed:
            await asyncio.sleep(self._pause or 0.0)
        return self.failed


def attempts(pauses: Sequence[float] = WRITING) -> Iterator[Attempt]:
    """Yield up to ``1 + len(pauses)`` attempts, until one does not fail::

        for attempt in attempts():
            async with attempt:
                ...

    The block must be safe to run twice: a connection may be lost after the server committed, before it said so. The
    `StoreError` of the last attempt is raised, and one that is not ``transient`` at once, since another attempt would
    not help.
    """
    for pause in (*pauses, None):
        attempt = Attempt(pause)
        yield attempt
        if not attempt.failed:
            return


def polls(seconds: float, pause: float = 0.005) -> Iterator[None]:
    """Yield at once, and then every `pause` seconds until `seconds` have passed, for a wait without a callback::

    is_locked = any(try_lock(file) for _ in polls(1.0))
    """
    deadline = time.monotonic() + seconds
    yield
    while time.monotonic() <= deadline:
        time.sleep(pause)
        yield
