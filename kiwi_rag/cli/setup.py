"""``kiwi setup``, ``init``, ``config`` and ``completion``: what is set up once."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import click

from kiwi_rag import render
from kiwi_rag.cli.session import Session
from kiwi_rag.config import PROJECT_FOLDER, find_project, home_of, process_environment
from kiwi_rag.errors import StoreError, UsageError
from kiwi_rag.integrations.ai_clients import (
    CLIENTS,
    TOOLSETS,
    Client,
    ClientEnvironment,
    agent_instructions,
    plan_setup,
)
from kiwi_rag.integrations.client_files import Backups, FileChange
from kiwi_rag.integrations.editor_tasks import THEN, plan_tasks
from kiwi_rag.model.refs import ITEM_TYPES
from kiwi_rag.storage.atomic import create_file

_EXAMPLES = """\b
Example: kiwi setup claude --project     .mcp.json and CLAUDE.md of this project, for the whole team
         kiwi setup codex --dry-run      what would change in ~/.codex, as a diff
         kiwi setup cursor --remove      take Kiwi out again
         kiwi setup vscode --tasks       .vscode/tasks.json: index the workspace, and watch it
"""


@click.command(epilog=_EXAMPLES)
@click.argument("client", type=click.Choice(list(CLIENTS)))
@click.option("--project", is_flag=True, help="This project's files, for everybody who works on it, in place of yours.")
@click.option("--tasks", is_flag=True, help="Of VS Code, the project's tasks instead: watch and index the workspace.")
@click.option("--toolsets", default=TOOLSETS, show_default=True, help="What the server offers, separated by commas.")
@click.option("--remove", is_flag=True, help="Take Kiwi's part out again.")
@click.option("--dry-run", is_flag=True, help="Print the changes as a unified diff; write nothing.")
@click.pass_obj
def setup(
    session: Session, client: str, project: bool, tasks: bool, toolsets: str, remove: bool, dry_run: bool
) -> None:
    """Make a client start Kiwi as its MCP server, and tell its agent to ask Kiwi before it reads files."""
    from kiwi_rag.mcp.toolsets import parse_names

    if tasks and client != "vscode":
        raise UsageError(f"{CLIENTS[client].title} has no tasks", hint="kiwi setup vscode --tasks")
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
        session.say(f"next: {THEN if tasks else known.then}")


def _project(session: Session, *, anywhere: bool) -> Path | None:
    found = (
        session.project / PROJECT_FOLDER
        if session.project
        else find_project(Path.cwd(), home_of(process_environment()))
    )
    project = found.absolute().parent if found else None
    if project is None and anywhere:
        from kiwi_rag.sources.workspace.config import git_root

        project = git_root(Path.cwd()) or Path.cwd()
    return project


def _refuse_wrong_level(client: Client, environment: ClientEnvironment, project: bool) -> None:
    if project and client.project is None:
        raise UsageError(f"{client.title} keeps nothing in projects", hint="run it without --project")
    if project and environment.project is None:
        raise UsageError("there is no project here", hint="kiwi init makes one; or run it in a project's folder")


def _report(session: Session, plan: Sequence[FileChange], dry_run: bool) -> None:
    if session.as_json:
        session.data({"dry_run": dry_run, "changes": [_as_dict(change) for change in plan]})
    elif dry_run:
        for line in [line for change in plan for line in change.diff().splitlines()]:
            session.out(render.safe(line))
    if not plan:
        session.say("nothing to change")
    for change in () if dry_run else plan:
        kept = _kept(change)
        verb = "removed" if change.after is None else "wrote"
        session.say(f"{verb} {change.file.path}{f'; as it was: {kept}' if kept else ''}")


def _as_dict(change: FileChange) -> dict[str, object]:
    return {"path": str(change.file.path), "action": change.action, "backup": _kept(change), "diff": change.diff()}


def _kept(change: FileChange) -> str | None:
    return str(change.backup) if change.backup and change.file.data is not None else None


def _advise(session: Session, client: Client, project: bool, toolsets: str) -> None:
    if project and shutil.which("kiwi") is None:
        session.say(
            "kiwi is not on your PATH, where the client will look for it: uv tool install PATH-OF-KIWI, or pipx"
        )
    if client.without_rules and not project:
        session.say(f"{client.without_rules}:\n    {agent_instructions(toolsets)}")


_IGNORE = b"# The index is made from the signed files beside it; it never belongs in a repository.\nvectors/\n"


@click.command(epilog="Example: kiwi init, or kiwi init ../service")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
@click.pass_obj
def init(session: Session, folder: Path) -> None:
    """Make a project's .ai folder with a place for each type of item. Safe to run again."""
    root = folder.resolve() / PROJECT_FOLDER
    if root == home_of(process_environment()).resolve():
        raise UsageError(f"{root} is the user tier, not a project's", hint="run it in the project's folder")
    try:
        for item_type in ITEM_TYPES:
            (root / item_type.folder).mkdir(parents=True, exist_ok=True)
        create_file(root / ".gitignore", _IGNORE, mode=0o644)
    except OSError as error:
        raise StoreError(f"cannot make {root}: {error.strerror}") from error
    session.say(f"{root} is ready: directives/, scripts/, knowledge/")
    session.say("next: kiwi keys new, put an item there, kiwi sign .ai, kiwi index")


@click.command("config", epilog="Example: kiwi config --resolved")
@click.option("--resolved", is_flag=True, help="Also where each value came from.")
@click.pass_obj
def show_config(session: Session, resolved: bool) -> None:
    """Show the settings in force: defaults < ~/.ai/config.yaml < .ai/config.yaml < KIWI_* < flags."""
    origins = session.app().resolved.origins
    if session.as_json:
        session.data({o.name: {"value": o.shown, "from": o.source} for o in origins})
        return
    for origin in origins:
        came = f"  # {origin.source}" if resolved else ""
        session.out(render.safe(f"{origin.name}: {origin.shown}{came}"))


@click.command(epilog="Example: kiwi completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_obj
def completion(session: Session, shell: str) -> None:
    """Print the completion script of a shell."""
    from click.shell_completion import get_completion_class

    from kiwi_rag.cli import kiwi

    found = get_completion_class(shell)
    if found is None:
        raise UsageError(f"no completion for {shell}")
    session.out(found(kiwi, {}, "kiwi", "_KIWI_COMPLETE").source())
