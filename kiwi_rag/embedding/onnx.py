"""The default provider: all-MiniLM-L6-v2 on ONNX Runtime, without torch."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kiwi_rag.embedding.base import EmbeddingProvider, Fingerprint, unit_vectors, well_formed
from kiwi_rag.embedding.weights import MODEL, WEIGHTS_SHA256, ModelFiles, ModelSource, onnx_files
from kiwi_rag.errors import EmbeddingError, ModelUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kiwi_rag.model import Vector

DIMENSION = 384
MAX_TOKENS = 256
_ALIKE = 0.75
FINGERPRINT = Fingerprint(MODEL, WEIGHTS_SHA256, DIMENSION, "mean", MAX_TOKENS)
"""Shared with the ``sentence-transformers`` provider: same weights, and vectors equal up to rounding."""


@dataclass(frozen=True, slots=True)
class _Model:
    tokenizer: Any
    session: Any


class OnnxEmbeddingProvider(EmbeddingProvider):
    """all-MiniLM-L6-v2: 384 dimensions, mean pooling, L2-normalised, the first 256 tokens of a text.

    The model is found, verified and loaded when the first text is encoded; any thread may encode at any time.

    Parameters
    ----------
    source
        Where to look for the weights.
    threads
        Threads of one encoding; 0 for one a core.
    """

    def __init__(self, source: ModelSource, threads: int = 0) -> None:
        self._source = source
        self._threads = threads or os.cpu_count() or 1
        self._lock = threading.Lock()
        self._model: _Model | None = None

    @property
    def fingerprint(self) -> Fingerprint:
        """Identity of the pinned model; loads nothing."""
        return FINGERPRINT

    def encode(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector of shape ``(384,)`` a text, in order; see the base class.

        Raises
        ------
        ModelUnavailable
            If the weights are not to be had.
        EmbeddingError
            If ONNX Runtime fails.
        """
        model = self._loaded()
        return [vector for batch in alike(texts, self.batch_size) for vector in _run(model, batch)]

    def _loaded(self) -> _Model:
        with self._lock:
            if self._model is None:
                files = onnx_files(self._source)
                self._model = _Model(_tokenizer(files), _session(files, self._threads))
            return self._model


def alike(texts: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Yield runs of at most `size` neighbours of about one length.

    A text is padded to the longest of its batch and then costs as much: an item's summary beside its body took
    longer than both apart.
    """
    start = 0
    for end in range(1, len(texts) + 1):
        lengths = [len(text) for text in texts[start : end + 1]]
        if end == len(texts) or end - start == size or min(lengths) < _ALIKE * max(lengths):
            yield texts[start:end]
            start = end


def _tokenizer(files: ModelFiles) -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(files.tokenizer))
    # The file bakes in 128 tokens and padding to 128; the model was trained for 256, and padding costs time.
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding()
    return tokenizer


def _session(files: ModelFiles, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Threads that spin while they wait give 8% on an idle machine and cost a third on a busy one.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(str(files.onnx), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions have no common base
        raise ModelUnavailable(f"ONNX Runtime cannot load {files.onnx}: {error}") from error


def _run(model: _Model, texts: Sequence[str]) -> Sequence[Vector]:
    encodings = model.tokenizer.encode_batch([well_formed(text) for text in texts])
    inputs = {
        "input_ids": _matrix([encoding.ids for encoding in encodings]),
        "attention_mask": _matrix([encoding.attention_mask for encoding in encodings]),
    }
    try:
        rows = model.session.run(["embedding"], inputs)[0]
    except Exception as error:  # ONNX Runtime's exceptions have no common base
        raise EmbeddingError(f"ONNX Runtime failed: {error}") from error
    return unit_vectors(rows, DIMENSION)


def _matrix(rows: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    import numpy as np

    return np.array(rows, dtype=np.int32)
