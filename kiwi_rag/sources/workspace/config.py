"""A workspace: its root, its name, and what its own settings say of its files.

``.ai/workspace.yaml`` may name the workspace and say which domain a service belongs to, or which service the files
below a path are about::

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
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from kiwi_rag.errors import ConfigError, SourceUnreadable, UsageError
from kiwi_rag.signing.document_statement import check_workspace
from kiwi_rag.storage.safe_open import read_below, read_optional

SETTINGS_FILE = "workspace.yaml"
MAX_BYTES = 1 << 16
_KEYS = {"name", "domains", "services"}
_HINT = "its keys are name, domains and services: docs/workspace.md"


@dataclass(frozen=True)
class WorkspaceConfig:
    """One workspace on this machine.

    ``domains`` is service → domain, ``services`` pattern → service; in a pattern ``*`` stands for anything.
    """

    root: Path
    name: str
    domains: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def at(cls, root: Path, name: str = "") -> WorkspaceConfig:
        """Read a workspace's settings; its name is `name`, or what they say, or its folder's.

        Raises
        ------
        ConfigError
            When the settings cannot be read, or hold what they may not.
        """
        said = _settings(root / ".ai" / SETTINGS_FILE)
        own = name or str(said.get("name", "")) or _name_of(root)
        return cls(root, check_workspace(own), _domains(said), _services(said))

    @cached_property
    def resolved(self) -> Path:
        """The root without links on the way to it."""
        return self.root.resolve()

    def service_of(self, path: str) -> str:
        """Return the service that the settings name for a path; empty where they name none."""
        return next((service for pattern, service in self.services.items() if fnmatchcase(path, pattern)), "")

    def read(self, path: str, limit: int) -> tuple[bytes, os.stat_result]:
        """Return up to `limit` + 1 bytes of the file at `path` below the root, and what it was when they were read.

        Raises
        ------
        FileNotFoundError
            When it is gone.
        SourceUnreadable
            When it cannot be read, is no regular file, or a link stands in the way to it.
        """
        return read_below(self.resolved, path, limit)

    def resolve_search_path(self, path: str) -> str:
        """Return what a person means by a path to search in: a pattern, or what lies there from where they are."""
        if not path or "*" in path or "?" in path:
            return path.removeprefix("./")
        if (Path.cwd() / path).exists():
            absolute = Path(os.path.normpath(Path.cwd() / path))
            return "" if absolute in (self.root.absolute(), self.resolved) else self.relative_path(absolute)
        return path.removeprefix("./")

    def relative_path(self, given: Path) -> str:
        """Return the path below the root that a path given by a person means, with slashes.

        Raises
        ------
        UsageError
            When it does not lie below the root.
        """
        absolute = Path(os.path.normpath(given if given.is_absolute() else Path.cwd() / given))
        for root in (self.root.absolute(), self.resolved):
            if absolute.is_relative_to(root) and absolute != root:
                return absolute.relative_to(root).as_posix()
        raise UsageError(f"{given} does not lie in the workspace {self.root}", hint="name files below its root")


def _name_of(root: Path) -> str:
    words = re.sub(r"[^a-z0-9_-]+", "-", root.resolve().name.lower()).strip("-_")
    return words[:64].rstrip("-_") or "workspace"


def _domains(said: Mapping[str, Any]) -> dict[str, str]:
    return {str(service): str(domain) for domain, services in said.get("domains", {}).items() for service in services}


def _services(said: Mapping[str, Any]) -> dict[str, str]:
    return {str(pattern): str(service) for pattern, service in said.get("services", {}).items()}


def _settings(path: Path) -> Mapping[str, Any]:
    import yaml

    data = read_optional(path, MAX_BYTES)
    if data is None:
        return {}
    try:
        text = data.decode()
        if len(data) > MAX_BYTES or any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise ConfigError(f"{path}: over 64 KiB, or holds YAML aliases", hint=_HINT)
        said = yaml.safe_load(text) or {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as YAML{_where(error)}", hint=_HINT) from None  # no cause: it quotes
    return _checked(said, path)


def _where(error: Exception) -> str:
    """Say where a file is wrong without quoting it: it is a stranger's, and may not be what it seems."""
    mark = getattr(error, "problem_mark", None)
    return f": line {mark.line + 1}" if mark else ""


def _checked(said: object, path: Path) -> Mapping[str, Any]:
    if not isinstance(said, dict) or not set(said) <= _KEYS:
        raise ConfigError(f"{path} holds an unknown key, or none at all", hint=_HINT)
    domains, services = said.get("domains", {}), said.get("services", {})
    good = isinstance(said.get("name", ""), str) and isinstance(services, dict) and isinstance(domains, dict)
    if not good or not all(isinstance(names, list) for names in domains.values()):
        raise ConfigError(
            f"{path}: name is a text, domains is domain: [services], services is path: service", hint=_HINT
        )
    return said


_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF = re.compile(r"ref: (refs/[^\s\\:?*~^]{1,500})")
MAX_GIT_BYTES = 1 << 20


def head_commit(root: Path) -> str:
    """Return the commit that is checked out at or above `root`, as hex; empty outside of git's care. Blocking."""
    git = git_folder(root)
    return _head(git) if git else ""


def git_folder(root: Path) -> Path | None:
    """Return where git keeps what it knows of the working tree at or around `root`; None outside of git's care."""
    base = git_root(root.resolve())
    if base is None:
        return None
    return base / ".git" if (base / ".git").is_dir() else _linked(base / ".git")


def git_root(here: Path) -> Path | None:
    """Return the folder at or above `here` that git keeps; None when none does."""
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), None)


def _linked(file: Path) -> Path:
    """Return what the ``.git`` file of a worktree or a submodule leads to."""
    return file.parent / _text(file).removeprefix("gitdir:").strip()


def _head(git: Path) -> str:
    head = _text(git / "HEAD").strip()
    ref = _REF.fullmatch(head)
    if ref is None or ".." in head:
        return head if _COMMIT.fullmatch(head) else ""
    shared = git / (_text(git / "commondir").strip() or ".")
    for found in (_text(git / ref[1]), _text(shared / ref[1]), _packed(shared, ref[1])):
        if _COMMIT.fullmatch(found.strip()):
            return found.strip()
    return ""


def _packed(git: Path, ref: str) -> str:
    lines = (line.split(" ") for line in _text(git / "packed-refs").splitlines())
    return next((words[0] for words in lines if words[1:] == [ref]), "")


def _text(path: Path) -> str:
    try:
        return (read_optional(path, MAX_GIT_BYTES) or b"").decode("utf-8", "replace")
    except (SourceUnreadable, ValueError):
        return ""
