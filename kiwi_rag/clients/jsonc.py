"""Servers in a JSON file, with or without comments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kiwi_rag.clients.json_text import checked, parsed, with_value, without
from kiwi_rag.clients.refusals import Malformed
from kiwi_rag.clients.server import NAME, Server, starts_kiwi


@dataclass(frozen=True, slots=True)
class JsonServers:
    """Kiwi in a JSON file: `server`, in the object of servers that is named `key`."""

    key: str
    server: Server

    def put(self, text: str) -> str:
        """Return `text` with the server in it, new or renewed."""
        root, servers = self._read(text)
        there = servers.get(NAME)
        entry = self.server.merged(there)
        if there is None:
            edited = with_value(text if text.strip() else "{}\n", (self.key, NAME), entry)
        else:
            edited = text
            for key in [key for key in entry if there.get(key) != entry[key]]:
                edited = with_value(edited, (self.key, NAME, key), entry[key])
        return checked(edited, {**root, self.key: {**servers, NAME: entry}})

    def take(self, text: str) -> str:
        """Return `text` without the server; `text` itself where it was not there."""
        root, servers = self._read(text)
        if not starts_kiwi(servers.get(NAME)):
            return text
        left = {name: entry for name, entry in servers.items() if name != NAME}
        return checked(without(text, self.key, NAME), {**root, self.key: left})

    def _read(self, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
        root = parsed(text) if text.strip() else {}
        servers = root.get(self.key, {}) if isinstance(root, dict) else None
        if not isinstance(servers, dict):
            raise Malformed(f"{self.key} is not an object" if isinstance(root, dict) else "it is not an object")
        return root, servers
