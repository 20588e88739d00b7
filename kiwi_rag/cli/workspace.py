"""``kiwi workspace``: a repository's documents, indexed, watched and searched."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kiwi_rag import present
from kiwi_rag.app import App
from kiwi_rag.cli.hooks import hooks
from kiwi_rag.cli.session import DONE, FAILED, PARTLY, Session, ask_passphrase
from kiwi_rag.config import PROJECT_FOLDER, WORKSPACE_STORES
from kiwi_rag.errors import UsageError
from kiwi_rag.formats.documents import FILE_TYPES
from kiwi_rag.model import Filters
from kiwi_rag.model.documents import DocumentQuery, DocumentReply

if TYPE_CHECKING:
    from kiwi_rag.app.workspace import Workspace
    from kiwi_rag.workspace.report import WorkspaceReport

ROOT = click.argument(
    "root", type=click.Path(path_type=Path, exists=True, file_okay=False), required=False, default=None
)
STORE = click.option(
    "--store", type=click.Choice(WORKSPACE_STORES), default=None, help="Where the documents are; default: local."
)
NAME = click.option("--workspace", "name", default=None, help="Its name in statements; a shared index wants it said.")
FORMATS = ["text", "json", "jsonl", "paths"]
TOLD_EVERY_SECONDS = 10.0
SHOWN = 20
"""Failures and warnings that are listed, unless --verbose wants all."""


@click.group(epilog='Example: kiwi workspace index, then kiwi workspace search "which services call svc-x"')
def workspace() -> None:
    """Index and search a repository's own documents: specs, decisions, code, diagrams, notes."""


@workspace.command(epilog="Example: kiwi workspace index, or kiwi workspace index . --file docs/a.md")
@ROOT
@click.option("--file", "files", multiple=True, type=click.Path(path_type=Path), help="Only this file; repeatable.")
@click.option("--rebuild", is_flag=True, help="Empty the index first.")
@click.option("--prune", is_flag=True, help="In a shared index, remove documents whose files are not here.")
@STORE
@NAME
@click.pass_obj
def index(
    session: Session,
    root: Path | None,
    files: tuple[Path, ...],
    rebuild: bool,
    prune: bool,
    store: str | None,
    name: str | None,
) -> int:
    """Bring the index of ROOT (default: this project, or this folder) up to its files.

    Only what changed is read and embedded. Left out is what .gitignore and .kiwiignore name. Safe to stop and to run
    again. Exit code 3: some files could not be indexed, and are listed.
    """
    if rebuild and files:
        raise UsageError("--rebuild empties the whole index, and --file fills in one file", hint="one or the other")
    _place(session, root)
    flags = {"workspace_store": store, "workspace_name": name}
    return session.run(lambda app: _index(session, app, files, rebuild, prune), **flags)


@workspace.command(epilog="Example: kiwi workspace watch, in a terminal of its own or as an editor's task")
@ROOT
@click.pass_obj
def watch(session: Session, root: Path | None) -> int:
    """Keep the index at the files of ROOT, until stopped: what is saved is found within two seconds."""
    _place(session, root)
    session.end_in_order()
    return session.run(lambda app: _watch(session, app))


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
    _place(session, root)

    async def ask(app: App) -> DocumentReply:
        from kiwi_rag.app.workspace import Workspace

        async with Workspace(app) as opened:
            meant = opened.place.meant(path)
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
    from kiwi_rag.app.workspace import Workspace
    from kiwi_rag.workspace.standing import documents

    _place(session, root)

    async def look(app: App) -> tuple[list[dict[str, Any]], int]:
        async with Workspace(app) as opened:
            meant = opened.place.meant(path)
            filters = Filters(file_type=file_type or "", service=service, domain=domain, path=meant)
            return await documents(opened.searcher, filters)

    rows, refused = session.run(look, workspace_store=store)
    if session.as_json:
        session.data(rows)
    for row in [] if session.as_json else rows:
        about = "  ".join(str(row[name]) for name in ("service", "domain", "title") if row[name])
        session.out(present.safe(f"{row['path']}  {row['file_type']}  {row['passages']}  {about}".rstrip()))
    if refused:
        session.say(f"{refused} documents do not verify, and are not listed")
    return PARTLY if refused else DONE


@workspace.command(epilog="Example: kiwi workspace stats, or for programs: kiwi --json workspace stats")
@ROOT
@STORE
@click.pass_obj
def stats(session: Session, root: Path | None, store: str | None) -> int:
    """Show what the index holds, and whether its last run was completed."""
    from kiwi_rag.app.workspace import Workspace
    from kiwi_rag.present.documents import workspace_text
    from kiwi_rag.workspace.standing import standing

    _place(session, root)

    async def look(app: App) -> Mapping[str, Any]:
        async with Workspace(app) as opened:
            return await standing(opened.place, opened.tier if opened.is_indexed else None)

    told = session.run(look, workspace_store=store)
    session.data(told) if session.as_json else session.out(workspace_text(told))
    return DONE


workspace.add_command(hooks)


def exit_code_of(reply: DocumentReply) -> int:
    """Return 0 when complete, 3 when a hit was refused, 1 when the index did not answer."""
    if reply.complete:
        return DONE
    return PARTLY if reply.outcome.state in ("ok", "refused") else FAILED


def _place(session: Session, root: Path | None) -> None:
    """Make `root` this run's project; without one it is the project that is found from here upwards, or this folder."""
    session.project = root or session.project


async def _index(session: Session, app: App, files: tuple[Path, ...], rebuild: bool, prune: bool) -> int:
    from kiwi_rag.app.workspace import Workspace
    from kiwi_rag.workspace import indexing

    async with Workspace(app) as opened:
        await opened.prepare()
        if rebuild:
            await opened.tier.store.clear()
        paths = [opened.place.relative(file) for file in files] if files else None
        _tell_of_outer(session, opened)
        with session.bar("index workspace", "files") as planned:
            listener = indexing.Listener(planned if session.draws_bars else _told_now_and_then(session))
            report = await indexing.index(
                opened.place,
                opened.tier,
                opened.writer(ask_passphrase),
                paths,
                listener,
                prune=prune or not opened.is_shared,
            )
        return _told(session, opened, report, getattr(app.embed, "encoded", 0))


async def _watch(session: Session, app: App) -> int:
    from kiwi_rag.app.workspace import Workspace
    from kiwi_rag.workspace import indexing, watching

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with Workspace(app) as opened:
        await opened.prepare()
        writer = opened.writer(ask_passphrase)

        async def bring(paths: Sequence[str] | None) -> WorkspaceReport:
            return await indexing.index(opened.place, opened.tier, writer, paths, prune=not opened.is_shared)

        # Past the cache, which would not load the model: the first save need not wait for it.
        await getattr(app.embed, "inner", app.embed).query("ready")
        session.say(f"watching {opened.place.root}; stop with Ctrl-C")
        async with aclosing(watching.watch(opened.place, bring, stop)) as outcomes:
            async for outcome in outcomes:
                _tell(session, outcome)
    session.say("stopped")
    return DONE


def _tell(session: Session, outcome: object) -> None:
    """Tell what a watch did: a line a run that changed something, and why nothing is done where nothing is."""
    from kiwi_rag.workspace.watching import Brought, Held, Lost

    if isinstance(outcome, Held):
        session.say(f"{outcome.error.message}; again in {outcome.pause:g} s")
    elif isinstance(outcome, Lost):
        session.say(f"{outcome.root} is gone; waiting for it")
    elif isinstance(outcome, Brought):
        report = outcome.report
        done = len(report.indexed) + len(report.removed) + len(report.moved)
        if session.as_json:
            session.out(present.json_text({**report.as_dict(), "seconds": round(outcome.seconds, 3)}, indent=None))
        elif done or outcome.whole:
            session.out(present.safe(f"{_summary(report)}  {outcome.seconds:.1f} s"))
        _list(session, report)


def _summary(report: WorkspaceReport) -> str:
    """Return what a run did, in a line that names a few files."""
    named = [*report.indexed, *(f"-{path}" for path in report.removed)]
    files = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
    return f"{len(report.indexed)} indexed, {len(report.removed)} removed{f': {files}' if files else ''}"


def _tell_of_outer(session: Session, opened: Workspace) -> None:
    """Say so where a workspace lies in another one: from now on it answers searches that are made below it."""
    root = opened.place.root.resolve()
    outer = next((folder for folder in root.parents if (folder / PROJECT_FOLDER / "vectors").is_dir()), None)
    if outer:
        session.say(f"{root} lies in {outer}, which has an index as well; it is a workspace of its own from now on")


def _told_now_and_then(session: Session) -> Callable[[int], Callable[[int], None]]:
    """Return what tells how a long run goes on where no bar can be drawn: a line every ten seconds."""

    def planned(total: int) -> Callable[[int], None]:
        done, last = 0, time.monotonic()

        def step(files: int) -> None:
            nonlocal done, last
            done += files
            if time.monotonic() - last >= TOLD_EVERY_SECONDS:
                last = time.monotonic()
                session.say(f"{done} of {total} files")

        return step

    return planned


def _told(session: Session, opened: Workspace, report: WorkspaceReport, encoded: int) -> int:
    if session.as_json:
        session.data({**report.as_dict(), "encoded": encoded, "root": str(opened.place.root)})
    else:
        fresh, moved = len(report.indexed) - len(report.moved), len(report.moved)
        session.out(
            f"{fresh} indexed, {report.unchanged} unchanged, {moved} moved, {len(report.removed)} removed, "
            f"{len(report.skipped)} skipped, {len(report.failed)} failed; {report.passages} passages, {encoded} encoded"
        )
    _list(session, report)
    return PARTLY if report.failed else DONE


def _list(session: Session, report: WorkspaceReport) -> None:
    """Say on stderr what a person may want to mend."""
    from kiwi_rag.workspace.report import told

    lines = [f"failed   {path}: {told(error)}" + _hint(error.hint) for path, error in report.failed.items()]
    lines += [f"warning  {found.where}: {found.message}" + _hint(found.hint) for found in report.warnings]
    lines += [f"skipped  {path}: {reason}" for path, reason in report.skipped.items()]
    shown = lines if session.verbose else lines[:SHOWN]
    for line in shown:
        session.say(line)
    if len(lines) > len(shown):
        session.say(f"{len(lines) - len(shown)} more; all of them: kiwi --verbose workspace index --rebuild")


def _hint(hint: str) -> str:
    return f" ({hint})" if hint else ""


def _show(session: Session, reply: DocumentReply, form: str, explain: bool) -> None:
    from kiwi_rag.present import documents

    if session.as_json:
        session.data(documents.documents_json(reply))
    elif form == "json":
        session.data(documents.documents_json(reply)["hits"])
    elif form == "jsonl":
        for rank, hit in enumerate(reply.hits, start=1):
            session.out(present.json_text(documents.document_json(rank, hit), indent=None))
    elif reply.hits:
        text = documents.documents_paths(reply) if form == "paths" else None
        session.out(text or documents.documents_text(reply, session.style, explain))
    for line in documents.document_notices(reply):
        session.say(line)
