"""The page Sources: the user's workspaces and the tiers of items, how fresh they are, and how they are removed."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from starlette.requests import Request

from kiwi_rag.errors import KiwiError, UsageError
from kiwi_rag.http.web.page import Done, Form, Page, PageGroup, confirm
from kiwi_rag.http.web.workspaces import Workspaces
from kiwi_rag.mcp.context import ServerContext, require_idle
from kiwi_rag.render import counted
from kiwi_rag.services import Services
from kiwi_rag.services.documents import DocumentIndex
from kiwi_rag.services.library import LibraryIndex
from kiwi_rag.sources.library.record import PATH
from kiwi_rag.usecases.index_history import read_history
from kiwi_rag.usecases.status import collect_status, collect_workspace_status, index_row

Row = dict[str, Any]


class Sources(PageGroup):
    """The section of what is indexed."""

    async def show(self, _request: Request) -> Page:
        """Show each workspace and tier with its counts, model, last run and commit."""
        tiers = (await collect_status(self._app, {}))["tiers"]
        rows = await workspace_rows(self._context, self._workspaces)
        return Page("sources.html", {"rows": rows, "tiers": [row for row in tiers if row["tier"] != "workspace"]})

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
