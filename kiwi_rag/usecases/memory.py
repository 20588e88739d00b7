"""What the interfaces share of a conversation memory: search, an agent's context, statistics and the export."""

from __future__ import annotations

import asyncio
import json
import shlex
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kiwi_rag.config import Settings
from kiwi_rag.errors import SourceUnreadable, UsageError
from kiwi_rag.model import Exchange, Filters, SearchQuery, SearchReply
from kiwi_rag.model.exchanges import mark_recalled, path_pattern
from kiwi_rag.render.memory import QUESTION_LENGTH, beginning, recollections_json
from kiwi_rag.search.diversify import CopyIndex
from kiwi_rag.search.exchanges import above_floor
from kiwi_rag.services import Services
from kiwi_rag.services.memory import AddedExchange, Memory, Recollection
from kiwi_rag.sources.memory.exchanges import Selection, SessionSummary
from kiwi_rag.storage.atomic import atomic_file, disk_errors
from kiwi_rag.usecases.status import size_of

MAX_TOKENS = 2000
LEAST_CHARACTERS, STEP_CHARACTERS = 200, 40
"""An exchange that does not fit whole is cut to no fewer characters, and to as many as fit but for so many."""
_STRATEGIES: dict[str, dict[str, Any]] = {
    "default": {}, "vectors": {"alpha": 1.0}, "words": {"alpha": 0.0}, "rrf": {"fusion": "rrf"},
}  # fmt: skip
Counter = Callable[[str], int]


def count_tokens(text: str) -> int:
    """Return about how many tokens a text has: four characters are one."""
    return -(-len(text) // 4)


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """A question to a memory.

    ``session_id``, ``thread_id`` and ``since`` narrow the search. With `prefer_session` what that session has comes
    first, and other sessions after it.
    """

    text: str
    limit: int = 5
    session_id: str = ""
    thread_id: str = ""
    since: datetime | None = None
    prefer_session: str = ""

    def search_query(self, settings: Settings, **changes: Any) -> SearchQuery:
        """Return it as a search with the settings of memories."""
        filters = Filters(path=path_pattern(self.session_id, self.thread_id), since=self.since)
        return replace(
            SearchQuery(
                self.text, "", filters, self.limit, per_file=1, half_life_days=settings.memory_half_life_days or None,
                **_STRATEGIES[settings.memory_strategy],
            ),
            **changes,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class MemoryReply:
    """Exchanges, best first, and the reply of each search that found them."""

    found: Sequence[Recollection]
    replies: Sequence[SearchReply]

    @property
    def complete(self) -> bool:
        """Whether everything that is stored was searched, and every hit verified."""
        return all(reply.complete for reply in self.replies)

    @property
    def shown(self) -> SearchReply:
        """The reply with the hits that are left, as the results of other searches are shown."""
        return replace(self.replies[-1], hits=tuple(one.hit for one in self.found))

    def as_dict(self) -> dict[str, Any]:
        """Return it JSON-ready, each exchange with all of its fields."""
        found = [(one.exchange, one.hit) for one in self.found]
        return {**recollections_json(found, self.shown), "complete": self.complete}


@dataclass(slots=True)
class Excerpt:
    """A part of a context: exchanges of one session that follow each other, the one that was found and neighbours.

    ``text`` is what an agent gets, ``tokens`` what the counter says of it.
    """

    found: Recollection
    exchanges: list[Exchange]
    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class MemoryContext:
    """What fits into the budget of an agent's context: excerpts, the most relevant first."""

    excerpts: Sequence[Excerpt]
    reply: MemoryReply

    @property
    def tokens(self) -> int:
        """The tokens of all excerpts."""
        return sum(excerpt.tokens for excerpt in self.excerpts)

    @property
    def text(self) -> str:
        """What an agent gets; empty where nothing was found."""
        return "\n".join(excerpt.text for excerpt in self.excerpts)

    def as_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        rows = [
            {
                "text": one.text, "tokens": one.tokens, "score": round(one.found.hit.score, 6),
                "session_id": one.found.exchange.session_id, "exchange_ids": [inner.id for inner in one.exchanges],
            }
            for one in self.excerpts
        ]  # fmt: skip
        reply = self.reply.shown
        about = {"query": reply.query.text, "complete": self.reply.complete, "close": reply.close}
        return {**about, "tokens": self.tokens, "excerpts": rows}


async def search_memory(memory: Memory, query: MemoryQuery, settings: Settings) -> MemoryReply:
    """Return what a memory has on a question, the preferred session first; too weak hits are left out.

    Raises
    ------
    UsageError
        When the query is invalid.
    NotFound
        When the memory is empty.
    """
    search = query.search_query(settings)
    found, reply = await memory.recall(search)
    if not query.prefer_session:
        return MemoryReply(_above_floor(found, settings), [reply])
    inner = replace(search, filters=replace(search.filters, path=path_pattern(query.prefer_session)))
    first, its_reply = await memory.recall(inner)
    ids = {one.exchange.id for one in first}
    others = [one for one in found if one.exchange.id not in ids]
    # The floor of both together: a session without anything on the question must not displace what others have.
    kept = {one.exchange.id for one in _above_floor([*first, *others], settings)}
    return MemoryReply([one for one in (*first, *others) if one.exchange.id in kept][: query.limit], [its_reply, reply])


def _above_floor(found: Sequence[Recollection], settings: Settings) -> Sequence[Recollection]:
    hits = [one.hit for one in found]
    kept = {hit.ref for hit in above_floor(hits, settings.memory_floor, dynamic=settings.memory_dynamic_floor)}
    return [one for one in found if one.hit.ref in kept]


async def get_context(
    memory: Memory, query: MemoryQuery, settings: Settings, max_tokens: int = MAX_TOKENS,
    counter: Counter = count_tokens,
) -> MemoryContext:  # fmt: skip
    """Return the exchanges on a question, with their neighbours, as far as they fit into a budget of tokens.

    The exchanges come first, whole where they fit, else the message that was found. What is left of the budget goes to
    the neighbours of the best ones. No exchange, and nothing with nearly the same text, is in it twice.

    Parameters
    ----------
    max_tokens
        The sum of what `counter` says of each excerpt never exceeds it.

    Raises
    ------
    UsageError, NotFound
        As `search_memory`.
    """
    if max_tokens < 1:
        raise UsageError(f"a budget of {max_tokens} tokens is below 1", hint=f"the default is {MAX_TOKENS}")
    reply = await search_memory(memory, replace(query, limit=min(2 * query.limit, 100)), settings)
    context = _Context(max_tokens, counter)
    for found in reply.found:
        if len(context.excerpts) < query.limit:
            context.add(found)
    for excerpt in context.excerpts if settings.memory_neighbours else ():
        exchange = excerpt.exchanges[0]
        sides = await asyncio.to_thread(memory.table.neighbours, exchange.id, settings.memory_neighbours)
        context.join(excerpt, *sides)
    return MemoryContext(context.excerpts, reply)


@dataclass
class _Context:
    """The excerpts so far, and what is left of the budget."""

    budget: int
    counter: Counter
    excerpts: list[Excerpt] = field(default_factory=list)
    _ids: set[str] = field(default_factory=set)
    _texts: CopyIndex = field(default_factory=CopyIndex)

    def add(self, found: Recollection) -> None:
        """Add an exchange whole, or as much of its messages as fits; nothing where it is in already."""
        exchange = found.exchange
        if self._is_known(exchange):
            return
        least, most = LEAST_CHARACTERS, len(exchange.text)
        chosen = self._fitting(exchange, exchange.text) or self._fitting(exchange, shortened(found, least))
        while chosen and chosen[0] != mark_recalled(exchange, exchange.text) and most - least > STEP_CHARACTERS:
            middle = (least + most) // 2
            if longer := self._fitting(exchange, shortened(found, middle)):
                chosen, least = longer, middle
            else:
                most = middle
        if chosen := chosen or self._fitting(exchange, found.hit.passage.text):
            self.budget -= chosen[1]
            self.excerpts.append(Excerpt(found, [exchange], *chosen))
            self._remember(exchange)

    def _fitting(self, exchange: Exchange, text: str) -> tuple[str, int] | None:
        """Return a text as an agent gets it, and its tokens; None if it does not fit."""
        marked = mark_recalled(exchange, text)
        tokens = self.counter(marked)
        return (marked, tokens) if 0 <= tokens <= self.budget else None

    def join(self, excerpt: Excerpt, before: Sequence[Exchange], after: Sequence[Exchange]) -> None:
        """Add the neighbours of an excerpt's exchange that fit, the nearest first, on each side up to a gap."""
        found, open_sides = excerpt.found.exchange, {"before", "after"}
        if excerpt.text != mark_recalled(found, found.text):
            return  # it did not fit whole
        for one, side in _nearest_first(before, after):
            if side not in open_sides:
                continue
            joined = [one, *excerpt.exchanges] if side == "before" else [*excerpt.exchanges, one]
            if self._is_known(one) or not self._replace(excerpt, joined):
                open_sides.discard(side)
            else:
                self._remember(one)

    def _replace(self, excerpt: Excerpt, exchanges: list[Exchange]) -> bool:
        text = "\n".join(mark_recalled(one, one.text) for one in exchanges)
        tokens = self.counter(text)
        if not 0 <= tokens <= self.budget + excerpt.tokens:
            return False
        self.budget += excerpt.tokens - tokens
        excerpt.exchanges, excerpt.text, excerpt.tokens = exchanges, text, tokens
        return True

    def _is_known(self, exchange: Exchange) -> bool:
        return exchange.id in self._ids or self._texts.find(exchange.text.casefold()) is not None

    def _remember(self, exchange: Exchange) -> None:
        self._ids.add(exchange.id)
        self._texts.add(exchange.text.casefold())


def shortened(found: Recollection, characters: int) -> str:
    """Return the messages of an exchange in about so many characters, from where the query found one of them.

    All but the last message have a third together, if they need it.
    """
    messages, shown, left = found.exchange.messages, list[str](), characters
    for number, (speaker, message) in enumerate(messages, start=1):
        said = found.hit.passage.text.removeprefix(f"{speaker}: ")
        start = max(message.find(said), 0)
        end = start + (left if number == len(messages) else characters // 3)
        shown.append(f"{speaker}: {'… ' if start else ''}{message[start:end]}{' …' if end < len(message) else ''}")
        left -= len(message[start:end])
    return "\n\n".join(shown)


def _nearest_first(before: Sequence[Exchange], after: Sequence[Exchange]) -> Iterator[tuple[Exchange, str]]:
    for earlier, later in zip_longest(reversed(before), after):
        if earlier is not None:
            yield earlier, "before"
        if later is not None:
            yield later, "after"


EVERYTHING = Selection(since=datetime.min.replace(tzinfo=UTC))
"""All exchanges of a memory."""


def new_exchange(given: Mapping[str, Any]) -> Exchange:
    """Return the exchange that an interface was given; a missing id is made, and now is its time.

    Raises
    ------
    UsageError
        When a field is missing, unknown or of another type.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Exchange.of({"id": str(uuid.uuid4()), "assistant_message": "", "timestamp": now, **given})


def parse_given(data: bytes, limit: int) -> dict[str, Any]:
    """Parse the JSON object of an exchange.

    Raises
    ------
    UsageError
        When it has over `limit` bytes, or is no JSON object.
    """
    if len(data) > limit:
        raise UsageError(f"the exchange is over {limit >> 20} MB", hint="an exchange has up to 1 MiB")
    try:
        return dict(json.loads(data))
    except (ValueError, TypeError, RecursionError) as error:
        message = f"the exchange is not a JSON object: {str(error)[:200]}"
        raise UsageError(message, hint="kiwi memory add --help") from error


def added_json(added: AddedExchange) -> dict[str, Any]:
    """Return what became of an exchange, JSON-ready: ``redacted`` has what was taken out, but not its text."""
    redacted = [finding.as_dict() for finding in added.findings]
    return {"id": added.exchange.id, "is_new": added.is_new, "redacted": redacted, "pending": added.pending}


def session_json(one: SessionSummary) -> dict[str, Any]:
    """Return a session, JSON-ready."""
    times = {"first": one.first.isoformat(), "last": one.last.isoformat()}
    about = {"threads": list(one.threads), "question": beginning(one.question, QUESTION_LENGTH)}
    return {"session_id": one.session_id, "exchanges": one.exchanges, **times, **about}


def export_lines(memory: Memory) -> Iterator[bytes]:
    """Yield each exchange as a line of JSON with all of its fields, the oldest first. It blocks."""
    for path in memory.table.paths(Selection()):
        with suppress(FileNotFoundError):  # forgotten meanwhile
            yield memory.table.get(path)[0] + b"\n"


def export_to(file: Path, memory: Memory) -> int:
    """Write an export to a file, mode 0600, and return how many exchanges it has.

    Raises
    ------
    SourceUnreadable
        When there is no such folder.
    StoreError
        When the file cannot be written; `StoreFull` where there is no space left.
    """
    if not file.parent.is_dir():
        raise SourceUnreadable(f"there is no folder {file.parent}", hint=f"mkdir -p {shlex.quote(str(file.parent))}")
    with disk_errors(file, "write"), atomic_file(file) as written:
        return sum(1 for line in export_lines(memory) if written.write(line))


async def collect_memory_stats(memory: Memory, settings: Settings) -> dict[str, Any]:
    """Return how much a memory has, since when, and how much of it is not indexed yet, JSON-ready."""
    count, sessions, first, last = await asyncio.to_thread(memory.table.totals)
    state = await memory.tier.store.status() if memory.is_indexed else None
    folders = [memory.root, *([Path(str(state.details["path"])).parent] if state and "path" in state.details else [])]
    return {
        "memory": memory.title,
        "exchanges": count,
        "sessions": sessions,
        "first": first.isoformat() if first else "",
        "last": last.isoformat() if last else "",
        "pending": count - (state.items if state else 0),
        "model": state.fingerprint if state else "",
        "store": memory.store_kind,
        "path": str(memory.root),
        "bytes": sum(size_of(folder.rglob("*")) for folder in folders),
        "retention_days": settings.memory_retention_days,
    }


@asynccontextmanager
async def temporary_memory(app: Services, exchanges: Sequence[Exchange]) -> AsyncIterator[Memory]:
    """Open a memory of these exchanges in a temporary folder, which is removed at the end.

    Raises
    ------
    UsageError
        When one of them cannot be stored.
    """
    settings = replace(app.settings, memory_store="local", memory_retention_days=0.0)
    with TemporaryDirectory(prefix="kiwi-memory-") as folder:
        project = Services(replace(app.resolved, settings=settings), Path(folder))
        async with project, Memory(project) as memory:
            added = await memory.add_all(exchanges)
            for exchange_id, findings in added.refused.items():
                raise UsageError(f"exchange {exchange_id!r} cannot be stored: {findings[0].message}")
            yield memory
