"""``kiwi workspace hooks``: git brings the index up to date after merges, checkouts and rebases."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from kiwi_rag.cli.session import Session
from kiwi_rag.clients.hook_places import FOLDER
from kiwi_rag.clients.hooks import HookPlan, forget_runs, plan_install, plan_removal
from kiwi_rag.config import PROJECT_FOLDER, find_project, home_of, process_environment

_EXAMPLES = """\b
Example: kiwi workspace hooks            .githooks, to be committed, and core.hooksPath; or lines in your own hooks
         kiwi workspace hooks --remove   take Kiwi's lines out again
"""


@click.command(epilog=_EXAMPLES)
@click.argument("root", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--local", is_flag=True, help="Into git's own folder, where no commit can change them.")
@click.option("--remove", is_flag=True, help="Take Kiwi's lines out again.")
@click.pass_obj
def hooks(session: Session, root: Path | None, local: bool, remove: bool) -> None:
    """Let git bring the workspace's index up to date, in the background, after merges, branch checkouts and rebases."""
    workspace = (root or _project(session)).absolute()
    plan = plan_removal(workspace) if remove else plan_install(workspace, local=local)
    plan.carry_out()
    if remove:
        forget_runs(plan.repository)
    _report(session, plan)
    if not remove and not plan.is_empty:
        _advise(session, plan, workspace)


def _project(session: Session) -> Path:
    if session.project:
        return session.project
    found = find_project(Path.cwd(), home_of(process_environment()))
    return found.parent if found else Path.cwd()


def _report(session: Session, plan: HookPlan) -> None:
    changes = [{"path": str(file.path), "action": "remove" if after is None else "write"} for file, after in plan.files]
    setting = {True: f"set core.hooksPath to {FOLDER}", False: "unset core.hooksPath", None: ""}[plan.hooks_path]
    if session.as_json:
        left = [str(path) for path in plan.left]
        session.data({"changes": changes, "sets_hooks_path": plan.hooks_path, "left": left})
    for change in changes:
        session.say(f"{'removed' if change['action'] == 'remove' else 'wrote'} {change['path']}")
    if setting:
        session.say(setting)
    for path in plan.left:
        session.say(f"{path} is committed, and stays for the others; git no longer runs it here")
    if plan.is_empty:
        session.say("nothing to change")


def _advise(session: Session, plan: HookPlan, workspace: Path) -> None:
    if not (workspace / PROJECT_FOLDER).is_dir():
        session.say(f"there is no index here yet, and the hooks make none: kiwi workspace index {workspace}")
    if shutil.which("kiwi") is None:
        session.say("kiwi is not on your PATH, where git will look for it; until it is, the hooks do nothing")
    if plan.hooks_path:
        session.say(f"next: git add {FOLDER}; whoever clones the repository runs this command once")
