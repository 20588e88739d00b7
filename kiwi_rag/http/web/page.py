"""What a page is and what a form does; a form that cannot be undone is shown again with its loss first."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from kiwi_rag import __version__, render
from kiwi_rag.errors import UsageError
from kiwi_rag.http.limits import read_body
from kiwi_rag.signing.statement import format_time

if TYPE_CHECKING:
    from kiwi_rag.http.web.workspaces import Workspaces
    from kiwi_rag.mcp.context import ServerContext

STATIC = Path(__file__).with_name("static")
MAX_FORM = 1 << 20
KEPT_NOTES = 64
MARK_BEGIN, MARK_END = "\x02", "\x03"
"""Around a match in a line; text that was made safe has no such characters."""


@dataclass(frozen=True, slots=True)
class Page:
    """A template, its values, and the template of the part that changes without a new page."""

    template: str
    values: Mapping[str, Any]
    status: int = 200
    part: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """A form was carried out: the path of the page to show next, and what to say there."""

    path: str
    message: str


class Unconfirmed(Exception):  # a question, not an error
    """A form needs a confirmation: ``question`` and `lines` say what is lost, ``label`` is the text of the button."""

    def __init__(self, question: str, label: str, lines: Sequence[str] = ()) -> None:
        super().__init__(question)
        self.question, self.label, self.lines = question, label, lines


Form = QueryParams


class PageGroup:
    """Pages of one subject, each by its path, with the method that answers.

    Parameters
    ----------
    context
        The services that the pages use.
    workspaces
        The user's workspaces.

    Attributes
    ----------
    pages
        The pages, by GET; also other answers, such as events.
    actions
        What the forms do, by POST; each leaves an audit record.
    """

    pages: ClassVar[Mapping[str, Callable[[Any, Request], Awaitable[Page | Response]]]] = {}
    actions: ClassVar[Mapping[str, Callable[[Any, Form], Awaitable[Done]]]] = {}

    def __init__(self, context: ServerContext, workspaces: Workspaces) -> None:
        self._context, self._app, self._workspaces = context, context.app, workspaces


def confirm(form: Form, question: str, label: str, lines: Sequence[str] = ()) -> None:
    """Raise `Unconfirmed` unless the user has confirmed this form."""
    if form.get("confirmed") != "yes":
        raise Unconfirmed(question, label, lines)


async def read_form(request: Request) -> Form:
    """Return the fields of a form.

    Raises
    ------
    UsageError
        When the body is too large or no form.
    """
    body = await read_body(request, MAX_FORM, "form")
    try:
        return QueryParams(body.decode())
    except UnicodeDecodeError as error:
        raise UsageError("the form is not UTF-8", hint="send the page's own form") from error


@dataclass(slots=True)
class Notes:
    """Messages that the next page shows once; an address holds only their key, so no link can put words on a page."""

    _kept: dict[str, str] = field(default_factory=dict)

    def keep(self, message: str) -> str:
        """Return the key of a message; the oldest are dropped."""
        key = secrets.token_hex(6)
        self._kept = {key: message, **dict(islice(self._kept.items(), KEPT_NOTES - 1))}
        return key

    def take(self, key: str) -> str:
        """Return a message and forget it; empty if there is none."""
        return self._kept.pop(key, "")


def render_part(template: str, values: Mapping[str, Any]) -> str:
    """Return a page, or a part of one, as text."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    options: Any = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=PackageLoader("kiwi_rag.http.web"), autoescape=True, **options)
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
    return Markup(str(escape(text)).replace(MARK_BEGIN, "<mark>").replace(MARK_END, "</mark>"))  # noqa: S704  # escaped
