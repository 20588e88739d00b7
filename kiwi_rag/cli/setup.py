"""``kiwi setup``, ``init``, ``config``, ``completion``, ``status``, ``usage``, ``doctor`` and ``audit``."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import click

from kiwi_rag import render
from kiwi_rag.cli.session import DONE, PARTLY, Session, command, option
from kiwi_rag.cli.trust import propose_project_trust
from kiwi_rag.collection import MEMORY, RANKS
from kiwi_rag.config import PROJECT_FOLDER, home_of, process_environment
from kiwi_rag.errors import UsageError
from kiwi_rag.integrations import ai_clients
from kiwi_rag.integrations.ai_clients import CLIENTS, TOOLSETS, Client, ClientEnvironment, plan_setup
from kiwi_rag.integrations.client_files import Backups, FileChange
from kiwi_rag.model.refs import ITEM_TYPES
from kiwi_rag.services import Services
from kiwi_rag.storage.atomic import create_file, disk_errors
from kiwi_rag.usecases.project_trust import next_step
from kiwi_rag.usecases.status import collect_status, diagnose

_EXAMPLES = """\b
Example: kiwi setup claude --project     .mcp.json and CLAUDE.md of this project, for the whole team
         kiwi setup codex --dry-run      show the changes in ~/.codex as a diff
         kiwi setup cursor --remove      remove Kiwi again
         kiwi setup vscode --tasks       .vscode/tasks.json: index and watch the workspace
         kiwi setup claude --memory      ~/.claude/settings.json: remember finished exchanges
"""


@command(epilog=_EXAMPLES)
@click.argument("name", type=click.Choice(list(CLIENTS)))
@option("--project", is_flag=True, help="Change this project's files, which the team shares, not your own.")
@option("--tasks", is_flag=True, help="Only with vscode: add tasks to the project that index and watch the workspace.")
@option("--memory", is_flag=True, help="Only with claude: add hooks that remember what was said in its sessions.")
@option("--recall", is_flag=True, help="With --memory: also add what is remembered to each prompt.")
@option(
    "--toolsets", default="", help=f"Toolsets, separated by commas. Default: {TOOLSETS}, in a project documents too."
)
@option("--remove", is_flag=True, help="Remove what kiwi setup added.")
@option("--dry-run", is_flag=True, help="Print the changes as a unified diff; write nothing.")
def setup(
    session: Session, name: str, project: bool, tasks: bool, memory: bool, recall: bool, toolsets: str, remove: bool,
    dry_run: bool,
) -> None:  # fmt: skip
    """Configure an AI client to start Kiwi as an MCP server, and its agent to search Kiwi before it reads files.

    In a project whose trust file you have not pinned, its signers are listed, and you are asked whether to trust them.
    """
    from kiwi_rag.mcp.toolsets import parse_names

    known, toolsets = CLIENTS[name], ",".join(parse_names(toolsets)) if toolsets else ""
    _check_options(known, tasks=tasks, memory=memory, recall=recall)
    project_folder = _project(session, known, needed=project, anywhere=tasks)
    environment = ClientEnvironment(Path.home(), project_folder, sys.platform, process_environment())
    backups = Backups(home_of(process_environment()) / "clients")
    with nullcontext() if dry_run else backups.locked():
        if tasks and project_folder:
            plan = ai_clients.plan_tasks(project_folder, backups, remove=remove)
        elif memory:
            plan = ai_clients.plan_memory(known, environment, backups, project=project, remove=remove, recall=recall)
        else:
            plan = plan_setup(known, environment, backups, project=project, remove=remove, toolsets=toolsets)
        for change in () if dry_run else plan:
            change.apply(0o644 if project or tasks else 0o600)
    _report(session, plan, dry_run)
    if plan and not (dry_run or remove):
        _advise(session, known, project or tasks, toolsets)
        session.notify(*ai_clients.MEMORY_PLACES if memory else ())
        session.notify(f"next: {ai_clients.THEN if tasks else ai_clients.THEN_MEMORY if memory else known.then}")
    if not (dry_run or remove):
        propose_project_trust(session, session.app())


def _check_options(client: Client, *, tasks: bool, memory: bool, recall: bool) -> None:
    if tasks and client != CLIENTS["vscode"]:
        hint = "kiwi setup vscode --tasks"
        raise UsageError(f"--tasks works with vscode only, not with {client.title}", hint=hint)
    if (memory and tasks) or (recall and not memory):
        hint = "kiwi setup claude --memory --recall"
        raise UsageError("--recall works with --memory only, and --memory without --tasks", hint=hint)


def _project(session: Session, client: Client, *, needed: bool, anywhere: bool) -> Path | None:
    """Return the folder of the project, or for tasks that of the repository; None if it is not `needed`."""
    found = session.find_project()
    if anywhere and not found:
        from kiwi_rag.sources.workspace.config import git_root

        found = git_root(Path.cwd()) or Path.cwd()
    if needed and client.project is None:
        message = f"{client.title} has no configuration files in projects"
        raise UsageError(message, hint="run the command without --project")
    if needed and not found:
        message = f"there is no {PROJECT_FOLDER} folder here or above"
        raise UsageError(message, hint="create one with kiwi init, or run it in a project")
    return found.absolute() if found else None


def _report(session: Session, plan: Sequence[FileChange], dry_run: bool) -> None:
    rows = [{"path": str(c.file.path), "action": c.action, "backup": c.kept_at, "diff": c.diff()} for c in plan]
    diff = (render.safe(line) for change in plan for line in change.diff().splitlines())
    session.print_data({"dry_run": dry_run, "changes": rows}, diff if dry_run else ())
    if not (dry_run and plan):
        session.notify(*map(str, plan) if plan else ["nothing to change"])


def _advise(session: Session, client: Client, project: bool, toolsets: str) -> None:
    if project and shutil.which("kiwi") is None:
        session.notify("kiwi is not on your PATH, so the client cannot start it: uv tool install PATH-OF-KIWI, or pipx")
    if client.without_rules and not project:
        session.notify(f"{client.without_rules}:", f"    {ai_clients.agent_instructions(toolsets or TOOLSETS)}")


_IGNORE = b"# The index is built from the signed files; do not commit it.\nvectors/\n"


@command(epilog="Example: kiwi init, or kiwi init ../service")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
def init(session: Session, folder: Path) -> None:
    """Create a project's .ai folder, with a folder for each item type. Can be run again."""
    root = folder.resolve() / PROJECT_FOLDER
    if root == home_of(process_environment()).resolve():
        message = f"{root} is the folder of the user tier, not of a project"
        raise UsageError(message, hint="run kiwi init in the project's folder")
    with disk_errors(root, "create"):
        for item_type in ITEM_TYPES:
            (root / item_type.folder).mkdir(parents=True, exist_ok=True)
        create_file(root / ".gitignore", _IGNORE, mode=0o644)
    ready = f"{root} is ready: {', '.join(f'{t.folder}/' for t in ITEM_TYPES)}"
    files = "kiwi add FILE below it, or kiwi import PATH for files that you have"
    session.notify(ready, f"next: kiwi keys new --principal YOU@EXAMPLE, then {files}; for a team kiwi trust share")


@command("config", epilog="Example: kiwi config --resolved")
@option("--resolved", is_flag=True, help="Also show the source of each value, and what it is.")
def show_config(session: Session, resolved: bool) -> None:
    """Show the current settings: defaults < ~/.ai/config.yaml < .ai/config.yaml < KIWI_* < flags."""
    found = session.app().resolved
    session.notify(*found.notices)
    lines = (f"{o.name}: {o.shown}" + (f"  # {o.source}: {o.what}" if resolved else "") for o in found.origins)
    data = {o.name: {"value": o.shown, "from": o.source, "what": o.what} for o in found.origins}
    session.print_data(data, map(render.safe, lines))


@command(epilog="Example: kiwi completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(session: Session, shell: str) -> None:
    """Print the completion script of a shell."""
    from click.shell_completion import shell_complete

    from kiwi_rag.cli import kiwi

    shell_complete(kiwi, {}, "kiwi", "_KIWI_COMPLETE", f"{shell}_source")


_DAYS = re.compile(r"(\d{1,5})d?", re.ASCII)


@command(epilog="Example: kiwi status")
async def status(session: Session, app: Services) -> int:
    """Show the tiers, the model, the cache, the latest errors and the local service, without starting anything."""
    data = await collect_status(app)
    session.print_data(data, render.status_lines(data))
    session.notify("" if session.as_json else render.status_notice(data), next_step(app))
    return PARTLY if any(row["problems"] for row in data["tiers"]) else DONE


@command(epilog="Example: kiwi usage, kiwi usage --by run, or kiwi --json usage --since 7d")
@option("--since", default="30d", metavar="DAY|Nd", help="First day, or number of days.")
@option("--by", choices=("day", "run"), default="day", help="A line for each day, or for each command and tool call.")
def usage(session: Session, since: str, by: str) -> None:
    """Show the remote embedding of each day (UTC) or run, and model: calls, texts, tokens, cost, latency and failures.

    Costs are computed from list prices or the setting embedding_prices; + or ? marks sums with unknown prices.
    """
    from kiwi_rag.embedding.usage import usage_rows

    first, log = first_day(since, datetime.now(UTC).date()), session.app().settings.cache_path / "usage.jsonl"
    rows = usage_rows(log, first, by)
    data = {"since": first.isoformat(), "log": str(log), "rows": rows}
    session.print_data(data, render.usage_lines(rows) if rows else ())
    session.notify("" if rows else f"nothing was embedded remotely since {first}; the log is {log}")


@command(epilog="Example: kiwi doctor --repair")
@option("--repair", is_flag=True, help="Repair indexes as far as possible without embedding again.")
async def doctor(session: Session, app: Services, repair: bool) -> int:
    """Check keys, trust, model, indexes, audit chains and versions. Exit code 3: there are problems."""
    found = await diagnose(app, repair=repair)
    session.notify(*found.notices)
    lines = [*(f"repaired  {line}" for line in found.repaired), *(f"problem  {line}" for line in found.problems)]
    session.print_data({"problems": found.problems, "repaired": found.repaired}, map(render.safe, lines))
    advice = "repair indexes with kiwi doctor --repair, and the rest as each line says"
    session.notify(advice if found.problems else "no problems")
    return PARTLY if found.problems else DONE


@command(epilog="Example: kiwi audit verify, or kiwi audit show --limit 20")
@click.argument("action", type=click.Choice(["show", "verify"]), default="show")
@option("--tier", choices=(*RANKS, MEMORY), help="Whose log. Default: project, outside of any user.")
@option("--since", type=int, default=0, help="Only records after this number.")
@option("--limit", type=click.IntRange(1, 100_000), default=1000, help="Only the newest N records.")
async def audit(session: Session, app: Services, action: str, tier: str | None, since: int, limit: int) -> None:
    """Show the audit log of a tier, or verify its hash chain and print the head.

    For a registry, `verify` also checks that the log contains the head that was pinned earlier.
    """
    from kiwi_rag.usecases import registry

    tier = tier or ("project" if app.project_dir else "user")
    if action == "show":
        rows = await registry.newest_records(app, tier, limit, since)
        session.print_data(rows, map(render.audit_line, rows), empty="the audit log is empty")
        return
    log = await registry.verify_log(app) if tier == "registry" else None
    head = log.head if log else registry.local_audit(app, tier).verify_chain()
    more = {"seen": log.pinned.seq, "records": log.all_read} if log else {}
    session.print_data({**asdict(head), **more}, [registry.describe_head(head)])
    session.notify(str(log or ""))


def first_day(since: str, today: date) -> date:
    """Return the day that `since` names: a date, or a number of days up to and including `today`.

    Raises
    ------
    UsageError
        When it is neither.
    """
    try:
        if number := _DAYS.fullmatch(since):
            return today - timedelta(days=max(int(number[1]), 1) - 1)
        return date.fromisoformat(since)
    except (ValueError, OverflowError):
        message = f"{since!r} is not a day or a number of days"
        raise UsageError(message, hint="--since 2026-01-31, or --since 7d") from None
