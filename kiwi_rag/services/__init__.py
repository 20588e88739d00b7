"""The composition root: settings → wired objects. No other module constructs stores, models, gates or searchers."""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kiwi_rag import config
from kiwi_rag.collection import RANKS, Collection, tier_names
from kiwi_rag.consent import Consents
from kiwi_rag.errors import NotFound, StoreError
from kiwi_rag.model import Vector, sha256_hex
from kiwi_rag.services.registry import RegistryConnection
from kiwi_rag.signing import keys, trust_file
from kiwi_rag.signing.trust import RevocationNotice, SignerStatus, TrustPolicy, apply_revocations
from kiwi_rag.sources.file_states import FileStates
from kiwi_rag.telemetry import span
from kiwi_rag.validation.admission import policy_of

if TYPE_CHECKING:
    from kiwi_rag.embedding import EmbeddingProvider
    from kiwi_rag.ingest import IngestContext
    from kiwi_rag.monitor.monitor import RegistryMonitor
    from kiwi_rag.registry.client import RegistryClient
    from kiwi_rag.search import Searcher
    from kiwi_rag.stores.base import VectorStore
    from kiwi_rag.stores.local import LocalVectorStore
    from kiwi_rag.stores.local.audit import SqliteAuditLog
    from kiwi_rag.stores.postgres import RegistryVectorStore
    from kiwi_rag.validation.manager import ValidationManager


class ClosesOpened:
    """An asynchronous context manager that closes what `_opened` has at its end, the last first."""

    _opened: AsyncExitStack

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close what was opened, the last first."""
        await self._opened.aclose()


@dataclass(frozen=True, eq=False)
class Services(ClosesOpened):
    """The objects that an interface needs, each built on first use and released by `close`.

    Parameters
    ----------
    resolved
        The settings, with their origins.
    project_dir
        The project's ``.ai`` folder, or None outside of any project.
    cwd
        The caller's working directory; this process's by default.
    """

    resolved: config.Resolved
    project_dir: Path | None
    cwd: Path = field(default_factory=Path.cwd)
    _opened: AsyncExitStack = field(default_factory=AsyncExitStack, init=False, repr=False)
    _local: dict[Path, LocalVectorStore] = field(default_factory=dict, init=False, repr=False)
    _states: dict[Path, FileStates] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def open(
        cls, environ: Mapping[str, str], cwd: Path, project: Path | None = None, flags: Mapping[str, Any] | None = None
    ) -> Services:
        """Read the settings and find the project: the folder `project` if given, else the nearest from `cwd` upwards.

        Raises
        ------
        ConfigError
            When a setting is invalid.
        """
        home = config.home_of(environ)
        folder = config.named_project(project) if project else config.find_project(cwd.absolute(), home)
        return cls(config.resolve(environ, folder, flags), folder, cwd)

    @property
    def settings(self) -> config.Settings:
        """The settings."""
        return self.resolved.settings

    @property
    def user_dir(self) -> Path:
        """The user's ``.ai`` folder."""
        return self.settings.user_dir

    @cached_property
    def registry_connection(self) -> RegistryConnection:
        """How the registry is reached."""
        connection = RegistryConnection(self.settings, self.registry_dir)
        self._opened.callback(connection.release)
        return connection

    @property
    def user_trust(self) -> Path:
        """The user's trust file."""
        return self.user_dir / "trust.toml"

    @property
    def project_trust(self) -> Path | None:
        """The project's trust file, which has an effect only once it is pinned."""
        return self.project_dir / "trust.toml" if self.project_dir else None

    @property
    def keys_dir(self) -> Path:
        """The folder of the private keys."""
        return self.user_dir / "keys"

    @property
    def registry_dir(self) -> Path:
        """The data folder of the embedded registry."""
        return self.user_dir / "registry"

    @property
    def monitor_dir(self) -> Path:
        """The folder of the pinned states of the registries that this user has used."""
        return self.user_dir / "registries"

    @property
    def trust(self) -> TrustPolicy:
        """Who may sign what now, for this user in this project; without the keys that registries revoked or retired."""
        return apply_revocations(trust_file.policy(self.user_trust, self.project_trust), self.notices())

    def notices(self) -> Sequence[RevocationNotice]:
        """Return the revocation notices of all registries that this user has used.

        Raises
        ------
        PinnedStateDamaged
            When a pinned state cannot be read: no key is trusted then.
        """
        if not self.monitor_dir.is_dir():
            return ()
        from kiwi_rag.monitor.pinned_state import PinnedState, read_all

        return read_all(self.monitor_dir, PinnedState.notices)

    def yanked(self, digests: Sequence[str]) -> frozenset[str]:
        """Return the digests of yanked versions among `digests`, according to the pinned states on this machine."""
        from kiwi_rag.monitor.pinned_state import read_all

        return frozenset(read_all(self.monitor_dir, lambda pinned: pinned.yanked(digests)) if digests else ())

    @cached_property
    def monitor(self) -> RegistryMonitor:
        """The monitor of the registry: it checks what the registry says against the pinned state."""
        from kiwi_rag.monitor.monitor import RegistryMonitor, database_address
        from kiwi_rag.monitor.pinned_state import PinnedState, RegistryIdentity, pinned_state_path

        s = self.settings
        address = s.supabase_url if self.registry_connection.is_api else str(self.registry_dir.resolve())
        identity = RegistryIdentity(s.registry_name, database_address(s.registry_url) if s.registry_url else address)
        pinned = PinnedState(pinned_state_path(self.monitor_dir, identity), identity)
        monitor = RegistryMonitor(self.registry_client, pinned)
        self._opened.push_async_callback(monitor.close)
        return monitor

    @property
    def registry_client(self) -> RegistryClient:
        """The registry's functions."""
        return self._registry_store.client

    @property
    def gate(self) -> ValidationManager:
        """The gate, with the present trust of this user in this project."""
        from kiwi_rag.validation.manager import ValidationManager

        return ValidationManager(self.trust, self.settings.registry_name)

    @cached_property
    def embed(self) -> EmbeddingProvider:
        """The embedding provider, behind its cache."""
        from kiwi_rag.embedding.factory import ServerOptions, load_provider

        s = self.settings
        provider = load_provider(
            s.embedding_provider,
            cache_dir=s.cache_path,
            model=s.embedding_model,
            model_dir=Path(s.embedding_model_dir).expanduser() if s.embedding_model_dir else None,
            threads=s.threads,
            servers=ServerOptions(**{f.name: getattr(s, f"embedding_{f.name}") for f in fields(ServerOptions)}),
            allow=lambda *about: self.consent.require(*about),  # noqa: PLW0108  # consents are not read before that
        )
        self._opened.callback(provider.close)
        return provider

    @cached_property
    def consent(self) -> Consents:
        """Which hosts may be contacted; each contact leaves a record in the user's audit log."""
        from kiwi_rag.validation.audit import AuditEvent

        def record(about: Mapping[str, Any]) -> None:
            event = AuditEvent("consent", about["host"], "", "", {"caller": self.principal, **about})
            self.local_store(self.user_dir).audit.append(event)

        return Consents(self.user_dir / "consent.json", self.settings.consent, record)

    @asynccontextmanager
    async def begin_embedding(self, query: str) -> AsyncIterator[Awaitable[Vector] | None]:
        """Begin to embed a query in a thread, which loads the model while the caller imports and opens the tiers.

        The block is the span of the search. None with a remote provider: nothing is sent to it before the query was
        checked.
        """
        if self.settings.embedding_provider not in config.LOCAL_PROVIDERS:
            yield None
            return
        # Before the thread, which imports it too: two threads that import NumPy at once can meet it half-made.
        import numpy  # noqa: F401

        with span("kiwi.search"):
            vector = asyncio.ensure_future(self.embed.query(query))
            vector.add_done_callback(lambda done: done.cancelled() or done.exception())  # the caller may fail first
            await asyncio.sleep(0)  # the thread starts
            try:
                yield vector
            finally:
                vector.cancel()

    @property
    def writer(self) -> IngestContext:
        """Gate and embedding model, for the write path."""
        from kiwi_rag.ingest import IngestContext

        return IngestContext(self.gate, self.embed)

    def has_index(self, root: Path, *below: str) -> bool:
        """Whether there is an index below the ``.ai`` folder `root`; checking creates none."""
        from kiwi_rag.stores.local.ownership import CATALOG_NAME

        return (self.index_folder(root, *below) / CATALOG_NAME).exists()

    @property
    def has_project_index(self) -> bool:
        """Whether this user has an index of the project's items."""
        return self.project_dir is not None and self.has_index(self.project_dir)

    def old_catalog(self, root: Path, *below: str) -> Path | None:
        """Return the catalog of a pre-release Kiwi below the ``.ai`` folder `root`, as long as there is no other."""
        from kiwi_rag.stores.local.ownership import find_old_catalog

        return find_old_catalog(self.index_folder(root, *below))

    def signing_key(self, name: str = "", ask_passphrase: Callable[[], str] = str) -> keys.SigningKey:
        """Return the key to sign with: from the environment, by name, or the only one in the keys folder.

        `ask_passphrase` is called for the passphrase of a stored key when the settings have none; may return no text.

        Raises
        ------
        NotFound
            When there is no key.
        UsageError
            When there are several and none is named.
        """
        s = self.settings
        if s.signing_key and not name:
            return keys.from_pem("KIWI_SIGNING_KEY", s.signing_key.encode(), s.key_passphrase or None)
        return keys.load(self.key_name(name), self.keys_dir, s.key_passphrase or ask_passphrase() or None)

    @property
    def principal(self) -> str:
        """The principal of this user: from the settings, else ``user@host``."""
        return self.settings.principal or f"{getpass.getuser()}@{socket.gethostname()}"

    def key_name(self, name: str = "") -> str:
        """Return the name of the stored key to use: `name`, else the one in the settings, else the only active one."""
        if name or self.settings.key:
            return name or self.settings.key
        inactive = {s.public_key for s in self.trust.by_key.values() if s.status is not SignerStatus.ACTIVE}
        return keys.only_name(self.keys_dir, inactive)

    def root(self, tier: str) -> Path:
        """Return the ``.ai`` folder of a local tier.

        Raises
        ------
        NotFound
            When `tier` is project and there is no project.
        """
        if tier == "user":
            return self.user_dir
        if self.project_dir is None or not self.project_dir.is_dir():
            message = f"{self.cwd} is in no project: neither it nor a folder above it has a .ai folder"
            raise NotFound(message, hint="kiwi init")
        return self.project_dir

    def local(self, name: str) -> Collection:
        """Return the items of the project or of the user."""
        root = self.root(name)
        store = self.local_store(root)
        return self._collection(name, store, store.audit, root=root, states=self.file_states(store.folder))

    def registry(self) -> Collection[RegistryVectorStore]:
        """Return the items of the registry; no connection is made before its first use."""
        return self._collection("registry", self._registry_store, self.audit, monitor=self.monitor)

    def _collection(self, name: str, store: VectorStore, audit: SqliteAuditLog, **parts: Any) -> Collection[Any]:
        about = policy_of(name), lambda: self.trust, self.settings.registry_name, audit
        return Collection(name, RANKS[name], store, *about, yanked=self.yanked, **parts)

    def tier(self, name: str) -> Collection:
        """Return any tier by name."""
        return self.registry() if name == "registry" else self.local(name)

    @property
    def audit(self) -> SqliteAuditLog:
        """The local audit log for the registry tier: the project's in a project, else the user's."""
        return self.local_store(self.root("project" if self.project_dir else "user")).audit

    def source_names(self, source: str) -> Sequence[str]:
        """Return the tiers that `source` names; the project tier only in a project, or when named itself."""
        return [n for n in tier_names(source) if n != "project" or self.project_dir or source == "project"]

    def searcher(self, source: str) -> Searcher:
        """Return a searcher over the tiers that `source` names."""
        from kiwi_rag.search import Searcher

        return Searcher(list(map(self.tier, self.source_names(source))), self.embed, self.settings.deadline)

    async def prepare_registry(self) -> None:
        """Create the embedded registry if there is none, bring its schema up to date, and enrol this user's signers.

        A registry that is not embedded is not changed: its operator migrates it and enrols signers.
        """
        if not self.registry_connection.is_embedded:
            return
        await self.registry_connection.migrate()
        enrolled = {signer.key_id for signer in await self.registry_client.list_signers()}
        for signer in self.trust.by_key.values():
            if signer.key_id not in enrolled and signer.status is SignerStatus.ACTIVE:
                await self.registry_client.enrol_signer(signer)

    def file_states(self, folder: Path) -> FileStates:
        """Return what is known of the files whose index is in `folder`."""
        if folder not in self._states:
            states = self._states[folder] = FileStates(folder, self.owner_token)
            self._opened.callback(states.close)
        return self._states[folder]

    @cached_property
    def owner_token(self) -> str:
        """The secret of this user on this machine that local indexes are bound to."""
        from kiwi_rag.stores.local.ownership import owner_token

        return owner_token(self.user_dir)

    def index_folder(self, root: Path, *below: str) -> Path:
        """Return the folder of this user's derived data below the ``.ai`` folder `root`.

        Raises
        ------
        StoreError
            When the folder ``vectors`` is a symbolic link.
        """
        return self.own_folder(root / "vectors").joinpath(*below)

    def own_folder(self, folder: Path) -> Path:
        """Return this user's folder in one that other users of a project have, too; raises as `index_folder`."""
        if folder.is_symlink():  # a cloned repository may contain a link to another tier's folder
            raise StoreError(f"{folder} is a symbolic link, which Kiwi does not follow", hint=f"rm {folder}")
        # One folder a user: the store sets aside an index whose owner token is another's.
        return folder / sha256_hex(self.owner_token.encode())[:12]

    def local_store(self, root: Path, *below: str, **options: Any) -> LocalVectorStore:
        """Return this user's store below the ``.ai`` folder `root`, which is closed with these services.

        `options` are those of `LocalVectorStore`; raises as `index_folder`.
        """
        from kiwi_rag.stores.local import LocalVectorStore

        folder = self.index_folder(root, *below)
        if folder not in self._local:
            store = self._local[folder] = LocalVectorStore(folder, self.owner_token, **options)
            self._opened.push_async_callback(store.close)
        return self._local[folder]

    @cached_property
    def _registry_store(self) -> RegistryVectorStore:
        from kiwi_rag.stores.postgres import RegistryVectorStore

        store = RegistryVectorStore(self.registry_connection.transport(), fingerprint=str(self.embed.fingerprint))
        self._opened.push_async_callback(store.close)
        return store
