"""The AI clients that Kiwi can be set up in, and what it writes there; ``clients.toml`` has the facts of each.

Sources, read in November 2026: code.claude.com/docs/en/mcp and /memory; modelcontextprotocol.io/quickstart/user;
cursor.com/docs/mcp and /rules; code.visualstudio.com/docs/agents/reference/mcp-configuration and
/agent-customization/custom-instructions; docs.roocode.com/features/mcp and /custom-instructions, and
``src/services/roo-config`` of Zoo Code, the successor of Roo Code since May 2026; ``core/context/mcp/json`` of
Continue and docs.continue.dev/customize/deep-dives/mcp; developers.openai.com/codex/mcp and /guides/agents-md;
code.visualstudio.com/docs/reference/tasks-appendix.
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from kiwi_rag.errors import UsageError
from kiwi_rag.integrations.client_files import Backups, Editor, FileChange, plan_changes
from kiwi_rag.integrations.client_hooks import HookEntries
from kiwi_rag.integrations.config_edit import JSON, MODULE, NAME, TOML, ConfigEntries, Entry, ManagedBlock

VERB = "mcp"
TOOLSETS = "items,skills,workspace"
"""What a server offers by default."""


def default_toolsets(*, project: bool) -> str:
    """Return what a server offers that was started without toolsets, in a project or not."""
    return f"{TOOLSETS},documents" if project else TOOLSETS


FORMATS = {"json": JSON, "toml": TOML}


@dataclass(frozen=True, slots=True)
class Level:
    """What a client keeps for one project, or for the user.

    A path begins with a folder's name in braces (see `ClientEnvironment`). Of several, parted by ``|``, the client uses
    the first one whose part before a ``!`` exists.

    Parameters
    ----------
    config
        Path of the file with servers.
    rules
        Path of the file with instructions; empty where the client has no such file.
    head
        What a new file with instructions begins with.
    args
        The server's arguments; some clients replace a variable in them by the open folder.
    extra
        What an entry says beside command and arguments.
    hooks
        Path of the file with hooks; empty where the client has none.
    """

    config: str
    rules: str = ""
    head: str = ""
    args: Sequence[str] = (VERB,)
    extra: Mapping[str, str] = field(default_factory=lambda: {"type": "stdio"})
    hooks: str = ""


@dataclass(frozen=True, slots=True)
class Client:
    """One program that starts MCP servers.

    Parameters
    ----------
    title
        Its name.
    user, project
        What it keeps for the user, and for a project (None: nothing).
    then
        What the user does next.
    key, syntax
        What it calls its servers, and how they are written (a key of `FORMATS`).
    without_rules
        Why there is no file with the user's instructions, and what to do instead.
    sees_path
        Whether it sees the PATH of a terminal.
    """

    title: str
    user: Level
    then: str
    project: Level | None = None
    key: str = "mcpServers"
    syntax: str = "json"
    without_rules: str = ""
    sees_path: bool = True

    def level(self, *, project: bool) -> Level:
        """Return what it keeps for a project, if that is wanted and it keeps something, or for the user."""
        return self.project if project and self.project else self.user


_FACTS = tomllib.loads(Path(__file__).with_name("clients.toml").read_text(encoding="utf-8"))
CLIENTS: Mapping[str, Client] = {
    name: Client(**row | {level: Level(**row[level]) for level in ("user", "project") if level in row})
    for name, row in _FACTS["clients"].items()
}


@dataclass(frozen=True, slots=True)
class ClientEnvironment:
    """What the paths of clients' files depend on.

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

    def file(self, paths: str) -> Path:
        """Return the one of a client's paths that it uses; `Level` says how they are written."""
        folders = self._folders()
        parts = (path.partition("!") for path in paths.split(" | "))
        used = next(given + rest for given, mark, rest in parts if not mark or Path(given.format(**folders)).exists())
        return Path(used.format(**folders))

    def link_targets(self, *, project: bool) -> Sequence[Path]:
        """Return the folders that links may lead into: of a project's files the project, of the user's the user's."""
        return [folder for name, folder in self._folders().items() if (name == "project") is project]

    def _folders(self) -> dict[str, Path]:
        config = {
            "darwin": self.home / "Library/Application Support",
            "win32": self._variable("APPDATA", self.home / "AppData/Roaming"),
        }
        return {
            "home": self.home,
            "project": self.project or self.home,
            "config": config.get(self.platform) or self._variable("XDG_CONFIG_HOME", self.home / ".config"),
            "claude": self._variable("CLAUDE_CONFIG_DIR", self.home / ".claude"),
            "claude_json": self._variable("CLAUDE_CONFIG_DIR", self.home),
            "codex": self._variable("CODEX_HOME", self.home / ".codex"),
            "continue": self._variable("CONTINUE_GLOBAL_DIR", self.home / ".continue"),
        }

    def _variable(self, name: str, default: Path) -> Path:
        return Path(self.environ[name]).expanduser() if self.environ.get(name) else default


def client_folder(client: str, environ: Mapping[str, str]) -> Path:
    """Return the folder of the own files of ``claude`` or ``codex``, which an environment variable may name."""
    return ClientEnvironment(Path.home(), None, sys.platform, environ).file(f"{{{client}}}")


def plan_setup(  # noqa: PLR0913  # the command's options, by name
    client: Client,
    environment: ClientEnvironment,
    backups: Backups,
    *,
    project: bool = False,
    remove: bool = False,
    toolsets: str = TOOLSETS,
) -> Sequence[FileChange]:
    """Return what setting a client up with `toolsets`, or taking Kiwi out of it, changes; nothing is written.

    Without `toolsets` the server chooses them where it starts.

    Raises
    ------
    ClientFileError
        When one of its files cannot be read, is malformed, or has another server of Kiwi's name.
    """
    level = client.level(project=project)
    program = _program(client, environment, project)
    entry = server_entry([*program, *level.args], level.extra, toolsets)
    entries = ConfigEntries(FORMATS[client.syntax], client.key, [entry])
    edits: dict[Path, Editor] = {environment.file(level.config): entries}
    if level.rules:
        edits[environment.file(level.rules)] = instructions_block(
            toolsets or default_toolsets(project=project), level.head
        )
    return plan_changes(edits, environment.link_targets(project=project), backups, remove=remove)


def plan_memory(  # noqa: PLR0913  # the command's options, by name
    client: Client,
    environment: ClientEnvironment,
    backups: Backups,
    *,
    project: bool = False,
    remove: bool = False,
    recall: bool = False,
) -> Sequence[FileChange]:
    """Return what adding the hooks of the conversation memory, or taking them out, changes; nothing is written.

    Raises
    ------
    UsageError
        When the client has no hooks.
    ClientFileError
        When its file cannot be read, or is malformed.
    """
    if not (path := client.level(project=project).hooks):
        raise UsageError(f"{client.title} has no hooks that Kiwi uses", hint="kiwi setup claude --memory")
    hooks = HookEntries(_program(client, environment, project), recall)
    return plan_changes(
        {environment.file(path): hooks}, environment.link_targets(project=project), backups, remove=remove
    )


def _program(client: Client, environment: ClientEnvironment, project: bool) -> Sequence[str]:
    """Return what starts Kiwi; a project's files are used on other machines too, where it may have another path."""
    return [NAME] if project else starting_command(environment.environ.get("PATH"), by_name=client.sees_path)


def server_entry(command: Sequence[str], extra: Mapping[str, str], toolsets: str = TOOLSETS) -> Entry:
    """Return the entry that starts Kiwi; what was added to it stays: other keys, and arguments behind ``mcp``."""
    program, *args = command

    def renewed(there: Mapping[str, Any]) -> dict[str, Any]:
        before = list(there.get("args", [VERB]))
        added = before[before.index(VERB) + 1 :]
        added = added[2:] if added[:1] == ["--toolsets"] else added
        chosen = ["--toolsets", toolsets] if toolsets else []
        return {**extra, **there, "command": program, "args": [*args, *chosen, *added]}

    return Entry(NAME, VERB, renewed)


def starting_command(path: str | None, *, by_name: bool) -> Sequence[str]:
    """Return what starts this Kiwi: ``kiwi``, found on `path`, or this interpreter.

    `by_name` says that the client sees `path` too, so that the name alone suffices: unless that is a virtual
    environment's, which is on the PATH of this terminal and of no other.
    """
    installed = shutil.which(NAME, path=path)
    if installed is None:
        return [sys.executable, "-P", "-m", MODULE]  # -P: modules in the folder where it starts are not imported
    is_local = sys.prefix != sys.base_prefix and PurePath(installed).is_relative_to(sys.prefix)
    return [NAME if by_name and not is_local else installed]


def agent_instructions(toolsets: str = TOOLSETS) -> str:
    """Return the instructions to an agent about a server with these toolsets, separated by commas."""
    offered = {"always", "at last", *(name.strip() for name in toolsets.split(","))}
    return " ".join(text for name, text in _FACTS["instructions"].items() if name in offered)


def instructions_block(toolsets: str = TOOLSETS, head: str = "") -> ManagedBlock:
    """Return the block of `agent_instructions` in a Markdown file; `head` begins a new file."""
    begin = "<!-- kiwi: begin. `kiwi setup` wrote these lines and renews them; write yours outside of them. -->"
    return ManagedBlock(f"{begin}\n{agent_instructions(toolsets)}\n<!-- kiwi: end -->", head)


THEN = "open the folder again: the watch task starts with it, if VS Code is allowed to start tasks by itself"
THEN_MEMORY = "restart claude; /hooks shows the hooks, and kiwi memory list what they added"
"""What the user does next."""
MEMORY_PLACES = (
    "sessions in a folder with .ai, or below it, go into a memory of that project's own",
    "all others go into your own memory together, and a recall there mixes them; kiwi init gives a project its own",
)
"""Where the hooks store conversations."""
_GROUP = "workspace"


def _task(new: dict[str, Any]) -> Entry:
    """Return a task; what a new one says beside its label and what it starts is the user's from then on."""
    started = {name: new[name] for name in ("label", "type", "command", "args")}
    return Entry(new["label"], _GROUP, lambda there: {**started, **(there or new), **started})


TASKS = ConfigEntries(
    replace(JSON, blank='{\n  "version": "2.0.0"\n}\n'), "tasks", [_task(new) for new in _FACTS["tasks"]], labelled=True
)


def plan_tasks(project: Path, backups: Backups, *, remove: bool = False) -> Sequence[FileChange]:
    """Return what adding the tasks to a project, or taking them out, changes; nothing is written.

    Raises
    ------
    ClientFileError
        When the file cannot be read, is malformed, or has another task of the same label.
    """
    return plan_changes({project / ".vscode/tasks.json": TASKS}, [project], backups, remove=remove)
