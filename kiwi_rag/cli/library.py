"""``kiwi library``: add, list, update and remove the documentation of libraries, search it and read it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from kiwi_rag import render
from kiwi_rag.cli.session import Group, Session, ask_passphrase, confirm, option
from kiwi_rag.cli.workspace import WorkspaceCommand, search_options, show_search, update_index
from kiwi_rag.consent import ASK
from kiwi_rag.render import agents
from kiwi_rag.services import Services
from kiwi_rag.services.library import Libraries
from kiwi_rag.sources.library.record import Library
from kiwi_rag.usecases import filters_of
from kiwi_rag.usecases.library import MIN_TOKENS, Addition, collect_library_status, get_docs

ID = click.argument("library_id", metavar="ID")


class _LibraryCommand(WorkspaceCommand):
    """A command whose coroutine function gets the session, the open services and the libraries of this user."""

    opens = Libraries


class _LibraryGroup(Group):
    command_class = _LibraryCommand


_EXAMPLE = 'Example: kiwi library add npm:vite, then kiwi library get vite "configure a proxy"'


@click.group(cls=_LibraryGroup, epilog=_EXAMPLE)
def library() -> None:
    """Index and read the documentation of libraries, each version by itself.

    An ID is /owner/name, a package's name or another alias; with @VERSION it means that version and no other.
    """


_ADD_EXAMPLES = """\b
Example: kiwi library add npm:vite                    of the project in this folder, else the newest
         kiwi library add pypi:fastapi@0.121.0
         kiwi library add ../handbook --id /acme/handbook --version 3.1
"""


@library.command(epilog=_ADD_EXAMPLES)
@click.argument("origin", metavar="FOLDER|npm:NAME[@V]|pypi:NAME[@V]")
@option("--id", "library_id", default="", help="Id of the library. Default: of its repository, as /vitejs/vite.")
@option("--version", default="", help="Its version. Required for a folder that does not say it.")
@option("--docs", "include", multiple=True, help="Only the files below this folder of it. Repeatable.")
@option("--code", is_flag=True, help="Also source code that has documentation in it.")
@option("--yes", "-y", is_flag=True, help="Allow the hosts to download from, until kiwi consent revoke.")
async def add(
    session: Session, app: Services, libraries: Libraries, origin: str, library_id: str, version: str,
    include: tuple[str, ...], code: bool, yes: bool,
) -> int:  # fmt: skip
    """Add the documentation of a library, and index it.

    A folder is indexed in place. A package is read from node_modules or the Python environment of this project; the
    documentation of a Python package is in its source archive, which is downloaded in the version that is installed.
    Nothing of a package is executed.
    """
    wanted = Addition(origin, Path.cwd(), library_id, version, include, code)
    before = ASK.set((lambda _question: True) if yes else ASK.get())
    with session.progress_bar("download", "bytes") as progress:
        added, notice = await asyncio.to_thread(wanted.save, libraries, app.consent.require, progress)
    ASK.reset(before)  # --yes is for downloads, and not for a remote model or store
    session.notify(f"adding {added.canonical}" + (notice and f": {notice}"))
    with libraries.scope(added) as index:
        return await update_index(session, app, index, await index.writer(ask_passphrase))


def find_library(session: Session, libraries: Libraries, library_id: str) -> Library:
    """Return the library that an argument means, and print a notice where a lock file names another version."""
    resolved = libraries.resolve(library_id, path_context=Path.cwd())
    if resolved.notice:
        session.notify(resolved.notice)
    return resolved.library


@library.command("list", epilog="Example: kiwi library list")
async def list_libraries(session: Session, _app: Services, libraries: Libraries) -> None:
    """List the libraries with version, state and number of documents."""
    found, damaged = libraries.records.list()
    rows = [await _status(libraries, one, brief=True) for one in found]
    session.print_data(rows, map(_line, rows))
    for error in damaged:
        session.report_error(error)
    if not rows:
        session.notify("there are no libraries; add one: kiwi library add npm:vite")


async def _status(libraries: Libraries, one: Library, *, brief: bool = False) -> Mapping[str, Any]:
    with libraries.scope(one) as index:
        return await collect_library_status(index, brief=brief)


def _line(row: Mapping[str, Any]) -> str:
    documents = render.counted(row["stats"]["documents"], "documents")
    return render.safe(f"{row['id']}  {row['status']}  {documents}  {row['origin']}  {row['title']}")


@library.command(epilog="Example: kiwi library status vite")
@ID
async def status(session: Session, _app: Services, libraries: Libraries, library_id: str) -> None:
    """Show what is indexed of a library, from where, and of which commit."""
    data = await _status(libraries, find_library(session, libraries, library_id))
    shown = {name: value for name, value in data.items() if value and name not in ("stats", "aliases")}
    lines = [render.safe(f"{name}: {value}") for name, value in shown.items()]
    session.print_data(data, [*lines, render.workspace_text(data["stats"], "library")])


@library.command(epilog="Example: kiwi library reindex vite")
@ID
@option("--rebuild", is_flag=True, help="Empty the index first.")
async def reindex(session: Session, app: Services, libraries: Libraries, library_id: str, rebuild: bool) -> int:
    """Update the index of a library. Only changed files are read and embedded."""
    with libraries.scope(find_library(session, libraries, library_id)) as index:
        writer = await index.writer(ask_passphrase, rebuild=rebuild)
        return await update_index(session, app, index, writer, rebuild=rebuild)


@library.command(epilog="Example: kiwi library remove /vitejs/vite@7.0.0")
@ID
@option("--yes", "-y", is_flag=True, help="Do not ask.")
async def remove(session: Session, _app: Services, libraries: Libraries, library_id: str, yes: bool) -> None:
    """Delete a library and its index. A folder that was indexed in place stays as it is."""
    found = find_library(session, libraries, library_id)
    confirm(f"Delete {found.canonical} and its index?", f"kiwi library remove {found.canonical}", yes=yes)
    await libraries.remove(found)
    session.print_data({"removed": found.canonical}, [f"removed {found.canonical}"])


@library.command(epilog='Example: kiwi library search vite "proxy requests to another server"')
@ID
@search_options
async def search(session: Session, app: Services, libraries: Libraries, library_id: str, **given: Any) -> int:
    """Find passages of a library's documentation by meaning and by words. Each is verified before it is shown."""
    with libraries.scope(find_library(session, libraries, library_id)) as index:
        return await show_search(session, app, index, filters_of(given), given, index.index_command)


@library.command("get", epilog='Example: kiwi library get vite "configure a proxy" --tokens 3000')
@ID
@click.argument("topic", nargs=-1)
@option("--tokens", type=click.IntRange(MIN_TOKENS), default=5_000, help="Most tokens of the answer.")
@option("--continuation", default="", help="Of the last answer, for the next part.")
async def get(
    session: Session, app: Services, libraries: Libraries, library_id: str, topic: tuple[str, ...], tokens: int,
    continuation: str,
) -> None:  # fmt: skip
    """Print the parts of a library's documentation that are about a TOPIC. Default: how to begin."""
    resolved = libraries.resolve(library_id, path_context=Path.cwd())
    answer = await get_docs(app, libraries, resolved, " ".join(topic), tokens=tokens, continuation=continuation)
    blocks = [render.safe(agents.library_block(chunk)) + "\n" for chunk in answer.data["chunks"]]
    session.print_data(answer.data, blocks)
    for line in answer.data["notices"]:
        session.notify(line)
    if following := answer.data["continuationToken"]:
        session.notify(f"there is more; repeat the command with --continuation {following}")
