"""A workspace's root, name and settings, and the commit that git has checked out there.

``.ai/workspace.yaml`` may set the name, the domain that a service belongs to, and the service that the files below a
path are about::

    name: harbour
    domains:
      Operations: [svc-check-in, svc-boarding]
    services:
      legacy/desk/*: svc-check-in
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from kiwi_rag.errors import ConfigError, SourceUnreadable, UsageError
from kiwi_rag.signing.statement import check_collection
from kiwi_rag.storage.atomic import create_file
from kiwi_rag.storage.safe_open import parse_settings, read_optional

SETTINGS_FILE = "workspace.yaml"
MAX_BYTES = 1 << 16
LIBRARY_PREFIX = "lib__"
"""The collections of libraries begin with it, those of workspaces do not."""
_KEYS = {"name", "domains", "services"}
_HINT = "its keys are name, domains and services: docs/workspace.md"


@dataclass(frozen=True)
class WorkspaceConfig:
    """One workspace on this machine.

    ``domains`` is service → domain, ``services`` is path pattern → service; in a pattern ``*`` matches any characters.
    """

    root: Path
    name: str
    domains: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def at(cls, root: Path, name: str = "") -> WorkspaceConfig:
        """Read a workspace's settings. Its name is `name`, else that in the settings, else that of its folder.

        Raises
        ------
        ConfigError
            When the settings cannot be read, or have an unknown key or a wrong type.
        """
        settings = _read_settings(root / ".ai" / SETTINGS_FILE)
        chosen = name or str(settings.get("name", "")) or _name_from_folder(root)
        if chosen.startswith(LIBRARY_PREFIX):
            hint = f"choose one that does not begin with {LIBRARY_PREFIX}"
            raise ConfigError(f"{chosen[:80]!r} cannot name a workspace: libraries have such names", hint=hint)
        domains = {str(s): str(domain) for domain, services in settings.get("domains", {}).items() for s in services}
        services = {str(pattern): str(service) for pattern, service in settings.get("services", {}).items()}
        return cls(root, check_collection(chosen), domains, services)

    @cached_property
    def resolved(self) -> Path:
        """The root with symbolic links resolved."""
        return self.root.resolve()

    def service_of(self, path: str) -> str:
        """Return the service that the settings give a path; empty where they give none."""
        return next((service for pattern, service in self.services.items() if fnmatchcase(path, pattern)), "")

    def resolve_search_path(self, path: str, cwd: Path) -> str:
        """Return the filter that a user's path means: a pattern, or an existing path from the folder `cwd`."""
        if not path or "*" in path or "?" in path:
            return path.removeprefix("./")
        if (cwd / path).exists():
            absolute = Path(os.path.normpath(cwd / path))
            return "" if absolute in (self.root.absolute(), self.resolved) else self.relative_path(absolute)
        return path.removeprefix("./")

    def relative_path(self, path: Path) -> str:
        """Return a user's path, taken from the working directory, as a path below the root with slashes.

        Raises
        ------
        UsageError
            When it is not below the root.
        """
        absolute = Path(os.path.normpath(Path.cwd() / path))
        for root in (self.root.absolute(), self.resolved):
            if absolute.is_relative_to(root) and absolute != root:
                return absolute.relative_to(root).as_posix()
        raise UsageError(f"{path} is not in the workspace {self.root}", hint="name files below its root")


def write_name(root: Path, name: str) -> None:
    """Name a workspace in new settings of its own.

    Raises
    ------
    UsageError
        When it cannot be its name.
    ConfigError
        When there are settings already, or they cannot be written.
    """
    path, text = root / ".ai" / SETTINGS_FILE, f'name: "{check_collection(name)}"\n'
    with suppress(OSError):
        if not path.parent.is_symlink() and create_file(path, text.encode(), mode=0o644):
            return
    raise ConfigError(f"{path} cannot be made: it is there already, or in a link", hint=f"set the name in {path}")


def _name_from_folder(root: Path) -> str:
    words = re.sub(r"[^a-z0-9_-]+", "-", root.resolve().name.lower()).strip("-_")
    return words[:64].rstrip("-_") or "workspace"


def _read_settings(path: Path) -> Mapping[str, Any]:
    data = read_optional(path, MAX_BYTES)
    if data is None:
        return {}
    settings = parse_settings(data, path, MAX_BYTES)
    if not set(settings) <= _KEYS:
        raise ConfigError(f"{path} has an unknown key", hint=_HINT)
    domains, services = settings.get("domains", {}), settings.get("services", {})
    valid = isinstance(settings.get("name", ""), str) and isinstance(services, dict) and isinstance(domains, dict)
    if not valid or not all(isinstance(names, list) for names in domains.values()):
        types = "name is a text, domains is domain: [services], services is path: service"
        raise ConfigError(f"{path}: {types}", hint=_HINT)
    return settings


_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF = re.compile(r"ref: (refs/[^\s\\:?*~^]{1,500})")
MAX_GIT_BYTES = 1 << 20


def head_commit(root: Path) -> str:
    """Return the commit that is checked out at or above `root`, as hex; empty outside of a git repository. Blocking."""
    git = git_folder(root)
    return _head(git) if git else ""


def git_folder(root: Path) -> Path | None:
    """Return the git folder of the working tree at or above `root`; None outside of a git repository."""
    base = git_root(root.resolve())
    if base is None or (base / ".git").is_dir():
        return base and base / ".git"
    # In a worktree or a submodule it is a file that names the folder.
    return base / _text(base / ".git").removeprefix("gitdir:").strip()


def git_root(folder: Path) -> Path | None:
    """Return the root of the git working tree at or above a folder; None when there is none."""
    return next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), None)


def _head(git: Path) -> str:
    head = _text(git / "HEAD").strip()
    ref = _REF.fullmatch(head)
    if ref is None or ".." in head:
        return head if _COMMIT.fullmatch(head) else ""
    # A linked worktree has its own HEAD; its branches may be in the shared folder, loose or packed.
    shared = git / (_text(git / "commondir").strip() or ".")
    packed = re.search(rf"^(\S+) {re.escape(ref[1])}$", _text(shared / "packed-refs"), re.MULTILINE)
    found = (_text(git / ref[1]).strip(), _text(shared / ref[1]).strip(), packed[1] if packed else "")
    return next((commit for commit in found if _COMMIT.fullmatch(commit)), "")


def _text(path: Path) -> str:
    try:
        return (read_optional(path, MAX_GIT_BYTES) or b"").decode("utf-8", "replace")
    except (SourceUnreadable, ValueError):
        return ""
