"""Doing again what may succeed in a moment: a few times, with pauses that grow. Only for what may be done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from kiwi_rag.errors import RegistryError, RegistryUnreachable

_T = TypeVar("_T")
WRITING = (0.1, 0.4, 1.0, 2.0)
"""Seconds before each further attempt to write: long enough for a server to restart, or a connection to get free."""
READING = (0.0,)
"""A search goes on with the other tiers: once more over a fresh connection, at once."""
ANSWER_SECONDS = 90.0
"""How long one attempt may take: longer than the server lets a statement run, so that it answers first."""


async def persistently(
    work: Callable[[], Awaitable[_T]], pauses: Sequence[float] = WRITING, seconds: float = ANSWER_SECONDS
) -> _T:
    """Return what `work` returns, having tried it up to ``1 + len(pauses)`` times.

    `work` must be safe to run twice: a connection may be lost after the server committed, before it said so.

    Raises
    ------
    RegistryError
        Of the last attempt, or at once when another attempt would not help.
    """
    for pause in pauses:
        try:
            return await _within(seconds, work)
        except RegistryError as error:
            if not error.passing:
                raise
        await asyncio.sleep(pause)
    return await _within(seconds, work)


async def _within(seconds: float, work: Callable[[], Awaitable[_T]]) -> _T:
    try:
        async with asyncio.timeout(seconds):
            return await work()
    except TimeoutError as error:
        hint = "is the network slow? kiwi registry status; running it again is safe"
        said = f"the registry gave no answer within {seconds:g} s"
        raise RegistryUnreachable(said, hint=hint, passing=True) from error
