"""Doing again what a lost connection cut off: a few times, with pauses that grow. Only for what may be done twice."""

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
_CONFLICTS = ("40001", "40P01")  # serialization failure, deadlock: the server rolled back and says to try again


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
            if not is_passing(error):
                raise
        await asyncio.sleep(pause)
    return await _within(seconds, work)


def is_passing(error: RegistryError) -> bool:
    """Whether the same call may succeed in a moment: no connection, no free one, no answer, or a conflict."""
    return isinstance(error, RegistryUnreachable) or getattr(error.__cause__, "sqlstate", "") in _CONFLICTS


async def _within(seconds: float, work: Callable[[], Awaitable[_T]]) -> _T:
    try:
        async with asyncio.timeout(seconds):
            return await work()
    except TimeoutError as error:
        hint = "is the network slow? kiwi registry status; running it again is safe"
        raise RegistryUnreachable(f"the registry gave no answer within {seconds:g} s", hint=hint) from error
