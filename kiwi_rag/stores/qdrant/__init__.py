"""A shared index in Qdrant: a server that several machines write to and search, or a folder on this one."""

from kiwi_rag.stores.qdrant.connection import Connection
from kiwi_rag.stores.qdrant.store import QdrantVectorStore

__all__ = ["Connection", "QdrantVectorStore"]
