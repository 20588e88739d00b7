"""Generated texts and vectors that behave as natural ones do, and Chroma as it is without Kiwi."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

DIMENSION = 384
TOPICS = 2_000
VOCABULARY = 20_000
# As the values of a principal component analysis fall: about 26 effective dimensions, near those of MiniLM's vectors.
SPECTRUM = (np.arange(1, DIMENSION + 1) ** -0.5).astype(np.float32)


def vocabulary(count: int) -> list[str]:
    """Return `count` different words of five letters, at most 100,000."""
    return ["".join(letters) for letters in itertools.islice(itertools.product("bdfklmnprt", repeat=5), count)]


_WORDS = vocabulary(VOCABULARY)


def zipf(rng: np.random.Generator, count: int, length: int, words: int) -> np.ndarray:
    """Return numbers of words below `words` that follow Zipf's law, shape ``(count, length)``."""
    return rng.zipf(1.2, (count, length)) % words


def texts(rng: np.random.Generator, count: int, words: int) -> list[str]:
    """Return texts of `words` words each, which follow Zipf's law, as natural ones do."""
    return [" ".join(_WORDS[n] for n in row) for row in zipf(rng, count, words, VOCABULARY)]


def clustered(
    topics: np.ndarray, seed: int, *, centres: int = TOPICS, noise: float = 0.62, spectrum: Any = SPECTRUM
) -> np.ndarray:
    """Return unit vectors around the centres of the given topics, ``float32``, shape ``(len(topics), 384)``.

    The centres do not depend on the seed. `noise` is a vector's distance from its centre as a share of the centre's
    own length, and `spectrum` how much each dimension varies.
    """
    middle = np.random.default_rng(0).standard_normal((centres, DIMENSION), dtype=np.float32) * spectrum
    apart = np.random.default_rng(seed).standard_normal((len(topics), DIMENSION), dtype=np.float32) * spectrum
    raw = middle[topics] + np.float32(noise) * apart
    return raw / np.linalg.norm(raw, axis=1, keepdims=True)


def raw_chroma(folder: Path) -> Any:
    """Open the collection of items in `folder` with Chroma itself; made if it is not there."""
    import chromadb
    from chromadb.config import Settings

    client = chromadb.PersistentClient(path=str(folder), settings=Settings(anonymized_telemetry=False))
    return client.get_or_create_collection("items", embedding_function=None, metadata={"hnsw:space": "cosine"})
