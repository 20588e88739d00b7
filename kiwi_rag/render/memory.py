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


def exchange_line(one: Exchange) -> str:
    """Return an exchange on one line: id, time, session, and how it begins."""
    beginning = one_line(one.text[:1000])
    shown = beginning if len(beginning) <= _BEGINNING else f"{beginning[:_BEGINNING]}…"
    return safe(f"{one.id}  {one.timestamp:%Y-%m-%d %H:%M}  session {one.session_id}  {shown}")


def exchange_lines(one: Exchange) -> Iterator[str]:
    """Yield a whole exchange: a line about it, then what was said."""
    thread = f"  thread {one.thread_id}" if one.thread_id else ""
    yield safe(f"{one.id}  {one.timestamp:%Y-%m-%d %H:%M}  session {one.session_id}{thread}")
    yield safe(one.text) + "\n"


def session_line(row: Mapping[str, Any]) -> str:
    """Return a session, as `session_json` has it, on one line."""
    first, last = (str(row[name])[:16].replace("T", " ") for name in ("first", "last"))
    return safe(f"{row['session_id']}  {counted(row['exchanges'], 'exchanges')}  {first} to {last}")


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
    """Return the messages that a search found, as many as fit into `budget` tokens, each marked as recalled.

    The first one is truncated if it alone does not fit.
    """
    rows: list[dict[str, Any]] = []
    for rank, (exchange, hit) in enumerate(found, start=1):
        said = truncate(hit.passage.text, budget)
        if rows and said != hit.passage.text:
            break
        budget = max(budget - estimate_tokens(said), 1)
        about = {"timestamp": exchange.timestamp.isoformat(), "score": round(hit.score, 6)}
        ids = attributes(exchange, "id", "session_id", "thread_id")
        marked = {"text": mark_recalled(exchange, said), "truncated": said != hit.passage.text}
        rows.append({"rank": rank, **ids, **about, **marked})
    return rows


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
