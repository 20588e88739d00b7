"""The read path: embed the query → query each tier → rank → diversify → verify."""

from kiwi_rag.search.searcher import HybridSearchHandler

__all__ = ["HybridSearchHandler"]
