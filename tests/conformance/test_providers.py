"""One suite over every embedding provider, and the two local ones against each other.

The remote providers talk to a real HTTP server on loopback that runs the ``onnx`` provider.
"""

from __future__ import annotations

import importlib.util
import json
import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from kiwi_rag.embedding import EmbeddingProvider
from kiwi_rag.embedding.factory import ServerOptions, load_provider
from kiwi_rag.embedding.weights import MODEL
from tests.embedding_server import EmbeddingServer
from tests.examples import size
from tests.shared import CORPUS, QUERIES, ROOT, needs_shared

CACHE = ROOT / ".pytest_cache" / "kiwi"
NEEDS_TORCH = pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is None, reason="sentence-transformers is not installed"
)


@cache
def local(name: str, model: str = "") -> EmbeddingProvider:
    return load_provider(name, cache_dir=CACHE, model=model, threads=1).uncached


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer(local("onnx").encode) as running:
        yield running


@pytest.fixture(
    scope="module",
    params=["onnx", "float32", pytest.param("sentence-transformers", marks=NEEDS_TORCH), "openai", "ollama", "cached"],
)
def provider(
    request: pytest.FixtureRequest, server: EmbeddingServer, tmp_path_factory: pytest.TempPathFactory
) -> EmbeddingProvider:
    folder: Path = tmp_path_factory.mktemp("cache")
    match request.param:
        case "float32":
            return local("onnx", MODEL)
        case "openai":
            return load_provider(
                "openai", cache_dir=folder, servers=ServerOptions(f"{server.url}/v1"), model="minilm"
            ).uncached
        case "ollama":
            return load_provider("ollama", cache_dir=folder, servers=ServerOptions(server.url)).uncached
        case "cached":
            return load_provider("ollama", cache_dir=folder, servers=ServerOptions(server.url))
        case name:
            return local(name)


TEXTS = [
    "roll back a failed deployment",
    "Grüße aus Köln",
    "x",
    "how to rotate an API key every ninety days",
    "部署 🚀",
]


async def test_one_unit_float32_vector_a_text(provider: EmbeddingProvider) -> None:
    vectors = await provider.documents(TEXTS)
    assert len(vectors) == len(TEXTS)
    for vector in vectors:
        assert vector.shape == (provider.fingerprint.dimension,)
        assert vector.dtype == np.float32
        assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)


async def test_order_is_kept_whatever_the_lengths(provider: EmbeddingProvider) -> None:
    texts = [*TEXTS, *(" ".join(TEXTS[:n]) for n in range(1, 5))]
    together = await provider.documents(texts)
    for text, vector in zip(texts, together, strict=True):
        assert float(vector @ (await provider.query(text))) > 0.9999


async def test_nothing_gives_nothing(provider: EmbeddingProvider) -> None:
    assert list(await provider.documents([])) == []
    assert list(provider.encode([])) == []


async def test_the_same_text_gives_the_same_bytes(provider: EmbeddingProvider) -> None:
    first, second = await provider.documents(["once"]), await provider.documents(["once"])
    assert first[0].tobytes() == second[0].tobytes()


async def test_identical_texts_share_a_vector(provider: EmbeddingProvider) -> None:
    one, other, two = await provider.documents(["same", "other", "same"])
    assert one.tobytes() == two.tobytes() != other.tobytes()


async def test_a_long_text_is_cut_after_256_tokens(provider: EmbeddingProvider) -> None:
    head = " ".join(["apple"] * 400)  # one token each
    inside = await provider.query(" ".join(["apple"] * 200 + ["postgres"] * 200))
    plain = await provider.query(head)
    assert float(plain @ await provider.query(head + " postgres" * 400)) > 0.99999
    assert float(plain @ inside) < 0.99


async def test_the_128_tokens_baked_into_the_tokenizer_file_are_overridden(provider: EmbeddingProvider) -> None:
    first = " ".join(["apple"] * 150)
    assert float(await provider.query(first) @ await provider.query(first + " postgres" * 90)) < 0.99


@pytest.mark.parametrize("text", ["", " \n\t", "\u200b", "\x00", "\udcff broken", "اختبار", "👩‍👩‍👧"])
async def test_odd_texts_have_vectors_too(provider: EmbeddingProvider, text: str) -> None:
    vector = await provider.query(text)
    assert np.isfinite(vector).all()
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)


async def test_near_meanings_are_nearer_than_far_ones(provider: EmbeddingProvider) -> None:
    query = await provider.query("undo a bad release")
    near, far = await provider.documents(["roll back a failed deployment", "the cake needs two eggs"])
    assert float(query @ near) > float(query @ far) + 0.1


async def test_texts_of_several_batches_have_the_vectors_that_they_have_alone(provider: EmbeddingProvider) -> None:
    texts = [f"passage number {n % 20}" for n in range(30)]
    vectors = await provider.documents(texts)
    alone = [await provider.query(text) for text in texts[:20]]
    assert len(vectors) == len(texts)
    assert all(float(vector @ alone[n % 20]) > 0.9999 for n, vector in enumerate(vectors))


def test_the_fingerprint_is_stable(provider: EmbeddingProvider) -> None:
    assert provider.fingerprint == provider.fingerprint
    assert provider.fingerprint.dimension == 384


def corpus_texts(count: int) -> list[str]:
    """Return paragraphs, runs of paragraphs, whole files and queries: one word to far over 256 tokens."""
    pool: list[str] = []
    for file in sorted(CORPUS.rglob("*.md")):
        text = file.read_text("utf-8")
        paragraphs = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
        runs = ["\n\n".join(paragraphs[start : start + 4]) for start in range(0, len(paragraphs), 4)]
        pool += [*paragraphs, *runs, text]
    queries = [json.loads(line)["query"] for line in QUERIES.read_text("utf-8").splitlines()]
    chosen = random.Random(7)
    asked = chosen.sample(queries, min(count // 4, len(queries)))
    return asked + chosen.sample(sorted(set(pool)), count - len(asked))


@NEEDS_TORCH
@needs_shared
@pytest.mark.parametrize("provider", ["sentence-transformers"], indirect=True)  # beside the others that load PyTorch
async def test_onnx_vectors_are_those_of_sentence_transformers(provider: EmbeddingProvider) -> None:
    texts = corpus_texts(size(200))
    ours = np.array(await local("onnx", MODEL).documents(texts))
    theirs = np.array(await provider.documents(texts))
    cosines = (ours * theirs).sum(axis=1)
    assert len(cosines) == size(200)
    assert cosines.min() >= 0.9999


async def test_int8_vectors_are_near_those_of_float32_and_of_each_text_alone() -> None:
    """0.96 leaves room below the least of 4,373 documents, 0.980 (docs/decisions/0025-int8-by-default.md)."""
    paragraphs = [part for part in (ROOT / "docs/search.md").read_text("utf-8").split("\n\n") if len(part) > 80]
    paragraphs = paragraphs[: size(80)]
    ours = np.array(await local("onnx").documents(paragraphs))
    exact = np.array(await local("onnx", MODEL).documents(paragraphs))
    cosines = (ours * exact).sum(axis=1)
    assert cosines.min() >= 0.96
    assert cosines.mean() >= 0.985
    assert cosines.mean() < 0.9999, "these are two models"
    for text, vector in zip(paragraphs[:10], ours, strict=False):
        assert (await local("onnx").query(text)).tobytes() == vector.tobytes()
