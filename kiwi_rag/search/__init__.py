"""embed the query → ask each tier → fuse → verify → present."""

from kiwi_rag.search.federate import HybridSearchHandler

__all__ = ["HybridSearchHandler"]
