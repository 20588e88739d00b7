"""Calls of a registry, tried again where that may help. Only for what may be done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from kiwi_rag.errors import RegistryUnreachable
from kiwi_rag.retry import WRITING, retry

_T = TypeVar("_T")
ANSWER_SECONDS = 90.0
"""How long one attempt may take: longer than the server lets a statement run, so that it answers first."""


async def persistently(
    work: Callable[[], Awaitable[_T]], pauses: Sequence[float] = WRITING, seconds: float = ANSWER_SECONDS
) -> _T:
    """Return what `work` returns, tried as `retry` does, each time for up to `seconds`.

    Raises
    ------
    RegistryError
        Of the last attempt, or at once when another attempt would not help.
    """

    async def attempt() -> _T:
        try:
            async with asyncio.timeout(seconds):
                return await work()
        except TimeoutError as error:
            hint = "is the network slow? kiwi registry status; running it again is safe"
            said = f"the registry gave no answer within {seconds:g} s"
            raise RegistryUnreachable(said, hint=hint, passing=True) from error

    return await retry(attempt, pauses)
