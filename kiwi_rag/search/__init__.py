"""The read path: embed the query → query each collection → rank → choose → verify."""

from kiwi_rag.search.searcher import Searcher

HybridSearchHandler = Searcher
"""The name by which it is known outside of Kiwi."""

__all__ = ["HybridSearchHandler", "Searcher"]
