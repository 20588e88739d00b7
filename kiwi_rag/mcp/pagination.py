"""Answers in parts: which part a continuation stands for, and whether what came before it is still the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kiwi_rag import usecases
from kiwi_rag.errors import UsageError
from kiwi_rag.mcp.toolsets import Schema, budget, flag, number, text
from kiwi_rag.model import Filters, SearchReply, SearchResult
from kiwi_rag.render import agents
from kiwi_rag.render.agents import Answer
from kiwi_rag.render.hits import explanation_json

CONTINUATION = text("Of the last answer.", default="", maxLength=200)
SEARCH_INPUTS: dict[str, Schema] = {
    "limit": number("integer", 1, 50, "", default=5), "max_tokens": budget(4_000), "continuation": CONTINUATION,
    "alpha": number("number", 0, 1, "0: by words, 1: by meaning."), "explain": flag("Explain scores."),
}  # fmt: skip
"""Arguments of every search."""
_OF_AN_ANSWER = {"continuation", "max_tokens", "explain"}


def filters_of(arguments: Mapping[str, Any]) -> Filters:
    """Return the filters among the arguments of a search; raise as `parse_time`."""
    return usecases.filters_of({**arguments, "since": parse_time("since", arguments.get("since", ""))})


def parse_time(name: str, given: str) -> datetime | None:
    """Return the time that an argument gives, None for an empty one.

    Raises
    ------
    UsageError
        When it is not a date.
    """
    try:
        moment = datetime.fromisoformat(given) if given else None
        return moment and moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{name} is not a date: {given[:40]!r}", hint="2026-01-31, or 2026-01-31T12:00:00Z") from error


def parse_cursor(params: Any) -> int:
    """Return the position that the cursor of a request for a list stands for, 0 without one.

    Raises
    ------
    UsageError
        When it is not one that a list of this server ended with.
    """
    cursor = (params and params.cursor) or "0"
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 10):
        raise UsageError("the cursor is not from this server", hint="list again without cursor")
    return int(cursor)


def _shown(hits: Sequence[SearchResult], end: int | None) -> object:
    """Return the hits before a position, as a continuation's digest counts them."""
    return [(hit.address, hit.passage.text) for hit in hits[:end]]


async def answer_search(
    search: Callable[[int], Awaitable[SearchReply]], render: Callable[[SearchReply, int, int, int], Answer],
    arguments: Mapping[str, Any],
) -> Answer:  # fmt: skip
    """Return the part of a search's answer that its continuation stands for, and the continuation for the next one.

    Parameters
    ----------
    search
        Called with a position; returns the hits of the page that contains it, and those before it.
    render
        Called with the reply, the position, the limit and the tokens that the answer may have.

    Raises
    ------
    UsageError
        When the continuation belongs to another request, or the hits before it have changed.
    """
    continuation, limit = arguments["continuation"], arguments["limit"]
    # A continuation is valid for the arguments that decide which hits there are.
    request = {name: value for name, value in arguments.items() if name not in _OF_AN_ANSWER}
    begin = agents.parse_continuation(continuation, request)
    reply = await search(begin)
    agents.check_continuation(continuation, agents.make_continuation(begin, request, _shown(reply.hits, begin)))
    page = render(reply, begin, limit, arguments["max_tokens"])
    # As many hits as were requested: there may be more, which the next page searches for.
    may_have_more = begin < limit == len(reply.hits)
    end = limit if page.end is None and may_have_more else page.end
    following = agents.make_continuation(end, request, _shown(reply.hits, end))
    note = f"\n\nThere may be more: call again with the same arguments and this continuation: {following}"
    explained = {"explain": explanation_json(reply)} if arguments["explain"] else {}
    return Answer(page.text + (note if following else ""), {**page.data, "continuation": following, **explained})
