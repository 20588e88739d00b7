"""Retries calls that fail for a moment, and waits for conditions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from kiwi_rag.errors import StoreError

_T = TypeVar("_T")

WRITING = (0.1, 0.4, 1.0, 2.0)
"""Seconds before each further attempt to write: long enough for a server to restart, or a connection to get free."""
READING = (0.0,)
"""Of a search: one more attempt over a new connection, at once, since other tiers can answer."""


async def retry(work: Callable[[], Awaitable[_T]], pauses: Sequence[float] = WRITING) -> _T:
    """Return what `work` returns, having tried it up to ``1 + len(pauses)`` times.

    `work` must be safe to run twice: a connection may be lost after the server committed, before it said so.

    Raises
    ------
    StoreError
        Of the last attempt, or at once when it is not ``transient``, so that another attempt would not help.
    """
    for pause in pauses:
        try:
            return await work()
        except StoreError as error:
            if not error.transient:
                raise
        await asyncio.sleep(pause)
    return await work()


def wait_until(condition: Callable[[], object], seconds: float, pause: float = 0.005) -> bool:
    """Check `condition` every `pause` seconds; return True once it holds, False when it did not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True
