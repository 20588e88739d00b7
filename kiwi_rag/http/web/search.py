"""The page Search: items and documents together, what narrows them, how each score was computed; and the page Answer.

Every setting of the page is in its address. Parts are searched one after the other, as they share one model, and each
shows its own error, so that the others are shown all the same.
"""

from __future__ import annotations

import asyncio
import secrets
import shlex
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote, urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request

from kiwi_rag import usecases
from kiwi_rag.collection import SOURCES
from kiwi_rag.errors import ConfigError, ConsentRequired, KiwiError, NotFound
from kiwi_rag.formats.documents import FILE_TYPES
from kiwi_rag.http.web.home import note_choice
from kiwi_rag.http.web.page import KEPT_NOTES, MARK_BEGIN, MARK_END, Done, Form, Page, PageGroup, confirm
from kiwi_rag.model import ITEM_TYPES, ItemType, SearchQuery, SearchReply, SearchResult
from kiwi_rag.registry import server
from kiwi_rag.render import agents, hits
from kiwi_rag.render.layout import excerpt
from kiwi_rag.search.ranking import weights_of
from kiwi_rag.services.workspace import TIER
from kiwi_rag.telemetry import begin_run
from kiwi_rag.usecases import ask

SNIPPET_COLUMNS = 96
MAX_LIMIT = 50
EVERYTHING, WORKSPACES, LIBRARIES = "everything", "workspaces", "libraries"
_OF_ITEMS, _OF_DOCUMENTS = ("category", "author", "namespace", "signer"), ("service", "domain", "path")
FILTERS = (*_OF_ITEMS, *_OF_DOCUMENTS)
_ITEM_TYPES = [one.value for one in ITEM_TYPES]
_MAX_LIBRARIES = 50
_MAX_VALUES = 8
"""Values of one filter that are offered, the most frequent ones."""
_CONTEXT_TOKENS = 4_000
_SIMILAR = 500
"""Characters of a passage that a search for similar ones has as its query."""
_POLL_SECONDS = 0.05
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Ranking:
    """What ranks the hits: the weight of the vector leg, None for the default, and the number of hits."""

    alpha: float | None
    limit: int

    @classmethod
    def read(cls, given: QueryParams, number: str, default: Ranking) -> Ranking:
        """Return the fields ``alpha`` and ``k`` with this number; a slider at the default stands for it."""
        alpha = _number(given.get(f"alpha{number}", ""), 0, 1)
        is_default = alpha is None or (default.alpha is not None and abs(alpha - default.alpha) < 0.005)
        limit = int(_number(given.get(f"k{number}", ""), 1, MAX_LIMIT) or default.limit)
        return cls(None if is_default else alpha, limit)


@dataclass(frozen=True, slots=True)
class SearchForm:
    """The fields of the search page, as they are in its address; with a second ranking both are compared.

    With `libraries`, only these are searched.
    """

    default: Ranking
    rankings: Sequence[Ranking]
    query: str = ""
    scope: str = EVERYTHING
    explain: bool = False
    kind: str = ""
    libraries: Sequence[str] = ()
    filters: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, given: QueryParams, default: Ranking, scopes: Collection[str]) -> SearchForm:
        """Return the form in the query of an address; a value that is none of its field is the default."""
        numbers = ("", "2") if given.get("compare") == "on" else ("",)
        return cls(
            default,
            [Ranking.read(given, number, default) for number in numbers],
            query=" ".join(given.get("q", "").split())[:10_000],
            scope=scope if (scope := given.get("scope", "")) in scopes else EVERYTHING,
            explain=given.get("explain") == "on",
            kind=kind if (kind := given.get("kind", "")) in (*_ITEM_TYPES, *FILE_TYPES) else "",
            libraries=" ".join(given.getlist("library")).split()[:_MAX_LIBRARIES],
            filters={name: given[name][:200] for name in FILTERS if given.get(name)},
        )

    @property
    def narrowed(self) -> Mapping[str, str]:
        """The fields that leave hits out, with their values."""
        scope = "" if self.scope == EVERYTHING else self.scope
        given = {"scope": scope, "kind": self.kind, "library": " ".join(self.libraries), **self.filters}
        return {name: value for name, value in given.items() if value}

    def address(self, **changes: str) -> str:
        """Return the address of this search with other values of some fields."""
        given: dict[str, object] = {"q": self.query, **self.narrowed, "explain": "on" if self.explain else ""}
        for number, one in zip(("", "2"), self.rankings, strict=False):
            limit = "" if one.limit == self.default.limit else one.limit
            given |= {f"alpha{number}": "" if one.alpha is None else one.alpha, f"k{number}": limit}
        given |= {"compare": "on" if len(self.rankings) > 1 else "", **changes}
        return "/search?" + urlencode({name: value for name, value in given.items() if value != ""})

    def searches(self, types: Collection[str], filters: Collection[str]) -> bool:
        """Whether hits of these types, which have these filters, can match."""
        return (not self.kind or self.kind in types) and self.filters.keys() <= {*filters}

    def search_query(self, ranking: Ranking, kind: str) -> SearchQuery:
        """Return the query; `kind` is the name of the filter that the field ``kind`` stands for."""
        filters = usecases.filters_of({**self.filters, kind: self.kind})
        return SearchQuery(self.query, filters=filters, limit=ranking.limit, alpha=ranking.alpha)


def _number(text: str, least: float, most: float) -> float | None:
    with suppress(ValueError):
        return value if least <= (value := float(text)) <= most else None
    return None


@dataclass(frozen=True, slots=True)
class Results:
    """What one search found: its hits as rows, its notices, how it was done; or the error that it ended in."""

    title: str
    rows: Sequence[dict[str, Any]] = ()
    notices: Sequence[str] = ()
    seconds: float = 0.0
    error: Mapping[str, Any] | None = None
    tiers: Sequence[Mapping[str, Any]] = ()
    explanation: Mapping[str, Any] = field(default_factory=dict)
    close: bool | None = None


class Search(PageGroup):
    """The search page of one service, and the answers of its chat model; the newest are kept in memory."""

    _answers: Mapping[str, ask.CitedAnswer] = MappingProxyType({})

    async def search(self, request: Request) -> Page:
        """Show the hits of a query in items and documents."""
        settings, roots = self._app.settings, [str(root) for root in self._workspaces.roots]
        alpha = weights_of(usecases.apply_settings(SearchQuery("any"), settings)).alpha
        default = Ranking(alpha, min(max(settings.limit, 1), MAX_LIMIT))
        form = SearchForm.read(request.query_params, default, (*SOURCES, WORKSPACES, LIBRARIES, *roots))
        if form.query:
            with suppress(ConfigError):  # a search does not fail because of it
                await asyncio.to_thread(note_choice, self._app.user_dir, "searched")
        columns = (await while_connected(request, self._columns(form)) or []) if form.query else []
        values = {"form": form, "columns": columns, "facets": _facets(columns), "filters": FILTERS, "roots": roots}
        libraries = await asyncio.to_thread(self._context.libraries.all)
        values |= {"libraries": libraries, "answers": bool(settings.chat_provider)}
        choices = {"sources": SOURCES, "item_types": _ITEM_TYPES, "file_types": FILE_TYPES}
        return Page("search.html", {**values, **choices}, part="hits.html")

    async def _columns(self, form: SearchForm) -> Sequence[Sequence[Results]]:
        columns = [[part for one in self._parts(form, ranking) if (part := await one)] for ranking in form.rankings]
        if len(columns) == 1:  # items, then documents by the best hit; what is far from the query comes later
            columns[0].sort(key=lambda part: [-row["score"] for row in part.rows[:1] if "item_id" not in row])
            columns[0].sort(key=lambda part: 0 if part.error else 2 if not part.rows else int(part.close is False))
        ranks = {row["key"]: row["rank"] for part in columns[0] for row in part.rows}
        for row in (row for column in columns[1:] for part in column for row in part.rows):
            row["compared"], row["before"] = True, ranks.get(row["key"])
        return columns

    def _parts(self, form: SearchForm, ranking: Ranking) -> Iterator[Awaitable[Results | None]]:
        """Yield the searches that the scope, the kind and the filters stand for."""
        if not form.libraries and form.searches(_ITEM_TYPES, _OF_ITEMS):
            if form.scope in (EVERYTHING, *SOURCES):
                yield self._items(form, ranking)
            with_projects = form.scope == EVERYTHING or "project" in SOURCES.get(form.scope, ())
            for root in self._workspaces.roots:
                if with_projects or form.scope == str(root):
                    yield self._project_items(form, ranking, root)
        if form.searches(FILE_TYPES, _OF_DOCUMENTS):
            for name in self._names_in(form.scope, form.libraries):
                yield self._documents(form, ranking, name)

    def _names_in(self, scope: str, libraries: Sequence[str]) -> Iterator[str]:
        """Yield the root folders of the workspaces, and the ids of the libraries, whose documents are searched."""
        roots = [] if libraries else map(str, self._workspaces.roots)
        yield from (root for root in roots if scope in (EVERYTHING, WORKSPACES, root))
        known = self._context.libraries.all() if not libraries and scope in (EVERYTHING, LIBRARIES) else ()
        yield from libraries or (one.canonical for one in known)

    async def _items(self, form: SearchForm, ranking: Ranking) -> Results:
        app, query = self._app, form.search_query(ranking, "item_type")
        source = form.scope if form.scope in SOURCES else await self._nearest_source()
        is_left_out = form.scope == EVERYTHING and source != "all" and app.registry_connection.exists
        left_out = ["The registry was not searched: choose “all tiers” to search it, too."]
        roots = {"project": app.project_dir, "user": app.user_dir}
        search = partial(usecases.search, app, query, source=source, limit=query.limit)
        return await _results("Items", search, form, roots, left_out if is_left_out else ())

    async def _project_items(self, form: SearchForm, ranking: Ranking, root: Path) -> Results | None:
        """Search the items in a workspace's ``.ai``; None where it has none, or they are among those of all tiers."""
        title = f"Items of {root.name}"
        try:
            app = await self._workspaces.services(str(root))
        except KiwiError as error:
            return Results(title, error=error.as_dict())
        if not app.has_project_index or (app is self._app and form.scope != str(root)):
            return None
        search = partial(usecases.search, app, form.search_query(ranking, "item_type"), source="project")
        found = await _results(title, partial(search, limit=ranking.limit), form, {"project": app.project_dir})
        for row in found.rows:
            row |= {"root": str(root), "key": (root, row["key"]), "facets": {**row["facets"], "scope": str(root)}}
        return found

    async def _nearest_source(self) -> str:
        """Return ``all`` if that starts no server, and sends no keystroke to one that the settings do not name."""
        app = self._app
        if "registry" in app.source_names(app.settings.source):
            return "all"
        is_embedded = app.registry_connection.is_embedded
        is_running = is_embedded and (await asyncio.to_thread(server.server_state, app.registry_dir)).running
        return "all" if is_running else "local"

    async def _documents(self, form: SearchForm, ranking: Ranking, name: str) -> Results:
        """Search a workspace, by its root folder, or a library, by its id with the version."""
        is_library = name not in map(str, self._workspaces.roots)
        roots: dict[str, Path | None] = {}

        async def search() -> SearchReply:
            async with self._workspaces.scope(name) as index:
                roots[index.kind] = index.root
                hint = f"kiwi workspace index {shlex.quote(name)}" if index.kind == TIER else ""
                return await index.search(form.search_query(ranking, "file_type"), hint=hint)

        found = await _results(name if is_library else f"Documents of {Path(name).name}", search, form, roots)
        for row in found.rows if is_library else ():
            row |= {"library": name, "key": (name, row["key"])}
            row["facets"] |= {"scope": LIBRARIES, "library": name}
        return found

    async def answer(self, form: Form) -> Done:
        """Let the chat model answer a question; a host that is not allowed yet is a question of its own first."""
        begin_run("kiwi ui answer")
        try:
            answer = await self._answer(form)
        except ConsentRequired as needed:
            confirm(form, f"{needed.message}. Allow it, now and later?", f"Allow {needed.host}")
            self._app.consent.change(needed.host, [needed.purpose])
            answer = await self._answer(form)
        key = secrets.token_hex(6)
        self._answers = {key: answer, **dict(islice(self._answers.items(), KEPT_NOTES))}
        return Done(f"/answer?key={key}", "")

    async def show_answer(self, request: Request) -> Page:
        """Show an answer."""
        if (answer := self._answers.get(request.query_params.get("key", ""))) is None:
            raise NotFound("this answer is no longer kept", hint="ask again on the page Search")
        return Page("answer.html", {"answer": answer, "words": ask.MARKS})

    pages: ClassVar = {"/search": search, "/answer": show_answer}
    actions: ClassVar = {"/answer": answer}

    async def _answer(self, form: Form) -> ask.CitedAnswer:
        app, scope = self._app, form.get("scope", "") or EVERYTHING
        libraries, searches = form.get("library", "").split()[:_MAX_LIBRARIES], list[ask.Search]()

        async def search_in(name: str, query: SearchQuery) -> SearchReply:
            async with self._workspaces.scope(name) as index:
                return await index.search(query)

        for name in self._names_in(scope, libraries):
            async with self._workspaces.scope(name) as index:
                searches += [partial(search_in, name)] if index.is_indexed else []
        if not libraries and scope in (EVERYTHING, *SOURCES):
            source = "" if scope == EVERYTHING else scope
            searches.insert(0, partial(usecases.search, app, source=source, limit=ask.LIMIT))
        return await (await ask.begin(app, form.get("question", ""), searches)).complete()


async def while_connected(request: Request, work: Awaitable[_Result]) -> _Result | None:
    """Return the result of `work`, or None after cancelling it, because the browser no longer waits for it."""
    task = asyncio.ensure_future(work)
    while not (await asyncio.wait([task], timeout=_POLL_SECONDS))[0]:
        if await request.is_disconnected():
            task.cancel()
            return None
    return task.result()


async def _results(
    title: str, search: Callable[[], Awaitable[SearchReply]], form: SearchForm,
    roots: Mapping[str, Path | None], notices: Sequence[str] = (),
) -> Results:  # fmt: skip
    """Return what a search found, or its error; `roots` is tier → the folder that the paths of its hits are below."""
    started = time.monotonic()
    try:
        reply = await search()
    except KiwiError as error:
        return Results(title, notices=notices, error=error.as_dict())
    terms = hits.term_weights(reply)
    shown = (_shown(hit, reply, terms, form, roots.get(hit.tier)) for hit in reply.hits)
    rows = [hits.hit_json(*ranked) | more for ranked, more in zip(enumerate(reply.hits, start=1), shown, strict=True)]
    about = [hits.tier_json(tier) for tier in reply.tiers], hits.explanation_json(reply)
    return Results(title, rows, [*hits.notices(reply), *notices], time.monotonic() - started, None, *about, reply.close)


def _shown(
    hit: SearchResult, reply: SearchReply, terms: Mapping[str, float], form: SearchForm, root: Path | None
) -> dict[str, Any]:
    """Return what a template shows of one hit beside its JSON."""
    alone = replace(reply, hits=(hit,), refused=(), corrections={}, close=None)
    page = agents.documents_page if hit.ref.item_type is ItemType.DOCUMENT else agents.hits_page
    return {
        "key": (hit.address, hit.passage.ordinal), "ref": str(hit.ref), "place": hits.place(hit),
        "lines": excerpt(hit.passage.text, terms, SNIPPET_COLUMNS, mark, hits.titles_of(hit)),
        "editor": editor_address(root, hit.path, hit.passage.start_line),
        "context": page(alone, 0, 1, _CONTEXT_TOKENS).text,  # as an agent gets it
        "similar": replace(form, query=hit.passage.text[:_SIMILAR], kind="", filters={}).address(),
        "facets": _values_of(hit, root),
    }  # fmt: skip


def mark(text: str, role: str) -> str:
    """Return a text with a role as `excerpt` wants it: a match between the marks that `marked` reads."""
    return f"{MARK_BEGIN}{text}{MARK_END}" if role == "match" else text


def editor_address(root: Path | None, path: str, line: int) -> str:
    """Return the address that opens a file below `root` in VS Code; empty where there is none."""
    file = (root / path).resolve() if root and path else None
    if file is None or root is None or not (file.is_relative_to(root.resolve()) and file.is_file()):
        return ""
    return f"vscode://file/{quote(file.as_posix().removeprefix('/'))}:{line}"


def _values_of(hit: SearchResult, root: Path | None) -> dict[str, str]:
    """Return the values of a hit that a search can be narrowed to, by the names of the fields."""
    about = {name: str(hit.metadata.get(name, "")) for name in ("category", "author", "service", "domain")}
    if hit.ref.item_type is ItemType.DOCUMENT:
        folder = hit.path.partition("/")[0] if "/" in hit.path else ""
        return {**about, "scope": str(root or ""), "kind": str(hit.metadata.get("file_type", "")), "path": folder}
    own = {"scope": hit.tier, "kind": hit.ref.item_type.value, "namespace": hit.ref.namespace, "signer": hit.principal}
    return {**about, **own}


def _facets(columns: Sequence[Sequence[Results]]) -> Mapping[str, Sequence[tuple[str, int]]]:
    """Return what the hits differ in, by the names of the fields: values with the counts of the hits that have them."""
    rows = [row["facets"] for part in columns[0] for row in part.rows] if columns else []
    names = ("scope", "library", "kind", *FILTERS)
    counts = {name: Counter(row[name] for row in rows if row.get(name)) for name in names}
    return {name: values.most_common(_MAX_VALUES) for name, values in counts.items() if len(values) > 1}
