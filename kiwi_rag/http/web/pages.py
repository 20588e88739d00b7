"""What each page shows: the values of its template, from the same use cases that commands and tools call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from kiwi_rag import render, usecases
from kiwi_rag.collection import SOURCES
from kiwi_rag.config import process_environment
from kiwi_rag.errors import KiwiError, UsageError
from kiwi_rag.formats.documents import FILE_TYPES
from kiwi_rag.http.web.page import Page, RunAction, ShowPage, Stream
from kiwi_rag.local_service import client, run_folder
from kiwi_rag.mcp.context import ServerContext
from kiwi_rag.model import ITEM_TYPES, SearchQuery, SearchReply, SearchResult
from kiwi_rag.render import hits
from kiwi_rag.render.layout import excerpt
from kiwi_rag.usecases import items
from kiwi_rag.usecases.status import collect_status

MARK_BEGIN, MARK_END = "\x02", "\x03"
"""Around a match in a line; text that was made safe has no such characters."""
SNIPPET_COLUMNS = 96
MAX_LIMIT = 50
SCOPES = ("everything", "workspace", *SOURCES)
_FILTERS = ("category", "author", "namespace", "signer", "service", "domain", "path")


@dataclass(frozen=True, slots=True)
class SearchForm:
    """The fields of the search page, as they are in its address."""

    query: str = ""
    scope: str = "everything"
    limit: int = 10
    alpha: float | None = None
    explain: bool = False
    kind: str = ""
    filters: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, request: Request) -> SearchForm:
        """Return the form in the query of an address; a value that is none of its field is the default."""
        given = request.query_params
        kinds = {*(one.value for one in ITEM_TYPES), *FILE_TYPES}
        return cls(
            query=" ".join(given.get("q", "").split())[:10_000],
            scope=scope if (scope := given.get("scope", "")) in SCOPES else "everything",
            limit=int(_number(given.get("k", ""), 1, MAX_LIMIT) or 10),
            alpha=_number(given.get("alpha", ""), 0, 1),
            explain=given.get("explain") == "on",
            kind=kind if (kind := given.get("kind", "")) in kinds else "",
            filters={name: given[name][:200] for name in _FILTERS if given.get(name)},
        )

    def search_query(self, kind: str) -> SearchQuery:
        """Return the query; `kind` is the name of the filter that the field ``kind`` stands for."""
        given = {**self.filters, **({kind: self.kind} if self.kind else {})}
        return SearchQuery(self.query, filters=usecases.filters_of(given), limit=self.limit, alpha=self.alpha)


def _number(text: str, least: float, most: float) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if least <= value <= most else None


@dataclass(frozen=True, slots=True)
class Results:
    """What one search found: its hits as rows, its notices, or the error that it ended in."""

    title: str
    rows: Sequence[Mapping[str, Any]] = ()
    notices: Sequence[str] = ()
    seconds: float = 0.0
    error: Mapping[str, Any] | None = None


class Pages:
    """The pages of one service.

    Parameters
    ----------
    context
        The services that the calls use.
    """

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    actions: Mapping[str, RunAction] = {}
    streams: Mapping[str, Stream] = {}

    @property
    def pages(self) -> Mapping[str, ShowPage]:
        """The pages, by path."""
        return {"/": self.home, "/search": self.search, "/item": self.item, "/settings": self.settings}

    async def home(self, _request: Request) -> Page:
        """Show the collections, what needs attention, and the search box."""
        service = await asyncio.to_thread(client.state, run_folder(process_environment()))
        status = await collect_status(self._context.app, service)
        attention = [
            {"tier": row["tier"], "text": text, "command": _command_in(text)}
            for row in status["tiers"]
            for text in str(row["problems"]).split("; ")
            if text
        ]
        if status["model"]["problem"]:
            attention.append({"tier": "model", "text": status["model"]["problem"], "command": "kiwi doctor"})
        return Page("home.html", {"status": status, "attention": attention})

    async def search(self, request: Request) -> Page:
        """Show the hits of a query in items and documents."""
        form = SearchForm.read(request)
        found = [await search() for search in self._searches(form)] if form.query else []
        values = {"form": form, "found": found, "scopes": SCOPES, "types": [*(one.value for one in ITEM_TYPES)]}
        return Page("search.html", {**values, "file_types": FILE_TYPES}, part="hits.html")

    def _searches(self, form: SearchForm) -> Sequence[Callable[[], Awaitable[Results]]]:
        """Return the searches that the scope and the kind of hits stand for."""
        item_types = {one.value for one in ITEM_TYPES}

        async def search_items() -> SearchReply:
            source = form.scope if form.scope in SOURCES else self._context.app.settings.source
            return await usecases.search(self._context.app, form.search_query("item_type"), source=source)

        async def search_documents() -> SearchReply:
            return await self._context.workspace.search(form.search_query("file_type"))

        wanted = []
        if form.scope != "workspace" and (not form.kind or form.kind in item_types):
            wanted.append(lambda: _results("Items", search_items, form))
        if form.scope in ("everything", "workspace") and form.kind not in item_types:
            wanted.append(lambda: _results("Documents", search_documents, form))
        return wanted

    async def item(self, request: Request) -> Page:
        """Show one item, verified again, with its statement and signer."""
        ref = request.query_params.get("ref", "")
        if not ref:
            raise UsageError("the address names no item", hint="open an item from the search")
        app = self._context.app
        found = await items.find(app, ref, app.source_names("all" if "@" in ref else app.settings.source))
        signed, stored = found.signed, found.stored
        facts = {
            "type": signed.ref.item_type.value,
            "version": signed.ref.version,
            "tier": found.tier.name,
            "signed by": found.signer.principal,
            "key": stored.key_id if hasattr(stored, "key_id") else found.signer.key_id,
            "signed at": signed.signed_at.isoformat(timespec="seconds"),
            "digest": stored.digest,
            "path": stored.path,
        }
        lines = render.safe(found.content).splitlines()
        state = render.state_json(found.state)
        return Page("item.html", {"ref": str(signed.ref), "facts": facts, "lines": lines, "state": state})

    async def settings(self, _request: Request) -> Page:
        """Show each setting, its value, and where it came from."""
        return Page("settings.html", {"rows": self._context.app.resolved.origins})


async def _results(title: str, search: Callable[[], Awaitable[SearchReply]], form: SearchForm) -> Results:
    """Return what a search found, or its error: the other search is shown all the same."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    try:
        reply = await search()
    except KiwiError as error:
        return Results(title, error=error.as_dict())
    terms = hits.term_weights(reply)
    rows = [_row(rank, hit, terms, form) for rank, hit in enumerate(reply.hits, start=1)]
    return Results(title, rows, hits.notices(reply), loop.time() - started)


def _row(rank: int, hit: SearchResult, terms: Mapping[str, float], form: SearchForm) -> dict[str, Any]:
    """Return one hit as its template shows it."""
    data = hits.hit_json(rank, hit)
    shown = excerpt(hit.passage.text, terms, SNIPPET_COLUMNS, _mark, hits.titles_of(hit))
    return {**data, "place": hits.place(hit), "ref": str(hit.ref), "lines": shown, "open": form.explain}


def _mark(text: str, role: str) -> str:
    return f"{MARK_BEGIN}{text}{MARK_END}" if role == "match" else text


def _command_in(text: str) -> str:
    """Return the command that a problem's text ends in, or an empty string."""
    begin = text.find("kiwi ")
    return text[begin:].strip("() ") if begin >= 0 and text[begin - 2 : begin] in (": ", "; ", "h ") else ""
