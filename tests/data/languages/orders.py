#!/usr/bin/env python3
# Copyright 2026 Acme.
"""Keeps orders by their key.

For tests.
"""

from __future__ import annotations

import json
from typing import overload

LIMIT = 3


# Said once.
@overload
def total[T](orders: list[T], /, *more: int, dry: bool = False, **rest: str) -> int:
    def inner(): ...
    return sum(orders)


class Line:
    name: str = ""


class Store(Base):
    """Keeps orders. The text is long, so that the class is too large to stay in one passage, and each of its methods
    gets one of its own, as the methods of large classes do. What it says is of no further interest to anybody who reads
    it here, and it goes on for as long as it takes to be as long as that.
    """

    orders: dict[str, Order]

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.orders = {}

    # Finds an order.

    # Of the first with a key.
    @property
    async def find(self, key):
        match key:
            case [first, *_]:
                return await self.load(lambda: self.orders[first])
            case _:
                return f"{key!r:>{self.limit}}"

    class Error(Exception):
        pass

    if LIMIT:
        def chosen(self): ...


type Orders = list[Store]

if __name__ == "__main__":
    print(total([]))
