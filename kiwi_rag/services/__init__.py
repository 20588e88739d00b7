"""The composition root: settings → wired objects. The only place that builds things."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from kiwi_rag import config
from kiwi_rag.collection import RANKS, Tier, tier_names
from kiwi_rag.errors import NotFound, StoreError
from kiwi_rag.model import sha256_hex
from kiwi_rag.services.registry import RegistryConnection
from kiwi_rag.signing import keys, trust_file
from kiwi_rag.signing.trust import RevocationNotice, Signer, SignerStatus, TrustPolicy, apply_revocations
from kiwi_rag.validation.policy import policy_of

if TYPE_CHECKING:
    from kiwi_rag.embedding.base import EmbeddingProvider
    from kiwi_rag.ingest import IngestContext
    from kiwi_rag.monitor.monitor import RegistryMonitor
    from kiwi_rag.registry.calls import Caller
    from kiwi_rag.registry.client import EnrolledSigner
    from kiwi_rag.search import HybridSearchHandler
    from kiwi_rag.stores.base import FileStore, PublishingStore, VectorStore
    from kiwi_rag.stores.local import LocalVectorStore
    from kiwi_rag.stores.postgres import RegistryVectorStore
    from kiwi_rag.validation.audit import AuditLog
    from kiwi_rag.validation.manager import ValidationManager


class Services:
    """Everything a door needs, built when it is first asked for and released by `close`.

    Parameters
    ----------
    resolved
        The settings, with their origins.
    project_dir
        The project's ``.ai`` folder, or None outside of any project.
    here
        The folder that whoever asks stands in.
    """

    def __init__(self, resolved: config.Resolved, project_dir: Path | None, here: Path | None = None) -> None:
        self.here = here or Path.cwd()
        self.resolved = resolved
        self.settings = resolved.settings
        self.user_dir = self.settings.user_dir
        self.project_dir = project_dir
        self._local: dict[str, LocalVectorStore] = {}
        self._registry: RegistryVectorStore | None = None
        self.registry_connection = RegistryConnection(self.settings, self.registry_dir)

    @classmethod
    def open(
        cls, environ: Mapping[str, str], cwd: Path, project: Path | None = None, flags: Mapping[str, Any] | None = None
    ) -> Services:
        """Read the settings and find the project: `project` (its folder) when given, else from `cwd` upwards.

        Raises
        ------
        ConfigError
            When a setting is not valid.
        """
        home = config.home_of(environ)
        folder = (project / config.PROJECT_FOLDER).absolute() if project else config.find_project(cwd.absolute(), home)
        return cls(config.resolve(environ, folder, flags), folder, cwd)

    async def __aenter__(self) -> Services:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Write what is to be remembered, release stores and, if this was its last user, the embedded registry."""
        for store in self._local.values():
            await store.close()
        if "embed" in self.__dict__:
            self.embed.close()
        try:
            if "monitor" in self.__dict__:
                await self.monitor.close()
        finally:
            await self._close_registry()

    async def _close_registry(self) -> None:
        if self._registry is not None:
            await self._registry.close()
        self.registry_connection.release()

    @property
    def user_trust(self) -> Path:
        """The user's trust file."""
        return self.user_dir / "trust.toml"

    @property
    def project_trust(self) -> Path | None:
        """The project's trust file, which counts once it is pinned."""
        return self.project_dir / "trust.toml" if self.project_dir else None

    @property
    def keys_dir(self) -> Path:
        """Where private keys are kept."""
        return self.user_dir / "keys"

    @property
    def registry_dir(self) -> Path:
        """Where the embedded registry keeps its data."""
        return self.user_dir / "registry"

    @property
    def memory_dir(self) -> Path:
        """Where this user remembers what registries said."""
        return self.user_dir / "registries"

    @cached_property
    def trust(self) -> TrustPolicy:
        """Who may sign what, for this user in this project, less what registries took away."""
        return apply_revocations(trust_file.policy(self.user_trust, self.project_trust), self.notices())

    def notices(self) -> Sequence[RevocationNotice]:
        """Return the keys that lost trust, as every registry that this user met said.

        Raises
        ------
        MemoryDamaged
            When that cannot be read any more: nothing is trusted then.
        """
        if not self.memory_dir.is_dir():
            return ()
        from kiwi_rag.monitor.pinned_state_file import read_notices

        return read_notices(self.memory_dir)

    def yanked(self, digests: Sequence[str]) -> frozenset[str]:
        """Return which of some digests are of versions that a registry yanked, as far as this user knows."""
        from kiwi_rag.monitor.pinned_state_file import find_yanked

        return find_yanked(self.memory_dir, digests)

    @cached_property
    def monitor(self) -> RegistryMonitor:
        """The registry, watched: what it says is held against what this user remembers of it."""
        from kiwi_rag.monitor.monitor import open_monitor
        from kiwi_rag.monitor.pinned_state import RegistryIdentity, database_address

        s = self.settings
        url = s.supabase_url if self.registry_connection.is_api else str(self.registry_dir.resolve())
        identity = RegistryIdentity(s.registry_name, database_address(s.registry_url) if s.registry_url else url)
        return open_monitor(self._registry_store().transport, self.memory_dir, identity)

    def refresh_trust(self) -> None:
        """Decide afresh who is trusted, after a registry took trust away."""
        for name in ("trust", "gate", "writer"):
            self.__dict__.pop(name, None)

    def calling(self) -> AbstractAsyncContextManager[Caller]:
        """Open a session with the registry, for the admins' functions."""
        return self._registry_store().transport.session()

    @cached_property
    def gate(self) -> ValidationManager:
        """The gate."""
        from kiwi_rag.validation.manager import ValidationManager

        return ValidationManager(self.trust, self.settings.registry_name)

    @cached_property
    def embed(self) -> EmbeddingProvider:
        """The embedding provider, behind its cache."""
        from kiwi_rag.embedding import ServerOptions, load_provider

        s = self.settings
        options = ServerOptions(
            s.embedding_fallbacks, s.embedding_fallback_keys, s.embedding_identity,
            s.embedding_batch_texts, s.embedding_batch_tokens, s.embedding_prices,
        )  # fmt: skip
        return load_provider(
            s.embedding_provider,
            model=s.embedding_model,
            model_dir=Path(s.embedding_model_dir).expanduser() if s.embedding_model_dir else None,
            cache_dir=s.cache_path,
            threads=s.threads,
            base_url=s.embedding_base_url,
            api_key=s.embedding_api_key,
            dimension=s.embedding_dimension,
            options=options,
        )

    @cached_property
    def writer(self) -> IngestContext:
        """Gate and model, for the write path."""
        from kiwi_rag.ingest import IngestContext

        return IngestContext(self.gate, self.embed)

    def is_indexed(self, tier: str) -> bool:
        """Whether a local tier has an index."""
        from kiwi_rag.stores.local.ownership import CATALOG_NAME

        return (self._local_store(tier, self.root(tier)).folder / CATALOG_NAME).exists()

    def signing_key(self, name: str = "", ask: Callable[[], str] = str) -> keys.SigningKey:
        """Return the key to sign with: from the environment, by name, or the only one there is.

        Parameters
        ----------
        ask
            Called for the passphrase of a kept key when the settings have none; may return an empty text.

        Raises
        ------
        NotFound
            When there is none.
        UsageError
            When there are several and none is named.
        """
        s = self.settings
        if s.signing_key and not name:
            return keys.from_pem("KIWI_SIGNING_KEY", s.signing_key.encode(), s.key_passphrase or None)
        chosen = self.key_name(name)
        return keys.load(chosen, self.keys_dir, s.key_passphrase or ask() or None)

    @property
    def principal(self) -> str:
        """Who this user is, as the settings say, else ``user@host``."""
        return self.settings.principal or f"{getpass.getuser()}@{socket.gethostname()}"

    def key_name(self, name: str = "") -> str:
        """Return the name of the kept key that `name`, the settings, or the lack of others decide on."""
        return name or self.settings.key or keys.only_name(self.keys_dir)

    def root(self, tier: str) -> Path:
        """Return the ``.ai`` folder of a local tier.

        Raises
        ------
        NotFound
            When the project tier is meant and there is no project here.
        """
        if tier == "user":
            return self.user_dir
        if self.project_dir is None or not self.project_dir.is_dir():
            raise NotFound("there is no project here (no .ai folder in this one or above)", hint="kiwi init")
        return self.project_dir

    def local(self, name: str) -> Tier[FileStore]:
        """Return the project or the user tier."""
        root = self.root(name)
        store = self._local_store(name, root)
        files = cast("FileStore", store)
        return Tier(name, RANKS[name], files, policy_of(name), store.audit, root, yanked=self.yanked)

    def registry(self) -> Tier[PublishingStore]:
        """Return the registry tier; nothing is contacted until it is asked something."""
        store = self._registry_store()
        return Tier(
            "registry",
            RANKS["registry"],
            cast("PublishingStore", store),
            policy_of("registry"),
            self.audit,
            monitor=self.monitor,
            yanked=self.yanked,
        )

    def tier(self, name: str) -> Tier[VectorStore]:
        """Return any tier by name."""
        return self.registry() if name == "registry" else self.local(name)

    @property
    def audit(self) -> AuditLog:
        """The log on this machine for what belongs to no local tier: the project's, outside of one the user's."""
        return self.local("project" if self.project_dir else "user").audit

    def source_names(self, source: str) -> Sequence[str]:
        """Return the tiers that `source` names here; the project tier only where there is a project."""
        return [n for n in tier_names(source) if n != "project" or self.project_dir or source == "project"]

    def searcher(self, source: str) -> HybridSearchHandler:
        """Return a searcher over the tiers that `source` names."""
        from kiwi_rag.search import HybridSearchHandler

        tiers = [self.tier(name) for name in self.source_names(source)]
        s = self.settings
        return HybridSearchHandler(tiers, self.embed, self.trust, s.registry_name, s.deadline)

    async def prepare_registry(self) -> None:
        """Make the embedded registry if there is none, bring its schema up to date, and enrol this user's signers.

        A server that others run is left as it is: migrating and enrolling there is its operator's.
        """
        if not self.registry_connection.is_embedded:
            return
        await self.registry_connection.migrate()
        enrolled_keys = {enrolled.signer.key_id for enrolled in await self.enrolled()}
        for signer in self.trust.by_key.values():
            if signer.key_id not in enrolled_keys and signer.status is SignerStatus.ACTIVE:
                await self.enrol(signer)

    async def enrol(self, signer: Signer) -> str:
        """Let a signer publish to the registry; return its key id."""
        from kiwi_rag.registry.client import enrol_signer

        async with self.calling() as caller:
            return await enrol_signer(caller, signer)

    async def enrolled(self) -> Sequence[EnrolledSigner]:
        """Return who may publish to the registry."""
        from kiwi_rag.registry.client import list_signers

        async with self.calling() as caller:
            return await list_signers(caller)

    def _local_store(self, name: str, root: Path) -> LocalVectorStore:
        if name not in self._local:
            self._local[name] = self.new_local_store(root)
        return self._local[name]

    def new_local_store(self, root: Path, *below: str, index_from: int = 0) -> LocalVectorStore:
        """Return a store of this user's in the ``.ai`` folder `root`; the caller closes it."""
        from kiwi_rag.stores.local import LocalVectorStore
        from kiwi_rag.stores.local.ownership import owner_token

        if (root / "vectors").is_symlink():  # a clone may hold one that leads into another tier, or anywhere
            raise StoreError(f"{root / 'vectors'} is a link, which is not followed", hint=f"rm {root / 'vectors'}")
        token = owner_token(self.user_dir)
        # A folder for each user of a working copy, so that none moves another's index aside.
        folder = root.joinpath("vectors", sha256_hex(token.encode())[:12], *below)
        return LocalVectorStore(folder, token, index_from=index_from)

    def _registry_store(self) -> RegistryVectorStore:
        from kiwi_rag.stores.postgres import RegistryVectorStore

        if self._registry is None:
            transport = self.registry_connection.transport()
            self._registry = RegistryVectorStore(transport, fingerprint=str(self.embed.fingerprint))
        return self._registry
