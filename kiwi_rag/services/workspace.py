"""The objects of one workspace, wired: its configuration, source and collection, its writer and searcher."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kiwi_rag.collection import Collection
from kiwi_rag.config import PROJECT_FOLDER
from kiwi_rag.errors import ConfigError, MissingExtra, NotFound, StoreError, UsageError
from kiwi_rag.model import ItemType, SearchQuery, SearchReply
from kiwi_rag.services import ClosesOpened, Services
from kiwi_rag.signing import keys
from kiwi_rag.signing.keys import Indexer
from kiwi_rag.signing.trust import Signer, TrustPolicy
from kiwi_rag.sources.workspace.config import WorkspaceConfig, git_root
from kiwi_rag.sources.workspace.source import WorkspaceSource
from kiwi_rag.storage.atomic import create_file, remove_folder
from kiwi_rag.stores.base import VectorStore
from kiwi_rag.validation.admission import policy_of

if TYPE_CHECKING:
    from kiwi_rag.ingest import IngestContext
    from kiwi_rag.ingest.sync import Callbacks
    from kiwi_rag.sources.source import SyncReport

TIER = "workspace"
_KEY = b"kiwi: the key of this user's indexes of documents"
_IGNORE = b"# The index is made from the files of this repository; it never belongs in it.\n*\n"


class Workspace(ClosesOpened):
    """The objects that an interface needs to index and search one workspace's documents; released by `close`.

    Parameters
    ----------
    app
        Settings, model and trust. The workspace is its project; without a project, the git repository around its
        working directory; without a repository, the working directory.
    """

    def __init__(self, app: Services) -> None:
        self._app = app
        cwd = app.cwd.absolute()
        self._folder = app.project_dir or (git_root(cwd) or cwd) / PROJECT_FOLDER
        self._opened = AsyncExitStack()

    @cached_property
    def config(self) -> WorkspaceConfig:
        """The workspace's root, name and settings."""
        return WorkspaceConfig.at(self._folder.parent, self._app.settings.workspace_name)

    @property
    def is_shared(self) -> bool:
        """Whether several users read and write the index."""
        return self._app.settings.workspace_store != "local"

    @property
    def source(self) -> WorkspaceSource:
        """The files of the workspace, for one run: it reads the commit that is checked out once."""
        return WorkspaceSource(self.config, self.tier.policy.max_bytes)

    @cached_property
    def tier(self) -> Collection[VectorStore]:
        """The collection of the workspace's documents."""
        settings, local = self._app.settings, self._app.local_store(self._folder, "documents")
        store: VectorStore = local
        folder, policy, root = local.folder, policy_of("documents"), self.config.root
        if self.is_shared:  # what was read for a local index says nothing about another one
            store, policy = self._shared_store(), policy_of("shared")
            folder = folder.with_name(f"documents-{settings.workspace_store}-{self.config.name}")
        states, about = self._app.file_states(folder), (self.read_trust, settings.registry_name, local.audit)
        return Collection(TIER, 0, store, policy, *about, root, states, workspace=self.config.name)

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
        ConfigError
            When the index is shared and this user has not named the workspace. A cloned repository could otherwise
            choose another workspace's name, and its files would replace that one's under this user's key.
        UsageError, NotFound, StoreError
            When the root holds the user tier, does not exist, or cannot hold an index.
        """
        from kiwi_rag.ingest import IngestContext
        from kiwi_rag.validation.manager import ValidationManager

        await self._prepare()
        if self.is_shared and not self._app.settings.workspace_name:
            message = "a shared index is written to only under a workspace name that you set yourself"
            raise ConfigError(message, hint=f"use --workspace {self.config.name}, or set KIWI_WORKSPACE_NAME")
        audience = self._app.settings.registry_name
        key = self._app.signing_key(ask_passphrase=ask_passphrase) if self.is_shared else self.index_key
        if rebuild:  # not before there is a key to sign with
            await self.tier.clear()
        gate, indexer = ValidationManager(self.read_trust(), audience), Indexer(key, audience, self.config.name)
        return IngestContext(gate, self._app.embed, indexer, self.config.domains)

    async def update(
        self, writer: IngestContext, paths: Sequence[str] | None = None, callbacks: Callbacks | None = None,
        *, prune: bool = False, embed: bool = True,
    ) -> SyncReport:  # fmt: skip
        """Update the index from all files, or those at `paths`; a shared one is pruned only if `prune` is set.

        Without `embed`, a local one is updated for the search by words alone; `embed_missing` does the rest.
        """
        from kiwi_rag.ingest.sync import NO_CALLBACKS, sync

        prune, callbacks = prune or not self.is_shared, callbacks or NO_CALLBACKS
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
        if self.is_shared:
            return True
        return self._app.has_index(self._folder, "documents")

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
        tier, folder = self.indexed_tier(), self._app.index_folder(self._folder, "documents")
        async with tier.writing():
            await tier.clear()  # another process that has it open finds it empty
        await tier.store.close()
        self._app.file_states(folder).close()
        await asyncio.to_thread(remove_folder, folder)

    @property
    def old_catalog(self) -> Path | None:
        """The index that a pre-release Kiwi made of these files, as long as there is no other."""
        return self._app.old_catalog(self._folder, "documents")

    def indexed_tier(self, hint: str = "kiwi workspace index") -> Collection[VectorStore]:
        """Return the collection of the documents that are indexed.

        Raises
        ------
        NotFound
            When nothing was indexed yet, which must not look like an empty index; `hint` says how to do it.
        """
        if not self.is_indexed:
            raise NotFound(f"{self.config.root} is not indexed yet", hint=hint)
        return self.tier

    async def search(self, query: SearchQuery, hint: str = "kiwi workspace index") -> SearchReply:
        """Search the documents; raises as `indexed_tier`."""
        async with self._app.begin_embedding(query.text) as vector:
            from kiwi_rag.search import Searcher

            searcher = Searcher([self.indexed_tier(hint)], self._app.embed, self._app.settings.deadline)
            return await searcher.search(query, vector)

    @property
    def outer(self) -> Path | None:
        """The folder of the indexed workspace around this one, if there is one."""
        own, root = self._app.user_dir.resolve(), self.config.root.resolve()  # the user tier is no workspace
        folders = (folder for folder in root.parents if folder / PROJECT_FOLDER != own)
        return next((folder for folder in folders if (folder / PROJECT_FOLDER / "vectors").is_dir()), None)

    async def _prepare(self) -> None:
        """Create the folder of the index, ignored by git, and the embedded registry if the index is in it."""
        if self._folder.resolve() == self._app.user_dir.resolve():
            hint = "index one repository at a time: kiwi workspace index ROOT"
            raise UsageError(f"{self._folder.parent} holds the user tier and cannot be a workspace", hint=hint)
        if not self.config.root.is_dir():
            raise NotFound(f"{self.config.root} is not a folder", hint="give the root folder of the workspace")
        if self._folder.is_symlink():
            raise StoreError(f"{self._folder} is a link, which Kiwi does not follow", hint=f"rm {self._folder}")
        vectors = self._folder / "vectors"
        try:
            self._folder.mkdir(exist_ok=True)
            if not vectors.is_symlink():  # a link is refused where the store is opened
                vectors.mkdir(exist_ok=True)
                create_file(vectors / ".gitignore", _IGNORE, mode=0o644)
        except OSError as error:
            raise StoreError(f"cannot create {self._folder}: {error.strerror}") from error
        if self._app.settings.workspace_store == "registry":
            await self._app.prepare_registry()

    def _shared_store(self) -> VectorStore:
        s, name = self._app.settings, self.config.name
        store: VectorStore
        if s.workspace_store == "qdrant":
            try:
                from kiwi_rag.stores.qdrant import QdrantConnection, QdrantVectorStore
            except ImportError as error:
                hint = "pip install 'kiwi-rag[qdrant]'"
                raise MissingExtra("an index in Qdrant needs the extra 'qdrant'", hint=hint) from error
            if not s.qdrant_url:
                hint = "set KIWI_QDRANT_URL=https://…"
                raise ConfigError("workspace_store is qdrant, but qdrant_url is not set", hint=hint)
            # A pre-release Kiwi named its collections kiwi-<workspace>, in another schema: they are left alone.
            store = QdrantVectorStore(QdrantConnection(s.qdrant_url, s.qdrant_api_key), f"kiwi100-{name}")
        else:
            from kiwi_rag.stores.postgres import RegistryVectorStore

            model, transport = str(self._app.embed.fingerprint), self._app.registry_connection.transport()
            store = RegistryVectorStore(transport, name, fingerprint=model)
        self._opened.push_async_callback(store.close)
        return store
