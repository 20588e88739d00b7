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
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from kiwi_rag.errors import ConfigError, SourceUnreadable, UsageError
from kiwi_rag.signing.documents import check_workspace

SETTINGS_FILE = "workspace.yaml"
MAX_BYTES = 1 << 16
_KEYS = {"name", "domains", "services"}


@dataclass(frozen=True)
class Place:
    """One workspace on this machine.

    ``domains`` is service → domain, ``services`` pattern → service; in a pattern ``*`` stands for anything.
    """

    root: Path
    name: str
    domains: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def at(cls, root: Path, name: str = "") -> Place:
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
        place = self.resolved / path
        try:
            if place.resolve(strict=True) != place:
                raise SourceUnreadable(f"a link stands on the way to {path}", hint="it is not followed")
            # Not blocking: a pipe that took the file's place would wait for a writer for ever.
            with os.fdopen(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                entry = os.fstat(file.fileno())
                if not stat.S_ISREG(entry.st_mode):
                    raise SourceUnreadable(f"{path} is not a regular file", hint="replace it with a file")
                return file.read(limit + 1), entry
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileNotFoundError(path) from error
        except OSError as error:
            hint = "check the owner and the mode"
            raise SourceUnreadable(f"cannot read {path}: {error.strerror or error}", hint=hint) from error

    def relative(self, given: Path) -> str:
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

    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1).decode()
        if len(text) > MAX_BYTES or any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise ConfigError(f"{path}: over 64 KiB, or holds YAML aliases")
        said = yaml.safe_load(text) or {}
    except FileNotFoundError:
        return {}
    except (yaml.YAMLError, OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as YAML: {error}") from error
    return _checked(said, path)


def _checked(said: object, path: Path) -> Mapping[str, Any]:
    hint = "kiwi workspace index --help names the keys: name, domains, services"
    if not isinstance(said, dict) or not set(said) <= _KEYS:
        raise ConfigError(f"{path}: unknown key", hint=hint)
    domains, services = said.get("domains", {}), said.get("services", {})
    good = isinstance(said.get("name", ""), str) and isinstance(services, dict) and isinstance(domains, dict)
    if not good or not all(isinstance(names, list) for names in domains.values()):
        raise ConfigError(
            f"{path}: name is a text, domains is domain: [services], services is path: service", hint=hint
        )
    return said
