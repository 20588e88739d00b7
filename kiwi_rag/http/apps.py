"""Stores, connections and models that stay open between requests, and the services that use them for one request."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kiwi_rag.config import LOCAL_PROVIDERS, Settings
from kiwi_rag.embedding import EmbeddingProvider
from kiwi_rag.local_service import OTHER_NETWORK, Declined
from kiwi_rag.services import Services
from kiwi_rag.services.registry import RegistryConnection
from kiwi_rag.sources.file_states import FileStates

if TYPE_CHECKING:
    from kiwi_rag.stores.local import LocalVectorStore
    from kiwi_rag.stores.postgres import RegistryVectorStore

MAX_OPEN = 8
_SEARCH_SETTINGS = ("source", "limit", "alpha", "half_life_days", "per_signer", "deadline")
_OF_ONE_SEARCH: Mapping[str, Any] = {name: getattr(Settings(), name) for name in _SEARCH_SETTINGS}
"""Settings that do not affect what stays open."""
_OF_THE_MODEL = (*(f.name for f in fields(Settings) if f.name.startswith("embedding_")), "cache_dir", "threads")
_Key = tuple[Settings, Path | None, str]


@dataclass(frozen=True, eq=False)
class OpenServices(Services):
    """Services whose stores and connections stay open, for all requests with the same settings and project."""

    model: EmbeddingProvider = field(kw_only=True)

    @cached_property
    def embed(self) -> EmbeddingProvider:
        """The model, which others may use, too."""
        self._opened.callback(self.model.close)
        return self.model

    @cached_property
    def registry_connection(self) -> RegistryConnection:
        """How the registry is reached. An embedded server is this whole process's until it ends: others may use it."""
        return RegistryConnection(self.settings, self.registry_dir)


@dataclass(frozen=True, eq=False)
class RequestServices(Services):
    """Services for one request: with its settings, trust and pinned states, and the stores and model of open ones."""

    shared: OpenServices = field(kw_only=True)
    may_connect: bool = field(kw_only=True)

    @property
    def embed(self) -> EmbeddingProvider:
        """The model that is open."""
        return self.shared.embed

    @property
    def registry_connection(self) -> RegistryConnection:
        """The way to the registry that is open."""
        return self.shared.registry_connection

    @property
    def _registry_store(self) -> RegistryVectorStore:
        if not self.may_connect:
            raise Declined(OTHER_NETWORK)
        return self.shared._registry_store

    def local_store(self, root: Path, *below: str, **options: Any) -> LocalVectorStore:
        """Return a local store; it stays open."""
        return self.shared.local_store(root, *below, **options)

    def file_states(self, folder: Path) -> FileStates:
        """Return what is known of files; it stays open."""
        return self.shared.file_states(folder)


class Apps:
    """The services that the local service keeps open; used from one event loop.

    Parameters
    ----------
    limit
        How many stay open; the least recently used ones that no request uses are closed.
    """

    def __init__(self, limit: int = MAX_OPEN) -> None:
        self._limit = limit
        self._opened: dict[_Key, OpenServices] = {}
        self._users: Counter[_Key] = Counter()

    @asynccontextmanager
    async def lend(self, opened: Services, *, may_connect: bool = True) -> AsyncIterator[Services]:
        """Yield services for one request, with the settings of `opened`, which was opened for it and not used yet.

        The settings are those of the caller's environment, flags and ``config.yaml`` as they are now, so a change of
        them selects other open services. Without `may_connect`, use of the registry raises `Declined`.
        """
        # Local stores are bound to the owner token; with another token they must be opened again.
        key = (replace(opened.settings, **_OF_ONE_SEARCH), opened.project_dir, opened.owner_token)
        # Reinserted at the end, so that the dict is in order of use. No await between pop and insert: callers share it.
        known = self._opened.pop(key, None)
        shared = self._opened[key] = known or self._open(opened)
        self._users[key] += 1
        options: Any = {"shared": shared, "may_connect": may_connect}
        try:
            async with RequestServices(opened.resolved, opened.project_dir, opened.cwd, **options) as lent:
                yield lent
        finally:
            self._users[key] -= 1
            await self._close_unused()

    async def close(self) -> None:
        """Close everything; what a request still uses when that has ended."""
        self._limit = 0
        await self._close_unused()

    def _open(self, opened: Services) -> OpenServices:
        same = (app for app in self._opened.values() if _model_of(app.settings) == _model_of(opened.settings))
        return OpenServices(opened.resolved, opened.project_dir, model=next(same, opened).embed)

    async def _close_unused(self) -> None:
        over = max(0, len(self._opened) - self._limit)
        for key, app in list(self._opened.items())[:over]:
            if not self._users[key] and self._opened.get(key) is app:  # else another request has closed it
                del self._opened[key], self._users[key]
                await app.close()


def _model_of(settings: Settings) -> tuple[object, ...]:
    # What is sent to a server needs the consent of the same user, by the same setting.
    consent = () if settings.embedding_provider in LOCAL_PROVIDERS else ("home", "consent")
    return tuple(getattr(settings, name) for name in (*_OF_THE_MODEL, *consent))
