"""Hits and replies → text, Markdown, JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kiwi_rag.model import ItemState, SearchReply, SearchResult
from kiwi_rag.present.explain import explanation_json, hit_explanation
from kiwi_rag.present.text import Style, plain, safe
from kiwi_rag.refs import ItemRef

SNIPPET_CHARACTERS = 160


def snippet(result: SearchResult, width: int = SNIPPET_CHARACTERS) -> str:
    """Return the start of the passage on one line."""
    text = safe(" ".join(result.passage.text.split()))
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def place(result: SearchResult) -> str:
    """Return ``path:line``; an item without a path, or whose file says something else, by its address and line."""
    path = "" if result.state.changed else safe(result.path)
    return f"{path or f'{result.ref}@{result.tier}'}:{result.passage.start_line}"


def signed_by(principal: str, state: ItemState) -> str:
    """Return who signed an item: with a check mark, or with what is not as it was when it was signed."""
    return f"{safe(principal)} ✓" if state.verified else f"{safe(principal)}, {' and '.join(state.words)}"


def state_json(state: ItemState) -> dict[str, Any]:
    """Return an item's state, JSON-ready; ``verified`` is true when its file and version are what was signed."""
    return {"verified": state.verified, "changed": bool(state.changed), "yanked": state.yanked}


def state_lines(ref: ItemRef, state: ItemState) -> list[str]:
    """Return in words what is not as it was when an item was signed."""
    told = [f"yanked: kiwi show {ref}@registry says why"] if state.yanked else []
    return [*told, *([f"changed: {safe(state.changed)}; this is the text that was signed"] if state.changed else [])]


def hits_text(reply: SearchReply, style: Style = plain, explain: bool = False) -> str:
    """Return hits as three lines each: rank, id, tier, signer, score; snippet; path and line."""
    return "\n".join(
        line for rank, hit in enumerate(reply.hits, start=1) for line in _hit_lines(rank, hit, style, explain)
    )


def hits_markdown(reply: SearchReply) -> str:
    """Return hits as Markdown for an agent: each passage quoted as data, with where it came from and who signed it."""
    return "\n".join(_hit_markdown(rank, hit) for rank, hit in enumerate(reply.hits, start=1))


def hits_paths(reply: SearchReply) -> str:
    """Return one ``path:line`` a hit."""
    return "\n".join(map(place, reply.hits))


def reply_json(reply: SearchReply, explain: bool = False) -> dict[str, Any]:
    """Return the whole reply, JSON-ready; `explain` adds how it came about."""
    explanation = {"explain": explanation_json(reply)} if explain else {}
    return {
        "query": reply.query.text,
        "complete": reply.complete,
        "hits": [hit_json(rank, hit) for rank, hit in enumerate(reply.hits, start=1)],
        "tiers": [tier_json(reply, index) for index in range(len(reply.tiers))],
        "refused": [{"ref": str(r.ref), "tier": r.tier, "code": r.code, "reason": r.reason} for r in reply.refused],
        "read_as": dict(reply.read_as),
        **explanation,
    }


def hit_json(rank: int, hit: SearchResult) -> dict[str, Any]:
    """Return one hit, JSON-ready."""
    return {
        "rank": rank,
        "item_type": hit.ref.item_type.value,
        "item_id": hit.ref.item_id,
        "version": hit.ref.version,
        "tier": hit.tier,
        "tiers": list(hit.tiers),
        "shadows": list(hit.shadows),
        "conflict": hit.conflict.as_dict() if hit.conflict else None,
        "duplicates": list(hit.duplicates),
        "more_duplicates": hit.more_duplicates,
        "private": hit.private,
        "signer": hit.principal,
        "key_id": hit.key_id,
        **state_json(hit.state),
        "digest": hit.digest,
        "signed_at": hit.signed_at.isoformat(),
        "score": round(hit.score, 6),
        "parts": _rounded(hit.parts),
        "path": hit.path,
        "start_line": hit.passage.start_line,
        "end_line": hit.passage.end_line,
        "heading": list(hit.passage.heading),
        "text": hit.passage.text,
        "metadata": dict(hit.metadata),
    }


def tier_json(reply: SearchReply, index: int) -> dict[str, Any]:
    """Return how one tier answered, JSON-ready."""
    tier = reply.tiers[index]
    return {
        "tier": tier.tier,
        "state": tier.state,
        "seconds": round(tier.seconds, 4),
        "timings": {step: round(taken, 6) for step, taken in tier.timings.items()},
        "items": tier.statistics.items,
        "passages": tier.statistics.passages,
        "rows": tier.rows,
        "plan": tier.plan,
        "error": dict(tier.error) if tier.error else None,
    }


_FILLED_BY = {
    "project": "kiwi sign .ai, then kiwi index",
    "user": "kiwi sync --to user",
    "registry": "kiwi publish --all",
}


def notices(reply: SearchReply) -> list[str]:
    """Return what a person must be told beside the hits: failed tiers, refused hits, nothing found."""
    lines = [
        f"{t.tier}: {t.state}: {(t.error or {}).get('message', '')} ({t.seconds:.1f} s)"
        for t in reply.tiers
        if t.state not in ("ok", "refused") or (t.state == "refused" and t.error)
    ]
    lines += [safe(str((t.error or {}).get("hint"))) for t in reply.tiers if t.error and t.error.get("hint")]
    lines += [f'read "{word}" as "{meant}"' for word, meant in reply.read_as.items()]
    if reply.refused:
        lines.append(f"refused: {len(reply.refused)}")
        lines += [f"  {r.ref} in {r.tier}: {r.code}: {r.reason}" for r in reply.refused]
    for conflict in reply.conflicts:
        lines += [f"one version, two contents: {conflict}", f"  give it another version: {conflict.hint}"]
    if not reply.hits:
        answered = [t.tier for t in reply.tiers if t.state in ("ok", "refused") and not t.error]
        lines.append(f"nothing found in {', '.join(answered)}" if answered else "no tier answered")
        lines += [f"{tier} has no items yet: {_FILLED_BY[tier]}" for tier in answered if _is_empty(reply, tier)]
    return [safe(line) for line in lines]


def _is_empty(reply: SearchReply, name: str) -> bool:
    held = next(tier.statistics for tier in reply.tiers if tier.tier == name)
    return held is not None and not held.items


def _hit_lines(rank: int, hit: SearchResult, style: Style, explain: bool) -> list[str]:
    address = style(f"{hit.ref.item_id}@{hit.ref.version}", "id")
    tiers = "+".join(hit.tiers) + (" (private)" if hit.private else "")
    mark = "✓" if hit.state.verified else " ".join(hit.state.words)
    signer = style(f"{mark} {safe(hit.principal)}", "ok" if hit.state.verified else "bad")
    lines = [f"{rank:>2}. {address}  {hit.ref.item_type}  {tiers}  {signer}  {hit.score:.3f}"]
    if hit.shadows:
        lines.append(f"    {style('shadows ' + safe(', '.join(hit.shadows)), 'bad')}")
    if hit.conflict:
        lines.append(f"    {style(safe(str(hit.conflict)), 'bad')}")
    if hit.duplicates:
        more = f" and {hit.more_duplicates} more" if hit.more_duplicates else ""
        lines.append(f"    {style('the same as ' + safe(', '.join(hit.duplicates)) + more, 'dim')}")
    lines += [f"    {snippet(hit)}", f"    {style(place(hit), 'dim')}"]
    lines += [f"    {style(line, 'bad')}" for line in state_lines(hit.ref, hit.state)]
    return [*lines, *(f"    {style(line, 'dim')}" for line in hit_explanation(hit))] if explain else lines


def _hit_markdown(rank: int, hit: SearchResult) -> str:
    quoted = "\n".join(f"> {line}" for line in safe(hit.passage.text).splitlines())
    state = "".join(f", {word}" for word in hit.state.words)
    return (
        f"### {rank}. `{hit.ref}` ({hit.tier}, signed by {safe(hit.principal)}{state}, score {hit.score:.3f})\n\n"
        f"`{place(hit)}` · digest `{hit.digest}`\n\n{quoted}\n"
    )


def _rounded(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in parts.items()}
