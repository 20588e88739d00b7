"""The ``kiwi`` command: a thin door. Commands are imported when they are called, so that help comes at once."""

from __future__ import annotations

import copy
import importlib
from pathlib import Path
from typing import Any

import click

from kiwi_rag import __version__
from kiwi_rag.cli.session import ProcessContext, Session
from kiwi_rag.config import process_environment
from kiwi_rag.errors import KiwiError
from kiwi_rag.telemetry import tracing

# Name → (module, attribute, one line for the list).
_COMMANDS = {
    "init": ("setup", "init", "Make a project's .ai folder."),
    "keys": ("keys", "keys", "Make, list, show, export, import and retire signing keys."),
    "trust": ("trust", "trust", "Decide whose signatures count here."),
    "validate": ("sign", "validate", "Check items as the gate would, without signing or storing."),
    "sign": ("sign", "sign", "Sign items: writes FILE.sig beside each file."),
    "add": ("sign", "add", "Validate, sign and index files in one step."),
    "index": ("index", "index", "Bring a tier's index up to its files."),
    "sync": ("index", "sync", "Copy signed project items to the user tier."),
    "publish": ("publish", "publish", "Publish signed items to the registry."),
    "search": ("search", "search", "Find items by meaning and by words, verified."),
    "get": ("items", "get", "Bring an item from another tier into this one."),
    "show": ("items", "show", "Print an item's verified content."),
    "list": ("items", "list_items", "List the items of a tier."),
    "verify": ("items", "verify", "Verify again what a tier's index holds."),
    "delete": ("items", "delete", "Remove an item: its file, signature and index entry."),
    "yank": ("revocation", "yank", "Take a published version back: kept, but no longer found."),
    "status": ("status", "status", "Show tiers, counts, model and registry."),
    "doctor": ("status", "doctor", "Check everything; --repair mends what can be mended."),
    "audit": ("status", "audit", "Show or verify the hash-chained audit log."),
    "registry": ("registry", "registry", "Start, stop, migrate and inspect the registry."),
    "workspace": ("workspace", "workspace", "Index, watch and search a repository's documents."),
    "usage": ("usage", "usage", "Show what remote embedding took: calls, tokens, cost, latency."),
    "eval": ("evaluate", "evaluate", "Measure search quality on judged queries."),
    "mcp": ("mcp", "mcp", "Serve agents: the Model Context Protocol, by stdio or HTTP."),
    "serve": ("serve", "serve", "Keep model and tiers open, so that searches start warm."),
    "setup": ("setup", "setup", "Make an agent's client start Kiwi, and ask it first."),
    "config": ("setup", "show_config", "Show settings and where each came from."),
    "completion": ("setup", "completion", "Print shell completion for bash, zsh or fish."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name, and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of a newcomer's way."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(f"kiwi_rag.cli.{module}"), attribute)
        _accept_global_options(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name; what is no command's name gets a suggestion."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=_COMMANDS, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in _COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog='Start with: kiwi init, kiwi keys new, kiwi sign .ai, kiwi index, kiwi search "…"',
)
@click.version_option(__version__, prog_name="kiwi")
@click.option(
    "--project", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Project folder; default: found."
)
@click.option("--json", "as_json", is_flag=True, help="Data and errors as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="No notices and no progress on stderr.")
@click.option("--verbose", "-v", is_flag=True, help="Show the cause of errors.")
@click.pass_context
def kiwi(ctx: click.Context, project: Path | None, as_json: bool, quiet: bool, verbose: bool) -> None:
    """Find the right directive, script or note by meaning; see only what was verified.

    --project, --json, --quiet and --verbose may also stand after the command.
    """
    around = ctx.obj or ProcessContext()
    around.check(ctx.invoked_subcommand)
    ctx.obj = Session(project, as_json, quiet, verbose, around=around)


def _accept_global_options(command: click.Command) -> None:
    """Let a command, and each one below it, take the global options as well, where it has none of that name."""
    own = {name for parameter in command.params for name in parameter.opts}
    missing = [option for option in kiwi.params if option.expose_value and not own & set(option.opts)]
    # Replaced as a whole: several threads of the service may come here at once.
    command.params = [*command.params, *map(_after_command, missing)]
    for below in getattr(command, "commands", {}).values():
        _accept_global_options(below)


def _after_command(option: click.Parameter) -> click.Parameter:
    """Return a global option for use after a command: not in that command's help, and set in the session."""
    given: Any = copy.copy(option)
    given.hidden, given.expose_value, given.callback = True, False, _set_in_session
    return given  # type: ignore[no-any-return]


def _set_in_session(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    session = ctx.find_object(Session)
    if value and session and parameter.name:
        setattr(session, parameter.name, value)


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; errors become messages and exit codes here and nowhere else."""
    session = Session.early(arguments, _COMMANDS)
    try:
        with tracing(process_environment()):
            result = kiwi.main(arguments, prog_name="kiwi", standalone_mode=False)
    except click.exceptions.Abort:
        raise SystemExit(session.stopped()) from None
    except click.ClickException as error:
        raise SystemExit(session.usage(error)) from None
    except KiwiError as error:
        raise SystemExit(session.failed(error)) from None
    except BrokenPipeError:
        raise SystemExit(session.pipe_closed()) from None
    raise SystemExit(result if isinstance(result, int) else 0)
