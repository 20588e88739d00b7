"""Several items under way at once, and their outcomes in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from typing import Any, TypeVar

_In = TypeVar("_In")
_Out = TypeVar("_Out")
LANES = 3
"""Items under way at once: while one is embedded, another is stored and a third is judged."""


async def in_order(
    work: Callable[[_In], Awaitable[_Out]], items: Iterable[_In] | AsyncIterable[_In], lanes: int
) -> AsyncGenerator[_Out]:
    """Yield ``work(item)`` for each of `items` in their order, up to `lanes` of them under way at once.

    When the caller stops early, or one raises, the others are cancelled and waited for.
    """
    places = asyncio.Semaphore(lanes)
    under_way: deque[asyncio.Task[_Out]] = deque()

    async def placed(item: _In) -> _Out:
        async with places:
            return await work(item)

    try:
        async for item in _each(items):
            under_way.append(asyncio.create_task(placed(item)))
            if len(under_way) > 2 * lanes:
                yield await under_way.popleft()
        while under_way:
            yield await under_way.popleft()
    finally:
        await give_up(under_way)


async def _each(items: Iterable[_In] | AsyncIterable[_In]) -> AsyncGenerator[_In]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


async def give_up(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel what still runs, and wait for its end."""
    given_up = list(tasks)
    for task in given_up:
        task.cancel()
    await asyncio.gather(*given_up, return_exceptions=True)
