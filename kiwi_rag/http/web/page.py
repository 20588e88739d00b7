"""What a page is and what a form does; a form that cannot be undone is shown again with its loss first."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from kiwi_rag.errors import UsageError
from kiwi_rag.http.limits import read_body

MAX_FORM = 1 << 20
KEPT_NOTES = 64


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
    """A form needs a confirmation: ``question`` names what is lost, ``label`` is the text of the button."""

    def __init__(self, question: str, label: str) -> None:
        super().__init__(question)
        self.question, self.label = question, label


Form = QueryParams
ShowPage = Callable[[Request], Awaitable[Page]]
RunAction = Callable[[Form], Awaitable[Done]]
Stream = Callable[[Request], Awaitable[Response]]


class PageGroup:
    """Pages of one subject, each by its path; a group sets what it has when it is made.

    Attributes
    ----------
    pages
        The pages, by GET.
    actions
        What the forms do, by POST; each leaves an audit record.
    streams
        Other answers, by GET: events, and parts for scripts.
    """

    pages: Mapping[str, ShowPage] = {}
    actions: Mapping[str, RunAction] = {}
    streams: Mapping[str, Stream] = {}


def confirm(form: Form, question: str, label: str) -> None:
    """Raise `Unconfirmed` unless the user has confirmed this form."""
    if form.get("confirmed") != "yes":
        raise Unconfirmed(question, label)


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
        for old in list(self._kept)[: len(self._kept) - KEPT_NOTES + 1]:
            del self._kept[old]
        key = secrets.token_hex(6)
        self._kept[key] = message
        return key

    def take(self, key: str) -> str:
        """Return a message and forget it; empty if there is none."""
        return self._kept.pop(key, "")
