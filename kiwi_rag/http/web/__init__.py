"""The web interface: pages that a server renders, useful without JavaScript and live with it.

A group has the pages of one subject and what their forms do; ``page`` says how. Templates escape everything, and
retrieved text is never rendered as HTML. A form is carried out and then shows a page, so that it works without
JavaScript; each leaves an audit record.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from kiwi_rag import render
from kiwi_rag.errors import KiwiError, NotFound
from kiwi_rag.http.api import error_response, record
from kiwi_rag.http.web.home import Home
from kiwi_rag.http.web.index_runs import Indexing
from kiwi_rag.http.web.item import Items
from kiwi_rag.http.web.memory import Memories
from kiwi_rag.http.web.page import STATIC, Done, Form, Notes, Page, PageGroup, Unconfirmed, read_form, render_part
from kiwi_rag.http.web.registry import Registry
from kiwi_rag.http.web.search import Search
from kiwi_rag.http.web.stores import Stores
from kiwi_rag.http.web.workspaces import Sources, Workspaces
from kiwi_rag.mcp.context import ServerContext

GROUPS: tuple[type[PageGroup], ...] = (Home, Items, Registry, Search, Stores, Indexing, Sources, Memories)
"""The groups whose pages are served; a new group is added here."""
_Answer = Callable[[Request], Awaitable[Response]]
_UNRECORDED = "The audit record of this form could not be written. Look whether the form was carried out."
_PROGRAMS = ("/api/", "/mcp", "/static/")
_SMALLER = [Middleware(GZipMiddleware)]


def routes(context: ServerContext, workspaces: Workspaces) -> list[BaseRoute]:
    """Return the routes of all pages and of the files that they load."""
    notes, found = Notes(), list[BaseRoute]()
    for group in (one(context, workspaces) for one in GROUPS):
        for path, show in group.pages.items():
            found.append(Route(path, _page(partial(show, group), notes), middleware=_SMALLER))
        for path, run in group.actions.items():
            found.append(Route(path, _action(partial(run, group), context, notes), methods=["POST"]))
    return [*found, Mount("/static", GZipMiddleware(_Cached(directory=STATIC)))]


def refuse(request: Request, error: Exception) -> Response:
    """Answer a request for an address or a method that no route has: a person gets a page, a program JSON."""
    status, headers = (error.status_code, error.headers) if isinstance(error, HTTPException) else (500, None)
    path = render.safe(request.url.path[:200])
    missing = NotFound(f"There is no page {path}", hint="search for it above, or choose a page in the menu")
    form = NotFound(f"{path} cannot be opened by its address", hint="go to the page whose form leads there")
    found = missing if status == 404 else form
    if request.url.path.startswith(_PROGRAMS):
        return JSONResponse({"error": found.as_dict()}, status, headers)
    answer = _render(request, Page("error.html", {"error": found.as_dict()}, status))
    answer.headers.update(headers or {})
    return answer


class _Cached(StaticFiles):
    """Files whose address has the digest of their content, so that a browser may keep them."""

    def file_response(self, *args: Any, **options: Any) -> Any:
        """Return the file."""
        response = super().file_response(*args, **options)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def _page(show: Callable[[Request], Awaitable[Page | Response]], notes: Notes) -> _Answer:
    async def answer(request: Request) -> Response:
        try:
            shown, note = await show(request), request.query_params.get("note", "")
            return shown if isinstance(shown, Response) else _render(request, shown, notes.take(note))
        except KiwiError as error:
            return _render(request, _error_page(error))

    return answer


def _action(run: Callable[[Form], Awaitable[Done]], context: ServerContext, notes: Notes) -> _Answer:
    async def answer(request: Request) -> Response:
        form, outcome = Form(), "failed"
        try:
            try:
                form = await read_form(request)
                done = await run(form)
                outcome = "ok"
            except Unconfirmed as asked:
                outcome = ""
                said = {"question": asked.question, "label": asked.label, "lines": asked.lines}
                values = {**said, "fields": form.multi_items()}
                return _render(request, Page("confirm.html", values))
            except KiwiError as error:
                outcome = error.code
                raise
            finally:
                if outcome:
                    await record(context.app, request, dict(form), outcome)
        except KiwiError as error:
            return _render(request, _error_page(error), "" if error.code == outcome else _UNRECORDED)
        return RedirectResponse(f"{done.path}{'&' if '?' in done.path else '?'}note={notes.keep(done.message)}", 303)

    return answer


def _error_page(error: KiwiError) -> Page:
    return Page("error.html", {"error": error.as_dict()}, error_response(error).status_code)


def _render(request: Request, shown: Page, note: str = "") -> HTMLResponse:
    # htmx replaces a part of the page; the whole page is the same part with a frame.
    partly = request.headers.get("hx-request-type") == "partial" and shown.part
    came = request.headers.get("referer", "")
    is_back = came.startswith(str(request.base_url)) and not came.startswith(str(request.url))
    values = {"request": request, "note": note, "back": came if is_back else "/", **shown.values}
    return HTMLResponse(render_part(shown.part if partly else shown.template, values), shown.status)
