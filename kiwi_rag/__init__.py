"""Kiwi: verified retrieval of directives, scripts, knowledge, skills and documents for AI agents.

The names below are imported when they are first used, so that ``import kiwi_rag`` loads no large library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kiwi_rag.chunking import TextChunker
    from kiwi_rag.config import Settings
    from kiwi_rag.embedding import EmbeddingProvider
    from kiwi_rag.embedding.cache import CachedEmbeddingProvider
    from kiwi_rag.errors import KiwiError
    from kiwi_rag.formats.outcome import ValidationResult
    from kiwi_rag.model import (
        Admission,
        Document,
        EmbeddingRecord,
        Filters,
        Finding,
        Item,
        ItemRef,
        ItemType,
        Passage,
        SearchQuery,
        SearchReply,
        SearchResult,
    )
    from kiwi_rag.search import HybridSearchHandler
    from kiwi_rag.services import Services
    from kiwi_rag.stores.base import VectorStore
    from kiwi_rag.stores.local import LocalVectorStore
    from kiwi_rag.stores.postgres import RegistryVectorStore
    from kiwi_rag.validation.manager import ValidationManager

__version__ = "0.1.0"

_MODULES = {
    "Admission": "model",
    "CachedEmbeddingProvider": "embedding.cache",
    "Document": "model",
    "EmbeddingProvider": "embedding",
    "EmbeddingRecord": "model",
    "Filters": "model",
    "Finding": "model",
    "HybridSearchHandler": "search",
    "Item": "model",
    "ItemRef": "model.refs",
    "ItemType": "model.refs",
    "KiwiError": "errors",
    "LocalVectorStore": "stores.local",
    "Passage": "model",
    "RegistryVectorStore": "stores.postgres",
    "SearchQuery": "model",
    "SearchReply": "model",
    "SearchResult": "model",
    "Services": "services",
    "Settings": "config",
    "ValidationManager": "validation.manager",
    "ValidationResult": "formats.outcome",
    "TextChunker": "chunking",
    "VectorStore": "stores.base",
}

__all__ = [
    "Admission", "CachedEmbeddingProvider", "Document", "EmbeddingProvider", "EmbeddingRecord", "Filters",
    "Finding", "HybridSearchHandler", "Item", "ItemRef", "ItemType", "KiwiError", "LocalVectorStore", "Passage",
    "RegistryVectorStore", "SearchQuery", "SearchReply", "SearchResult", "Services", "Settings",
    "TextChunker", "ValidationManager", "ValidationResult", "VectorStore", "__version__",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
