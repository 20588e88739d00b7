"""Creates the embedding provider that the settings name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kiwi_rag.embedding.base import EmbeddingProvider
from kiwi_rag.embedding.cache import CachedEmbeddingProvider
from kiwi_rag.embedding.onnx import OnnxEmbeddingProvider, SentenceTransformersEmbeddingProvider
from kiwi_rag.embedding.weights import HUB, MODEL, DownloadProgress, ModelSource
from kiwi_rag.errors import UsageError

if TYPE_CHECKING:
    from kiwi_rag.embedding.remote import Limits, RemoteEmbeddingProvider
    from kiwi_rag.embedding.usage import UsageLog

PROVIDERS = ("onnx", "sentence-transformers", "openai", "ollama")
_BASE_URLS = {"openai": "https://api.openai.com/v1", "ollama": "http://127.0.0.1:11434"}


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A server that embeds: its provider, address, the model's name there, and its key."""

    provider: str
    base_url: str
    model: str
    api_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of servers; all are optional.

    ``fallbacks`` and ``fallback_keys`` are as in `parse_fallbacks`; ``identity`` is a declared name of the model that
    all of them serve; ``batch_texts`` and ``batch_tokens`` are the limits of one request, 0 for the provider's
    defaults; ``prices`` is as in `kiwi_rag.embedding.usage.parse_prices`.
    """

    fallbacks: str = ""
    fallback_keys: str = field(default="", repr=False)
    identity: str = ""
    batch_texts: int = 0
    batch_tokens: int = 0
    prices: str = ""


def load_provider(  # noqa: PLR0913 - plain values, because this package reads no settings
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
    options: ServerOptions = ServerOptions(),
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
        hub, empty for no download; a callback for the progress of a download.
    model, base_url, api_key, dimension, timeout, options
        Of the remote providers: model and server, each with the provider's default if empty; dimension, 0 for the
        model's own; seconds for one attempt; fallback servers, limits, prices.
    cached
        Whether the persistent cache is used.

    Raises
    ------
    UsageError
        If there is no such provider, or a local one does not have the model.
    """
    if name not in PROVIDERS:
        raise UsageError(f"there is no embedding provider {name!r}", hint=f"one of: {', '.join(PROVIDERS)}")
    if name in _BASE_URLS:
        first = ModelServer(name, base_url or _BASE_URLS[name], model, api_key)
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
    first: ModelServer, cache_dir: Path, dimension: int, timeout: float, options: ServerOptions
) -> EmbeddingProvider:
    """Return the first server's provider, or one with failover if there are fallbacks or a declared identity."""
    from kiwi_rag.embedding.failover import FailoverEmbeddingProvider
    from kiwi_rag.embedding.remote import Limits
    from kiwi_rag.embedding.usage import UsageLog, parse_prices

    usage = UsageLog(cache_dir / "usage.jsonl", parse_prices(options.prices))
    limits = Limits(options.batch_texts, options.batch_tokens)
    servers = [first, *parse_fallbacks(options.fallbacks, first, options.fallback_keys)]
    providers = [_remote(server, dimension, timeout, usage, limits) for server in servers]
    if len(providers) == 1 and not options.identity:
        return providers[0]
    return FailoverEmbeddingProvider(providers, cache_dir / "probes.sqlite", options.identity)


def _remote(
    server: ModelServer, dimension: int, timeout: float, usage: UsageLog, limits: Limits
) -> RemoteEmbeddingProvider:
    from kiwi_rag.embedding.endpoint import Endpoint
    from kiwi_rag.embedding.remote import OllamaEmbeddingProvider, OpenAIEmbeddingProvider

    kind = OpenAIEmbeddingProvider if server.provider == "openai" else OllamaEmbeddingProvider
    endpoint = Endpoint(server.base_url, server.api_key, timeout)
    return kind(endpoint, server.model or kind.default_model, dimension, usage, limits)


def parse_fallbacks(text: str, first: ModelServer, keys: str = "") -> Sequence[ModelServer]:
    """Return the servers that `text` lists, in order.

    Parameters
    ----------
    text
        ``[openai|ollama] URL [MODEL]``, separated by commas; the default of each part is that of the first server.
    first
        The server before them. Its key is used for the same origin only.
    keys
        One key for each server, separated by commas; empty if a server needs none.

    Raises
    ------
    UsageError
        If the list or the keys are not of that form.
    """
    entries = [entry.split() for entry in text.split(",") if entry.strip()]
    api_keys = [key.strip() for key in keys.split(",")] if keys.strip() else []
    if len(api_keys) > len(entries):
        raise UsageError("embedding_fallback_keys has more keys than embedding_fallbacks has servers")
    padded = api_keys + [""] * (len(entries) - len(api_keys))
    return [_fallback(words, first, key) for words, key in zip(entries, padded, strict=True)]


def _fallback(words: Sequence[str], first: ModelServer, key: str) -> ModelServer:
    from kiwi_rag.embedding.endpoint import Endpoint

    provider, arguments = (words[0], words[1:]) if words[0] in _BASE_URLS else (first.provider, words)
    if not 1 <= len(arguments) <= 2 or "://" not in arguments[0]:
        raise UsageError(
            "embedding_fallbacks lists servers as: [openai|ollama] URL [MODEL], separated by commas",
            hint="for example: KIWI_EMBEDDING_FALLBACKS='ollama http://127.0.0.1:11434 all-minilm'",
        )
    if not key and Endpoint(arguments[0]).origin == Endpoint(first.base_url).origin:
        key = first.api_key
    return ModelServer(provider, arguments[0], arguments[1] if len(arguments) == 2 else first.model, key)
