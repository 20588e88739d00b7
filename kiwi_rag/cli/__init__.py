"""The ``kiwi`` command. Each command's module is imported when the command is called, so that help is fast."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from kiwi_rag import __version__
from kiwi_rag.cli.session import GLOBAL_OPTIONS, Session
from kiwi_rag.config import process_environment
from kiwi_rag.errors import KiwiError
from kiwi_rag.system import accept_all_characters
from kiwi_rag.telemetry import tracing

# Name → (module, attribute, line in the list of commands), in the order in which a new user needs them.
_COMMANDS = {
    "init": ("setup", "init", "Create a project's .ai folder."),
    "keys": ("trust", "keys", "Create, list, show, export, import and retire signing keys."),
    "trust": ("trust", "trust", "Choose whose signatures are accepted."),
    "validate": ("items", "validate", "Check items without signing or indexing them."),
    "sign": ("items", "sign", "Sign items: write FILE.sig beside each file."),
    "add": ("items", "add", "Check, sign and index items in one step."),
    "import": ("import_items", "import_items", "Make items of notes, rules, commands, prompts and skills."),
    "index": ("items", "index", "Update a tier's index from its files."),
    "sync": ("items", "sync", "Copy signed project items to the user tier."),
    "publish": ("items", "publish", "Publish signed items to the registry."),
    "export": ("export", "export", "Write verified skills as an index that web sites publish."),
    "search": ("search", "search", "Find items by meaning and by words."),
    "ask": ("ask", "ask", "Answer a question from what was found, with checked citations."),
    "get": ("items", "get", "Copy an item from another tier into the project."),
    "install": ("install", "install", "Install skills where agents look for them."),
    "update": ("install", "update", "Update installed skills to their newest versions."),
    "outdated": ("install", "outdated", "List installed skills that have newer versions."),
    "uninstall": ("install", "uninstall", "Remove installed skills."),
    "show": ("items", "show", "Print the verified content of an item."),
    "list": ("items", "list_items", "List the items of a tier."),
    "verify": ("items", "verify", "Verify the indexed items again."),
    "diff": ("history", "diff", "Compare versions of an item, or its file with what is indexed."),
    "log": ("history", "log", "List the versions of an item in each tier."),
    "why": ("history", "why", "Explain why an item or a file is trusted, or not."),
    "delete": ("items", "delete", "Delete an item: its file, signature and index entry."),
    "yank": ("registry", "yank", "Withdraw a published version, so that searches no longer find it."),
    "status": ("setup", "status", "Show tiers, counts, model and registry."),
    "doctor": ("setup", "doctor", "Check keys, trust, model and indexes; --repair repairs indexes."),
    "audit": ("setup", "audit", "Show or verify the hash-chained audit log."),
    "registry": ("registry", "registry", "Start, stop, migrate and inspect the registry."),
    "workspace": ("workspace", "workspace", "Index, watch and search a repository's documents."),
    "library": ("library", "library", "Index and read the documentation of libraries."),
    "memory": ("memory", "memory", "Remember conversations, search them, and forget them for good."),
    "usage": ("setup", "usage", "Show the calls, tokens, cost and latency of remote models."),
    "consent": ("ask", "consent", "Choose to which hosts data may leave this machine."),
    "eval": ("search", "evaluate", "Measure search quality on judged queries."),
    "mcp": ("serve", "mcp", "Serve agents over the Model Context Protocol, on stdio or HTTP."),
    "serve": ("serve", "serve", "Run the local service, which makes searches start faster."),
    "ui": ("serve", "ui", "Open the web interface in a browser."),
    "setup": ("setup", "setup", "Configure an AI client to use Kiwi."),
    "config": ("setup", "show_config", "Show the settings and the source of each."),
    "completion": ("setup", "completion", "Print the completion script for bash, zsh or fish."),
}


class LazyGroup(click.Group):
    """A group that imports the module of a command when the command is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = dict.fromkeys(_COMMANDS)  # type: ignore[assignment]  # names, for suggestions

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        return getattr(importlib.import_module(f"kiwi_rag.cli.{module}"), attribute)  # type: ignore[no-any-return]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in _COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    params=[*GLOBAL_OPTIONS],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog='Start with: kiwi init, kiwi keys new, kiwi sign .ai, kiwi index, kiwi search "…"',
)
@click.version_option(__version__, prog_name="kiwi")
@click.pass_context
def kiwi(ctx: click.Context) -> None:
    """Find directives, scripts, knowledge entries and skills by meaning. Every result is verified before it is shown.

    --project, --json, --quiet and --verbose can be given before or after the command.
    """
    ctx.ensure_object(Session).check(ctx.invoked_subcommand)


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line, and turn errors into messages and exit codes."""
    accept_all_characters(sys.stdout)
    session = Session.before_parsing(arguments, _COMMANDS)
    try:
        with tracing(process_environment()):
            result = kiwi.main(arguments, prog_name="kiwi", standalone_mode=False, obj=session)
    except click.exceptions.Abort:
        raise SystemExit(session.report_interrupt()) from None
    except click.ClickException as error:
        raise SystemExit(session.report_usage(error)) from None
    except KiwiError as error:
        raise SystemExit(session.report_error(error)) from None
    except BrokenPipeError:
        raise SystemExit(session.close_stdout()) from None
    except OSError as error:
        raise SystemExit(session.report_os_error(error)) from None
    raise SystemExit(result if isinstance(result, int) else 0)
