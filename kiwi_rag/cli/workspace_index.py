"""``kiwi workspace index`` and ``watch``: bringing an index of documents up to its files, and keeping it there."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kiwi_rag import render
from kiwi_rag.cli.session import DONE, PARTLY, Session, ask_passphrase
from kiwi_rag.config import PROJECT_FOLDER, WORKSPACE_STORES
from kiwi_rag.errors import UsageError
from kiwi_rag.services import Services

if TYPE_CHECKING:
    from kiwi_rag.services.workspace import Workspace
    from kiwi_rag.sources.workspace.report import WorkspaceReport

ROOT = click.argument(
    "root", type=click.Path(path_type=Path, exists=True, file_okay=False), required=False, default=None
)
STORE = click.option(
    "--store",
    type=click.Choice(WORKSPACE_STORES),
    default=None,
    help="Where the documents are; default: the setting workspace_store.",
)
NAME = click.option("--workspace", "name", default=None, help="Its name in statements; a shared index wants it said.")
TOLD_EVERY_SECONDS = 10.0
SHOWN = 20
"""Failures and warnings that are listed, unless --verbose wants all."""


@click.command(epilog="Example: kiwi workspace index, or kiwi workspace index . --file docs/a.md")
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
    stand_in(session, root)
    flags = {"workspace_store": store, "workspace_name": name}
    return session.run(lambda app: _index(session, app, files, rebuild, prune), **flags)


@click.command(epilog="Example: kiwi workspace watch, in a terminal of its own or as an editor's task")
@ROOT
@click.pass_obj
def watch(session: Session, root: Path | None) -> int:
    """Keep the index at the files of ROOT, until stopped: what is saved is found within two seconds."""
    stand_in(session, root)
    session.end_in_order()
    return session.run(lambda app: _watch(session, app))


def stand_in(session: Session, root: Path | None) -> None:
    """Make `root` this run's project; without one it is the project that is found from here upwards, or this folder."""
    session.project = root or session.project


async def _index(session: Session, app: Services, files: tuple[Path, ...], rebuild: bool, prune: bool) -> int:
    from kiwi_rag.ingest import documents
    from kiwi_rag.services.workspace import Workspace

    async with Workspace(app) as opened:
        await opened.prepare()
        writer = opened.writer(ask_passphrase)  # before anything is emptied: it may have none
        if rebuild:
            await opened.tier.store.clear()
        paths = [opened.config.relative_path(file) for file in files] if files else None
        _tell_of_outer(session, opened)
        with session.bar("index workspace", "files") as planned:
            listener = documents.ProgressCallbacks(planned if session.draws_bars else _told_now_and_then(session))
            report = await documents.index(
                opened.config,
                opened.tier,
                writer,
                paths,
                listener,
                prune=prune or not opened.is_shared,
            )
        return _told(session, opened, report, getattr(app.embed, "encoded", 0))


async def _watch(session: Session, app: Services) -> int:
    from kiwi_rag.ingest import documents
    from kiwi_rag.services.workspace import Workspace
    from kiwi_rag.sources.workspace import watch as watching

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with Workspace(app) as opened:
        await opened.prepare()
        writer = opened.writer(ask_passphrase)

        async def bring(paths: Sequence[str] | None) -> WorkspaceReport:
            return await documents.index(opened.config, opened.tier, writer, paths, prune=not opened.is_shared)

        # Past the cache, which would not load the model: the first save need not wait for it.
        await getattr(app.embed, "inner", app.embed).query("ready")
        session.say(f"watching {opened.config.root}; stop with Ctrl-C")
        async with aclosing(watching.watch(opened.config, bring, stop)) as outcomes:
            async for outcome in outcomes:
                _tell(session, outcome)
    session.say("stopped")
    return DONE


def _tell(session: Session, outcome: object) -> None:
    """Tell what a watch did: a line a run that changed something, and why nothing is done where nothing is."""
    from kiwi_rag.sources.workspace.watch import Retrying, RootMissing, Synced

    if isinstance(outcome, Retrying):
        session.say(f"{outcome.error.message}; again in {outcome.pause:g} s")
    elif isinstance(outcome, RootMissing):
        session.say(f"{outcome.root} is gone; waiting for it")
    elif isinstance(outcome, Synced):
        report = outcome.report
        done = len(report.indexed) + len(report.removed) + len(report.moved)
        if session.as_json:
            session.out(render.json_text({**report.as_dict(), "seconds": round(outcome.seconds, 3)}, indent=None))
        elif done or outcome.whole:
            session.out(render.safe(f"{_summary(report)}  {outcome.seconds:.1f} s"))
        _list(session, report)


def _summary(report: WorkspaceReport) -> str:
    """Return what a run did, in a line that names a few files."""
    named = [*report.indexed, *(f"-{path}" for path in report.removed)]
    files = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
    return f"{len(report.indexed)} indexed, {len(report.removed)} removed{f': {files}' if files else ''}"


def _tell_of_outer(session: Session, opened: Workspace) -> None:
    """Say so where a workspace lies in another one: from now on it answers searches that are made below it."""
    root = opened.config.root.resolve()
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
        session.data({**report.as_dict(), "encoded": encoded, "root": str(opened.config.root)})
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
    from kiwi_rag.sources.workspace.report import describe_error

    lines = [f"failed   {path}: {describe_error(error)}" + _hint(error.hint) for path, error in report.failed.items()]
    lines += [f"warning  {found.where}: {found.message}" + _hint(found.hint) for found in report.warnings]
    lines += [f"skipped  {path}: {reason}" for path, reason in report.skipped.items()]
    shown = lines if session.verbose else lines[:SHOWN]
    for line in shown:
        session.say(line)
    if len(lines) > len(shown):
        session.say(f"{len(lines) - len(shown)} more; all of them with --verbose")


def _hint(hint: str) -> str:
    return f" ({hint})" if hint else ""
