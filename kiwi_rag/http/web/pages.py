"""What each page shows: the values of its template, from the same use cases that commands and tools call."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from kiwi_rag.config import process_environment
from kiwi_rag.http.web.first_steps import MIN_PASSPHRASE, FirstSteps
from kiwi_rag.http.web.page import Page, PageGroup
from kiwi_rag.http.web.sources import workspace_rows
from kiwi_rag.http.web.workspaces import Workspaces
from kiwi_rag.local_service import client, run_folder
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.usecases.status import collect_status


class Pages(PageGroup):
    """The pages of one service.

    Parameters
    ----------
    context
        The services that the calls use.
    first_steps
        The first steps, which Home shows.
    workspaces
        The user's workspaces.
    """

    def __init__(self, context: ServerContext, first_steps: FirstSteps, workspaces: Workspaces) -> None:
        self._context, self._first_steps, self._workspaces = context, first_steps, workspaces
        self.pages = {"/": self.home, "/settings": self.settings}

    async def home(self, _request: Request) -> Page:
        """Show the collections, what needs attention, and the search box."""
        service = await asyncio.to_thread(client.state, run_folder(process_environment()))
        status = await collect_status(self._context.app, service)
        attention = [(row["tier"], one) for row in status["tiers"] for one in str(row["problems"]).split("; ") if one]
        if problem := status["model"]["problem"]:
            attention.append(("model", f"{problem}: kiwi doctor"))
        rows = await workspace_rows(self._context, self._workspaces, brief=True)
        steps = await asyncio.to_thread(self._first_steps.steps, [row for row in rows if not row["library"]])
        principal = self._context.app.principal
        values = {"status": status, "attention": attention, "rows": rows, "running": self._context.jobs.running}
        return Page("home.html", values | {"steps": steps, "principal": principal, "min_passphrase": MIN_PASSPHRASE})

    async def settings(self, _request: Request) -> Page:
        """Show each setting, its value, and where it came from."""
        return Page("settings.html", {"rows": self._context.app.resolved.origins})
