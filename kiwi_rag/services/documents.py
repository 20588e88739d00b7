"""A collection of documents, wired: its source, store, writer and searcher. Workspaces and libraries are ones."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kiwi_rag.collection import Collection
from kiwi_rag.config import Settings
from kiwi_rag.errors import ConfigError, MissingExtra, NotFound, StoreError, UsageError
from kiwi_rag.model import ItemType, SearchQuery, SearchReply
from kiwi_rag.services import ClosesOpened, Services
from kiwi_rag.signing import keys
from kiwi_rag.signing.keys import Indexer
from kiwi_rag.signing.trust import Signer, TrustPolicy
from kiwi_rag.sources.source import Source
from kiwi_rag.sources.workspace.config import WorkspaceConfig
from kiwi_rag.storage.atomic import create_file, disk_errors, remove_folder
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.validation.admission import policy_of

if TYPE_CHECKING:
    from kiwi_rag.ingest import IngestContext
    from kiwi_rag.ingest.sync import Callbacks
    from kiwi_rag.sources.source import SyncReport

_KEY = b"kiwi: the key of this user's indexes of documents"
_IGNORE = b"# The index is made from the files of this repository; it never belongs in it.\n*\n"


class DocumentIndex(ClosesOpened):
    """The objects that an interface needs to index and search one collection of documents; released by `close`.

    Parameters
    ----------
    app
        Settings, model and trust.
    folder
        The ``.ai`` folder whose derived data has a local index.
    below
        The names of the folders from there to the index.
    """

    kind: str
    """The name of its tier."""
    index_command: str
    """The command that brings the index up to date."""
    policy = "documents"
    """The policy of a local index; that of a shared one is ``shared``."""
    local_options: Mapping[str, Any] = {}
    """Options of its local store."""
    read: Callable[[str], bytes] | None = None
    """Reads a document that is no file below the root."""

    def __init__(self, app: Services, folder: Path, *below: str) -> None:
        self._app = app
        self._folder, self._below = folder, below
        self._opened = AsyncExitStack()

    @property
    def store_kind(self) -> str:
        """Where the index is: ``local``, or the kind of a store that others share."""
        return self._app.settings.workspace_store

    @property
    @abstractmethod
    def config(self) -> WorkspaceConfig:
        """The root of the files, the name of the collection, and settings."""

    @property
    def name(self) -> str:
        """The name of the collection in statements, and in a shared store."""
        return self.config.name

    @property
    def root(self) -> Path:
        """The folder with the files."""
        return self.config.root

    @property
    @abstractmethod
    def source(self) -> Source:
        """The files, for one run: it reads the commit that is checked out once."""

    @property
    def title(self) -> str:
        """What a person calls it, in messages."""
        return str(self.root.resolve())

    @property
    def is_shared(self) -> bool:
        """Whether several users read and write the index."""
        return self.store_kind != "local"

    @cached_property
    def tier(self) -> Collection:
        """The collection of the documents."""
        local = self._app.local_store(self._folder, *self._below, **self.local_options)
        store: VectorStore = local
        folder, policy = local.folder, policy_of(self.policy)
        if self.is_shared:  # what was read for a local index says nothing about another one
            store, policy = self._shared_store(), policy_of("shared")
            folder = folder.with_name(f"documents-{self.store_kind}-{self.name}")
        about = self.read_trust, self._app.settings.registry_name, local.audit, self.root, self._app.file_states(folder)
        return Collection(self.kind, 0, store, policy, *about, workspace=self.name, read=self.read)

    @cached_property
    def index_key(self) -> keys.SigningKey:
        """The key that signs this user's local indexes: derived from the owner token, so it needs no passphrase."""
        return keys.derived("indexing", self._app.owner_token.encode(), _KEY)

    def read_trust(self) -> TrustPolicy:
        """Return whose statements are accepted: this user's in a local index, trusted signers' in a shared one."""
        if self.is_shared:
            return self._app.trust
        return TrustPolicy((Signer("this user", self.index_key.public_key, types=(ItemType.DOCUMENT,)),))

    async def writer(self, ask_passphrase: Callable[[], str] = str, *, rebuild: bool = False) -> IngestContext:
        """Create the index if there is none, empty it if `rebuild` is set, and return what writes to it.

        `ask_passphrase` returns the passphrase of a stored key.

        Raises
        ------
        ConfigError, UsageError, NotFound, StoreError
            When the root cannot be indexed into this store, does not exist, or cannot hold an index.
        """
        from kiwi_rag.ingest import IngestContext
        from kiwi_rag.validation.manager import ValidationManager

        self._check()
        await self._prepare()
        audience = self._app.settings.registry_name
        key = self._app.signing_key(ask_passphrase=ask_passphrase) if self.is_shared else self.index_key
        if rebuild:  # not before there is a key to sign with
            await self.tier.clear()
        gate, indexer = ValidationManager(self.read_trust(), audience), Indexer(key, audience, self.name)
        return IngestContext(gate, self._app.embed, indexer, self.config.domains)

    async def update(
        self, writer: IngestContext, paths: Sequence[str] | None = None, callbacks: Callbacks | None = None,
        *, prune: bool = False, embed: bool = True,
    ) -> SyncReport:  # fmt: skip
        """Update the index from all files, or those at `paths`; a shared one is pruned only if `prune` is set.

        Without `embed`, a local one is updated for the search by words alone; `embed_missing` does the rest.
        """
        from kiwi_rag.ingest.sync import Callbacks, sync

        prune, callbacks = prune or not self.is_shared, callbacks or Callbacks()
        return await sync(self.source, self.tier, writer, callbacks, paths=paths, prune=prune, embed=embed)

    async def embed_missing(self, writer: IngestContext) -> SyncReport:
        """Embed what was stored for the search by words alone."""
        from kiwi_rag.ingest.vectors import embed_missing
        from kiwi_rag.sources.source import SyncReport

        report = SyncReport()
        await embed_missing(self.tier, writer.embed, report)
        return report

    @property
    def is_indexed(self) -> bool:
        """Whether there is an index; checking creates none. A shared one always exists, though it may be empty."""
        return self.is_shared or self._app.has_index(self._folder, *self._below)

    async def delete_index(self) -> None:
        """Delete the local index from the disk, with its audit log; the files that it was made from stay.

        Raises
        ------
        UsageError
            When it is shared.
        NotFound, StoreBusy, StoreError
            When there is none, another process writes to it, or it cannot be written.
        """
        if self.is_shared:
            raise UsageError("a shared index is not deleted here", hint="its operator can delete it")
        tier, folder = self.indexed_tier(), self._app.index_folder(self._folder, *self._below)
        async with tier.writing():
            await tier.clear()  # another process that has it open finds it empty
        await tier.store.close()
        self._app.file_states(folder).close()
        await asyncio.to_thread(remove_folder, folder)

    def indexed_tier(self, hint: str = "") -> Collection:
        """Return the collection of the documents that are indexed.

        Raises
        ------
        NotFound
            When nothing was indexed yet, which must not look like an empty index; `hint` replaces the command to do it.
        """
        if not self.is_indexed:
            raise NotFound(f"{self.title} is not indexed yet", hint=hint or self.index_command)
        return self.tier

    async def search(self, query: SearchQuery, hint: str = "") -> SearchReply:
        """Search the documents; raises as `indexed_tier`."""
        async with self._app.begin_embedding(query.text) as vector:
            from kiwi_rag.search import Searcher

            searcher = Searcher([self.indexed_tier(hint)], self._app.embed, self._app.settings.deadline)
            return await searcher.search(query, vector)

    def _check(self) -> None:
        """Raise an error when these documents cannot be indexed into this store."""

    async def _prepare(self) -> None:
        """Create the folder of the index, ignored by git, and the embedded registry if the index is in it."""
        self.source.check()
        if self._folder.is_symlink():
            raise StoreError(f"{self._folder} is a link, which Kiwi does not follow", hint=f"rm {self._folder}")
        vectors = self._folder / "vectors"
        with disk_errors(self._folder, "create"):
            self._folder.mkdir(exist_ok=True)
            if not vectors.is_symlink():  # a link is refused where the store is opened
                vectors.mkdir(exist_ok=True)
                create_file(vectors / ".gitignore", _IGNORE, mode=0o644)
        if self.store_kind == "registry":
            await self._app.prepare_registry()

    def _shared_store(self) -> VectorStore:
        kind, name = self.store_kind, self.name
        store: VectorStore
        if kind == "registry":
            from kiwi_rag.stores.postgres import RegistryVectorStore

            model, transport = str(self._app.embed.fingerprint), self._app.registry_connection.transport()
            store = RegistryVectorStore(transport, name, fingerprint=model)
        else:
            if not getattr(self._app.settings, f"{kind}_url"):
                hint = f"set KIWI_{kind.upper()}_URL=https://…"
                raise ConfigError(f"the store is {kind}, but {kind}_url is not set", hint=hint)
            try:
                store = self._server_store(kind, name)
            except ImportError as error:
                hint = f"pip install 'kiwi-rag[{kind}]'"
                raise MissingExtra(f"an index in {kind.capitalize()} needs the extra {kind!r}", hint=hint) from error
        for host in store_hosts(self._app.settings, kind):
            self._app.consent.require(host, "store")  # the store has not connected yet
        self._opened.push_async_callback(store.close)
        return store

    def _server_store(self, kind: str, name: str) -> VectorStore:
        s = self._app.settings
        if kind == "weaviate":
            from kiwi_rag.stores.weaviate import WeaviateConnection, WeaviateVectorStore

            connection = WeaviateConnection(s.weaviate_url, s.weaviate_api_key, grpc_url=s.weaviate_grpc_url)
            return WeaviateVectorStore(connection, name)
        from kiwi_rag.stores.qdrant import QdrantConnection, QdrantVectorStore

        # A pre-release Kiwi named its collections kiwi-<workspace>, in another schema: they are left alone.
        own, shared = f"kiwi100-{name}", s.qdrant_collection
        server = QdrantConnection(s.qdrant_url, s.qdrant_api_key)
        return QdrantVectorStore(server, shared or own, partition=name if shared else "")


def store_hosts(settings: Settings, kind: str) -> Sequence[str]:
    """Return the hosts of a store of documents; none, or a socket's folder, for one on this machine."""
    if kind == "local":
        return []
    urls = {"qdrant": [settings.qdrant_url], "weaviate": [settings.weaviate_url, settings.weaviate_grpc_url]}
    if kind in urls:
        return [urlsplit(url).hostname or "" for url in urls[kind] if url]
    if not settings.registry_url:
        return [urlsplit(settings.supabase_url).hostname or ""]
    from kiwi_rag.monitor.monitor import database_address

    return database_address(settings.registry_url).rpartition(":")[0].split(",")
