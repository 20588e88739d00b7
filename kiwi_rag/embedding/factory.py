"""Name → provider: the one place that knows them all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kiwi_rag.embedding.base import EmbeddingProvider
from kiwi_rag.embedding.cache import CachedEmbeddingProvider
from kiwi_rag.embedding.fallbacks import Fallback, ServerOptions, parse_fallbacks
from kiwi_rag.embedding.hub import HUB, DownloadProgress
from kiwi_rag.embedding.onnx import OnnxEmbeddingProvider
from kiwi_rag.embedding.sentence_transformers import SentenceTransformersEmbeddingProvider
from kiwi_rag.embedding.weights import MODEL, ModelSource
from kiwi_rag.errors import UsageError

if TYPE_CHECKING:
    from kiwi_rag.embedding.remote import Limits, RemoteEmbeddingProvider
    from kiwi_rag.embedding.usage import UsageLog

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
    options: ServerOptions = ServerOptions(),  # noqa: B008 - frozen
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
    model, base_url, api_key, dimension, timeout, options
        Of the remote providers: model and server, each with the provider's default where empty; length of the
        vectors, 0 for the model's own; seconds a try may take; servers that stand in, limits, prices.
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
        first = Fallback(name, base_url or _BASE_URLS[name], model, api_key)
        provider = _servers(first, cache_dir, dimension, timeout, options)
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


def _servers(
    first: Fallback, cache_dir: Path, dimension: int, timeout: float, options: ServerOptions
) -> EmbeddingProvider:
    """Return the first server's provider; where others stand in for it, or it goes by another name, a list of one."""
    from kiwi_rag.embedding.failover import FailoverEmbeddingProvider
    from kiwi_rag.embedding.remote import Limits
    from kiwi_rag.embedding.usage import UsageLog, parse_prices

    usage = UsageLog(cache_dir / "usage.jsonl", parse_prices(options.prices))
    limits = Limits(options.batch_texts, options.batch_tokens)
    others = parse_fallbacks(options.fallbacks, first.provider, first.model, options.fallback_keys)
    made = [_remote(server, first, dimension, timeout, usage, limits) for server in (first, *others)]
    if len(made) == 1 and not options.identity:
        return made[0]
    return FailoverEmbeddingProvider(made, cache_dir / "probes", options.identity)


def _remote(  # noqa: PLR0913, PLR0917
    server: Fallback, first: Fallback, dimension: int, timeout: float, usage: UsageLog, limits: Limits
) -> RemoteEmbeddingProvider:
    from kiwi_rag.embedding.endpoint import Endpoint  # HTTP costs tens of milliseconds to import
    from kiwi_rag.embedding.ollama import OllamaEmbeddingProvider
    from kiwi_rag.embedding.openai import OpenAIEmbeddingProvider

    kind = OpenAIEmbeddingProvider if server.provider == "openai" else OllamaEmbeddingProvider
    endpoint = Endpoint(server.base_url, server.api_key, timeout)
    if not server.api_key and endpoint.origin == Endpoint(first.base_url).origin:
        endpoint = Endpoint(server.base_url, first.api_key, timeout)  # another path of the server that the key is for
    return kind(endpoint, server.model or kind.default_model, dimension, usage, limits)
