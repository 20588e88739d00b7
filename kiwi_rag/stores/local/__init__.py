"""The local tier: a SQLite catalog that is the truth, and Chroma as its vector index."""

from kiwi_rag.stores.local.records import SourceStamp
from kiwi_rag.stores.local.store import LocalVectorStore

__all__ = ["LocalVectorStore", "SourceStamp"]
