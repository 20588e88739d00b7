"""The page Sources: the user's workspaces and the tiers of items, how fresh they are, and how they are removed."""

from __future__ import annotations

import asyncio
import shlex
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from starlette.requests import Request

from kiwi_rag.errors import KiwiError, StoreBusy, UsageError
from kiwi_rag.http.web.page import Done, Form, Page, PageGroup, confirm
from kiwi_rag.http.web.workspaces import Workspaces
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.render import counted
from kiwi_rag.services import Services
from kiwi_rag.services.workspace import Workspace
from kiwi_rag.sources.workspace.config import head_commit
from kiwi_rag.usecases.index_history import read_history
from kiwi_rag.usecases.status import collect_status, collect_workspace_status, index_row

Row = dict[str, Any]


class Sources(PageGroup):
    """The section of what is indexed.

    Parameters
    ----------
    context
        The services that the pages use.
    workspaces
        The user's workspaces.
    """

    def __init__(self, context: ServerContext, workspaces: Workspaces) -> None:
        self._context, self._workspaces = context, workspaces
        self.pages = {"/sources": self.show}
        self.actions = {"/sources/remove": self.remove, "/sources/delete": self.delete}

    async def show(self, _request: Request) -> Page:
        """Show each workspace and tier with its counts, model, last run and commit."""
        tiers = (await collect_status(self._context.app, {}))["tiers"]
        rows = await workspace_rows(self._context, self._workspaces)
        return Page("sources.html", {"rows": rows, "tiers": [row for row in tiers if row["tier"] != "workspace"]})

    async def remove(self, form: Form) -> Done:
        """Show a workspace no longer; its index is kept."""
        root = form.get("root", "")
        self._workspaces.remove(Path(root))
        return Done("/sources", f"{root} is not in the list any more. Its index is kept: add it to see it again.")

    async def delete(self, form: Form) -> Done:
        """Delete the index of a workspace from the disk."""
        require_idle(self._context)
        opened = await self._workspaces.open(root := form.get("root", ""))
        loss = await contents(opened)
        confirm(form, f"Delete the index of {root}? {loss} and its audit log are lost. The files stay.", "Delete it")
        async with self._context.writing:
            await opened.delete_index()
        with suppress(UsageError):  # the service's own workspace is not in the list
            self._workspaces.remove(Path(root))
        return Done("/sources", f"The index of {root} was deleted: {loss}. The files are as they were.")


async def workspace_rows(context: ServerContext, workspaces: Workspaces, *, brief: bool = False) -> list[Row]:
    """Return the state of each workspace, or why there is none; ``last`` is its newest run of a server."""
    records = await asyncio.to_thread(lambda: list(read_history(context.app.user_dir)))
    runs = {record["root"]: record for record in reversed(records)}
    own, rows = context.workspace.config.root.resolve(), list[Row]()
    for folder in workspaces.roots:
        row = {"root": str(folder), "is_own": folder == own, "last": runs.get(str(folder)), "error": None}
        row |= {"project": None, "index_items": ""}
        try:
            opened = await workspaces.open(str(folder))
            states = opened.tier.states if opened.is_indexed else None
            row |= {} if folder == own else await _items_row(await workspaces.services(str(folder)))
            row["head"] = await asyncio.to_thread(head_commit, folder)
            row["commit"] = states.run_commit() if states else ""
            rows.append({**await collect_workspace_status(opened, brief=brief), **row})
        except KiwiError as error:
            rows.append(row | {"error": error.as_dict()})
    return rows


async def _items_row(app: Services) -> Row:
    """Return the state of the items of a workspace, or the command that indexes them where they have no index."""
    if app.has_project_index:
        return {"project": await index_row("project", "items", partial(app.local, "project"))}
    has_items = any(app.root("project").glob("[dks]*/*")) if app.project_dir and app.project_dir.is_dir() else False
    return {"index_items": f"kiwi --project {shlex.quote(str(app.cwd))} index" if has_items else ""}


async def contents(workspace: Workspace) -> str:
    """Return what an index has, for a question about its loss."""
    stats = await collect_workspace_status(workspace)
    return f"{counted(stats['documents'], 'documents')} with {counted(stats['passages'], 'passages')}"


def require_idle(context: ServerContext) -> None:
    """Raise `StoreBusy` while a job is running."""
    if running := context.jobs.running:
        hint = "wait for its end, or stop it on the page Indexing"
        raise StoreBusy(f"a job is running: {running.name}", hint=hint)
