"""A workspace's parts, wired: its place, the tier of its documents, what writes and what searches them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, cast

from kiwi_rag.collection import Tier
from kiwi_rag.config import PROJECT_FOLDER
from kiwi_rag.errors import ConfigError, NotFound, StoreError, UsageError
from kiwi_rag.model.refs import ItemType
from kiwi_rag.services import Services
from kiwi_rag.signing import keys
from kiwi_rag.signing.document_statement import Indexer
from kiwi_rag.signing.trust import Signer, TrustPolicy
from kiwi_rag.sources.workspace.config import WorkspaceConfig, git_root
from kiwi_rag.storage.atomic import create_file
from kiwi_rag.validation.policy import policy_of

if TYPE_CHECKING:
    from kiwi_rag.ingest.documents import DocumentIngestContext
    from kiwi_rag.search.documents import WorkspaceSearcher
    from kiwi_rag.stores.base import FileStore, VectorStore
    from kiwi_rag.stores.local import LocalVectorStore

TIER = "workspace"
_KEY = b"kiwi: the key of this user's indexes of documents"
_IGNORE = b"# The index is made from the files of this repository; it never belongs in it.\n*\n"


class Workspace:
    """Everything that a door needs to index and search one workspace's documents; released by `close`.

    Parameters
    ----------
    app
        Settings, model and trust. Its project is the workspace; outside of any project it is the git repository around
        where it stands, and outside of those that folder.
    """

    def __init__(self, app: Services) -> None:
        self._app = app
        here = app.here.absolute()
        self._folder = app.project_dir or (git_root(here) or here) / PROJECT_FOLDER
        self._stores: list[VectorStore] = []

    async def __aenter__(self) -> Workspace:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Release the store."""
        for store in self._stores:
            await store.close()
        self._stores.clear()

    @cached_property
    def place(self) -> WorkspaceConfig:
        """The workspace's root, name and settings."""
        return WorkspaceConfig.at(self._folder.parent, self._app.settings.workspace_name)

    @property
    def is_shared(self) -> bool:
        """Whether the index is one that others write to and read, too."""
        return self._app.settings.workspace_store != "local"

    @cached_property
    def tier(self) -> Tier[FileStore]:
        """The tier that holds its documents."""
        own = self._local_store()
        policy = policy_of("shared" if self.is_shared else "documents")
        store = self._shared_store() if self.is_shared else cast("FileStore", own)
        return Tier(TIER, 0, store, policy, own.audit, self.place.root)

    @cached_property
    def own_key(self) -> keys.SigningKey:
        """The key of this user's own indexes: made from the owner's token, so that nobody has to unlock one."""
        from kiwi_rag.stores.local.ownership import owner_token

        return keys.derived("indexing", owner_token(self._app.user_dir).encode(), _KEY)

    @property
    def trust(self) -> TrustPolicy:
        """Whose statements count: in an own index this user's, in a shared one those of whoever is trusted."""
        if self.is_shared:
            return self._app.trust
        return TrustPolicy((Signer("this user", self.own_key.public_key, types=(ItemType.DOCUMENT,)),))

    def writer(self, ask: Callable[[], str] = str) -> DocumentIngestContext:
        """Return the gate, the model and the key for an index run; `ask` is called for the passphrase of a kept key.

        Raises
        ------
        ConfigError
            When the index is shared and only the workspace itself says which one it is: a stranger's clone could name
            another's, and its files would take the place of theirs under this user's key.
        """
        from kiwi_rag.ingest.documents import DocumentIngestContext
        from kiwi_rag.validation.manager import ValidationManager

        if self.is_shared and not self._app.settings.workspace_name:
            hint = f"name it yourself: --workspace {self.place.name}, or KIWI_WORKSPACE_NAME"
            raise ConfigError("whoever writes to a shared index has to say which workspace it is", hint=hint)
        audience = self._app.settings.registry_name
        key = self._app.signing_key(ask=ask) if self.is_shared else self.own_key
        gate = ValidationManager(self.trust, audience)
        return DocumentIngestContext(gate, self._app.embed, Indexer(key, audience, self.place.name))

    @property
    def _is_users(self) -> bool:
        return self._folder.resolve() == self._app.user_dir.resolve()

    @property
    def is_indexed(self) -> bool:
        """Whether there is an index; looking makes none. A shared one says itself whether it is empty."""
        if self.is_shared:
            return True
        store = self._app.new_local_store(self._folder, "documents")
        return (store.folder / "catalog.sqlite3").exists()

    @property
    def searcher(self) -> WorkspaceSearcher:
        """What searches the documents.

        Raises
        ------
        NotFound
            When nothing was indexed yet: that is not an empty answer.
        """
        from kiwi_rag.search.documents import WorkspaceSearcher

        if not self.is_indexed:
            raise NotFound(f"{self.place.root} is not indexed yet", hint="kiwi workspace index")
        s = self._app.settings
        return WorkspaceSearcher(self.tier, self._app.embed, self.trust, s.registry_name, self.place, s.deadline)

    async def prepare(self) -> None:
        """Make the folder of the index, kept out of git, if there is none; and the embedded registry if that is it.

        Raises
        ------
        UsageError
            When the root is where the user tier is.
        NotFound
            When the root is not there.
        StoreError
            When it cannot be made.
        """
        if self._is_users:
            hint = "index one repository at a time: kiwi workspace index ROOT"
            raise UsageError(f"{self._folder.parent} holds the user tier, and is no workspace", hint=hint)
        if not self.place.root.is_dir():
            raise NotFound(f"{self.place.root} is no folder", hint="name the workspace's root")
        vectors = self._folder / "vectors"
        try:
            if self._folder.is_symlink():
                raise StoreError(f"{self._folder} is a link, which is not followed", hint=f"rm {self._folder}")
            self._folder.mkdir(exist_ok=True)
            if not vectors.is_symlink():  # a link is refused where the store is opened
                vectors.mkdir(exist_ok=True)
                create_file(vectors / ".gitignore", _IGNORE, mode=0o644)
        except OSError as error:
            raise StoreError(f"cannot make {self._folder}: {error.strerror}") from error
        if self._app.settings.workspace_store == "registry":
            await self._app.prepare_registry()

    def _local_store(self) -> LocalVectorStore:
        from kiwi_rag.stores.local.planner import EXACT_LIMIT

        # Below the planner's limit every search is exact: Chroma would be written, and never asked.
        store = self._app.new_local_store(self._folder, "documents", index_from=EXACT_LIMIT)
        self._stores.append(store)
        return store

    def _shared_store(self) -> FileStore:
        store = self._qdrant() if self._app.settings.workspace_store == "qdrant" else self._registry()
        self._stores.append(store)
        return store

    def _qdrant(self) -> FileStore:
        from kiwi_rag.stores.qdrant import QdrantConnection, QdrantVectorStore
        from kiwi_rag.stores.shared import SharedStore

        s = self._app.settings
        if not s.qdrant_url:
            raise ConfigError("workspace_store is qdrant, and qdrant_url is not set", hint="KIWI_QDRANT_URL=https://…")
        connection = QdrantConnection(s.qdrant_url, s.qdrant_api_key)
        # A pre-release Kiwi named its collections kiwi-<workspace>, in another schema: they are left alone.
        return SharedStore(QdrantVectorStore(connection, f"kiwi100-{self.place.name}"))

    def _registry(self) -> FileStore:
        from kiwi_rag.stores.postgres_documents import DocumentRegistryStore

        model = str(self._app.embed.fingerprint)
        return DocumentRegistryStore(self._app.registry_connection.transport(), self.place.name, fingerprint=model)
