"""The public interface of the conversation memory, for programs.

::

    config = VectorStoreConfig(path="~/.local/share/kiwi/memory")
    async with ChromaVectorStore(config) as store:
        exchanges = ExchangeStore(store)
        await exchanges.add_exchange(Exchange("e1", "s1", "How do we deploy?", "With make deploy.", datetime.now(UTC)))
        context = await ContextRetriever(exchanges, config).get_relevant_context("deploying")

Texts are kept in SQLite on this machine, and go through the gate: credentials, invisible characters and hidden
instructions are taken out before anything is stored. Scores are higher for better matches, from 0 to about 1.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from kiwi_rag.chunking import SEPARATORS, TextChunker
from kiwi_rag.config import MEMORY_STRATEGIES, VECTOR_STORE_KEYS, Settings
from kiwi_rag.embedding import EmbeddingProvider
from kiwi_rag.embedding.factory import PROVIDERS
from kiwi_rag.errors import ConfigError, NotFound, UsageError
from kiwi_rag.model import Exchange, Filters, SearchQuery
from kiwi_rag.services import Services
from kiwi_rag.services.memory import Memory
from kiwi_rag.sources.memory.exchanges import Selection
from kiwi_rag.usecases.memory import MAX_TOKENS, MemoryQuery, count_tokens, get_context

__all__ = [
    "ChromaVectorStore", "ContextRetriever", "DocumentProcessor", "EmbeddingProvider", "Exchange", "ExchangeStore",
    "ScoredDocument", "SearchResult", "TextChunker", "VectorDocument", "VectorStore", "VectorStoreConfig",
    "create_embedding_provider", "create_vector_store",
]  # fmt: skip

_DOCUMENT = "document"
"""The key in an exchange's metadata below which a document has its own: it is stored as an exchange without answer."""


@dataclass(frozen=True, slots=True)
class VectorStoreConfig:
    """The settings of one memory.

    ``path`` is its folder. ``collection_name`` separates several in it. ``context_results`` is how many exchanges a
    search returns, ``search_context_window`` how many exchanges are added on each side of one that was found.
    ``similarity_threshold`` is the least similarity of what a `ContextRetriever` returns, ``(cosine + 1) / 2``;
    ``dynamic_threshold`` leaves out what scores far below the best. ``retrieval_strategy`` is default, vectors, words
    or rrf. Texts of up to ``max_chunk_size`` characters are one chunk; others are cut into chunks of up to
    ``chunk_size``, which repeat up to ``chunk_overlap``: at paragraphs, lines, sentences and words (``semantic``), or
    anywhere (``fixed``). ``embedding_provider`` is the setting of that name; empty is Kiwi's default.
    """

    path: str | Path = "~/.local/share/kiwi/memory"
    enabled: bool = True
    backend: Literal["chromadb"] = "chromadb"
    collection_name: str = "memory"
    context_results: int = 5
    search_context_window: int = 1
    similarity_threshold: float = 0.0
    dynamic_threshold: bool = True
    retrieval_strategy: str = "default"
    embedding_provider: str = ""
    embedding_model: str = ""
    embedding_dimensions: int = 0
    chunking_strategy: str = "semantic"
    chunk_size: int = 1000
    chunk_overlap: int = 200
    max_chunk_size: int = 1500
    preserve_sentence_boundaries: bool = True

    def __post_init__(self) -> None:
        allowed = {
            "backend": ("chromadb",), "retrieval_strategy": MEMORY_STRATEGIES,
            "chunking_strategy": ("semantic", "fixed"), "embedding_provider": ("", *PROVIDERS),
        }  # fmt: skip
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                shown = ", ".join(filter(None, values))
                raise ConfigError(f"{name} {getattr(self, name)!r} is not supported", hint=f"one of {shown}")
        if not self.collection_name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(f"collection_name {self.collection_name!r} is not letters, digits, - and _ alone")
        if self.max_chunk_size < self.chunk_size:
            raise ConfigError(f"max_chunk_size {self.max_chunk_size} is below chunk_size {self.chunk_size}")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> VectorStoreConfig:
        """Return the settings of a section ``vector_store``; `ConfigError` names a key that has no effect."""
        unknown = given.keys() - {one.name for one in fields(cls)}
        if unknown:
            raise ConfigError(f"vector_store: {', '.join(sorted(unknown))} has no effect in Kiwi")
        return cls(**given)

    @property
    def chunker(self) -> TextChunker:
        """What cuts texts as these settings say."""
        separators = [one for one in SEPARATORS if one != ". " or self.preserve_sentence_boundaries]
        return TextChunker(
            self.chunk_size, self.chunk_overlap, separators if self.chunking_strategy == "semantic" else ()
        )

    def settings(self) -> dict[str, Any]:
        """Return them as Kiwi's settings."""
        values = {setting: getattr(self, key) for key, setting in VECTOR_STORE_KEYS.items()}
        return {name: None if name.startswith("embedding_") and not value else value for name, value in values.items()}


@dataclass(slots=True)
class VectorDocument:
    """A text with its metadata, which is JSON. Vectors are made by the store: it does not return them."""

    id: str
    content: str
    metadata: dict[str, Any] = field(default_factory=dict)
    embedding: list[float] | None = None


@dataclass(frozen=True, slots=True)
class ScoredDocument:
    """A document that was found, and its score: the higher, the better."""

    document: VectorDocument
    score: float


class ChromaVectorStore:
    """Documents and exchanges on this machine: SQLite holds the texts, and Chroma indexes a large store.

    Parameters
    ----------
    config
        Where it is, and how it is searched.
    embedding_provider
        In place of the one that the settings name.
    """

    def __init__(self, config: VectorStoreConfig, embedding_provider: EmbeddingProvider | None = None) -> None:
        self.config = config
        self._services = _open_services(config)
        self._services.user_dir.mkdir(parents=True, exist_ok=True)
        self.memory = Memory(
            self._services, of_user=True, folder=f"memory-{config.collection_name}", embed=embedding_provider
        )

    @property
    def settings(self) -> Settings:
        """Kiwi's settings, those of `config` included."""
        return self._services.settings

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close its files; the next use opens them again."""
        await self.memory.close()
        await self._services.close()

    async def add(self, documents: Sequence[VectorDocument]) -> list[str]:
        """Store documents, in place of those with the same ids, and return their ids.

        Raises
        ------
        UsageError
            When one brings a vector of its own, which would be of an unknown model, or metadata that is no JSON.
        Rejected
            When the gate refuses one; those before it are stored.
        """
        if any(one.embedding is not None for one in documents):
            raise UsageError("documents are embedded by the store", hint="leave embedding at None")
        exchanges = [_as_exchange(one) for one in documents]
        stored = {one.id: one for one in await self.select(Selection(ids=tuple(one.id for one in exchanges)))}
        changed = [one for one in exchanges if one.id not in stored or _changed(one, stored[one.id])]
        if replaced := tuple(one.id for one in changed if one.id in stored):
            await self.delete(replaced)
        for exchange in changed:
            await self.memory.add(exchange)
        return [one.id for one in documents]

    async def search(
        self, query: str, n_results: int | None = None, filter: Mapping[str, Any] | None = None
    ) -> list[ScoredDocument]:
        """Return the documents that match best, ``context_results`` of them by default.

        `filter` is as Chroma's ``where``, several keys mean all of them.

        Raises
        ------
        UsageError
            When the query is empty, or the filter has an operator that there is not.
        """
        where = filter or {}
        own = {name: where[name] for name in ("session_id", "thread_id") if isinstance(where.get(name), str)}
        narrowed = Selection(session_id=own.get("session_id", ""), thread_id=own.get("thread_id", ""))
        filters = None
        if where:
            table, matches = self.memory.table, lambda data: _matches(where, _metadata(data))
            filters = Filters(ids=tuple(await asyncio.to_thread(table.paths, narrowed, matches)))
        return await self.find(MemoryQuery(query, n_results or self.config.context_results), filters)

    async def find(self, query: MemoryQuery, filters: Filters | None = None) -> list[ScoredDocument]:
        """Return what a query finds among what the filters leave."""
        search: SearchQuery = query.search_query(self.settings)
        try:
            found, _ = await self.memory.recall(replace(search, filters=filters) if filters else search)
        except NotFound:  # nothing was stored yet
            return []
        return [ScoredDocument(_as_document(one.exchange), one.hit.score) for one in found]

    async def get(self, ids: Sequence[str]) -> list[VectorDocument]:
        """Return those of some documents that there are, in the order of `ids`."""
        found = {one.id: _as_document(one) for one in await self.select(Selection(ids=tuple(ids)))} if ids else {}
        return [found[one] for one in ids if one in found]

    async def delete(self, ids: Sequence[str]) -> None:
        """Remove documents for good: from the texts, the words, the vectors and the disk."""
        if ids:
            await self.memory.forget(Selection(ids=tuple(ids)), keep=False)

    async def count(self) -> int:
        """Return how many documents and exchanges there are."""
        return await asyncio.to_thread(self.memory.table.count)

    async def select(self, selection: Selection) -> Sequence[Exchange]:
        """Return what a selection names as it is stored, the oldest first."""
        return await asyncio.to_thread(self.memory.table.select, selection)


VectorStore: TypeAlias = ChromaVectorStore
SearchResult: TypeAlias = ScoredDocument


class ExchangeStore:
    """The exchanges of conversations in a store."""

    def __init__(self, vector_store: ChromaVectorStore) -> None:
        self.store = vector_store

    async def add_exchange(self, exchange: Exchange) -> str:
        """Store an exchange, and return its id; raises `Rejected` when the gate refuses it."""
        await self.store.memory.add(exchange)
        return exchange.id

    async def search_exchanges(
        self, query: str, n_results: int | None = None, session_id: str | None = None, thread_id: str | None = None
    ) -> list[ScoredDocument]:
        """Return the exchanges that match best, of one session or thread if it is named; else as `search`."""
        limit = n_results or self.store.config.context_results
        return await self.store.find(MemoryQuery(query, limit, session_id or "", thread_id or ""))


class ContextRetriever:
    """What a memory has on a message, within a budget of tokens."""

    def __init__(self, exchange_store: ExchangeStore, config: VectorStoreConfig | None = None) -> None:
        self._store = exchange_store.store
        self._settings = self._store.settings
        if config is not None:
            named = {name: value for name, value in config.settings().items() if value is not None}
            self._settings = replace(self._settings, **named)

    async def get_relevant_context(
        self, query: str, max_results: int = 3, max_tokens: int = MAX_TOKENS,
        token_counter: Callable[[str], int] | None = None, *, session_id: str = "",
    ) -> list[str]:  # fmt: skip
        """Return excerpts, the most relevant first, each between marks that name its exchanges.

        The sum of what `token_counter` says of each never exceeds `max_tokens`; without one, four characters are a
        token. What the session `session_id` has comes first.
        """
        question, counter = MemoryQuery(query, max_results, prefer_session=session_id), token_counter or count_tokens
        try:
            context = await get_context(self._store.memory, question, self._settings, max_tokens, counter)
        except NotFound:  # nothing was stored yet
            return []
        return [excerpt.text for excerpt in context.excerpts]


class DocumentProcessor:
    """Cuts texts into chunks, and stores each as a document.

    Parameters
    ----------
    chunker
        It cuts texts that are longer than `whole` characters.
    vector_store
        Where the chunks go.
    whole
        Up to so many characters a text is one chunk; by default the store's ``max_chunk_size``.
    """

    def __init__(self, chunker: TextChunker, vector_store: ChromaVectorStore, whole: int | None = None) -> None:
        self._chunker, self._store = chunker, vector_store
        self._whole = vector_store.config.max_chunk_size if whole is None else whole

    async def add_document(self, content: str, source: str, metadata: Mapping[str, Any] | None = None) -> list[str]:
        """Store a text in place of what its source had before, and return the ids of its chunks."""
        chunks = [content] if 0 < len(content) <= self._whole else self._chunker.split(content)
        about = {**(metadata or {}), "source": source, "total_chunks": len(chunks)}
        documents = [
            VectorDocument(f"{source}:{number}", chunk, {**about, "chunk_index": number})
            for number, chunk in enumerate(chunks)
        ]
        before = await self._store.get([f"{source}:0"])
        total = int(before[0].metadata.get("total_chunks", 0)) if before else 0
        await self._store.delete([f"{source}:{number}" for number in range(len(chunks), total)])
        return await self._store.add(documents)


def create_embedding_provider(config: VectorStoreConfig) -> EmbeddingProvider:
    """Return the embedding provider that the settings name; nothing is loaded or contacted."""
    return _open_services(config).embed


def create_vector_store(config: VectorStoreConfig) -> ChromaVectorStore | None:
    """Return the store, or None if it is disabled. A store that cannot be used raises at its first use."""
    return ChromaVectorStore(config, create_embedding_provider(config)) if config.enabled else None


def _open_services(config: VectorStoreConfig) -> Services:
    path = Path(config.path).expanduser().absolute()
    return Services.open({**os.environ, "KIWI_HOME": str(path)}, path, flags=config.settings())


def _as_exchange(document: VectorDocument) -> Exchange:
    about = document.metadata
    session = str(about.get("session_id") or about.get("source") or "documents")
    try:
        moment = datetime.fromisoformat(str(about["timestamp"]))
    except (KeyError, ValueError):
        moment = datetime.now(UTC)
    metadata = {_DOCUMENT: about, "user_name": str(about.get("source") or about.get("type") or "Document")}
    thread = str(about.get("thread_id") or "") or None
    return Exchange(document.id or str(uuid.uuid4()), session, document.content, "", moment, thread, metadata=metadata)


def _changed(new: Exchange, stored: Exchange) -> bool:
    """Whether a document differs from what is stored; the time of storing does not count."""
    return replace(new, timestamp=stored.timestamp) != stored


def _as_document(exchange: Exchange) -> VectorDocument:
    own = exchange.metadata.get(_DOCUMENT)
    content = exchange.user_message if own is not None else exchange.text
    return VectorDocument(exchange.id, content, dict(_metadata(exchange.as_dict())))


def _metadata(data: Mapping[str, Any]) -> Mapping[str, Any]:
    own = data["metadata"].get(_DOCUMENT)
    if own is not None:
        return own if isinstance(own, Mapping) else {}
    named = {name: data[name] or "" for name in ("session_id", "thread_id", "timestamp", "user_message")}
    return {**data["metadata"], "type": "exchange", **named}


_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda value, other: value == other,
    "$ne": lambda value, other: value != other,
    "$in": lambda value, others: value in others,
    "$nin": lambda value, others: value not in others,
    "$gt": lambda value, other: value is not None and value > other,
    "$gte": lambda value, other: value is not None and value >= other,
    "$lt": lambda value, other: value is not None and value < other,
    "$lte": lambda value, other: value is not None and value <= other,
}


def _matches(where: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    return all(_matches_one(key, wanted, metadata) for key, wanted in where.items())


def _matches_one(key: str, wanted: Any, metadata: Mapping[str, Any]) -> bool:
    if key in ("$and", "$or"):
        return (all if key == "$and" else any)(_matches(one, metadata) for one in wanted)
    conditions = wanted if isinstance(wanted, Mapping) else {"$eq": wanted}
    if unknown := conditions.keys() - _OPERATORS.keys():
        raise UsageError(f"the filter has no operator {', '.join(sorted(unknown))}", hint=", ".join(_OPERATORS))
    try:
        return all(_OPERATORS[name](metadata.get(key), other) for name, other in conditions.items())
    except TypeError:  # values of two types have no order
        return False
