"""The workspaces of this user that the pages show, the service's own and those that were added; and the page Sources.

The page shows how fresh workspaces, libraries and the tiers of items are, and removes them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from starlette.requests import Request

from kiwi_rag.config import process_environment
from kiwi_rag.errors import ConfigError, KiwiError, NotFound, UsageError
from kiwi_rag.http.apps import Apps
from kiwi_rag.http.web.page import Done, Form, Page, PageGroup, confirm
from kiwi_rag.mcp.context import ServerContext, require_idle
from kiwi_rag.render import counted
from kiwi_rag.services import Services
from kiwi_rag.services.documents import DocumentIndex
from kiwi_rag.services.library import LibraryIndex
from kiwi_rag.services.workspace import Workspace
from kiwi_rag.sources.library.record import PATH
from kiwi_rag.storage.atomic import write_json
from kiwi_rag.storage.safe_open import read_optional
from kiwi_rag.usecases.status import collect_workspace_status, index_row, item_rows, read_history

_MAX_BYTES = 1 << 20
Row = dict[str, Any]


class Workspaces:
    """Workspaces by their root folder, opened on first use; closed by `aclose`.

    Parameters
    ----------
    context
        The context of the service, whose workspace is shown without being added.
    apps
        What keeps stores and models open, so that all workspaces share one model.
    """

    def __init__(self, context: ServerContext, apps: Apps) -> None:
        self._context, self._apps = context, apps
        self._file = context.app.user_dir / "workspaces.json"
        self._read: tuple[object, Sequence[Path]] = (), ()  # what the file was when it was read, and its folders
        self._opened: dict[Path, tuple[Services, Workspace]] = {}
        self._stack = AsyncExitStack()

    @property
    def roots(self) -> Sequence[Path]:
        """The root folders, the service's own first."""
        own = self._context.workspace
        shown = own.is_indexed or self._context.app.project_dir is not None
        return [*dict.fromkeys([*([own.config.root.resolve()] if shown else []), *self._added()])]

    async def open(self, root: str) -> Workspace:
        """Return the workspace at a root folder; raises as `services`."""
        return (await self._open(root))[1]

    @asynccontextmanager
    async def scope(self, root: str) -> AsyncIterator[DocumentIndex]:
        """Yield the index of a workspace, by its root folder, or of a library in its scope, by its id with the version.

        Raises
        ------
        NotFound
            When it is neither.
        """
        libraries = {one.canonical: one for one in await asyncio.to_thread(self._context.libraries.all)}
        if root not in libraries or root in map(str, self.roots):
            yield await self.open(root)
        else:
            with self._context.libraries.scope(libraries[root]) as index:
                yield index

    async def services(self, root: str) -> Services:
        """Return the services of a root folder, whose project tier are the items in its ``.ai``; of none the service's.

        Raises
        ------
        NotFound
            When it is none of `roots`.
        """
        return (await self._open(root))[0] if root else self._context.app

    async def _open(self, root: str) -> tuple[Services, Workspace]:
        folder = next((one for one in self.roots if str(one) == root), None)
        if folder is None:
            raise NotFound(f"no such library or workspace: {root[:200]}", hint="add it on the page Add")
        if folder == self._context.workspace.config.root.resolve():
            return self._context.app, self._context.workspace
        if folder not in self._opened:
            app = Services.open(process_environment(), folder, folder)
            lent = await self._stack.enter_async_context(self._apps.lend(app))
            self._opened[folder] = lent, await self._stack.enter_async_context(Workspace(lent))
        return self._opened[folder]

    def add(self, root: Path) -> None:
        """Show this folder's workspace from now on."""
        if not root.is_dir():
            raise NotFound(f"{root} is not a folder", hint="choose another one")
        write_json(self._file, [*dict.fromkeys(map(str, [*self._added(), root.resolve()]))])

    def remove(self, root: Path) -> None:
        """Show it no longer; its index is kept."""
        left = [one for one in self._added() if one != root]
        if len(left) == len(self._added()):
            raise UsageError(f"{root} was not added here", hint="the service was started in it; start it elsewhere")
        write_json(self._file, [*map(str, left)])

    async def aclose(self) -> None:
        """Close all that were opened."""
        await self._stack.aclose()

    def _added(self) -> Sequence[Path]:
        try:
            found = self._file.stat() if self._file.exists() else None
            state = found and (found.st_ino, found.st_mtime_ns, found.st_size)
            if state != self._read[0]:
                content = read_optional(self._file, _MAX_BYTES)
                self._read = state, [Path(str(one)) for one in json.loads(content or b"[]")]
            return self._read[1]
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"{self._file} is not a list of folders", hint=f"rm {self._file}") from error


class Sources(PageGroup):
    """The section of what is indexed."""

    async def show(self, _request: Request) -> Page:
        """Show each workspace and tier with its counts, model, last run and commit."""
        rows = await workspace_rows(self._context, self._workspaces)
        return Page("sources.html", {"rows": rows, "tiers": await item_rows(self._app)})

    async def remove(self, form: Form) -> Done:
        """Show a workspace no longer; its index is kept."""
        root = form.get("root", "")
        self._workspaces.remove(Path(root))
        return Done("/sources", f"{root} is not in the list any more. Its index is kept: add it to see it again.")

    async def delete(self, form: Form) -> Done:
        """Delete the index of a workspace from the disk, or a library with its index."""
        require_idle(self._context)
        async with self._workspaces.scope(root := form.get("root", "")) as opened:
            loss, library = await contents(opened), opened.library if isinstance(opened, LibraryIndex) else None
            rest = "Its files can be added again." if library and library.origin != PATH else "The files stay."
            what = "the library" if library else "the index of"
            confirm(form, f"Delete {what} {root}? {loss} and its audit log are lost. {rest}", "Delete it")
            async with self._context.writing:
                await (self._context.libraries.remove(library) if library else opened.delete_index())
        with suppress(UsageError):  # libraries and the service's own workspace are not in the list
            self._workspaces.remove(Path(root))
        return Done("/sources", f"{what.capitalize()} {root} was deleted: {loss}. {rest}")

    pages: ClassVar = {"/sources": show}
    actions: ClassVar = {"/sources/remove": remove, "/sources/delete": delete}


async def workspace_rows(context: ServerContext, workspaces: Workspaces, *, brief: bool = False) -> list[Row]:
    """Return the state of each workspace, or why there is none; ``last`` is its newest run of a server."""
    records = await asyncio.to_thread(lambda: list(read_history(context.app.user_dir)))
    runs = {record["root"]: record for record in reversed(records)}
    found, damaged = await asyncio.to_thread(context.libraries.records.list)
    own, rows = str(context.workspace.config.root.resolve()), list[Row]()
    blank = {"error": None, "project": None, "index_items": False, "library": None}
    for library, name in [*((None, str(one)) for one in workspaces.roots), *((one, one.canonical) for one in found)]:
        row = {**blank, "root": name, "is_own": name == own, "last": runs.get(name), "library": library}
        row |= {"workspace": name} if library else {}
        try:
            with context.libraries.scope(library) if library else nullcontext(await workspaces.open(name)) as opened:
                if isinstance(opened, LibraryIndex):
                    opened.source.check()
                else:
                    row |= await _items_row(await workspaces.services(name))
                states = opened.tier.states if opened.is_indexed else None
                row["head"] = await asyncio.to_thread(getattr, opened.source, "commit")
                row |= {"commit": states.run_commit(), "indexed_at": states.written_at()} if states else {"commit": ""}
                rows.append({**await collect_workspace_status(opened, brief=brief), **row})
        except KiwiError as error:
            rows.append(row | {"error": error.as_dict()})
    return [*rows, *({**blank, "root": "A library", "last": None, "error": error.as_dict()} for error in damaged)]


async def _items_row(app: Services) -> Row:
    """Return the state of the items of a workspace, and whether there are some of which none is indexed."""
    row = await index_row("project", "items", partial(app.local, "project")) if app.has_project_index else None
    has_items = app.project_dir is not None and any(app.root("project").glob("[dks]*/*"))
    return {"project": row, "index_items": has_items and (row is None or row["items"] == 0)}


async def contents(workspace: DocumentIndex) -> str:
    """Return what an index has, for a question about its loss."""
    stats = await collect_workspace_status(workspace)
    return f"{counted(stats['documents'], 'documents')} with {counted(stats['passages'], 'passages')}"
