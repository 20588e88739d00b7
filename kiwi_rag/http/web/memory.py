"""The pages of the conversation memory: its sessions, what was said in one, search, and forgetting for good.

There is the memory of the service's project, and that of the user; an address says which of the two, and names no
folder. What was said is shown as text. No audit record has the text by which something was forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request

from kiwi_rag.errors import KiwiError, NotFound, UsageError
from kiwi_rag.http.web.page import Done, Form, Page, PageGroup, confirm
from kiwi_rag.http.web.search import MAX_LIMIT, SNIPPET_COLUMNS, mark, while_connected
from kiwi_rag.mcp.pagination import parse_time
from kiwi_rag.model import Exchange
from kiwi_rag.render import counted, hits
from kiwi_rag.render.layout import excerpt, one_line
from kiwi_rag.render.memory import QUESTION_LENGTH, beginning
from kiwi_rag.services.memory import Memory
from kiwi_rag.sources.memory.exchanges import Selection
from kiwi_rag.usecases.memory import MemoryQuery, collect_memory_stats, search_memory

PATH = "/memory"
ROWS = 50
"""Sessions or exchanges on one page."""
NEIGHBOURS = 3
"""Exchanges on each side of one that is shown alone."""
FOLDED, FOLDED_LINES = 1_500, 30
"""Characters and lines of a message above which it is folded."""
MAX_SHOWN = 20_000
"""Characters of a message above which the rest is left out, unless it is opened alone."""
_BEGINNING = 100
_NARROWING = ("id", "session_id", "thread_id", "before", "matching")
"""Fields of the form that forgets. An empty one is refused: without it the others would mean more."""
_NAMED = 5
"""Exchanges whose beginning a question shows."""


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message as a page shows it: ``beginning`` where it is folded, and how many characters were left out."""

    speaker: str
    text: str
    beginning: str
    left_out: int


@dataclass(frozen=True, slots=True)
class ShownExchange:
    """An exchange as a page shows it."""

    exchange: Exchange
    messages: Sequence[ShownMessage]

    @classmethod
    def of(cls, exchange: Exchange, *, whole: bool = False) -> ShownExchange:
        """Return an exchange for a page; `whole` leaves out nothing."""
        return cls(exchange, [_shown_message(speaker, text, whole=whole) for speaker, text in exchange.messages])


def _shown_message(speaker: str, text: str, *, whole: bool) -> ShownMessage:
    shown = text if whole else text[:MAX_SHOWN]
    is_long = len(text) > FOLDED or text.count("\n") >= FOLDED_LINES
    beginning = one_line(text[:_BEGINNING]) if is_long and not whole else ""
    return ShownMessage(speaker, shown, beginning, len(text) - len(shown))


class Memories(PageGroup):
    """The pages of the memories that this service has."""

    async def overview(self, request: Request) -> Page:
        """Show both memories, and the sessions of one."""
        given = request.query_params
        name, memory = self._chosen(given)
        memories = {of: await self._state(one) for of, one in self._all.items()}
        number, is_readable = _page_number(given), "error" not in memories[name]
        sessions = await asyncio.to_thread(memory.table.sessions, ROWS + 1, number * ROWS) if is_readable else ()
        values = {
            "question": partial(beginning, length=QUESTION_LENGTH),
            "memories": memories,
            "memory": memory,
            "days": self._app.settings.memory_retention_days,
        }
        return Page("memory.html", {**values, **_about(name), **_rows(sessions, number)})

    async def session(self, request: Request) -> Page:
        """Show the exchanges of a session or a thread, the oldest first; or one with those beside it."""
        given, number = request.query_params, _page_number(request.query_params)
        name, memory = self._chosen(given)
        one = given.get("id", "")
        selection = Selection((one,) if one else (), given.get("session_id", ""), given.get("thread_id", ""))
        select = partial(memory.table.select, selection, ROWS + 1, number * ROWS)
        found = [] if selection.is_empty else await asyncio.to_thread(select)
        if not found:
            raise _missing(memory)
        rows = _rows([ShownExchange.of(each, whole=bool(one)) for each in found], number)
        if one:
            before, after = await asyncio.to_thread(memory.table.neighbours, one, NEIGHBOURS)
            rows["rows"] = [*map(ShownExchange.of, before), *rows["rows"], *map(ShownExchange.of, after)]
            selection = Selection(session_id=found[0].session_id)
        return Page(
            "memory_session.html", {"memory": memory, "selection": selection, "one": one, **_about(name), **rows}
        )

    async def search(self, request: Request) -> Page:
        """Show the exchanges that a question finds, and why."""
        given = request.query_params
        name, memory = self._chosen(given)
        form = {field: given.get(field, "").strip()[:200] for field in ("session_id", "thread_id", "since", "k")}
        form["q"] = " ".join(given.get("q", "").split())[:10_000]
        values: dict[str, Any] = {"memory": memory, "form": form, "rows": (), "notices": (), "error": None}
        values["limit"] = min(max(_number(form["k"]) or self._app.settings.memory_results, 1), MAX_LIMIT)
        try:
            values |= await self._found(request, memory, form, values["limit"]) if form["q"] else {}
        except KiwiError as error:
            values["error"] = error.as_dict()
        return Page("memory_search.html", {**values, **_about(name)}, part="memory_hits.html")

    async def _found(self, request: Request, memory: Memory, form: Mapping[str, str], limit: int) -> Mapping[str, Any]:
        narrowed = form["session_id"], form["thread_id"], parse_time("since", form["since"])
        query = MemoryQuery(form["q"], limit, *narrowed)
        reply = await while_connected(request, search_memory(memory, query, self._app.settings))
        if reply is None:
            return {}
        terms = hits.term_weights(reply.shown)
        lines = [
            excerpt(one.hit.passage.text, terms, SNIPPET_COLUMNS, mark, hits.titles_of(one.hit)) for one in reply.found
        ]
        rows = [(one.exchange, one.hit, shown) for one, shown in zip(reply.found, lines, strict=True)]
        return {"rows": rows, "notices": hits.notices(reply.shown, update=memory.index_command)}

    async def forget(self, form: Form) -> Done:
        """Forget for good what all fields together name, after a question that says how many these are."""
        name, memory = self._chosen(form)
        if blank := [field for field in _NARROWING if not form.get(field, "any").strip()]:
            raise UsageError(f"the field {blank[0]} is empty", hint="go back and fill it in")
        ids, session_id = tuple(form.getlist("id")), form.get("session_id", "")
        before, text = parse_time("before", form.get("before", "")), form.get("matching", "").strip()
        selection = Selection(ids, session_id, form.get("thread_id", ""), before=before, text=text)
        count, first = await memory.preview_forget(selection, _NAMED)
        if not count:
            raise _missing(memory)
        lines = [f"{one.id}: {beginning(one.text, _BEGINNING)}" for one in first]
        lines += [f"and {count - len(first)} more"] if count > len(first) else []
        question = f"Forget {counted(count, 'exchanges')} of {memory.title} for good?"
        confirm(form, question, "Forget for good", lines)
        forgotten = await memory.forget(selection)
        rest = Selection(session_id=session_id)
        left = 0 if rest.is_empty or not ids else await asyncio.to_thread(memory.table.count, rest)
        path = _address(name, "/session", session_id=session_id) if left else _address(name)
        was = "was" if len(forgotten) == 1 else "were"
        kept = "Only their ids are kept, so that no import brings them back."
        return Done(path, f"{counted(len(forgotten), 'exchanges')} of {memory.title} {was} forgotten. {kept}")

    pages: ClassVar = {PATH: overview, f"{PATH}/session": session, f"{PATH}/search": search}
    actions: ClassVar = {f"{PATH}/forget": forget}

    @property
    def _all(self) -> Mapping[str, Memory]:
        """The memories by the word that an address has for each."""
        own, of_user = self._context.memory, self._context.user_memory
        return {**({} if own is of_user else {"project": own}), "user": of_user}

    def _chosen(self, given: QueryParams) -> tuple[str, Memory]:
        memories = self._all
        name = given.get("of") or next(iter(memories))
        if name not in memories:
            raise NotFound(f"there is no memory {name[:80]!r} here", hint="choose one on the page Memory")
        return name, memories[name]

    async def _state(self, memory: Memory) -> Mapping[str, Any]:
        """Return how much a memory has, or the error that counting it ended in."""
        try:
            return await collect_memory_stats(memory, self._app.settings)
        except KiwiError as error:
            return {"memory": memory.title, "error": error.as_dict()}


def _address(of: str, below: str = "", **fields: object) -> str:
    """Return the address of a page of one memory; empty fields are left out."""
    return f"{PATH}{below}?" + urlencode({"of": of, **{name: value for name, value in fields.items() if value}})


def _about(of: str) -> Mapping[str, Any]:
    return {"of": of, "address": partial(_address, of)}


def _rows(found: Sequence[Any], number: int) -> dict[str, Any]:
    """Return the rows of a page, of which one more than it shows was looked for."""
    return {"rows": found[:ROWS], "number": number, "first": number * ROWS + 1, "is_last": len(found) <= ROWS}


def _page_number(given: QueryParams) -> int:
    return _number(given.get("page", ""))


def _number(text: str) -> int:
    return int(text[:6]) if text.isdecimal() else 0


def _missing(memory: Memory) -> NotFound:
    return NotFound(f"{memory.title} has no such exchange", hint="go back to the page Memory; it may be forgotten")
