"""The words leg's first choice, made by Qdrant over sparse vectors; what it returns is scored exactly afterwards.

BM25 with given statistics cannot be stored: the average length changes with every write and with every tier that is
asked beside this one. So a passage's sparse vector holds each term's part of BM25 for a fixed reference length *A₀*,
and the query's holds the inverse document frequencies that it was given. The product *p* differs from the true score
*s* under an average length *A* by no more than the ratio of the two: for every term

    s / p = (tf + k₁·(1 - b + b·l / A₀)) / (tf + k₁·(1 - b + b·l / A))  ≤  max(1, A / A₀)

so that a passage with a product below *c* cannot score above *c·max(1, A / A₀)*: which tells how far down Qdrant's
list has to be read until nothing better can follow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache

from kiwi_rag.lexical import K1, B
from kiwi_rag.stores.qdrant.layout import REFERENCE_LENGTH

_SLACK = 1e-4
"""Products are sums of 32-bit numbers."""


@lru_cache(maxsize=65_536)
def dimension_of(term: str) -> int:
    """Return a term's dimension, 32 bits of its hash. Two terms that share one only make a passage look better."""
    return int.from_bytes(hashlib.blake2b(term.encode(), digest_size=4).digest(), "big")


def passage_weights(frequencies: Mapping[str, int], length: int) -> dict[int, float]:
    """Return a passage's sparse vector: dimension → what its terms add to BM25 per unit of their weights."""
    norm = K1 * (1 - B + B * length / REFERENCE_LENGTH)
    found: dict[int, float] = {}
    for term, tf in frequencies.items():
        place = dimension_of(term)
        found[place] = found.get(place, 0.0) + tf * (K1 + 1) / (tf + norm)
    return found


def query_weights(weights: Mapping[str, float]) -> dict[int, float]:
    """Return a query's sparse vector from its terms' inverse document frequencies."""
    found: dict[int, float] = {}
    for term, weight in weights.items():
        place = dimension_of(term)
        found[place] = found.get(place, 0.0) + weight
    return found


def highest_score(product: float, average_length: float) -> float:
    """Return the BM25 that no passage with at most this product exceeds."""
    return product * max(1.0, average_length / REFERENCE_LENGTH) * (1 + _SLACK)


def lowest_product(score: float, average_length: float) -> float:
    """Return the product that every passage with at least this BM25 has."""
    return score / max(1.0, average_length / REFERENCE_LENGTH) * (1 - _SLACK)
