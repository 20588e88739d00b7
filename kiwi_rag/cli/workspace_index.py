"""``kiwi workspace index`` and ``watch``: update the index of a workspace, once or on every change of a file."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import click

from kiwi_rag import render
from kiwi_rag.cli.session import DONE, PARTLY, Session, ask_passphrase, stop_event
from kiwi_rag.config import WORKSPACE_STORES
from kiwi_rag.errors import UsageError
from kiwi_rag.ingest.documents import ProgressCallbacks
from kiwi_rag.services import Services
from kiwi_rag.services.workspace import Workspace
from kiwi_rag.sources.workspace.report import WorkspaceReport, describe_error
from kiwi_rag.sources.workspace.watch import Retrying, RootMissing, Synced
from kiwi_rag.usecases import workspace as use_case

ROOT = click.argument(
    "root", type=click.Path(path_type=Path, exists=True, file_okay=False), required=False, default=None
)
STORE = click.option(
    "--store",
    type=click.Choice(WORKSPACE_STORES),
    default=None,
    help="Store of the documents. Default: the setting workspace_store.",
)
NAME = click.option(
    "--workspace", "name", default=None, help="Name of the workspace in statements. Required for a shared index."
)
PROGRESS_SECONDS = 10.0
MAX_LISTED = 20
"""Number of failures and warnings that are listed without --verbose."""


@click.command(epilog="Example: kiwi workspace index, or kiwi workspace index . --file docs/a.md")
@ROOT
@click.option("--file", "files", multiple=True, type=click.Path(path_type=Path), help="Only this file. Repeatable.")
@click.option("--rebuild", is_flag=True, help="Empty the index first.")
@click.option("--prune", is_flag=True, help="In a shared index, also remove documents whose files do not exist here.")
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
    """Update the index of ROOT. Default: this project, or this folder.

    Only changed files are read and embedded. Files that .gitignore or .kiwiignore name are skipped. Can be stopped and
    run again. Exit code 3: some files could not be indexed; they are listed.
    """
    if rebuild and files:
        raise UsageError(
            "--rebuild and --file exclude each other: --rebuild empties the whole index", hint="give one of them"
        )
    set_project(session, root)
    flags = {"workspace_store": store, "workspace_name": name}
    return session.run(lambda app: _index(session, app, files, rebuild, prune), **flags)


@click.command(epilog="Example: kiwi workspace watch, in a separate terminal or as an editor's task")
@ROOT
@click.pass_obj
def watch(session: Session, root: Path | None) -> int:
    """Update the index of ROOT on every change of a file, until stopped. A saved file is found within two seconds."""
    set_project(session, root)
    session.exit_on_sigterm()
    return session.run(lambda app: _watch(session, app))


def set_project(session: Session, root: Path | None) -> None:
    """Make `root`, if it is given, the project of this run."""
    session.project = root or session.project


async def _index(session: Session, app: Services, files: tuple[Path, ...], rebuild: bool, prune: bool) -> int:
    async with Workspace(app) as opened:
        writer = await use_case.open_for_writing(opened, ask_passphrase, rebuild=rebuild)
        paths = [opened.config.relative_path(file) for file in files] or None
        if outer := use_case.outer_workspace(opened):
            root = opened.config.root.resolve()
            session.notify(
                f"{root} is inside the workspace {outer}; from now on searches below {root} use its own index"
            )
        with session.progress_bar("index workspace", "files") as planned:
            callbacks = ProgressCallbacks(planned if session.shows_progress else _progress_lines(session))
            report = await use_case.update(opened, writer, paths, callbacks, prune=prune)
        return _report(session, opened, report, getattr(app.embed, "encoded", 0))


async def _watch(session: Session, app: Services) -> int:
    stop = stop_event()
    async with Workspace(app) as opened:
        writer = await use_case.open_for_writing(opened, ask_passphrase)
        await use_case.load_model(app)  # now, not at the first change
        session.notify(f"watching {opened.config.root}; stop with Ctrl-C")
        async with aclosing(use_case.watch(opened, writer, stop)) as outcomes:
            async for outcome in outcomes:
                _report_outcome(session, outcome)
    session.notify("stopped")
    return DONE


def _report_outcome(session: Session, outcome: object) -> None:
    """Print a line for an update that changed something, and for the reason why none is possible."""
    if isinstance(outcome, Retrying):
        session.notify(f"{outcome.error.message}; trying again in {outcome.pause:g} s")
    elif isinstance(outcome, RootMissing):
        session.notify(f"{outcome.root} does not exist; waiting for it")
    elif isinstance(outcome, Synced):
        report = outcome.report
        done = len(report.indexed) + len(report.removed) + len(report.moved)
        if session.as_json:
            session.print(render.json_text({**report.as_dict(), "seconds": round(outcome.seconds, 3)}, indent=None))
        elif done or outcome.whole:
            session.print(render.safe(f"{_summary(report)}  {outcome.seconds:.1f} s"))
        _list(session, report)


def _summary(report: WorkspaceReport) -> str:
    """Return the counts of an update, with the names of some files, in one line."""
    named = [*report.indexed, *(f"-{path}" for path in report.removed)]
    files = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
    return f"{len(report.indexed)} indexed, {len(report.removed)} removed{f': {files}' if files else ''}"


def _progress_lines(session: Session) -> Callable[[int], Callable[[int], None]]:
    """Return a replacement for a progress bar that prints a line every ten seconds."""

    def planned(total: int) -> Callable[[int], None]:
        done, last = 0, time.monotonic()

        def step(files: int) -> None:
            nonlocal done, last
            done += files
            if time.monotonic() - last >= PROGRESS_SECONDS:
                last = time.monotonic()
                session.notify(f"{done} of {total} files")

        return step

    return planned


def _report(session: Session, opened: Workspace, report: WorkspaceReport, encoded: int) -> int:
    fresh, moved = len(report.indexed) - len(report.moved), len(report.moved)
    counts = (
        f"{fresh} indexed, {report.unchanged} unchanged, {moved} moved, {len(report.removed)} removed, "
        f"{len(report.skipped)} skipped, {len(report.failed)} failed; {report.passages} passages, {encoded} encoded"
    )
    session.print_data({**report.as_dict(), "encoded": encoded, "root": str(opened.config.root)}, [counts])
    _list(session, report)
    return PARTLY if report.failed else DONE


def _list(session: Session, report: WorkspaceReport) -> None:
    """Print failures, warnings and skipped files on stderr."""
    lines = [f"failed   {path}: {describe_error(error)}" + _hint(error.hint) for path, error in report.failed.items()]
    lines += [f"warning  {found.where}: {found.message}" + _hint(found.hint) for found in report.warnings]
    lines += [f"skipped  {path}: {reason}" for path, reason in report.skipped.items()]
    shown = lines if session.verbose else lines[:MAX_LISTED]
    for line in shown:
        session.notify(line)
    if len(lines) > len(shown):
        session.notify(f"{len(lines) - len(shown)} more; --verbose lists all")


def _hint(hint: str) -> str:
    return f" ({hint})" if hint else ""
