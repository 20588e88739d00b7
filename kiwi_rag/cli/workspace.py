"""``kiwi workspace hooks``: git brings the index up to date after merges, checkouts and rebases."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from kiwi_rag import render
from kiwi_rag.cli.session import DONE, FAILED, PARTLY, Session
from kiwi_rag.cli.workspace_index import ROOT, STORE, index, stand_in, watch
from kiwi_rag.config import PROJECT_FOLDER, find_project, home_of, process_environment
from kiwi_rag.formats.documents import FILE_TYPES
from kiwi_rag.integrations.git_hooks import FOLDER, HookPlan, plan_install, plan_removal, remove_run_files
from kiwi_rag.model import Filters
from kiwi_rag.model.search import DocumentQuery, DocumentReply
from kiwi_rag.services import Services

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
    plan.apply()
    if remove:
        remove_run_files(plan.repository)
    _report(session, plan)
    if not remove and not plan.is_empty:
        _advise(session, plan, workspace)


def _project(session: Session) -> Path:
    if session.project:
        return session.project
    found = find_project(Path.cwd(), home_of(process_environment()))
    return found.parent if found else Path.cwd()


def _report(session: Session, plan: HookPlan) -> None:
    changes = [{"path": str(change.file.path), "action": change.action} for change in plan.changes]
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


FORMATS = ["text", "json", "jsonl", "paths"]


@click.group(epilog='Example: kiwi workspace index, then kiwi workspace search "which services call svc-x"')
def workspace() -> None:
    """Index and search a repository's own documents: specs, decisions, code, diagrams, notes."""


@workspace.command(epilog='Example: kiwi workspace search "POST /check-ins" --file-type openapi')
@click.argument("query", nargs=-1, required=True)
@click.option("--root", type=click.Path(path_type=Path, exists=True, file_okay=False), help="The workspace's root.")
@click.option("--file-type", type=click.Choice(FILE_TYPES), default=None, help="Only files of this type.")
@click.option("--service", default="", help="Only files about this service.")
@click.option("--domain", default="", help="Only files of this domain.")
@click.option("--path", default="", help="Only this file or folder, or paths that this pattern with * matches.")
@click.option("--limit", "-n", type=int, help="Hits to show; default 10.")
@click.option("--per-file", type=click.IntRange(min=0), default=2, show_default=True, help="Hits of one file; 0: any.")
@click.option("--alpha", type=float, default=None, help="Weight of the vector leg, 0 to 1.")
@click.option("--explain", is_flag=True, help="Show how each score came about.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@STORE
@click.pass_obj
def search(
    session: Session,
    query: tuple[str, ...],
    root: Path | None,
    file_type: str | None,
    service: str,
    domain: str,
    path: str,
    limit: int | None,
    per_file: int,
    alpha: float | None,
    explain: bool,
    form: str,
    store: str | None,
) -> int:
    """Find passages of documents by meaning and by words; each is verified before it is shown."""
    stand_in(session, root)

    async def ask(app: Services) -> DocumentReply:
        from kiwi_rag.services.workspace import Workspace

        async with Workspace(app) as opened:
            meant = opened.config.resolve_search_path(path)
            filters = Filters(file_type=file_type or "", service=service, domain=domain, path=meant)
            asked = DocumentQuery(" ".join(query), filters, app.settings.limit, per_file, alpha)
            return await opened.searcher.search(asked)

    reply = session.run(ask, limit=limit, workspace_store=store)
    _show(session, reply, form, explain)
    return exit_code_of(reply)


@workspace.command("list", epilog="Example: kiwi workspace list --file-type adr")
@ROOT
@click.option("--file-type", type=click.Choice(FILE_TYPES), default=None, help="Only files of this type.")
@click.option("--service", default="", help="Only files about this service.")
@click.option("--domain", default="", help="Only files of this domain.")
@click.option("--path", default="", help="Only this file or folder, or paths that this pattern with * matches.")
@STORE
@click.pass_obj
def list_documents(
    session: Session, root: Path | None, file_type: str | None, service: str, domain: str, path: str, store: str | None
) -> int:
    """List the documents that the index holds, with their types, services and passages."""
    from kiwi_rag.services.workspace import Workspace
    from kiwi_rag.usecases.workspace_status import documents

    stand_in(session, root)

    async def look(app: Services) -> tuple[list[dict[str, Any]], int]:
        async with Workspace(app) as opened:
            meant = opened.config.resolve_search_path(path)
            filters = Filters(file_type=file_type or "", service=service, domain=domain, path=meant)
            return await documents(opened.searcher, filters)

    rows, refused = session.run(look, workspace_store=store)
    if session.as_json:
        session.data(rows)
    for row in [] if session.as_json else rows:
        about = "  ".join(str(row[name]) for name in ("service", "domain", "title") if row[name])
        session.out(render.safe(f"{row['path']}  {row['file_type']}  {row['passages']}  {about}".rstrip()))
    if refused:
        session.say(f"{refused} documents do not verify, and are not listed")
    return PARTLY if refused else DONE


@workspace.command(epilog="Example: kiwi workspace stats, or for programs: kiwi --json workspace stats")
@ROOT
@STORE
@click.pass_obj
def stats(session: Session, root: Path | None, store: str | None) -> int:
    """Show what the index holds, and whether its last run was completed."""
    from kiwi_rag.render.documents import workspace_text
    from kiwi_rag.services.workspace import Workspace
    from kiwi_rag.usecases.workspace_status import collect_workspace_status

    stand_in(session, root)

    async def look(app: Services) -> Mapping[str, Any]:
        async with Workspace(app) as opened:
            return await collect_workspace_status(opened.config, opened.tier if opened.is_indexed else None)

    told = session.run(look, workspace_store=store)
    session.data(told) if session.as_json else session.out(workspace_text(told))
    return DONE


for command in (index, watch, hooks):
    workspace.add_command(command)


def exit_code_of(reply: DocumentReply) -> int:
    """Return 0 when complete, 3 when a hit was refused or the index is not, 1 when it did not answer."""
    if reply.complete:
        return DONE
    return PARTLY if reply.outcome.state in ("ok", "refused") else FAILED


def _show(session: Session, reply: DocumentReply, form: str, explain: bool) -> None:
    from kiwi_rag.render import documents

    if session.as_json:
        session.data(documents.documents_json(reply))
    elif form == "json":
        session.data(documents.documents_json(reply)["hits"])
    elif form == "jsonl":
        for rank, hit in enumerate(reply.hits, start=1):
            session.out(render.json_text(documents.document_json(rank, hit), indent=None))
    elif reply.hits:
        text = documents.documents_paths(reply) if form == "paths" else None
        session.out(text or documents.documents_text(reply, session.style, explain))
    for line in documents.document_notices(reply):
        session.say(line)
