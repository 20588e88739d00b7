"""Name → provider: the one place that knows them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kiwi_rag.embedding.base import EmbeddingProvider
from kiwi_rag.embedding.cache import CachedEmbeddingProvider
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


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A server that embeds: its provider, address, the model's name there, and its key."""

    provider: str
    base_url: str
    model: str
    api_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How servers are used; every one may be left out.

    ``fallbacks`` and ``fallback_keys`` are as in `parse_fallbacks`; ``identity`` is a name of one's own for the model
    that all of them serve; ``batch_texts`` and ``batch_tokens`` are what one request may hold, 0 for the provider's
    own; ``prices`` is as in `kiwi_rag.embedding.usage.parse_prices`.
    """

    fallbacks: str = ""
    fallback_keys: str = field(default="", repr=False)
    identity: str = ""
    batch_texts: int = 0
    batch_tokens: int = 0
    prices: str = ""


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
    """Return the first server's provider; where there are fallbacks, or it goes by another name, a list of them."""
    from kiwi_rag.embedding.failover import FailoverEmbeddingProvider
    from kiwi_rag.embedding.remote import Limits
    from kiwi_rag.embedding.usage import UsageLog, parse_prices

    usage = UsageLog(cache_dir / "usage.jsonl", parse_prices(options.prices))
    limits = Limits(options.batch_texts, options.batch_tokens)
    servers = [first, *parse_fallbacks(options.fallbacks, first, options.fallback_keys)]
    made = [_remote(server, dimension, timeout, usage, limits) for server in servers]
    if len(made) == 1 and not options.identity:
        return made[0]
    return FailoverEmbeddingProvider(made, cache_dir / "probes.sqlite", options.identity)


def _remote(
    server: ModelServer, dimension: int, timeout: float, usage: UsageLog, limits: Limits
) -> RemoteEmbeddingProvider:
    from kiwi_rag.embedding.endpoint import Endpoint
    from kiwi_rag.embedding.ollama import OllamaEmbeddingProvider
    from kiwi_rag.embedding.openai import OpenAIEmbeddingProvider

    kind = OpenAIEmbeddingProvider if server.provider == "openai" else OllamaEmbeddingProvider
    endpoint = Endpoint(server.base_url, server.api_key, timeout)
    return kind(endpoint, server.model or kind.default_model, dimension, usage, limits)


def parse_fallbacks(text: str, first: ModelServer, keys: str = "") -> Sequence[ModelServer]:
    """Return the servers that `text` lists, in order.

    Parameters
    ----------
    text
        ``[openai|ollama] URL [MODEL]``, several with commas between; what is left out is the first server's.
    first
        The server before them. Its key goes to no other one, but to another path of the same server.
    keys
        A key a server, with commas between; empty where a server wants none.

    Raises
    ------
    UsageError
        If the list or the keys are not of that form.
    """
    entries = [entry.split() for entry in text.split(",") if entry.strip()]
    secrets = [key.strip() for key in keys.split(",")] if keys.strip() else []
    if len(secrets) > len(entries):
        raise UsageError("embedding_fallback_keys has more keys than embedding_fallbacks has servers")
    padded = secrets + [""] * (len(entries) - len(secrets))
    return [_fallback(words, first, key) for words, key in zip(entries, padded, strict=True)]


def _fallback(words: Sequence[str], first: ModelServer, key: str) -> ModelServer:
    from kiwi_rag.embedding.endpoint import Endpoint

    provider, rest = (words[0], words[1:]) if words[0] in _BASE_URLS else (first.provider, words)
    if not 1 <= len(rest) <= 2 or "://" not in rest[0]:
        raise UsageError(
            "embedding_fallbacks lists servers as: [openai|ollama] URL [MODEL], with commas between",
            hint="for example: KIWI_EMBEDDING_FALLBACKS='ollama http://127.0.0.1:11434 all-minilm'",
        )
    if not key and Endpoint(rest[0]).origin == Endpoint(first.base_url).origin:
        key = first.api_key
    return ModelServer(provider, rest[0], rest[1] if len(rest) == 2 else first.model, key)
