"""The clients, as data: what each is called, which files it reads, and in which format.

Sources, read in November 2026: code.claude.com/docs/en/mcp and /memory; modelcontextprotocol.io/quickstart/user;
cursor.com/docs/mcp and /rules; code.visualstudio.com/docs/agents/reference/mcp-configuration and
/agent-customization/custom-instructions; docs.roocode.com/features/mcp and /custom-instructions, and
``src/services/roo-config`` of Zoo Code, which goes on where Roo Code ended in May 2026; ``core/context/mcp/json`` of
Continue and docs.continue.dev/customize/deep-dives/mcp; developers.openai.com/codex/mcp and /guides/agents-md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kiwi_rag.clients.jsonc import JsonServers
from kiwi_rag.clients.server import VERB
from kiwi_rag.clients.tasks import JsonTasks
from kiwi_rag.clients.toml import TomlServers

_STDIO = {"type": "stdio"}
_OPEN_FOLDER = "${workspaceFolder}"
_EXTENSIONS = "{config}/Code/User/globalStorage"
_HEAD = "---\n{}\n---\n\n"
_ABOUT = "description: Ask Kiwi before reading files\n"


@dataclass(frozen=True, slots=True)
class Level:
    """What a client keeps for one project, or for the user.

    A place is a path that begins with a folder's name in braces (see `places`). Where there are several, the client
    looks at the first one whose part before a ``!`` exists.

    Parameters
    ----------
    config
        Places of the file with servers.
    rules
        Places of the file with instructions; none where the client has no such file.
    head
        What a new file with instructions begins with.
    args
        The server's arguments; some clients put the folder that is open into them.
    extra
        What an entry says beside command and arguments.
    """

    config: Sequence[str]
    rules: Sequence[str] = ()
    head: str = ""
    args: Sequence[str] = (VERB,)
    extra: Mapping[str, str] = field(default_factory=lambda: _STDIO)


@dataclass(frozen=True, slots=True)
class Client:
    """One program that starts MCP servers.

    Parameters
    ----------
    title
        Its name, as people say it.
    user, project
        What it keeps for the user, and for a project (None: nothing).
    then
        What the user does next.
    key, format
        What it calls its servers, or tasks, and how they are written.
    without_rules
        Why there is no file with the user's instructions, and what to do about it.
    sees_path
        Whether it sees the PATH of a terminal.
    """

    title: str
    user: Level
    project: Level | None
    then: str
    key: str = "mcpServers"
    format: type[JsonServers] | type[TomlServers] | type[JsonTasks] = JsonServers
    without_rules: str = ""
    sees_path: bool = True


def _codex(folder: str, config: str) -> Level:
    rules = (f"{{{folder}}}/AGENTS.override.md!", f"{{{folder}}}/AGENTS.md")
    return Level((f"{{{folder}}}/{config}",), rules, extra={})


def _continue(folder: str) -> Level:
    head = _HEAD.format("name: Kiwi\nalwaysApply: true")
    return Level((f"{folder}/mcpServers/kiwi.json",), (f"{folder}/rules/kiwi.md",), head)


def _roo(folder: str, *config: str) -> Level:
    return Level(config, (f"{folder}/.zoo!/rules/kiwi.md", f"{folder}/.roo/rules/kiwi.md"))


CLIENTS: Mapping[str, Client] = {
    "claude": Client(
        "Claude Code",
        Level(("{claude_json}/.claude.json",), ("{claude}/CLAUDE.md",)),
        Level(("{project}/.mcp.json",), ("{project}/CLAUDE.md",)),
        then="start claude anew, and approve the server when it asks; /mcp shows it",
    ),
    "claude-desktop": Client(
        "Claude Desktop",
        Level(("{config}/Claude/claude_desktop_config.json",), extra={}),
        None,
        then="quit Claude Desktop, and start it again",
        without_rules="Claude Desktop reads no file with instructions; paste this into a project's instructions there",
        sees_path=False,
    ),
    "cursor": Client(
        "Cursor",
        Level(("{home}/.cursor/mcp.json",)),
        Level(
            ("{project}/.cursor/mcp.json",),
            ("{project}/.cursor/rules/kiwi.mdc",),
            _HEAD.format(f"{_ABOUT}alwaysApply: true"),
            args=("--project", _OPEN_FOLDER, VERB),
        ),
        then="switch the server kiwi on in Cursor's settings, under Tools & MCP",
        without_rules="Cursor keeps the user's rules in its settings; paste this there, or use --project for a file",
    ),
    "vscode": Client(
        "VS Code",
        Level(
            ("{config}/Code/User/mcp.json",),
            ("{home}/.copilot/instructions/kiwi.instructions.md",),
            _HEAD.format(f'{_ABOUT}applyTo: "**"'),
        ),
        Level(
            ("{project}/.vscode/mcp.json",),
            ("{project}/.github/copilot-instructions.md",),
            extra={**_STDIO, "cwd": _OPEN_FOLDER},
        ),
        then="start the server with MCP: List Servers in the command palette, and trust it when asked",
        key="servers",
    ),
    "roo": Client(
        "Roo Code, or Zoo Code",
        _roo(
            "{home}",
            f"{_EXTENSIONS}/zoocodeorganization.zoo-code!/settings/mcp_settings.json",
            f"{_EXTENSIONS}/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
        ),
        # A new .zoo/mcp.json would hide the servers of .roo/mcp.json from Zoo Code, which reads that one too.
        _roo("{project}", "{project}/.zoo/mcp.json!", "{project}/.roo/mcp.json"),
        then="the server shows up in the extension's MCP settings",
    ),
    "continue": Client(
        "Continue",
        _continue("{continue}"),
        _continue("{project}/.continue"),
        then="reload Continue; tools work in its agent mode",
    ),
    "codex": Client(
        "Codex",
        _codex("codex", "config.toml"),
        _codex("project", ".codex/config.toml"),
        then="start codex anew (a project's servers count once the project is trusted); /mcp shows it",
        key="mcp_servers",
        format=TomlServers,
    ),
}

VSCODE_TASKS = Client(
    "VS Code's tasks",
    Level(("{project}/.vscode/tasks.json",)),
    Level(("{project}/.vscode/tasks.json",)),
    then="open the folder anew: the watching starts with it, once VS Code may start tasks by itself",
    key="tasks",
    format=JsonTasks,
)
