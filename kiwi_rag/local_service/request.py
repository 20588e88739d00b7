"""A client's request, read from its message and checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kiwi_rag.local_service import protocol
from kiwi_rag.local_service.protocol import OTHER_NETWORK, Declined
from kiwi_rag.services import Services

_REMOTE_PROVIDERS = ("openai", "ollama")


@dataclass(frozen=True, slots=True)
class Request:
    """A command line or a session, with the working directory and environment of the client's process.

    ``arguments`` and ``terminals`` (whether stdout and stderr are) belong to a command, ``toolsets`` to a session.
    """

    cwd: Path
    project: Path | None
    environment: Mapping[str, str]
    network: int
    arguments: tuple[str, ...] = ()
    terminals: tuple[bool, bool] = (False, False)
    toolsets: str = ""

    @classmethod
    def read(cls, message: Mapping[str, Any]) -> Request:
        """Return the request that a message holds.

        Raises
        ------
        Declined
            When it has none, or one that this process would answer differently than the client's own.
        """
        try:
            project, terminals = _text(message["project"]), message.get("terminals", (False, False))
            request = cls(
                Path(_text(message["cwd"])),
                Path(project) if project else None,
                {_text(name): _text(value) for name, value in dict(message["environment"]).items()},
                int(message["network"]),
                tuple(_text(word) for word in list(message.get("arguments", ()))),
                (bool(terminals[0]), bool(terminals[1])),
                _text(message.get("toolsets", "")),
            )
        except (LookupError, TypeError, ValueError):
            raise Declined("the request is not readable") from None
        request._check()
        return request

    @property
    def command_line(self) -> list[str]:
        """The arguments, with the project's folder."""
        return [*([f"--project={self.project}"] if self.project else []), *self.arguments]

    @property
    def may_connect(self) -> bool:
        """Whether the variables that libraries read for connections are the same here as in the client's process."""
        return self.network == protocol.network_fingerprint(os.environ)

    def open(self, flags: Mapping[str, Any]) -> Services:
        """Open the services for this request.

        Raises
        ------
        Declined
            When it would give another result here than in the client's process.
        KiwiError
            As `Services.open` does.
        """
        app = Services.open(self.environment, self.cwd, self.project, flags)
        s = app.settings
        if any(not Path(p).expanduser().is_absolute() for p in (s.home, s.cache_dir, s.embedding_model_dir or "/")):
            raise Declined("a folder in the settings is relative")
        if s.embedding_provider in _REMOTE_PROVIDERS and not self.may_connect:
            raise Declined(OTHER_NETWORK)
        return app

    def _check(self) -> None:
        home = Path(self.environment.get("KIWI_HOME") or "/")
        if not all(path.expanduser().is_absolute() for path in (home, self.cwd, self.project or home)):
            raise Declined("a folder in the request is relative")
        if self.environment.get("HOME") != os.environ.get("HOME"):
            raise Declined("it was started with another HOME")


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise TypeError
    return value
