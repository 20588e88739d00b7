"""TOML with comments: a table of servers, as Codex keeps it.

A new table goes to the file's end, and goes out again line by line: so no comment is parted from what it is about. For
values in place, and for servers that are no tables of their own, there is tomlkit. The standard library checks.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import Any

from kiwi_rag.clients.refusals import UNEDITABLE, Malformed
from kiwi_rag.clients.server import NAME, Server, starts_kiwi


@dataclass(frozen=True, slots=True)
class TomlServers:
    """Kiwi in a TOML file: `server`, in the table of servers that is named `key`."""

    key: str
    server: Server

    def put(self, text: str) -> str:
        """Return `text` with the server in it, new or renewed."""
        root, servers = self._read(text)
        there = servers.get(NAME)
        entry = self.server.merged(there)
        if there == entry:
            return text
        wanted = {**root, self.key: {**servers, NAME: entry}}
        return self._checked(wanted, self._appended(text, entry), self._with(text, entry))

    def take(self, text: str) -> str:
        """Return `text` without the server; `text` itself where it was not there."""
        wanted, servers = self._read(text)
        if not starts_kiwi(servers.get(NAME)):
            return text
        del servers[NAME]
        return self._checked(wanted, _tables(self.key).sub("", text), self._with(text, None))

    def _read(self, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
        try:
            root = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"at line (\d+)", str(error))
            raise Malformed(str(error).partition(" (at")[0], int(line[1]) if line else text.count("\n") + 1) from error
        except (RecursionError, ValueError) as error:
            raise Malformed(str(error)[:100]) from error
        servers = root.get(self.key, {})
        if not isinstance(servers, dict):
            raise Malformed(f"{self.key} is not a table")
        return root, servers

    def _appended(self, text: str, entry: dict[str, Any]) -> str:
        import tomlkit

        apart = text and ("\n" if text.endswith("\n") else "\n\n")
        return f"{text}{apart}[{self.key}.{NAME}]\n{tomlkit.dumps(entry)}"

    def _with(self, text: str, entry: dict[str, Any] | None) -> str:
        """Return `text` with an entry in its place, or without one; `text` itself where there are no servers yet."""
        import tomlkit

        try:
            document = tomlkit.parse(text)
        except (ValueError, RecursionError) as error:  # what it does not take, of what the standard library does
            raise Malformed(UNEDITABLE) from error
        servers: Any = document.get(self.key, {})
        if entry is None:
            servers.pop(NAME, None)
        else:
            there = servers.setdefault(NAME, tomlkit.inline_table())
            there.update({key: value for key, value in entry.items() if there.get(key) != value})
        return document.as_string()

    def _checked(self, wanted: dict[str, Any], *edits: str) -> str:
        """Return the first edit that says what is wanted; an empty table of servers is as good as none."""
        for edited in edits:
            try:
                found = tomllib.loads(edited)
            except tomllib.TOMLDecodeError:
                continue
            if {self.key: {}, **found} == {self.key: {}, **wanted}:
                return edited
        raise Malformed(UNEDITABLE)


def _tables(key: str) -> re.Pattern[str]:
    """Return what finds the server's tables: each with the empty line before it, and without what is about the next."""
    name = r"\s*(?:\"{0}\"|'{0}'|{0})\s*"
    header = rf"[ \t]*\[{name.format(key)}\.{name.format(NAME)}(?:\.[^\]\n]*)?\][^\n]*(?:\n|\Z)"
    lines = r"(?:(?:[ \t\r]*(?:#[^\n]*)?\n)*[ \t]*[^\s#\[][^\n]*(?:\n|\Z))*"
    return re.compile(rf"(?:^\n)?^{header}{lines}", re.MULTILINE)
