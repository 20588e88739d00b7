"""Exchanges of a conversation memory → lines for people, and JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kiwi_rag.model import Exchange, SearchReply, SearchResult
from kiwi_rag.model.exchanges import mark_recalled
from kiwi_rag.render import attributes, counted, safe, table
from kiwi_rag.render.agents import truncate
from kiwi_rag.render.layout import one_line
from kiwi_rag.wordpieces import estimate_tokens

if TYPE_CHECKING:
    from kiwi_rag.sources.memory.exchanges import Selection

_BEGINNING = 70
"""Characters of an exchange that a list shows."""
QUESTION_LENGTH = 60
"""Characters of a session's first question that a list shows."""


def beginning(text: str, length: int = _BEGINNING) -> str:
    """Return the beginning of a text on one line."""
    line = one_line(text[:1000])
    return line if len(line) <= length else f"{line[:length]}…"


def exchange_line(one: Exchange) -> str:
    """Return an exchange on one line: id, time, session, and how it begins."""
    return safe(f"{one.id}  {one.timestamp:%Y-%m-%d %H:%M}  session {one.session_id}  {beginning(one.text)}")


def exchange_lines(one: Exchange) -> Iterator[str]:
    """Yield a whole exchange: a line about it, then what was said."""
    thread = f"  thread {one.thread_id}" if one.thread_id else ""
    yield safe(f"{one.id}  {one.timestamp:%Y-%m-%d %H:%M}  session {one.session_id}{thread}")
    yield safe(one.text) + "\n"


def session_line(row: Mapping[str, Any]) -> str:
    """Return a session, as `session_json` has it, on one line."""
    first, last = (str(row[name])[:16].replace("T", " ") for name in ("first", "last"))
    return safe(f"{row['session_id']}  {counted(row['exchanges'], 'exchanges')}  {first} to {last}  {row['question']}")


def recollections_json(found: Sequence[tuple[Exchange, SearchResult]], reply: SearchReply) -> dict[str, Any]:
    """Return the exchanges that a search found, JSON-ready, with the message that matched and its score."""
    rows = [
        {
            "rank": rank, **exchange.as_dict(), "message": hit.passage.text, "score": round(hit.score, 6),
            "parts": dict(hit.parts),
        }
        for rank, (exchange, hit) in enumerate(found, start=1)
    ]  # fmt: skip
    return {"query": reply.query.text, "complete": reply.complete, "close": reply.close, "hits": rows}


def recalled_rows(found: Sequence[tuple[Exchange, SearchResult]], budget: int) -> list[dict[str, Any]]:
    """Return what a search found, as much as fits into `budget` tokens, each marked as recalled.

    The messages that matched come first. Then the best ones become whole exchanges, as far as the rest of the budget
    goes.
    """
    said, left = _within([hit.passage.text for _, hit in found], budget)
    rows = []
    for rank, ((exchange, hit), text) in enumerate(zip(found, said, strict=False), start=1):
        more = max(estimate_tokens(exchange.text) - estimate_tokens(text), 0)
        is_whole = more <= left
        left -= more if is_whole else 0
        rows.append(_recalled_row(rank, exchange, exchange.text if is_whole else text, round(hit.score, 6)))
    return rows


def exchange_rows(exchanges: Sequence[Exchange], budget: int) -> list[dict[str, Any]]:
    """Return whole exchanges, as many as fit into `budget` tokens, each marked as recalled; the first is truncated."""
    said, _ = _within([one.text for one in exchanges], budget)
    return [_recalled_row(rank, exchanges[rank - 1], text) for rank, text in enumerate(said, start=1)]


def _within(texts: Sequence[str], budget: int) -> tuple[list[str], int]:
    """Return the first texts that fit into a budget, the first one truncated if need be, and what is left of it."""
    kept: list[str] = []
    for text in texts:
        said = truncate(text, max(budget, 1))
        if kept and said != text:
            break
        kept.append(said)
        budget -= estimate_tokens(said)
    return kept, max(budget, 0)


def _recalled_row(rank: int, exchange: Exchange, text: str, score: float | None = None) -> dict[str, Any]:
    about = {"timestamp": exchange.timestamp.isoformat(), "score": score}
    marked = {"text": mark_recalled(exchange, text), "truncated": text != exchange.text}
    return {"rank": rank, **attributes(exchange, "id", "session_id", "thread_id"), **about, **marked}


def stats_lines(stats: Mapping[str, Any]) -> list[str]:
    """Return the state of a memory as lines."""
    since = f"  ({stats['first'][:16]} to {stats['last'][:16]})" if stats["exchanges"] else ""
    lines = [
        f"memory     {stats['memory']}",
        f"exchanges  {stats['exchanges']} in {counted(stats['sessions'], 'sessions')}{since}",
        f"pending    {stats['pending']}",
        f"model      {stats['model'] or '–'}",
        f"size       {stats['bytes'] / (1 << 20):.1f} MiB  {stats['path']}",
        f"retention  {stats['retention_days']:g} days" if stats["retention_days"] else "retention  without end",
    ]
    return [safe(line) for line in lines]


def import_lines(report: Mapping[str, Any]) -> list[str]:
    """Return what an import did as a table of one row."""
    names = ("transcripts", "exchanges", "new", "forgotten", "refused", "skipped", "unreadable", "redacted")
    cells = [str(value if isinstance(value := report[name], int) else len(value)) for name in names]
    return table([("files", *names[1:]), cells])


def import_problems(report: Mapping[str, Any]) -> list[str]:
    """Return a line for everything that an import refused, did not read, or cut."""
    return [
        *(f"refused: {name}: {why}" for name, why in report["refused"].items()),
        *(f"not read: {path}: {why}" for path, why in report["unreadable"].items()),
        *(f"not read: {line}" for line in report["skipped"]),
        *(f"cut: {line}" for line in report["cut"]),
    ]


def import_rest(report: Mapping[str, Any]) -> str:
    """Return what an import left for later, or that there was nothing to add; empty for neither."""
    if left := report["unfinished"]:
        return f"{counted(left, 'exchanges')} not finished yet: imported after ten minutes, or by the hook"
    return "" if report["exchanges"] or import_problems(report) else "nothing new"


def forget_words(selection: Selection) -> str:
    """Return the arguments of `kiwi memory forget` that mean a selection."""
    options = {
        "--session": selection.session_id, "--thread": selection.thread_id, "--matching": selection.text,
        "--before": f"{selection.before:%Y-%m-%dT%H:%M:%SZ}" if selection.before else "",
    }  # fmt: skip
    given = [word for name, value in options.items() if value for word in (name, value)]
    return shlex.join(["forget", *selection.ids, *given, *(["--all"] if selection.since else [])])
