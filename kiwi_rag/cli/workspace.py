"""``kiwi workspace``: search, list and stats of a workspace's documents, and its git hooks."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from kiwi_rag import render
from kiwi_rag.cli.session import DONE, FAILED, PARTLY, Session
from kiwi_rag.cli.workspace_index import ROOT, STORE, index, set_project, watch
from kiwi_rag.config import PROJECT_FOLDER, find_project, home_of, process_environment
from kiwi_rag.formats.documents import FILE_TYPES
from kiwi_rag.integrations.git_hooks import FOLDER, HookPlan, plan_install, plan_removal, remove_run_files
from kiwi_rag.model import Filters
from kiwi_rag.model.search import DocumentQuery, DocumentReply
from kiwi_rag.render import documents
from kiwi_rag.services import Services
from kiwi_rag.services.workspace import Workspace
from kiwi_rag.usecases import workspace as use_case

FORMATS = ["text", "json", "jsonl", "paths"]


@click.group(epilog='Example: kiwi workspace index, then kiwi workspace search "which services call svc-x"')
def workspace() -> None:
    """Index and search the documents of a repository: specifications, decisions, code, diagrams and notes."""


@workspace.command(epilog='Example: kiwi workspace search "POST /check-ins" --file-type openapi')
@click.argument("query", nargs=-1, required=True)
@click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Root folder of the workspace. Default: this project.",
)
@click.option("--file-type", type=click.Choice(FILE_TYPES), default=None, help="Only files of this type.")
@click.option("--service", default="", help="Only files about this service.")
@click.option("--domain", default="", help="Only files of this domain.")
@click.option("--path", default="", help="Only this file or folder, or the files that a pattern with * matches.")
@click.option("--limit", "-n", type=int, help="Number of hits to show. Default: 10.")
@click.option(
    "--per-file", type=click.IntRange(min=0), default=2, show_default=True, help="Most hits of one file. 0: no limit."
)
@click.option("--alpha", type=float, default=None, help="Weight of the vector leg, 0 (words only) to 1 (vectors only).")
@click.option("--explain", is_flag=True, help="Show how each score was computed.")
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
    """Find passages of documents by meaning and by words. Each is verified before it is shown."""
    set_project(session, root)

    async def find(app: Services) -> DocumentReply:
        async with Workspace(app) as opened:
            meant = opened.config.resolve_search_path(path)
            filters = Filters(file_type=file_type or "", service=service, domain=domain, path=meant)
            document_query = DocumentQuery(" ".join(query), filters, app.settings.limit, per_file, alpha)
            return await use_case.search(opened, document_query)

    reply = session.run(find, limit=limit, workspace_store=store)
    _show(session, reply, form, explain)
    return exit_code_of(reply)


@workspace.command("list", epilog="Example: kiwi workspace list --file-type adr")
@ROOT
@click.option("--file-type", type=click.Choice(FILE_TYPES), default=None, help="Only files of this type.")
@click.option("--service", default="", help="Only files about this service.")
@click.option("--domain", default="", help="Only files of this domain.")
@click.option("--path", default="", help="Only this file or folder, or the files that a pattern with * matches.")
@STORE
@click.pass_obj
def list_documents(
    session: Session, root: Path | None, file_type: str | None, service: str, domain: str, path: str, store: str | None
) -> int:
    """List the indexed documents with type, passages, service, domain and title."""
    set_project(session, root)

    async def read(app: Services) -> tuple[list[dict[str, Any]], int]:
        async with Workspace(app) as opened:
            meant = opened.config.resolve_search_path(path)
            filters = Filters(file_type=file_type or "", service=service, domain=domain, path=meant)
            return await use_case.documents(opened.searcher, filters)

    rows, refused = session.run(read, workspace_store=store)
    session.print_data(rows, map(_line, rows))
    if refused:
        session.notify(f"{refused} documents are not listed, because they do not verify")
    return PARTLY if refused else DONE


def _line(row: Mapping[str, Any]) -> str:
    about = "  ".join(str(row[name]) for name in ("service", "domain", "title") if row[name])
    return render.safe(f"{row['path']}  {row['file_type']}  {row['passages']}  {about}".rstrip())


@workspace.command(epilog="Example: kiwi workspace stats, or for programs: kiwi --json workspace stats")
@ROOT
@STORE
@click.pass_obj
def stats(session: Session, root: Path | None, store: str | None) -> int:
    """Show what is indexed, and whether the last indexing was completed."""
    set_project(session, root)

    async def read(app: Services) -> Mapping[str, Any]:
        async with Workspace(app) as opened:
            return await use_case.collect_workspace_status(opened)

    report = session.run(read, workspace_store=store)
    session.print_data(report, [documents.workspace_text(report)])
    return DONE


def exit_code_of(reply: DocumentReply) -> int:
    """Return 0 for a complete reply, 3 when a hit was refused or the index is incomplete, 1 when it did not answer."""
    if reply.complete:
        return DONE
    return PARTLY if reply.outcome.state in ("ok", "refused") else FAILED


def _show(session: Session, reply: DocumentReply, form: str, explain: bool) -> None:
    if session.as_json:
        session.print_json(documents.documents_json(reply))
    elif form == "json":
        session.print_json(documents.documents_json(reply)["hits"])
    elif form == "jsonl":
        for rank, hit in enumerate(reply.hits, start=1):
            session.print(render.json_text(documents.document_json(rank, hit), indent=None))
    elif reply.hits:
        text = documents.documents_paths(reply) if form == "paths" else None
        session.print(text or documents.documents_text(reply, session.style, explain))
    for line in documents.document_notices(reply):
        session.notify(line)


_EXAMPLES = """\b
Example: kiwi workspace hooks            write .githooks and set core.hooksPath, or add lines to your own hooks
         kiwi workspace hooks --remove   remove Kiwi's lines again
"""


@click.command(epilog=_EXAMPLES)
@click.argument("root", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--local", is_flag=True, help="Write the hooks to git's own folder, which is not committed.")
@click.option("--remove", is_flag=True, help="Remove Kiwi's lines again.")
@click.pass_obj
def hooks(session: Session, root: Path | None, local: bool, remove: bool) -> None:
    """Install git hooks that update the index in the background after merges, branch checkouts and rebases."""
    workspace = (root or _project(session)).absolute()
    plan = plan_removal(workspace) if remove else plan_install(workspace, local=local)
    plan.apply()
    if remove:
        remove_run_files(plan.repository)
    _report_hooks(session, plan)
    if not remove and not plan.is_empty:
        _print_next_steps(session, plan, workspace)


def _project(session: Session) -> Path:
    if session.project:
        return session.project
    found = find_project(Path.cwd(), home_of(process_environment()))
    return found.parent if found else Path.cwd()


def _report_hooks(session: Session, plan: HookPlan) -> None:
    changes = [{"path": str(change.file.path), "action": change.action} for change in plan.changes]
    setting = {True: f"set core.hooksPath to {FOLDER}", False: "unset core.hooksPath", None: ""}[plan.hooks_path]
    if session.as_json:
        left = [str(path) for path in plan.left]
        session.print_json({"changes": changes, "sets_hooks_path": plan.hooks_path, "left": left})
    for change in changes:
        session.notify(f"{'removed' if change['action'] == 'remove' else 'wrote'} {change['path']}")
    if setting:
        session.notify(setting)
    for path in plan.left:
        session.notify(f"{path} is kept, because it is committed; git no longer runs it here")
    if plan.is_empty:
        session.notify("nothing to change")


def _print_next_steps(session: Session, plan: HookPlan, workspace: Path) -> None:
    if not (workspace / PROJECT_FOLDER).is_dir():
        session.notify(f"the hooks update an existing index only; create it with: kiwi workspace index {workspace}")
    if shutil.which("kiwi") is None:
        session.notify("kiwi is not on your PATH, so the hooks have no effect until it is")
    if plan.hooks_path:
        session.notify(f"next: git add {FOLDER}; after cloning the repository run kiwi workspace hooks once")


for command in (index, watch, hooks):
    workspace.add_command(command)
