"""``kiwi workspace``: index, watch, search, list and stats of a workspace's documents, and its git hooks."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kiwi_rag import render
from kiwi_rag.cli.search import show_reply
from kiwi_rag.cli.session import DONE, FOLDER, PARTLY, TIME, Command, Group, Session, ask_passphrase, option
from kiwi_rag.config import PROJECT_FOLDER, WORKSPACE_STORES
from kiwi_rag.errors import UsageError
from kiwi_rag.formats.documents import FILE_TYPES
from kiwi_rag.formats.source import display_path
from kiwi_rag.ingest.sync import Callbacks
from kiwi_rag.model import Filters, SearchQuery
from kiwi_rag.render import counted, hits
from kiwi_rag.services import Services
from kiwi_rag.services.documents import DocumentIndex
from kiwi_rag.services.workspace import Workspace
from kiwi_rag.sources.source import SyncReport
from kiwi_rag.sources.workspace import watch as watching
from kiwi_rag.sources.workspace.watch import Retrying, RootMissing, Synced
from kiwi_rag.usecases import add as item_files
from kiwi_rag.usecases import filters_of, items
from kiwi_rag.usecases.status import collect_workspace_status, recorded_run

if TYPE_CHECKING:
    from kiwi_rag.ingest import IngestContext
    from kiwi_rag.integrations.git_hooks import HookPlan
    from kiwi_rag.signing.keys import SigningKey
    from kiwi_rag.usecases.sign import Draft

ROOT = click.argument("root", type=FOLDER, required=False, default=None)
STORE = option("--store", choices=WORKSPACE_STORES, help="Store of the index. Default: the setting workspace_store.")
NAME = option("--workspace", "name", help="Name of the workspace in statements. Required for a shared index.")
FILE_TYPE = option("--file-type", choices=FILE_TYPES, help="Only files of this type.")
SERVICE = option("--service", default="", help="Only files about this service.")
DOMAIN = option("--domain", default="", help="Only files of this domain.")
PATH = option("--path", default="", help="Only this file or folder, or the files that a pattern with * matches.")
_SETTINGS = {"limit": "limit", "store": "workspace_store", "name": "workspace_name"}
PROGRESS_SECONDS = 10.0
NICENESS = 10
"""By how much a watch lowers its priority: other processes go first."""
MAX_LISTED = 20
"""Number of failures and warnings that are listed without --verbose."""


class WorkspaceCommand(Command):
    """A command whose coroutine function gets the session, the open services and the workspace at ROOT."""

    opens: Callable[[Services], AbstractAsyncContextManager[Any]] = Workspace
    """Opens what the function gets beside the services."""

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function with the parameters, except those that are settings."""
        session, parameters = ctx.ensure_object(Session), dict(ctx.params)
        session.project = parameters.pop("root", None) or session.project
        flags = {_SETTINGS[name]: parameters.pop(name) for name in ctx.params.keys() & _SETTINGS}

        async def opened(app: Services) -> Any:
            async with self.opens(app) as documents:
                return await self.callback(session, app, documents, **parameters)

        return session.run(opened, **flags)


class _WorkspaceGroup(Group):
    command_class = WorkspaceCommand


@click.group(cls=_WorkspaceGroup, epilog='Example: kiwi workspace index, then kiwi workspace search "who calls svc-x"')
def workspace() -> None:
    """Index and search the documents of a repository: specifications, decisions, code, diagrams and notes."""


@workspace.command(epilog="Example: kiwi workspace index, or kiwi workspace index . --file docs/a.md")
@ROOT
@option("--file", "files", multiple=True, type=click.Path(path_type=Path), help="Only this file. Repeatable.")
@option("--rebuild", is_flag=True, help="Empty the index first.")
@option("--prune", is_flag=True, help="In a shared index, also remove documents whose files do not exist here.")
@STORE
@NAME
async def index(
    session: Session, app: Services, opened: Workspace, files: tuple[Path, ...], rebuild: bool, prune: bool
) -> int:
    """Update the index of ROOT. Default: this project, or this folder.

    Only changed files are read and embedded. All of them are found by words after seconds. Then they are embedded,
    documentation and recently changed files first. Files that .gitignore or .kiwiignore name are skipped. Can be
    stopped and run again. Exit code 3: some files could not be indexed; they are listed.
    """
    if rebuild and files:
        hint = "give one of them: --rebuild empties the whole index"
        raise UsageError("--rebuild and --file exclude each other", hint=hint)
    writer = await opened.writer(ask_passphrase, rebuild=rebuild)
    paths = [opened.config.relative_path(file) for file in files] or None
    outer, root = opened.outer, opened.config.root.resolve()
    nested = f"{root} is inside the workspace {outer}; from now on searches below {root} use its own index"
    session.notify(nested if outer else "")
    session.notify_old_index(opened.old_catalog)
    return await update_index(session, app, opened, writer, paths, prune=prune, rebuild=rebuild)


async def update_index(
    session: Session, app: Services, index: DocumentIndex, writer: IngestContext, paths: list[str] | None = None,
    *, prune: bool = False, rebuild: bool = False,
) -> int:  # fmt: skip
    """Update an index from all files, or those at `paths`, with progress and a report; return the exit code.

    The run is recorded in the history; `rebuild` says there that the index was emptied first.
    """
    with (
        recorded_run(app.user_dir, index.title, named=len(paths or ()), rebuild=rebuild) as report,
        session.progress_bar("words" if index.tier.words_first else "index documents", "files") as planned,
    ):
        callbacks = replace(index_callbacks(session, planned), report=lambda: report)
        await index.update(writer, paths, callbacks, prune=prune)
    return _report(session, app, index, report)


def index_callbacks(session: Session, planned: Callable[..., Callable[[int], None]], unit: str = "files") -> Callbacks:
    """Return the callbacks that show the progress of a run on a session's bar; without a terminal, as lines."""
    begin = planned if session.shows_progress else _progress_lines(session)
    return Callbacks(partial(begin, unit=unit), embedding=partial(begin, stage="vectors", unit="passages"))


@workspace.command(epilog="Example: kiwi workspace watch, in a separate terminal or as an editor's task")
@ROOT
async def watch(session: Session, app: Services, opened: Workspace) -> None:
    """Update the index of ROOT on every change of a file, until stopped. A saved file is found within two seconds.

    It is found by words at once, and embedded after that. Runs at low priority.
    """
    if nice := getattr(os, "nice", None):  # Windows has none
        nice(NICENESS)
    writer = await opened.writer(ask_passphrase)
    await app.embed.uncached.query("ready")  # load the model now; the cache would not load it
    embed = partial(opened.embed_missing, writer)
    outcomes = watching.watch(opened.config, partial(opened.update, writer, embed=False), embed)
    await session.report_until_stopped(f"watching {opened.config.root}", outcomes, partial(_report_outcome, session))
    session.notify("stopped")


async def watch_items(
    session: Session, app: Services, tier: str, signer: SigningKey | None, signed: Callable[[Draft], None]
) -> int:
    """Check and index the items of a tier when they are saved, until stopped; with a `signer` sign them before that.

    `signed` is called with each item that was signed.
    """
    what = f"watching the items in {app.root(tier)}{', and signing what is saved' if signer else ''}"
    outcomes = item_files.watch_items(app, tier, signer, signed)
    await session.report_until_stopped(what, outcomes, partial(_report_outcome, session, skipped="unsigned"))
    session.notify("stopped")
    return DONE


def _report_outcome(session: Session, outcome: object, skipped: str = "skipped") -> None:
    """Print a line for an update that changed something, and for the reason why none is possible.

    `skipped` is what skipped files are called.
    """
    if isinstance(outcome, Retrying):
        session.notify(f"{outcome.error.message}; trying again in {outcome.pause:g} s")
    elif isinstance(outcome, RootMissing):
        session.notify(f"{outcome.root} does not exist; waiting for it")
    elif isinstance(outcome, Synced):
        report = outcome.report
        named = [*report.indexed, *(f"-{path}" for path in report.removed)]
        if session.as_json:
            session.print(render.json_text({**report.as_dict(), "seconds": round(outcome.seconds, 3)}, indent=None))
        elif named or report.moved or outcome.whole:
            files = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
            counts = f"{len(report.indexed)} indexed, {len(report.removed)} removed{f': {files}' if files else ''}"
            session.print(render.safe(f"{counts}  {outcome.seconds:.1f} s"))
        _list(session, report, skipped)


def _progress_lines(session: Session) -> Callable[..., Callable[[int], None]]:
    """Return a replacement for a progress bar's function: it prints a line every ten seconds, whatever the stage."""
    last = time.monotonic()

    def begin(total: int, stage: str = "", unit: str = "files") -> Callable[[int], None]:
        done = 0

        def step(finished: int) -> None:
            nonlocal done, last
            done += finished
            if time.monotonic() - last >= PROGRESS_SECONDS:
                last = time.monotonic()
                session.notify(f"{f'{stage}: ' if stage else ''}{done} of {counted(total, unit)}")

        return step

    return begin


def _report(session: Session, app: Services, index: DocumentIndex, report: SyncReport) -> int:
    encoded, passages = getattr(app.embed, "encoded", 0), counted(report.passages, "passages")
    fresh, moved = len(report.indexed) - len(report.moved), len(report.moved)
    counts = (
        f"{fresh} indexed, {report.unchanged} unchanged, {moved} moved, {len(report.removed)} removed, "
        f"{len(report.skipped)} skipped, {len(report.failed)} failed; {passages}, {encoded} encoded"
    )
    session.print_data({**report.as_dict(), "encoded": encoded, "root": str(index.root)}, [counts])
    _list(session, report)
    return PARTLY if report.failed else DONE


def _list(session: Session, report: SyncReport, skipped: str = "skipped") -> None:
    """Print failures, warnings and skipped files, which are called `skipped`, on stderr."""
    lines = [
        f"{skipped if kind == 'skipped' else kind:<8} {display_path(Path(place))}: {text}{f' ({hint})' if hint else ''}"
        for kind, place, text, hint in report.findings
    ]
    shown = lines if session.verbose else lines[:MAX_LISTED]
    more = len(lines) - len(shown)
    session.notify(*shown, f"{more} more; --verbose lists all" if more else "")


def search_options(function: Any) -> Any:
    """Give a command what a search of documents takes: the query, filters, ranking, and how hits are shown."""
    for add in reversed(_SEARCH_OPTIONS):
        function = add(function)
    return function


_SEARCH_OPTIONS = (
    click.argument("query", nargs=-1, required=True),
    FILE_TYPE,
    PATH,
    option("--limit", "-n", type=int, help="Number of hits to show. Default: 10."),
    option("--per-file", type=click.IntRange(min=0), default=2, help="Most hits of one file. 0: no limit."),
    option("--alpha", type=float, help="Weight of the vector leg, 0 (words only) to 1 (vectors only)."),
    option("--explain", is_flag=True, help="Show how each score was computed."),
    option("--format", "form", choices=("text", "json", "jsonl", "paths"), default="text"),
)


async def show_search(  # what a search of documents takes
    session: Session, app: Services, index: DocumentIndex, filters: Filters, given: Mapping[str, Any], update: str
) -> int:
    """Search an index as `search_options` say, and show the hits; return the exit code.

    `update` is the command that brings the index up to date.
    """
    ranking = {"limit": app.settings.limit, "alpha": given["alpha"], "per_file": given["per_file"]}
    reply = await index.search(SearchQuery(" ".join(given["query"]), filters=filters, **ranking), update)
    return show_reply(session, reply, hits.documents_json(reply), given["form"], given["explain"], update)


@workspace.command(epilog='Example: kiwi workspace search "POST /check-ins" --file-type openapi')
@option("--root", type=FOLDER, help="Root folder of the workspace. Default: this project.")
@SERVICE
@DOMAIN
@option("--since", type=TIME, help="Only files indexed since this time, UTC.")
@STORE
@search_options
async def search(session: Session, app: Services, opened: Workspace, **given: Any) -> int:
    """Find passages of documents by meaning and by words. Each is verified before it is shown."""
    return await show_search(session, app, opened, _filters(app, opened, given), given, session.index_command)


def _filters(app: Services, opened: Workspace, given: Mapping[str, Any]) -> Filters:
    return filters_of({**given, "path": opened.config.resolve_search_path(given["path"] or "", app.cwd)})


@workspace.command("list", epilog="Example: kiwi workspace list --file-type adr")
@ROOT
@FILE_TYPE
@SERVICE
@DOMAIN
@PATH
@STORE
async def list_documents(session: Session, app: Services, opened: Workspace, **given: str | None) -> int:
    """List the indexed documents with type, service, domain and title."""
    tier = opened.indexed_tier(session.index_command)
    rows, refused = await items.list_documents(tier, _filters(app, opened, given))
    session.print_data(rows, map(_line, rows))
    none = "" if rows or refused else "no document matches; kiwi workspace stats shows what is indexed"
    failed = f"not listed, because of a failed verification: {counted(refused, 'documents')}"
    session.notify(none, failed if refused else "")
    return PARTLY if refused else DONE


def _line(row: Mapping[str, Any]) -> str:
    about = "  ".join(str(row[name]) for name in ("service", "domain", "title") if row[name])
    return render.safe(f"{row['path']}  {row['file_type']}  {row['passages']}  {about}".rstrip())


@workspace.command(epilog="Example: kiwi workspace stats, or for programs: kiwi --json workspace stats")
@ROOT
@STORE
async def stats(session: Session, _app: Services, opened: Workspace) -> None:
    """Show what is indexed, and whether the last indexing was completed."""
    report = await collect_workspace_status(opened)
    session.print_data(report, [render.workspace_text(report)])
    if report["store"] == "local" and not report["complete"]:
        session.notify(f"the index is not complete; if no run is under way: {session.index_command}")


_EXAMPLES = """\b
Example: kiwi workspace hooks            write .githooks and set core.hooksPath, or add lines to your own hooks
         kiwi workspace hooks --remove   remove Kiwi's lines again
"""


@workspace.command(cls=Command, epilog=_EXAMPLES)
@ROOT
@option("--local", is_flag=True, help="Write the hooks to git's own folder, which is not committed.")
@option("--remove", is_flag=True, help="Remove Kiwi's lines again.")
def hooks(session: Session, root: Path | None, local: bool, remove: bool) -> None:
    """Install git hooks that update the index. They run in the background after merges, checkouts and rebases."""
    from kiwi_rag.integrations import git_hooks

    workspace = (root or session.find_project() or Path.cwd()).absolute()
    plan = git_hooks.plan_removal(workspace) if remove else git_hooks.plan_install(workspace, local=local)
    plan.apply()
    if remove:
        git_hooks.remove_run_files(plan.repository)
    _report_hooks(session, plan, git_hooks.FOLDER)
    if remove or plan.is_empty:
        return
    if not (workspace / PROJECT_FOLDER).is_dir():
        session.notify(f"the hooks update an existing index only; create it with: kiwi workspace index {workspace}")
    session.notify("" if shutil.which("kiwi") else "kiwi is not on your PATH, so the hooks have no effect until it is")
    if plan.hooks_path:
        session.notify(f"next: git add {git_hooks.FOLDER}; after cloning the repository run kiwi workspace hooks once")


def _report_hooks(session: Session, plan: HookPlan, folder: str) -> None:
    changes = [{"path": str(change.file.path), "action": change.action} for change in plan.changes]
    session.print_data({"changes": changes, "sets_hooks_path": plan.hooks_path, "left": [*map(str, plan.left)]})
    lines = [*map(str, plan.changes)]
    if plan.hooks_path is not None:
        lines.append(f"set core.hooksPath to {folder}" if plan.hooks_path else "unset core.hooksPath")
    lines += [f"{path} is kept, because it is committed; git no longer runs it here" for path in plan.left]
    session.notify(*lines or ["nothing to change"])
