"""What the base class promises of every provider: order, batches, duplicates, progress, other threads."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kiwi_rag.embedding import EmbeddingProvider, Fingerprint, batches, unit_vectors, well_formed
from kiwi_rag.embedding.onnx import BATCH_TOKENS, batches_by_length
from kiwi_rag.errors import EmbeddingError, FingerprintMismatch

Vector = NDArray[np.float32]


class Hashing(EmbeddingProvider):
    """A small real provider: a text's digest as a vector of 32 numbers. Keeps the batches it was given."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.threads: set[int] = set()

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint("sha256", "0" * 64, 32, "none", 0)

    def encode(self, texts: Sequence[str]) -> Sequence[Vector]:
        self.calls.append(list(texts))
        self.threads.add(threading.get_ident())
        return unit_vectors([list(hashlib.sha256(text.encode()).digest()) for text in texts], 32)


async def test_vectors_come_in_the_order_of_the_texts() -> None:
    texts = ["bb", "a", "dddd", "ccc", "a", "eeeeee"]
    provider = Hashing()
    vectors = await provider.documents(texts)
    for text, vector in zip(texts, vectors, strict=True):
        assert (vector == Hashing().encode([text])[0]).all()


async def test_batches_are_small_sorted_by_length_and_without_duplicates() -> None:
    provider = Hashing()
    await provider.documents(["x" * n for n in (3, 9, 1, 7, 5, 9, 2)])
    assert [[len(text) for text in call] for call in provider.calls] == [[9, 7, 5, 3], [2, 1]]


async def test_encoding_leaves_the_event_loop_thread_free() -> None:
    provider = Hashing()
    await provider.documents(["a"])
    assert threading.get_ident() not in provider.threads


async def test_a_lone_surrogate_is_replaced_before_it_reaches_the_model() -> None:
    provider = Hashing()
    await provider.query("caf\udce9")
    assert provider.calls == [["caf?"]]
    assert well_formed("café 🚀") == "café 🚀"


def test_batches_cover_everything_once() -> None:
    assert list(batches("abcde", 2)) == [["a", "b"], ["c", "d"], ["e"]]
    assert list(batches("abcde", 3, ord, 200)) == [["a", "b"], ["c", "d"], ["e"]]
    assert list(batches([3, 1, 1, 1], 2, int, 2)) == [[3], [1, 1], [1]]
    assert list(batches([], 2)) == []
    texts = [str(n) * (n % 7) for n in range(50)]
    for size, most in ((1, math.inf), (7, math.inf), (50, 9), (64, 1)):
        assert [text for batch in batches(texts, size, len, most) for text in batch] == texts


@pytest.mark.parametrize("rows", [[[0.0, 0.0]], [[float("nan"), 1.0]], [[float("inf"), 1.0]]])
def test_a_vector_without_direction_is_an_error(rows: list[list[float]]) -> None:
    with pytest.raises(EmbeddingError, match="zero or not finite"):
        unit_vectors(rows, 2)


@pytest.mark.parametrize("rows", [[[1.0, 2.0, 3.0]], [[1.0], [1.0, 2.0]], [["a", "b"]]])
def test_a_vector_of_another_dimension_is_an_error(rows: list[list[float]]) -> None:
    with pytest.raises(FingerprintMismatch, match="dimension 2"):
        unit_vectors(rows, 2)


def test_unit_vectors_are_float32_of_length_one() -> None:
    (vector,) = unit_vectors([[3.0, 4.0]], 2)
    assert vector.dtype == np.float32
    assert vector.tolist() == pytest.approx([0.6, 0.8])


@given(st.lists(st.integers(1, 256), max_size=60))
def test_batches_hold_every_text_once_and_stay_small_and_alike(lengths: list[int]) -> None:
    found = batches_by_length(lengths)
    assert sorted(place for batch in found for place in batch) == list(range(len(lengths)))
    for batch in found:
        sizes = [lengths[place] for place in batch]
        assert len(batch) == 1 or max(sizes) * len(batch) <= BATCH_TOKENS
        assert len(batch) <= 16
        assert min(sizes) >= 0.75 * max(sizes)


def test_the_longest_texts_go_first_and_a_short_one_does_not_wait_in_a_long_ones_batch() -> None:
    assert batches_by_length([39, 100, 250, 90, 40]) == [[2], [1, 3], [4, 0]]


def test_many_short_texts_share_a_batch() -> None:
    assert [len(batch) for batch in batches_by_length([12] * 40)] == [16, 16, 8]
