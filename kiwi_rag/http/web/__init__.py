"""The web interface: pages that a server renders, useful without JavaScript and live with it.

A page is a function of a request to a template's name and values; ``pages`` has them. Templates escape everything, and
retrieved text is never rendered as HTML.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from kiwi_rag import __version__
from kiwi_rag.errors import KiwiError
from kiwi_rag.http.api import error_response
from kiwi_rag.http.web.pages import MARK_BEGIN, MARK_END, Page, Pages
from kiwi_rag.mcp.context import ServerContext

STATIC = Path(__file__).with_name("static")


def routes(context: ServerContext) -> list[BaseRoute]:
    """Return the routes of all pages and of the files that they load."""
    pages = Pages(context)
    paths: dict[str, Callable[[Request], Awaitable[Page]]] = {
        "/": pages.home,
        "/search": pages.search,
        "/item": pages.item,
        "/settings": pages.settings,
    }
    files = GZipMiddleware(_Cached(directory=STATIC))
    return [*(Route(path, _endpoint(page)) for path, page in paths.items()), Mount("/static", files)]


class _Cached(StaticFiles):
    """Files whose address has the digest of their content, so that a browser may keep them."""

    def file_response(self, *args: Any, **options: Any) -> Any:
        """Return the file."""
        response = super().file_response(*args, **options)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def _endpoint(page: Callable[[Request], Awaitable[Page]]) -> Callable[[Request], Awaitable[HTMLResponse]]:
    async def render(request: Request) -> HTMLResponse:
        try:
            shown = await page(request)
        except KiwiError as error:
            shown = Page("error.html", {"error": error.as_dict()}, error_response(error).status_code)
        # htmx replaces a part of the page; the whole page is the same part with a frame.
        partly = request.headers.get("hx-request-type") == "partial" and shown.part
        template = _environment().get_template(shown.part if partly else shown.template)
        return HTMLResponse(template.render(request=request, **shown.values), shown.status)

    return render


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__name__), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["marked"] = marked
    environment.globals.update(static=_address, version=__version__)
    return environment


@cache
def _address(name: str) -> str:
    """Return the address of a static file, which changes with its content."""
    return f"/static/{name}?{hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]}"


def marked(text: str) -> Markup:
    """Return a line with its matches as ``<mark>`` elements, everything escaped."""
    escaped = str(escape(text))
    return Markup(escaped.replace(MARK_BEGIN, "<mark>").replace(MARK_END, "</mark>"))  # noqa: S704  # escaped above
