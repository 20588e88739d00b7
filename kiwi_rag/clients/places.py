"""Where clients keep their files on this machine: below the home, the project, or folders that variables name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ClientEnvironment:
    """What the places of files depend on.

    Parameters
    ----------
    home
        The user's home folder.
    project
        The folder that has the ``.ai`` folder, or None outside of any project.
    platform
        As `sys.platform` says it: ``linux``, ``darwin``, ``win32``.
    environ
        The process's environment.
    """

    home: Path
    project: Path | None
    platform: str
    environ: Mapping[str, str] = field(default_factory=dict)

    def file(self, places: Sequence[str]) -> Path:
        """Return the first of a client's places that it looks at; `table.Level` says how they are written."""
        folders = self._folders()
        for place in places:
            given, mark, rest = place.partition("!")
            if not mark or Path(given.format(**folders)).exists():
                return Path((given + rest).format(**folders))
        raise ValueError("the last place has no condition")

    def may_lead_into(self, *, project: bool) -> Sequence[Path]:
        """Return the folders that links may lead into: a project's stay in it, the user's anywhere in the user's."""
        folders = self._folders()
        mine = folders.pop("project")
        return [mine] if project else list(folders.values())

    def _folders(self) -> dict[str, Path]:
        return {
            "home": self.home,
            "project": self.project or self.home,
            "config": self._config(),
            "claude": self._named("CLAUDE_CONFIG_DIR", self.home / ".claude"),
            "claude_json": self._named("CLAUDE_CONFIG_DIR", self.home),
            "codex": self._named("CODEX_HOME", self.home / ".codex"),
            "continue": self._named("CONTINUE_GLOBAL_DIR", self.home / ".continue"),
        }

    def _config(self) -> Path:
        if self.platform == "darwin":
            return self.home / "Library/Application Support"
        if self.platform == "win32":
            return self._named("APPDATA", self.home / "AppData/Roaming")
        return self._named("XDG_CONFIG_HOME", self.home / ".config")

    def _named(self, variable: str, default: Path) -> Path:
        return Path(self.environ[variable]).expanduser() if self.environ.get(variable) else default
