"""The same model on PyTorch, by the optional package sentence-transformers."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kiwi_rag.embedding.base import EmbeddingProvider, Fingerprint, unit_vectors, well_formed
from kiwi_rag.embedding.onnx import DIMENSION, FINGERPRINT, MAX_TOKENS
from kiwi_rag.embedding.weights import ModelSource, found_folder, source_folder
from kiwi_rag.errors import EmbeddingError, MissingExtra

if TYPE_CHECKING:
    from kiwi_rag.model import Vector


class SentenceTransformersEmbeddingProvider(EmbeddingProvider):
    """all-MiniLM-L6-v2 by sentence-transformers: the vectors of the ``onnx`` provider, slower to start.

    Reads the same verified weights and never downloads by itself.

    Parameters
    ----------
    source
        Where to look for the weights.
    threads
        PyTorch's threads, for the whole process; 0 for one a core.
    """

    batch_size = 8

    def __init__(self, source: ModelSource, threads: int = 0) -> None:
        self._source = source
        self._threads = threads or os.cpu_count() or 1
        self._lock = threading.Lock()
        self._model: Any = None

    @property
    def fingerprint(self) -> Fingerprint:
        """Identity of the pinned model; loads nothing."""
        return FINGERPRINT

    @property
    def place(self) -> str:
        """The folder with the weights; empty if they would be downloaded."""
        return str(found_folder(self._source, as_onnx=False) or "")

    def encode(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector of shape ``(384,)`` a text, in order; see the base class.

        Raises
        ------
        MissingExtra
            If sentence-transformers is not installed.
        ModelUnavailable
            If the weights cannot be found or downloaded.
        EmbeddingError
            If PyTorch fails.
        """
        if not texts:
            return []
        model, clean = self._loaded(), [well_formed(text) for text in texts]
        try:
            rows = model.encode(clean, batch_size=self.batch_size, show_progress_bar=False)
        except RuntimeError as error:
            raise EmbeddingError(f"PyTorch failed: {error}") from error
        return unit_vectors(rows, DIMENSION)

    def _loaded(self) -> Any:
        with self._lock:
            if self._model is None:
                self._model = _load(self._source, self._threads)
            return self._model


def _load(source: ModelSource, threads: int) -> Any:
    try:
        import torch  # type: ignore[import-not-found, unused-ignore]
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer import modules
        from transformers.utils.logging import (  # type: ignore[import-not-found, unused-ignore]
            disable_progress_bar,
        )
    except ImportError as error:
        raise MissingExtra(
            f"the sentence-transformers provider needs an optional package: {error}",
            hint="pip install 'kiwi-rag[sentence-transformers]' 'torch==2.13.0'",
        ) from error
    torch.set_num_threads(threads)
    disable_progress_bar()
    # The modules are named here, not read from the folder: a folder's modules.json could name code to run.
    transformer = modules.Transformer(str(source_folder(source)), max_seq_length=MAX_TOKENS)
    pipeline = [transformer, modules.Pooling(DIMENSION, pooling_mode="mean"), modules.Normalize()]
    return SentenceTransformer(modules=pipeline, device="cpu")
