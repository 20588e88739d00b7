"""The persistent cache of vectors, as a provider before another one."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kiwi_rag.embedding.base import EmbeddingProvider, Fingerprint, Progress, batches, well_formed
from kiwi_rag.embedding.vector_file import MAX_BYTES, VectorFile
from kiwi_rag.telemetry import span

if TYPE_CHECKING:
    from kiwi_rag.model import Vector

_SAVED_TOGETHER = 32
"""Texts after which vectors are saved, or the provider's batch size if that is larger."""


class CachedEmbeddingProvider(EmbeddingProvider):
    """Encodes with another provider, but only texts whose vectors are not in the cache.

    Vectors are stored by the text's SHA-256 and the model's fingerprint, and saved every 32 texts (or every batch of
    the provider, if that is larger), so that an interrupted run continues where it stopped. A cache that fails never
    raises: texts are encoded again.

    Parameters
    ----------
    inner
        The provider that encodes.
    path
        The cache file (SQLite); created with its folder when first used.
    max_bytes
        Size above which the oldest vectors are dropped.

    Attributes
    ----------
    hits, misses
        Texts answered from the cache, and texts that were not; a text that occurs twice counts twice.
    encoded
        Texts that `inner` encoded.
    """

    def __init__(self, inner: EmbeddingProvider, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self.inner = inner
        self.batch_size = inner.batch_size
        self._saved_together = max(_SAVED_TOGETHER, inner.batch_size)
        self.hits = self.misses = self.encoded = 0
        self._file = VectorFile(path, max_bytes)

    @property
    def fingerprint(self) -> Fingerprint:
        """The inner provider's."""
        return self.inner.fingerprint

    @property
    def place(self) -> str:
        """The inner provider's."""
        return self.inner.place

    def encode(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector a text, in order; only what the cache lacks goes to the inner provider.

        Raises
        ------
        EmbeddingError
            As the inner provider does.
        """
        texts = [well_formed(text) for text in texts]
        with span("kiwi.embed", texts=len(texts)) as note:
            vectors = self._look_up(texts)
            note(encoded=len(missing := self._missing(texts, vectors)))
            for batch in batches(missing, self._saved_together):
                self._save(vectors, batch, self.inner.encode(batch))
        return [vectors[text] for text in texts]

    async def documents(self, texts: Sequence[str], progress: Progress | None = None) -> Sequence[Vector]:
        """Embed passages, as the base class does; what is cached is reported to `progress` at once.

        Raises
        ------
        EmbeddingError
            As the inner provider does; what was encoded before that is saved.
        """
        texts = [well_formed(text) for text in texts]
        with span("kiwi.embed", texts=len(texts)) as note:
            vectors = await asyncio.to_thread(self._look_up, texts)
            note(encoded=len(missing := self._missing(texts, vectors)))
            if progress and len(texts) > len(missing):
                progress(len(texts) - len(missing))
            for batch in batches(missing, self._saved_together):
                encoded = await self.inner.documents(batch, progress)
                await asyncio.to_thread(self._save, vectors, batch, encoded)
        return [vectors[text] for text in texts]

    def verify(self) -> Sequence[str]:
        """Return what is wrong with the inner provider's servers."""
        return self.inner.verify()

    def close(self) -> None:
        """Close the cache file and the inner provider; the next use opens both again."""
        self._file.close()
        self.inner.close()

    def _look_up(self, texts: Sequence[str]) -> dict[str, Vector]:
        if not texts:
            return {}
        fingerprint = self.fingerprint
        digests = {_digest(text): text for text in texts}
        found = self._file.get(str(fingerprint), list(digests), fingerprint.dimension)
        return {digests[digest]: vector for digest, vector in found.items()}

    def _missing(self, texts: Sequence[str], vectors: dict[str, Vector]) -> list[str]:
        """Return the distinct texts that are not in `vectors`, longest first, and count hits and misses."""
        found = sum(text in vectors for text in texts)
        self.hits += found
        self.misses += len(texts) - found
        return sorted({text: None for text in texts if text not in vectors}, key=len, reverse=True)

    def _save(self, vectors: dict[str, Vector], texts: Sequence[str], encoded: Sequence[Vector]) -> None:
        added = dict(zip(texts, encoded, strict=True))
        self.encoded += len(added)
        vectors.update(added)
        self._file.put(str(self.fingerprint), {_digest(text): vector for text, vector in added.items()})


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
