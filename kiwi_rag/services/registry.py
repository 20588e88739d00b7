"""How the registry is reached: the embedded server, a server by its URL, or Supabase's API."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from kiwi_rag.config import Settings
from kiwi_rag.errors import RegistryUnreachable
from kiwi_rag.registry.calls import Transport


@dataclass(frozen=True, slots=True)
class RegistryConnection:
    """The way to the registry that the settings name. Nothing is contacted before `url` or the transport is used.

    Parameters
    ----------
    settings
        They name a URL, Supabase's API, or neither: then the registry is embedded.
    folder
        Where the embedded registry keeps its data.
    """

    settings: Settings
    folder: Path

    @property
    def is_api(self) -> bool:
        """Whether the registry is reached over Supabase's API. A URL is preferred: it can do more."""
        return bool(self.settings.supabase_url) and not self.settings.registry_url

    @property
    def is_embedded(self) -> bool:
        """Whether the registry is the embedded one."""
        return not self.settings.registry_url and not self.is_api

    @property
    def exists(self) -> bool:
        """Whether there is a registry: one that is configured, or the embedded one once it was created."""
        return not self.is_embedded or (self.folder / "data").exists()  # without it, its creation failed

    def require_running(self) -> None:
        """Raise `RegistryUnreachable` if the registry is the embedded one and is stopped; nothing is started."""
        from kiwi_rag.registry import server

        if self.is_embedded and not server.server_state(self.folder).running:
            raise RegistryUnreachable("the embedded registry is stopped", hint="kiwi registry start")

    @property
    def description(self) -> str:
        """Where the registry is, for people; without the URL, which may hold a password."""
        if self.settings.registry_url:
            unused = "; SUPABASE_URL is set too, and not used" if self.settings.supabase_url else ""
            return f"a server (KIWI_REGISTRY_URL{unused})"
        if self.is_api:
            return f"Supabase's API, {self.settings.supabase_url}"
        return f"embedded, {self.folder.resolve()}"

    def url(self) -> str:
        """Return the registry's URL, after starting the embedded server if that is the one. Blocking.

        Raises
        ------
        RegistryUnreachable
            When there is no registry yet, or its server cannot be started.
        RegistryRefused
            When the registry is reached over Supabase's API, which has no such URL.
        """
        if self.settings.registry_url:
            return self.settings.registry_url
        if self.is_api:
            from kiwi_rag.registry.supabase import direct_only

            raise direct_only("this")
        from kiwi_rag.registry import server

        if not self.folder.exists():
            hint = "create it with kiwi publish --all, or set KIWI_REGISTRY_URL to a server's URL"
            raise RegistryUnreachable(f"there is no registry yet in {self.folder}", hint=hint)
        return server.start(self.folder)

    async def migrate(self) -> bool:
        """Bring the registry's schema up to date, after creating an embedded one; return whether anything changed."""
        from kiwi_rag.registry.migrate import bring_up_to_date

        if self.is_embedded:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        url = await asyncio.to_thread(self.url)
        return await asyncio.to_thread(bring_up_to_date, url, audience=self.settings.registry_name)

    def transport(self) -> Transport:
        """Return a new transport to the registry; the caller closes it."""
        from kiwi_rag.registry.pool import Connections
        from kiwi_rag.registry.supabase import SupabaseApi

        s = self.settings
        if self.is_api:
            return SupabaseApi(s.supabase_url, s.supabase_key, s.supabase_token)
        return Connections(self.url)

    def release(self) -> None:
        """Let the embedded server stop, if this process has used it and was its last user."""
        from kiwi_rag.registry import server

        server.release(self.folder)
