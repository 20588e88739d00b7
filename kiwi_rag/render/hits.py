"""Hits and replies, of items and of documents → text, Markdown, JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kiwi_rag.model import ItemState, SearchReply, SearchResult
from kiwi_rag.model.refs import ItemRef
from kiwi_rag.render.explanation import explanation_json
from kiwi_rag.render.items import Style, plain, safe

SNIPPET_CHARACTERS = 160


def snippet(result: SearchResult, width: int = SNIPPET_CHARACTERS) -> str:
    """Return the start of the passage on one line."""
    text = safe(" ".join(result.passage.text.split()))
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def place(result: SearchResult) -> str:
    """Return ``path:line``; for an item without a path, or whose file has changed, its address and line."""
    path = "" if result.state.changed else safe(result.path)
    return f"{path or f'{result.ref}@{result.tier}'}:{result.passage.start_line}"


def signed_by(principal: str, state: ItemState) -> str:
    """Return the principal with a check mark, or with the words that say what changed since the item was signed."""
    return f"{safe(principal)} ✓" if state.verified else f"{safe(principal)}, {' and '.join(state.labels)}"


def state_json(state: ItemState) -> dict[str, Any]:
    """Return an item's state, JSON-ready; ``verified`` is true if it is neither changed nor yanked."""
    return {"verified": state.verified, "changed": bool(state.changed), "yanked": state.yanked}


def state_lines(ref: ItemRef, state: ItemState) -> list[str]:
    """Return a line for each way in which an item is no longer as it was signed."""
    yanked = [f"yanked: kiwi show {ref}@registry says why"] if state.yanked else []
    # Nothing follows `state.changed` on its line: it may end with the command that admits the file's new text.
    return [*yanked, *([f"changed: {safe(state.changed)}"] if state.changed else [])]


def hits_text(reply: SearchReply, style: Style = plain, explain: bool = False) -> str:
    """Return hits as three lines each: rank, id, tier, signer, score; snippet; path and line."""
    return "\n".join(
        line for rank, hit in enumerate(reply.hits, start=1) for line in _hit_lines(rank, hit, style, explain)
    )


def hits_markdown(reply: SearchReply) -> str:
    """Return hits as Markdown for an agent: each passage quoted, with its path, tier and signer."""
    return "\n".join(_hit_markdown(rank, hit) for rank, hit in enumerate(reply.hits, start=1))


def hits_paths(reply: SearchReply) -> str:
    """Return one ``path:line`` a hit."""
    return "\n".join(map(place, reply.hits))


def reply_json(reply: SearchReply, explain: bool = False) -> dict[str, Any]:
    """Return the whole reply, JSON-ready; `explain` adds how the scores were computed."""
    explanation = {"explain": explanation_json(reply)} if explain else {}
    return {
        "query": reply.query.text,
        "complete": reply.complete,
        "hits": [hit_json(rank, hit) for rank, hit in enumerate(reply.hits, start=1)],
        "tiers": [tier_json(reply, index) for index in range(len(reply.tiers))],
        "refused": [{"ref": str(r.ref), "tier": r.tier, "code": r.code, "reason": r.reason} for r in reply.refused],
        "corrections": dict(reply.corrections),
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
        "file": hit.passage.file,
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
    """Return notices beside the hits: failed tiers, refused hits, version conflicts, nothing found."""
    lines = [
        f"{t.tier}: {t.state}: {(t.error or {}).get('message', '')} ({t.seconds:.1f} s)"
        for t in reply.tiers
        if t.state not in ("ok", "refused") or (t.state == "refused" and t.error)
    ]
    lines += [safe(str((t.error or {}).get("hint"))) for t in reply.tiers if t.error and t.error.get("hint")]
    lines += [f'read "{word}" as "{meant}"' for word, meant in reply.corrections.items()]
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
    statistics = next(tier.statistics for tier in reply.tiers if tier.tier == name)
    return statistics is not None and not statistics.items


def _hit_lines(rank: int, hit: SearchResult, style: Style, explain: bool) -> list[str]:
    address = style(f"{hit.ref.item_id}@{hit.ref.version}", "id")
    tiers = "+".join(hit.tiers) + (" (private)" if hit.private else "")
    mark = "✓" if hit.state.verified else " ".join(hit.state.labels)
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
    signed_text = ["this is the text that was signed"] if hit.state.changed else []
    lines += [f"    {style(line, 'bad')}" for line in [*state_lines(hit.ref, hit.state), *signed_text]]
    return [*lines, *(f"    {style(line, 'dim')}" for line in hit_explanation(hit))] if explain else lines


def _hit_markdown(rank: int, hit: SearchResult) -> str:
    quoted = "\n".join(f"> {line}" for line in safe(hit.passage.text).splitlines())
    state = "".join(f", {word}" for word in hit.state.labels)
    return (
        f"### {rank}. `{hit.ref}` ({hit.tier}, signed by {safe(hit.principal)}{state}, score {hit.score:.3f})\n\n"
        f"`{place(hit)}` · digest `{hit.digest}`\n\n{quoted}\n"
    )


def _rounded(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in parts.items()}


def hit_explanation(hit: SearchResult) -> list[str]:
    """Return the digest and the key that identify a hit exactly."""
    return [f"digest {hit.digest}", f"key    {hit.key_id}"]


INDEX_COMMAND = "kiwi workspace index"
"""The command that brings the index of documents up to date."""


def documents_text(reply: SearchReply, style: Style = plain, explain: bool = False) -> str:
    """Return hits as two lines each: rank, path, lines, heading and score; the beginning of the passage."""
    return "\n".join(
        line for rank, hit in enumerate(reply.hits, start=1) for line in _document_lines(rank, hit, style, explain)
    )


def documents_paths(reply: SearchReply) -> str:
    """Return one ``path:line`` a hit."""
    return "\n".join(f"{safe(hit.path)}:{hit.passage.start_line}" for hit in reply.hits)


def documents_json(reply: SearchReply) -> dict[str, Any]:
    """Return the whole reply, JSON-ready."""
    outcome = reply.tiers[0]
    return {
        "query": reply.query.text,
        "kind": reply.kind,
        "complete": reply.complete,
        "hits": [document_json(rank, hit) for rank, hit in enumerate(reply.hits, start=1)],
        "index": {"state": outcome.state, "seconds": round(outcome.seconds, 4), "error": outcome.error},
        "refused": [{"path": r.ref.item_id, "code": r.code, "reason": r.reason} for r in reply.refused],
        "missing_files": list(reply.gone),
        "unfinished": reply.unfinished,
        "corrections": dict(reply.corrections),
    }


def document_json(rank: int, hit: SearchResult) -> dict[str, Any]:
    """Return one hit, JSON-ready."""
    passage = hit.passage
    return {
        "rank": rank,
        "path": hit.path,
        "start_line": passage.start_line,
        "end_line": passage.end_line,
        "heading": list(passage.heading),
        "kind": passage.kind,
        **{name: hit.metadata.get(name, "") for name in ("file_type", "title", "service", "domain", "last_modified")},
        "git_commit": hit.metadata.get("git_commit", ""),
        "score": round(hit.score, 6),
        "parts": _rounded(hit.parts),
        "changed": bool(hit.state.changed) if hit.state.compared else None,
        "verified": True,
        "signer": hit.principal,
        "key_id": hit.key_id,
        "digest": hit.digest,
        "text": passage.text,
    }


def document_notices(reply: SearchReply) -> Sequence[str]:
    """Return notices for people; the hits themselves mark files that changed."""
    changed = len({hit.path for hit in reply.hits if hit.state.changed})
    files = "1 file has" if changed == 1 else f"{changed} files have"
    return document_notes(
        reply, [f"{files} changed since they were indexed: {INDEX_COMMAND}"] if changed else [], INDEX_COMMAND
    )


def document_notes(reply: SearchReply, changed: Sequence[str], update: str) -> Sequence[str]:
    """Return notices that people and agents get, with those about `changed` files."""
    notes = [f"{refused.code}: {refused.reason}" for refused in reply.refused]
    if error := reply.tiers[0].error:
        notes.append(f"the index did not answer: {error['message']}")
    if reply.unfinished:
        notes.append(f"the index is not complete: its last run was interrupted or is under way; {INDEX_COMMAND}")
    if reply.gone:
        notes.append(f"{_missing_files(len(reply.gone))}: {update}")
    notes += changed
    if not reply.hits and reply.tiers[0].state == "ok":
        notes.append("nothing found")
    return notes + [f"{word!r} was read as {meant!r}" for word, meant in reply.corrections.items()]


def _missing_files(count: int) -> str:
    return "1 file that was found no longer exists" if count == 1 else f"{count} files that were found no longer exist"


def _document_lines(rank: int, hit: SearchResult, style: Style, explain: bool) -> Sequence[str]:
    passage = hit.passage
    location = f"{safe(hit.path)}:{passage.start_line}-{passage.end_line}{' *' if hit.state.changed else ''}"
    heading = safe(" > ".join(passage.heading) or hit.metadata.get("title", ""))
    kind = style(f"{hit.metadata.get('file_type', '')}/{passage.kind}", "dim")
    lines = [f"{rank:>2}. {style(location, 'id')}  {heading}  {kind}  {hit.score:.3f}", f"    {snippet(hit)}"]
    if explain:
        lines.append("    " + ", ".join(f"{name} {_shown(part)}" for name, part in hit.parts.items()))
    return lines


def _shown(part: object) -> str:
    return f"{part:.4g}" if isinstance(part, float) else str(part)
