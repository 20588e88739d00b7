"""Which index a number of passages calls for. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Literal, get_args

Method = Literal["auto", "exact", "ivfflat", "hnsw"]
METHODS: tuple[str, ...] = get_args(Method)

EXACT_BELOW = 10_000
"""Passages up to which all are compared: about 20 ms on one core, and no index to keep."""
_DIMENSION = 384
_HALF_FLOAT = 2
_SAMPLES_PER_LIST = 50  # pgvector's own, ivfbuild.c
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Choice:
    """An index to build: its method, its lists (ivfflat alone, else 0), and the memory that takes, in MiB."""

    method: Method
    lists: int
    memory: int

    def __str__(self) -> str:
        if self.method == "exact":
            return "no index: every passage is compared"
        lists = f" with {self.lists} lists" if self.lists else ""
        return f"{self.method}{lists}, up to {self.memory} MiB of memory while it is built"


def choose(passages: int, method: Method = "auto", memory: int = 1024) -> Choice:
    """Return the index for so many passages.

    Parameters
    ----------
    passages
        How many are searchable.
    method
        The one asked for; ``auto``: exact below `EXACT_BELOW`, ivfflat from there on.
    memory
        MiB that building may take. Limits ivfflat's lists, and how far hnsw's graph grows before it is slow to build.
    """
    if method == "exact" or (method == "auto" and passages < EXACT_BELOW):
        return Choice("exact", 0, 0)
    if method == "hnsw":
        return Choice("hnsw", 0, memory)
    lists = lists_for(passages, memory)
    return Choice("ivfflat", lists, max(64, kmeans_memory(lists, passages) + 16))


def lists_for(passages: int, memory: int) -> int:
    """Return how many lists ivfflat is to have: ``4 √passages``, as far as memory allows.

    pgvector's README begins with ``passages / 1000``, and √passages above a million; four times the root finds the same
    share of neighbours comparing several times fewer vectors (docs/decisions/0016-vector-index.md has the figures).
    """
    lists = max(1, 4 * isqrt(max(passages, 1)))
    while lists > 1 and kmeans_memory(lists, passages) > memory:
        lists -= max(1, lists // 20)
    return lists


def kmeans_memory(lists: int, passages: int) -> int:
    """Return the MiB that pgvector's k-means asks for, by the sums of its ``ivfkmeans.c`` (Elkan's algorithm)."""
    samples = max(min(lists * _SAMPLES_PER_LIST, passages), 10_000)
    vectors = (samples + 2 * lists) * (_DIMENSION * _HALF_FLOAT + 16) + lists * _DIMENSION * 4
    bounds = 4 * (samples * lists + 2 * samples + lists * lists + 3 * lists)
    return (vectors + bounds) // _MIB + 1
