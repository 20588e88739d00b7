"""Embedding providers, one module each, and the persistent cache before all of them.

Names are imported when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kiwi_rag.embedding.base import EmbeddingProvider, Fingerprint, Progress
    from kiwi_rag.embedding.cache import CachedEmbeddingProvider
    from kiwi_rag.embedding.factory import PROVIDERS, ServerOptions, load_provider
    from kiwi_rag.embedding.failover import FailoverEmbeddingProvider
    from kiwi_rag.embedding.ollama import OllamaEmbeddingProvider
    from kiwi_rag.embedding.onnx import OnnxEmbeddingProvider
    from kiwi_rag.embedding.openai import OpenAIEmbeddingProvider
    from kiwi_rag.embedding.sentence_transformers import SentenceTransformersEmbeddingProvider
    from kiwi_rag.embedding.usage import UsageLog

__all__ = [
    "PROVIDERS",
    "CachedEmbeddingProvider",
    "EmbeddingProvider",
    "FailoverEmbeddingProvider",
    "Fingerprint",
    "OllamaEmbeddingProvider",
    "OnnxEmbeddingProvider",
    "OpenAIEmbeddingProvider",
    "Progress",
    "SentenceTransformersEmbeddingProvider",
    "ServerOptions",
    "UsageLog",
    "load_provider",
]

_MODULES = {
    "PROVIDERS": "factory",
    "CachedEmbeddingProvider": "cache",
    "EmbeddingProvider": "base",
    "FailoverEmbeddingProvider": "failover",
    "Fingerprint": "base",
    "OllamaEmbeddingProvider": "ollama",
    "OnnxEmbeddingProvider": "onnx",
    "OpenAIEmbeddingProvider": "openai",
    "Progress": "base",
    "SentenceTransformersEmbeddingProvider": "sentence_transformers",
    "ServerOptions": "factory",
    "UsageLog": "usage",
    "load_provider": "factory",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
