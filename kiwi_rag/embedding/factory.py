"""Name → provider: the one place that knows them all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kiwi_rag.embedding.base import EmbeddingProvider
from kiwi_rag.embedding.cache import CachedEmbeddingProvider
from kiwi_rag.embedding.hub import HUB, DownloadProgress
from kiwi_rag.embedding.onnx import OnnxEmbeddingProvider
from kiwi_rag.embedding.sentence_transformers import SentenceTransformersEmbeddingProvider
from kiwi_rag.embedding.usage import UsageLog
from kiwi_rag.embedding.weights import MODEL, ModelSource
from kiwi_rag.errors import UsageError

if TYPE_CHECKING:
    from kiwi_rag.embedding.remote import Endpoint

PROVIDERS = ("onnx", "sentence-transformers", "openai", "ollama")
_BASE_URLS = {"openai": "https://api.openai.com/v1", "ollama": "http://127.0.0.1:11434"}


def load_provider(  # noqa: PLR0913 - plain values, so that this room reads no settings
    name: str = "onnx",
    *,
    cache_dir: Path,
    model_dir: Path | None = None,
    threads: int = 0,
    model: str = "",
    base_url: str = "",
    api_key: str = "",
    dimension: int = 0,
    timeout: float = 30.0,
    prices: Mapping[str, float] | None = None,
    hub: str = HUB,
    download_progress: DownloadProgress | None = None,
    cached: bool = True,
) -> EmbeddingProvider:
    """Return the provider called `name`, with the persistent cache before it. Loads and contacts nothing.

    Parameters
    ----------
    name
        ``onnx``, ``sentence-transformers``, ``openai`` or ``ollama``.
    cache_dir
        Kiwi's cache folder: ``models/``, ``embeddings.sqlite`` and ``usage.jsonl`` are kept there.
    model_dir, threads, hub, download_progress
        Of the local providers: a folder with the weights; threads (0: one a core); the address of the Hugging Face
        hub, empty for never downloading; what hears of a download.
    model, base_url, api_key, dimension, timeout, prices
        Of the remote providers: model and server, each with the provider's default where empty; length of the
        vectors, 0 for the model's own; seconds a call may take; US dollars a million tokens by model.
    cached
        Whether the persistent cache is used.

    Raises
    ------
    UsageError
        If there is no such provider, or the local ones are asked for a model that they do not have.
    """
    if name not in PROVIDERS:
        raise UsageError(f"there is no embedding provider {name!r}", hint=f"one of: {', '.join(PROVIDERS)}")
    if name in _BASE_URLS:
        from kiwi_rag.embedding.remote import Endpoint  # HTTP costs tens of milliseconds to import

        endpoint = Endpoint(base_url or _BASE_URLS[name], api_key, timeout)
        provider = _remote(name, endpoint, model, dimension, UsageLog(cache_dir / "usage.jsonl", prices))
    else:
        provider = _local(name, model, ModelSource(cache_dir / "models", model_dir, hub, download_progress), threads)
    return CachedEmbeddingProvider(provider, cache_dir / "embeddings.sqlite") if cached else provider


def _local(name: str, model: str, source: ModelSource, threads: int) -> EmbeddingProvider:
    if model.removeprefix("sentence-transformers/") not in {"", MODEL}:
        raise UsageError(
            f"the provider {name} runs {MODEL} only, not {model!r}", hint="openai and ollama run other models"
        )
    if name == "onnx":
        return OnnxEmbeddingProvider(source, threads)
    return SentenceTransformersEmbeddingProvider(source, threads)


def _remote(name: str, endpoint: Endpoint, model: str, dimension: int, usage: UsageLog) -> EmbeddingProvider:
    from kiwi_rag.embedding.ollama import OllamaEmbeddingProvider
    from kiwi_rag.embedding.openai import OpenAIEmbeddingProvider

    provider = OpenAIEmbeddingProvider if name == "openai" else OllamaEmbeddingProvider
    return provider(endpoint, model or provider.default_model, dimension, usage)
