"""The local store: a SQLite catalog with everything that is stored, and Chroma as its rebuildable vector index."""

from kiwi_rag.stores.local.store import LocalVectorStore

__all__ = ["LocalVectorStore"]
