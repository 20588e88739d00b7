"""The web interface: pages that a server renders, useful without JavaScript and live with it.

A group has the pages of one subject and what their forms do; ``page`` says how. Templates escape everything, and
retrieved text is never rendered as HTML. A form is carried out and then shows a page, so that it works without
JavaScript; each leaves an audit record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from kiwi_rag import __version__, render
from kiwi_rag.errors import KiwiError, NotFound
from kiwi_rag.http.api import error_response, record
from kiwi_rag.http.web.first_steps import FirstSteps
from kiwi_rag.http.web.index_runs import Indexing
from kiwi_rag.http.web.item import Items
from kiwi_rag.http.web.page import Form, Notes, Page, PageGroup, RunAction, ShowPage, Stream, Unconfirmed, read_form
from kiwi_rag.http.web.pages import Pages
from kiwi_rag.http.web.registry import Registry
from kiwi_rag.http.web.search import MARK_BEGIN, MARK_END, Search
from kiwi_rag.http.web.sources import Sources
from kiwi_rag.http.web.stores import Stores
from kiwi_rag.http.web.workspaces import Workspaces
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.signing.statement import format_time

STATIC = Path(__file__).with_name("static")
_UNRECORDED = "The audit record of this form could not be written. Look whether the form was carried out."
_PROGRAMS = ("/api/", "/mcp", "/static/")
_SMALLER = [Middleware(GZipMiddleware)]


def routes(context: ServerContext, workspaces: Workspaces) -> list[BaseRoute]:
    """Return the routes of all pages and of the files that they load."""
    first_steps = FirstSteps(context)
    pages = Pages(context, first_steps, workspaces), first_steps, Items(context, workspaces), Registry(context)
    shared = Search(context, workspaces, first_steps.note_search), Stores(context, workspaces)
    more = Indexing(context, workspaces, render_part), Sources(context, workspaces)
    groups: Sequence[PageGroup] = [*pages, *shared, *more]
    notes = Notes()
    found: list[BaseRoute] = []
    for group in groups:
        found += [Route(path, _page(show, notes), middleware=_SMALLER) for path, show in group.pages.items()]
        found += [Route(path, _action(run, context, notes), methods=["POST"]) for path, run in group.actions.items()]
        found += [Route(path, _stream(answer)) for path, answer in group.streams.items()]
    return [*found, Mount("/static", GZipMiddleware(_Cached(directory=STATIC)))]


def refuse(request: Request, error: Exception) -> Response:
    """Answer a request for an address or a method that no route has: a person gets a page, a program JSON."""
    status, headers = (error.status_code, error.headers) if isinstance(error, HTTPException) else (500, None)
    path = render.safe(request.url.path[:200])
    if status == 404:
        found = NotFound(f"There is no page {path}", hint="search for it above, or choose a page in the menu")
    else:
        found = NotFound(f"{path} cannot be opened by its address", hint="go to the page whose form leads there")
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


def _page(show: ShowPage, notes: Notes) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return _render(request, await show(request), notes.take(request.query_params.get("note", "")))
        except KiwiError as error:
            return _render(request, _error_page(error))

    return answer


def _action(run: RunAction, context: ServerContext, notes: Notes) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        form, outcome = Form(), "failed"
        try:
            try:
                form = await read_form(request)
                done = await run(form)
                outcome = "ok"
            except Unconfirmed as asked:
                outcome = ""
                values = {"question": asked.question, "label": asked.label, "fields": form.multi_items()}
                return _render(request, Page("confirm.html", values))
            except KiwiError as error:
                outcome = error.code
                raise
            finally:
                if outcome:
                    await record(context.app, request, dict(form), outcome)
        except KiwiError as error:
            return _render(request, _error_page(error), "" if error.code == outcome else _UNRECORDED)
        separator = "&" if "?" in done.path else "?"
        return RedirectResponse(f"{done.path}{separator}note={notes.keep(done.message)}", 303)

    return answer


def _stream(answer: Stream) -> Stream:
    async def guarded(request: Request) -> Response:
        try:
            return await answer(request)
        except KiwiError as error:
            return error_response(error)

    return guarded


def _error_page(error: KiwiError) -> Page:
    return Page("error.html", {"error": error.as_dict()}, error_response(error).status_code)


def _render(request: Request, shown: Page, note: str = "") -> HTMLResponse:
    # htmx replaces a part of the page; the whole page is the same part with a frame.
    partly = request.headers.get("hx-request-type") == "partial" and shown.part
    template = _environment().get_template(shown.part if partly else shown.template)
    return HTMLResponse(template.render(request=request, note=note, back=_back(request), **shown.values), shown.status)


def _back(request: Request) -> str:
    """Return the address of the page that a form or link was on; Home if there is none."""
    came = request.headers.get("referer", "")
    return came if came.startswith(str(request.base_url)) and not came.startswith(str(request.url)) else "/"


def render_part(template: str, values: Mapping[str, Any]) -> str:
    """Return a part of a page, for events."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__name__), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(clean=render.safe, counted=render.counted, details=render.details_text)
    environment.filters.update(json_text=render.json_text, marked=marked, moment=moment)
    environment.globals.update(static=_address, version=__version__)
    return environment


@cache
def _address(name: str) -> str:
    """Return the address of a static file, which changes with its content."""
    return f"/static/{name}?{hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]}"


def moment(value: datetime | str) -> Markup:
    """Return a time as a ``<time>`` element in UTC, which a script shows in the viewer's zone."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:  # Postgres has -infinity, too
        return escape(value)
    text = format_time(at)
    return Markup('<time datetime="{}">{} {} UTC</time>').format(text, text[:10], text[11:16])


def marked(text: str) -> Markup:
    """Return a line with its matches as ``<mark>`` elements, everything escaped."""
    escaped = str(escape(text))
    return Markup(escaped.replace(MARK_BEGIN, "<mark>").replace(MARK_END, "</mark>"))  # noqa: S704  # escaped above
