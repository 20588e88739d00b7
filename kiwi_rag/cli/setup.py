"""``kiwi setup``, ``init``, ``config`` and ``completion``: configure AI clients, projects, settings and shells."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import click

from kiwi_rag import render
from kiwi_rag.cli.session import Session, command, option
from kiwi_rag.config import PROJECT_FOLDER, home_of, process_environment
from kiwi_rag.errors import StoreError, UsageError
from kiwi_rag.integrations.ai_clients import (
    CLIENTS,
    THEN,
    TOOLSETS,
    Client,
    ClientEnvironment,
    agent_instructions,
    plan_setup,
    plan_tasks,
)
from kiwi_rag.integrations.client_files import Backups, FileChange
from kiwi_rag.model.refs import ITEM_TYPES
from kiwi_rag.storage.atomic import create_file

_EXAMPLES = """\b
Example: kiwi setup claude --project     .mcp.json and CLAUDE.md of this project, for the whole team
         kiwi setup codex --dry-run      show the changes in ~/.codex as a diff
         kiwi setup cursor --remove      remove Kiwi again
         kiwi setup vscode --tasks       .vscode/tasks.json: index and watch the workspace
"""


@command(epilog=_EXAMPLES)
@click.argument("client", type=click.Choice(list(CLIENTS)))
@option("--project", is_flag=True, help="Change this project's files, which the team shares, not your own.")
@option("--tasks", is_flag=True, help="Only with vscode: add tasks to the project that index and watch the workspace.")
@option("--toolsets", default=TOOLSETS, help="Toolsets of the server, separated by commas.")
@option("--remove", is_flag=True, help="Remove what kiwi setup added.")
@option("--dry-run", is_flag=True, help="Print the changes as a unified diff; write nothing.")
def setup(
    session: Session, client: str, project: bool, tasks: bool, toolsets: str, remove: bool, dry_run: bool
) -> None:
    """Configure an AI client to start Kiwi as an MCP server, and its agent to search Kiwi before it reads files."""
    from kiwi_rag.mcp.toolsets import parse_names

    if tasks and client != "vscode":
        raise UsageError(
            f"--tasks works with vscode only, not with {CLIENTS[client].title}", hint="kiwi setup vscode --tasks"
        )
    toolsets = ",".join(parse_names(toolsets))
    known, project_folder = CLIENTS[client], _project(session, anywhere=tasks)
    environment = ClientEnvironment(Path.home(), project_folder, sys.platform, process_environment())
    _refuse_wrong_level(known, environment, project)
    backups = Backups(home_of(process_environment()) / "clients")
    with nullcontext() if dry_run else backups.locked():
        if tasks and project_folder:
            plan = plan_tasks(project_folder, backups, remove=remove)
        else:
            plan = plan_setup(known, environment, backups, project=project, remove=remove, toolsets=toolsets)
        for change in () if dry_run else plan:
            change.apply(0o644 if project or tasks else 0o600)
    _report(session, plan, dry_run)
    if plan and not (dry_run or remove):
        _advise(session, known, project or tasks, toolsets)
        session.notify(f"next: {THEN if tasks else known.then}")


def _project(session: Session, *, anywhere: bool) -> Path | None:
    if found := session.find_project():
        return found.absolute()
    from kiwi_rag.sources.workspace.config import git_root

    return (git_root(Path.cwd()) or Path.cwd()) if anywhere else None


def _refuse_wrong_level(client: Client, environment: ClientEnvironment, project: bool) -> None:
    if project and client.project is None:
        raise UsageError(
            f"{client.title} has no configuration files in projects", hint="run the command without --project"
        )
    if project and environment.project is None:
        raise UsageError(
            f"there is no {PROJECT_FOLDER} folder here or above",
            hint="create one with kiwi init, or run it in a project",
        )


def _report(session: Session, plan: Sequence[FileChange], dry_run: bool) -> None:
    if session.as_json:
        session.print_json({"dry_run": dry_run, "changes": [_as_dict(change) for change in plan]})
    elif dry_run:
        for line in [line for change in plan for line in change.diff().splitlines()]:
            session.print(render.safe(line))
    if not plan:
        session.notify("nothing to change")
    for change in () if dry_run else plan:
        backup = _backup_path(change)
        verb = "removed" if change.after is None else "wrote"
        session.notify(f"{verb} {change.file.path}{f'; backup: {backup}' if backup else ''}")


def _as_dict(change: FileChange) -> dict[str, object]:
    return {
        "path": str(change.file.path),
        "action": change.action,
        "backup": _backup_path(change),
        "diff": change.diff(),
    }


def _backup_path(change: FileChange) -> str | None:
    return str(change.backup) if change.backup and change.file.data is not None else None


def _advise(session: Session, client: Client, project: bool, toolsets: str) -> None:
    if project and shutil.which("kiwi") is None:
        session.notify("kiwi is not on your PATH, so the client cannot start it: uv tool install PATH-OF-KIWI, or pipx")
    if client.without_rules and not project:
        session.notify(f"{client.without_rules}:\n    {agent_instructions(toolsets)}")


_IGNORE = b"# The index is built from the signed files; do not commit it.\nvectors/\n"


@command(epilog="Example: kiwi init, or kiwi init ../service")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
def init(session: Session, folder: Path) -> None:
    """Create a project's .ai folder, with a folder for each item type. Can be run again."""
    root = folder.resolve() / PROJECT_FOLDER
    if root == home_of(process_environment()).resolve():
        raise UsageError(
            f"{root} is the folder of the user tier, not of a project", hint="run kiwi init in the project's folder"
        )
    try:
        for item_type in ITEM_TYPES:
            (root / item_type.folder).mkdir(parents=True, exist_ok=True)
        create_file(root / ".gitignore", _IGNORE, mode=0o644)
    except OSError as error:
        raise StoreError(f"cannot create {root}: {error.strerror}") from error
    session.notify(f"{root} is ready: {', '.join(f'{t.folder}/' for t in ITEM_TYPES)}")
    session.notify("next: kiwi keys new, add an item, kiwi sign .ai, kiwi index")


@command("config", epilog="Example: kiwi config --resolved")
@option("--resolved", is_flag=True, help="Also show the source of each value.")
def show_config(session: Session, resolved: bool) -> None:
    """Show the current settings: defaults < ~/.ai/config.yaml < .ai/config.yaml < KIWI_* < flags."""
    origins = session.app().resolved.origins
    lines = (f"{o.name}: {o.shown}" + (f"  # {o.source}" if resolved else "") for o in origins)
    data = {o.name: {"value": o.shown, "from": o.source} for o in origins}
    session.print_data(data, map(render.safe, lines))


@command(epilog="Example: kiwi completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(session: Session, shell: str) -> None:
    """Print the completion script of a shell."""
    from click.shell_completion import get_completion_class

    from kiwi_rag.cli import kiwi

    found = get_completion_class(shell)
    if found is None:
        raise UsageError(f"there is no completion for {shell}")
    session.print(found(kiwi, {}, "kiwi", "_KIWI_COMPLETE").source())
