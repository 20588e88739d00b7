"""embed the query → ask each tier → fuse → verify → present."""

from kiwi_rag.search.searcher import HybridSearchHandler

__all__ = ["HybridSearchHandler"]
