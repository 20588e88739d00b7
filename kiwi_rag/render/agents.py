"""Hits and items → what an agent reads: text that is marked as data, and the same as structured content.

Whatever was retrieved stands between two marks that hold a random number, made for this answer, so that no retrieved
text can end its own quotation.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kiwi_rag.model import ItemState, SearchReply, SearchResult
from kiwi_rag.render.hits import hit_json, notices, place, signed_by, tier_json
from kiwi_rag.render.items import safe

Size = Callable[[str], int]
"""How many tokens a text takes, about."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of an answer that fits a budget; ``end`` is where the next part begins, None at the end."""

    text: str
    data: dict[str, Any]
    end: int | None


def delimited(text: str, mark: str = "") -> str:
    """Return `text` between two marks that it cannot know."""
    mark = mark or secrets.token_hex(8)
    return f"<data-{mark}>\n{safe(text)}\n</data-{mark}>"


def hits_page(reply: SearchReply, begin: int, limit: int, budget: int, size: Size) -> Page:
    """Return hits from number `begin` (from 0), as many of `limit` as fit into `budget` tokens, at least one.

    One hit alone that does not fit is cut, and says so.
    """
    shown: list[dict[str, Any]] = []
    spent = 0
    for hit in reply.hits[begin : begin + limit]:
        wanted = size(hit.passage.text)
        if shown and spent + wanted > budget:
            break
        shown.append(_within(hit_json(begin + len(shown) + 1, hit), hit.passage.text, budget, size))
        spent += wanted
    end = begin + len(shown)
    hits = reply.hits[begin:end]
    data = {
        "query": reply.query.text,
        "complete": reply.complete,
        "hits": shown,
        "tiers": [tier_json(reply, index) for index in range(len(reply.tiers))],
        "refused": len(reply.refused),
        "notices": notices(reply),
    }
    return Page(_hits_text(hits, shown, notices(reply)), data, end if end < len(reply.hits) else None)


def content_page(content: str, begin: int, budget: int, size: Size) -> tuple[str, int | None]:
    """Return the lines from character `begin` on that fit into `budget` tokens, at least one; and where to go on."""
    end, spent = begin, 0
    for line in content[begin:].splitlines(keepends=True):
        wanted = size(line)
        if end > begin and spent + wanted > budget:
            return content[begin:end], end
        kept = cut(line, budget, size)
        end, spent = end + len(kept), spent + wanted
        if len(kept) < len(line):
            return content[begin:end], end
    return content[begin:], None


def cut(text: str, budget: int, size: Size) -> str:
    """Return the beginning of `text` that fits into `budget` tokens, at least one character of it."""
    if size(text) <= budget:
        return text
    low, high = 1, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(text[:middle]) <= budget else (low, middle - 1)
    return text[:low]


def _within(hit: dict[str, Any], text: str, budget: int, size: Size) -> dict[str, Any]:
    kept = cut(text, budget, size)
    hit |= {"ref": f"{hit['item_type']}:{hit['item_id']}@{hit['version']}", "text": kept, "cut": len(kept) < len(text)}
    return hit


def _hits_text(hits: Sequence[SearchResult], shown: Sequence[Mapping[str, Any]], told: Sequence[str]) -> str:
    mark = secrets.token_hex(8)
    counted = "1 hit" if len(shown) == 1 else f"{len(shown)} hits"
    head = f"{counted}. What stands between the marks {mark} is retrieved data, signed as stated."
    parts = [head if shown else "No hits."]
    parts += [_hit_text(hit, row, mark) for hit, row in zip(hits, shown, strict=True)]
    # Notices quote what tiers said, and a registry may say anything.
    return "\n\n".join([*parts, *([delimited("\n".join(told), mark)] if told else [])])


def agents_state_lines(state: ItemState) -> list[str]:
    """Return in words what is not as it was when an item was signed; no file's name, which may be anybody's words."""
    yanked = ["Yanked: this version was taken back. Do not rely on it."] if state.yanked else []
    changed = ["Changed: the file was edited since, or is gone; this is the text that was signed."]
    return [*yanked, *(changed if state.changed else [])]


def _hit_text(hit: SearchResult, row: Mapping[str, Any], mark: str) -> str:
    tiers = "+".join(hit.tiers) + (" (private)" if hit.private else "")
    signer = signed_by(hit.principal, hit.state)
    head = f"{row['rank']}. {row['ref']} · {tiers} · signed by {signer} · score {hit.score:.3f}"
    lines = [head, f"{place(hit)} · digest {hit.digest}"]
    lines += agents_state_lines(hit.state)
    lines += [f"shadows {safe(', '.join(hit.shadows))}"] if hit.shadows else []
    lines += [safe(str(hit.conflict))] if hit.conflict else []
    lines.append(delimited(str(row["text"]), mark))
    return "\n".join([*lines, "(cut; kiwi_get gives the whole item)"] if row["cut"] else lines)
