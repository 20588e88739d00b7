"""The read path: embed the query → query each collection → rank → choose → verify."""

from kiwi_rag.search.searcher import Searcher


class HybridSearchHandler(Searcher):
    """The searcher, by the name that it has in the public interface of the library."""


__all__ = ["HybridSearchHandler", "Searcher"]
