"""What an embedding provider is: one method to implement, batching and order kept by the base."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kiwi_rag.model import Vector

Progress = Callable[[int], None]
"""Called with the number of texts that were just encoded."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What must be equal for two vectors to be comparable.

    ``weights`` is the hex SHA-256 of the weights (a remote provider's base URL and model name stand in for it).
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

    @property
    @abstractmethod
    def fingerprint(self) -> Fingerprint:
        """Identity of the model; cheap, does not load it."""

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector of shape ``(dimension,)`` a text, in order. Blocking; called in a worker thread.

        Raises
        ------
        EmbeddingError
            When the model is not available or fails.
        """

    async def documents(self, texts: Sequence[str], progress: Progress | None = None) -> Sequence[Vector]:
        """Embed passages; `progress` hears of every finished batch."""
        raise NotImplementedError  # the embedding room replaces this with batching by length in a worker thread

    async def query(self, text: str) -> Vector:
        """Embed one query."""
        return (await self.documents([text]))[0]
