"""Stores, connections and models that stay open between requests, and the apps that borrow them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kiwi_rag.config import Resolved, Settings
from kiwi_rag.local_service.protocol import OTHER_NETWORK, Declined
from kiwi_rag.services import Services

if TYPE_CHECKING:
    from kiwi_rag.embedding.base import EmbeddingProvider
    from kiwi_rag.stores.postgres import RegistryVectorStore

MAX_OPEN = 8
_ANY = Settings()
_OF_ONE_SEARCH: Mapping[str, Any] = {
    name: getattr(_ANY, name) for name in ("source", "limit", "alpha", "half_life_days", "per_signer", "deadline")
}
"""Settings that decide on nothing that stays open."""
_OF_THE_MODEL = (*(f.name for f in fields(Settings) if f.name.startswith("embedding_")), "cache_dir", "threads")
_Stamp = tuple[int, int] | None
_Key = tuple[Settings, Path | None, _Stamp]


class HeldApp(Services):
    """An app whose stores and connections stay open; what it was opened with is the same for all who borrow them."""

    def __init__(self, resolved: Resolved, project_dir: Path | None, embed: EmbeddingProvider) -> None:
        super().__init__(resolved, project_dir)
        self.embed = embed

    async def _close_registry(self) -> None:
        # The embedded server is this whole process's until it ends: another held app may be using it.
        self.registry_connection.is_server_started = False
        await super()._close_registry()


class LentApp(Services):
    """An app for one request: its own settings, trust and memory of registries; stores and model of a held one."""

    def __init__(self, resolved: Resolved, held: HeldApp, may_connect: bool) -> None:
        super().__init__(resolved, held.project_dir)
        self.embed = held.embed
        self._local = held._local
        self._held = held
        self._may_connect = may_connect

    async def close(self) -> None:
        """Write what is to be remembered of registries; everything else stays open."""
        if "monitor" in self.__dict__:
            await self.monitor.close()

    def _registry_store(self) -> RegistryVectorStore:
        if not self._may_connect:
            raise Declined(OTHER_NETWORK)
        return self._held._registry_store()


@dataclass(slots=True)
class _Entry:
    app: HeldApp
    users: int = 0
    dropped: bool = False


class Apps:
    """The apps that a service holds; used from one event loop.

    Parameters
    ----------
    limit
        How many are kept; the one that was used longest ago is closed for another.
    """

    def __init__(self, limit: int = MAX_OPEN) -> None:
        self._limit = limit
        self._entries: dict[_Key, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @asynccontextmanager
    async def lend(self, opened: Services, *, may_connect: bool = True) -> AsyncIterator[Services]:
        """Lend an app with the settings of `opened`, which was opened for this request and has done nothing yet.

        Its settings are those of the caller's environment, flags and ``config.yaml`` as they are now, so that a
        change of any of them leads to another app, or to the same with other flags. With `may_connect` unset the
        registry is out of its reach: asking for it raises `NotServed`.
        """
        entry = self._taken(opened)
        try:
            await self._make_room()
            async with LentApp(opened.resolved, entry.app, may_connect) as lent:
                lent.cwd = opened.cwd
                yield lent
        finally:
            entry.users -= 1
            if entry.dropped and not entry.users:
                await entry.app.close()

    async def close(self) -> None:
        """Close all of them."""
        for key in list(self._entries):
            await self._drop(key)

    def _taken(self, opened: Services) -> _Entry:
        # The token is what stores were opened under: with another they belong to somebody else.
        token = _stamp(opened.user_dir / "owner-token")
        key = (replace(opened.settings, **_OF_ONE_SEARCH), opened.project_dir, token)
        # Last in the order of use; made without a pause between looking and keeping, so that two callers share one.
        entry = self._entries.pop(key, None) or self._new_entry(opened)
        self._entries[key] = entry
        entry.users += 1
        return entry

    async def _make_room(self) -> None:
        for oldest in list(self._entries)[: -self._limit]:
            await self._drop(oldest)

    def _new_entry(self, opened: Services) -> _Entry:
        same = (e.app for e in self._entries.values() if _model_of(e.app.settings) == _model_of(opened.settings))
        app = HeldApp(opened.resolved, opened.project_dir, next(same, opened).embed)
        return _Entry(app)

    async def _drop(self, key: _Key) -> None:
        """Forget an app, and close it once nobody uses it."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        entry.dropped = True
        if not entry.users:
            await entry.app.close()


def _model_of(settings: Settings) -> tuple[object, ...]:
    return tuple(getattr(settings, name) for name in _OF_THE_MODEL)


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
