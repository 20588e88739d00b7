"""all-MiniLM-L6-v2 on this machine: on ONNX Runtime (the default, without torch), or on PyTorch.

With ONNX Runtime each thread runs the whole model on a small batch. If every operator were split over the threads
instead, they would wait for one another dozens of times a run; measured on two cores, it took 5–10%
more processor time a passage, and half as long again where other processes kept the cores busy.
"""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kiwi_rag.embedding import EmbeddingProvider, Fingerprint, unit_vectors, weights, well_formed
from kiwi_rag.embedding.weights import INT8_MODEL, MODEL, ONNX_SHA256, WEIGHTS_SHA256, ModelFiles, ModelSource
from kiwi_rag.errors import EmbeddingError, MissingExtra, ModelUnavailable
from kiwi_rag.model import Vector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    _Rows = Sequence[Vector]


_T = TypeVar("_T")
DIMENSION = 384
MAX_TOKENS = 256
BATCH_TOKENS = 256
"""Tokens of one run of the model, padding included: below it a run pays for its overhead (a text of 8 tokens alone
takes 2.8 times as long as one among 16), above it the activations leave the cache of a core (32 texts of 160 tokens
take 1.4 times as long each)."""
_BATCH_TEXTS = 16
_MIN_LENGTH_RATIO = 0.75
FINGERPRINTS = {
    MODEL: Fingerprint(MODEL, WEIGHTS_SHA256, DIMENSION, "mean", MAX_TOKENS),
    INT8_MODEL: Fingerprint(INT8_MODEL, ONNX_SHA256[INT8_MODEL], DIMENSION, "mean", MAX_TOKENS),
}
"""By model. `MODEL` by ONNX Runtime and by PyTorch is the same: vectors equal up to rounding."""


class _LocalProvider(EmbeddingProvider, Generic[_T]):
    """all-MiniLM-L6-v2, loaded when the first text is encoded; a subclass says by which library."""

    as_onnx = False
    """Whether the converted weights do, too."""

    def __init__(self, source: ModelSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._model: _T | None = None

    @property
    def place(self) -> str:
        """The folder with the weights; empty if they would be downloaded."""
        return str(weights.found_folder(self._source, as_onnx=self.as_onnx) or "")

    def verify(self) -> Sequence[str]:
        """Return which of the model's files are not the pinned ones, and what to do."""
        return weights.verify_files(self._source, as_onnx=self.as_onnx)

    def _loaded(self) -> _T:
        with self._lock:
            if self._model is None:
                self._model = self._load()
            return self._model

    @abstractmethod
    def _load(self) -> _T: ...


class OnnxEmbeddingProvider(_LocalProvider[tuple[Any, Any]]):
    """all-MiniLM-L6-v2: 384 dimensions, mean pooling, L2-normalised, the first 256 tokens of a text.

    The model is found, verified and loaded when the first text is encoded; any thread may encode at any time.

    Parameters
    ----------
    source
        Where to look for the weights.
    threads
        Batches that are encoded at once, each on one core; 0 for as many as this process may use cores.
    """

    batch_size = 32
    """Texts that are distributed over the threads at once."""

    as_onnx = True

    def __init__(self, source: ModelSource, threads: int = 0) -> None:
        super().__init__(source)
        # It starts threads when they are first used.
        self._pool = ThreadPoolExecutor(threads or usable_cores(), thread_name_prefix="kiwi-encode")

    @property
    def fingerprint(self) -> Fingerprint:
        """The identity of the source's model; loads nothing."""
        return FINGERPRINTS[self._source.model]

    def encode(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector of shape ``(384,)`` a text, in order; see the base class.

        Raises
        ------
        ModelUnavailable
            If the weights cannot be found or downloaded.
        EmbeddingError
            If ONNX Runtime fails.
        """
        tokenizer, session = self._loaded()
        tokens = [row.ids for row in tokenizer.encode_batch_fast([well_formed(text) for text in texts])]
        # A text in int8 is a batch by itself: the scale of activations is that of the batch, and a text's vector must
        # not depend on the others.
        most = 1 if self._source.model == INT8_MODEL else _BATCH_TEXTS
        batches = batches_by_length([len(row) for row in tokens], most)
        run = partial(_run, session, tokens)
        done = self._run_in_threads(run, batches) if len(batches) > 1 else map(run, batches)
        vectors = dict(zip(chain.from_iterable(batches), chain.from_iterable(done), strict=True))
        return [vectors[position] for position in range(len(texts))]

    def count_tokens(self, text: str) -> int:
        """Return how many word pieces a text of any length has."""
        tokenizer, _ = self._loaded()
        row = tokenizer.encode(well_formed(text), add_special_tokens=False)
        return len(row.ids) + sum(len(rest.ids) for rest in row.overflowing)

    def _run_in_threads(self, run: Callable[[Sequence[int]], _Rows], batches: Sequence[Sequence[int]]) -> list[_Rows]:
        """Return the result of `run` for each batch, in order.

        It waits once for all of them: a wake-up for each took half a millisecond on a busy core.
        """
        futures = [self._pool.submit(run, batch) for batch in batches]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def _load(self) -> tuple[Any, Any]:
        files = weights.onnx_files(self._source)
        return _tokenizer(files), _session(files)


def batches_by_length(lengths: Sequence[int], most: int = _BATCH_TEXTS) -> list[list[int]]:
    """Return batches of up to `most` positions of texts with about the same number of tokens, the longest first.

    A text is padded to the longest of its batch and then costs as much: an item's summary in one batch with its body
    took longer than both apart. The longest first, so that no thread ends with a long batch alone.
    """
    found: list[list[int]] = []
    longest = 0
    for position in sorted(range(len(lengths)), key=lambda position: -lengths[position]):
        size = len(found[-1]) + 1 if found else 0
        is_full = size > most or size * longest > BATCH_TOKENS
        if not found or is_full or lengths[position] < _MIN_LENGTH_RATIO * longest:
            found.append([])
            longest = lengths[position]
        found[-1].append(position)
    return found


def usable_cores() -> int:
    """Return how many cores this process may use, which can be fewer than the machine has."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux's alone
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _tokenizer(files: ModelFiles) -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(files.tokenizer))
    # The file sets 128 tokens and padding to 128; the model was trained for 256, and each batch is padded here.
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    return tokenizer


def _session(files: ModelFiles) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # a run stays on its thread
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(files.onnx), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions have no common base
        raise ModelUnavailable(f"ONNX Runtime cannot load {files.onnx}: {error}") from error


def _run(session: Any, tokens: Sequence[Sequence[int]], batch: Sequence[int]) -> Sequence[Vector]:
    """Return the vectors of the texts at the positions in `batch`; `tokens` are the token ids of all texts."""
    try:
        rows = session.run(["embedding"], _inputs([tokens[position] for position in batch]))[0]
    except Exception as error:  # ONNX Runtime's exceptions have no common base
        raise EmbeddingError(f"ONNX Runtime failed: {error}") from error
    return unit_vectors(rows, DIMENSION)


def _inputs(rows: Sequence[Sequence[int]]) -> dict[str, NDArray[np.int32]]:
    import numpy as np

    ids = np.zeros((len(rows), max(map(len, rows))), np.int32)
    mask = np.zeros_like(ids)
    for row, values in enumerate(rows):
        ids[row, : len(values)] = values
        mask[row, : len(values)] = 1
    return {"input_ids": ids, "attention_mask": mask}


class SentenceTransformersEmbeddingProvider(_LocalProvider[Any]):
    """all-MiniLM-L6-v2 by sentence-transformers: the vectors of the ``onnx`` provider, slower to start.

    Reads the same verified weights and never downloads by itself.

    Parameters
    ----------
    source
        Where to look for the weights.
    threads
        PyTorch's threads, for the whole process; 0 for one a core.
    """

    fingerprint = FINGERPRINTS[MODEL]
    batch_size = 8

    def __init__(self, source: ModelSource, threads: int = 0) -> None:
        super().__init__(source)
        self._threads = threads or os.cpu_count() or 1

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

    def _load(self) -> Any:
        try:
            import torch  # type: ignore[import-not-found, unused-ignore]
            from sentence_transformers import SentenceTransformer
            from sentence_transformers.sentence_transformer import modules
            from transformers.utils import logging  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            message = f"the sentence-transformers provider needs an optional package: {error}"
            hint = "pip install 'kiwi-rag[sentence-transformers]' 'torch==2.13.0'"
            raise MissingExtra(message, hint=hint) from error
        torch.set_num_threads(self._threads)
        logging.disable_progress_bar()
        # The modules are named here, not read from the folder: a folder's modules.json could name code to run.
        transformer = modules.Transformer(str(weights.source_folder(self._source)), max_seq_length=MAX_TOKENS)
        pipeline = [transformer, modules.Pooling(DIMENSION, pooling_mode="mean"), modules.Normalize()]
        return SentenceTransformer(modules=pipeline, device="cpu")
