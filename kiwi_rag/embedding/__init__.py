"""Embedding providers: their base class, which batches texts and keeps their order.

`factory.load_provider` makes the one in use, with the persistent cache before it.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kiwi_rag.errors import EmbeddingError, FingerprintMismatch
from kiwi_rag.model import Vector

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Identifies an embedding model. Vectors of two fingerprints are never compared.

    ``weights`` is the hex SHA-256 of the weights (for a remote provider, the digest of its base URL and model name).
    """

    model: str
    weights: str
    dimension: int
    pooling: str
    max_tokens: int

    def __str__(self) -> str:
        return f"{self.model}/{self.weights[:16]}/{self.dimension}/{self.pooling}/{self.max_tokens}"


class EmbeddingProvider(ABC):
    """Turns texts into L2-normalised ``float32`` vectors of one fixed dimension."""

    batch_size = 4
    """Texts in one call of ``encode``."""

    @property
    @abstractmethod
    def fingerprint(self) -> Fingerprint:
        """Identity of the model; cheap, does not load it."""

    @property
    def place(self) -> str:
        """The model's folder, or its server's address; empty if its files are not installed. Loads nothing."""
        return ""

    @property
    def uncached(self) -> EmbeddingProvider:
        """The provider without the cache before it."""
        return self

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector of shape ``(dimension,)`` a text, in order. Blocking; called in a worker thread.

        Raises
        ------
        EmbeddingError
            When the model is not available or fails.
        """

    def count_tokens(self, text: str) -> int:
        """Return how many tokens a text of any length has, or at most has where the model's tokenizer is not known.

        Blocking; may load the model's files.
        """
        return len(text.encode("utf-8", "replace"))  # a token is one byte or more

    def verify(self) -> Sequence[str]:
        """Check every server of the provider, or the files of a local one; return one line for each problem."""
        return ()

    async def documents(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Embed passages; return one vector a text, in the order of `texts`.

        Texts are encoded in batches of ``batch_size``, longest first: neighbours of one length waste no padding, and
        the largest demand for memory comes at the start. Identical texts are encoded once.

        Raises
        ------
        EmbeddingError
            When the model is not available or fails.
        """
        texts = [well_formed(text) for text in texts]
        vectors: dict[str, Vector] = {}
        for batch in batches(sorted(dict.fromkeys(texts), key=len, reverse=True), self.batch_size):
            vectors.update(zip(batch, await asyncio.to_thread(self.encode, batch), strict=True))
        return [vectors[text] for text in texts]

    def close(self) -> None:  # noqa: B027  # most providers have nothing to close
        """Close open files and connections; the next use opens them again."""

    async def query(self, text: str) -> Vector:
        """Embed one query; the vector has shape ``(dimension,)``."""
        return (await self.documents([text]))[0]


def batches(
    values: Iterable[_T], size: float, weight: Callable[[_T], int] = lambda _: 0, most: float = math.inf
) -> Iterator[list[_T]]:
    """Yield `values` in their order, in lists of up to `size` that weigh up to `most`; a heavier one is by itself."""
    batch: list[_T] = []
    total = 0
    for value in values:
        total += weight(value)
        if batch and (len(batch) >= size or total > most):
            yield batch
            batch, total = [], weight(value)
        batch.append(value)
    if batch:
        yield batch


def well_formed(text: str) -> str:
    """Return `text` with lone surrogates replaced by ``?``: no tokenizer and no server takes them.

    They come from command-line arguments that are not UTF-8.
    """
    return text.encode("utf-8", "replace").decode("utf-8")


def unit_vectors(rows: Any, dimension: int) -> list[Vector]:
    """Return `rows` as L2-normalised ``float32`` vectors of shape ``(dimension,)``.

    Raises
    ------
    EmbeddingError
        If a row is not that many finite numbers, or is all zeros.
    """
    import numpy as np

    try:
        with np.errstate(over="ignore"):  # what float32 cannot hold is not finite, and refused below
            matrix = np.asarray(rows, dtype=np.float32).reshape(len(rows), dimension)
    except (TypeError, ValueError) as error:
        raise FingerprintMismatch(f"the model's vectors do not have the expected dimension {dimension}") from error
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    if not (np.isfinite(norms) & (norms > 0)).all():
        raise EmbeddingError("the model returned a vector that is zero or not finite")
    return list((matrix / norms).astype(np.float32))
