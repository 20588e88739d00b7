"""Hits, items and findings → text, Markdown, JSON. Every door shows results through here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kiwi_rag.errors import Rejected
from kiwi_rag.model import Finding, SearchReply, SearchResult, StoredItem

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
SNIPPET_CHARACTERS = 160

Style = Callable[[str, str], str]
"""Called with a text and what it is (``id``, ``ok``, ``dim``, ``bad``); returns what a terminal should show."""


def plain(text: str, _role: str) -> str:
    """Style nothing."""
    return text


def safe(text: str) -> str:
    """Return `text` with control and direction-changing characters replaced, so that no terminal obeys it."""
    return _CONTROL.sub("�", text)


def snippet(result: SearchResult, width: int = SNIPPET_CHARACTERS) -> str:
    """Return the start of the passage on one line."""
    text = safe(" ".join(result.passage.text.split()))
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def place(result: SearchResult) -> str:
    """Return ``path:line``; a registry item, which has no path, is named by its address and line."""
    return f"{safe(result.path) or f'{result.ref}@{result.tier}'}:{result.passage.start_line}"


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


def reply_json(reply: SearchReply) -> dict[str, Any]:
    """Return the whole reply, JSON-ready."""
    return {
        "query": reply.query.text,
        "complete": reply.complete,
        "hits": [hit_json(rank, hit) for rank, hit in enumerate(reply.hits, start=1)],
        "tiers": [tier_json(reply, index) for index in range(len(reply.tiers))],
        "refused": [{"ref": str(r.ref), "tier": r.tier, "code": r.code, "reason": r.reason} for r in reply.refused],
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
        "private": hit.private,
        "signer": hit.principal,
        "key_id": hit.key_id,
        "verified": True,
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


def json_text(value: Any, indent: int | None = 2) -> str:
    """Return `value` as JSON, with the characters that a terminal would obey escaped; None indents nothing."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def tier_json(reply: SearchReply, index: int) -> dict[str, Any]:
    """Return how one tier answered, JSON-ready."""
    tier = reply.tiers[index]
    return {
        "tier": tier.tier,
        "state": tier.state,
        "seconds": round(tier.seconds, 4),
        "rows": tier.rows,
        "plan": tier.plan,
        "error": dict(tier.error) if tier.error else None,
    }


def notices(reply: SearchReply) -> list[str]:
    """Return what a person must be told beside the hits: failed tiers, refused hits, nothing found."""
    lines = [
        f"{t.tier}: {t.state}: {(t.error or {}).get('message', '')} ({t.seconds:.1f} s)"
        for t in reply.tiers
        if t.state not in ("ok", "refused") or (t.state == "refused" and t.error)
    ]
    lines += [safe(str((t.error or {}).get("hint"))) for t in reply.tiers if t.error and t.error.get("hint")]
    if reply.refused:
        lines.append(f"refused: {len(reply.refused)}")
        lines += [f"  {r.ref} in {r.tier}: {r.code}: {r.reason}" for r in reply.refused]
    if not reply.hits:
        answered = [t.tier for t in reply.tiers if t.state in ("ok", "refused") and not t.error]
        lines.append(f"nothing found in {', '.join(answered)}" if answered else "no tier answered")
    return [safe(line) for line in lines]


def item_json(stored: StoredItem, signed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored item, JSON-ready; `signed` adds what was verified."""
    return {
        "item_type": stored.ref.item_type.value,
        "item_id": stored.ref.item_id,
        "version": stored.ref.version,
        "digest": stored.digest,
        "content_sha256": stored.content_sha256,
        "path": stored.path,
        "passages": stored.passages,
        "private": stored.private,
        "admitted_at": stored.admitted_at.isoformat(),
        **yank_json(stored),
        **signed,
    }


def yank_json(stored: StoredItem) -> dict[str, Any]:
    """Return when and why an item was taken back, JSON-ready; nothing for one that was not."""
    if stored.yanked_at is None:
        return {}
    return {"yanked_at": stored.yanked_at.isoformat(), "yank_reason": stored.yank_reason}


def finding_text(finding: Finding, style: Style = plain) -> str:
    """Return a finding as ``where: severity code: message`` and, on a second line, what mends it."""
    role = "bad" if finding.is_error else "dim"
    where = f"{finding.where}: " if finding.where else ""
    head = f"{safe(where)}{style(f'{finding.severity} {finding.code}', role)}: {safe(finding.message)}"
    return f"{head}\n    → {safe(finding.hint)}" if finding.hint else head


def rejection_text(rejection: Rejected, style: Style = plain) -> str:
    """Return a rejection with all its findings."""
    return "\n".join([safe(rejection.message), *("  " + finding_text(f, style) for f in rejection.findings)])


def findings_text(findings: Iterable[Finding], style: Style = plain) -> str:
    """Return findings, one under the other."""
    return "\n".join(finding_text(f, style) for f in findings)


def _hit_lines(rank: int, hit: SearchResult, style: Style, explain: bool) -> list[str]:
    address = style(f"{hit.ref.item_id}@{hit.ref.version}", "id")
    tiers = "+".join(hit.tiers) + (" (private)" if hit.private else "")
    signer = style(f"✓ {safe(hit.principal)}", "ok")
    lines = [f"{rank:>2}. {address}  {hit.ref.item_type}  {tiers}  {signer}  {hit.score:.3f}"]
    if hit.shadows:
        lines.append(f"    {style('shadows ' + safe(', '.join(hit.shadows)), 'bad')}")
    lines += [f"    {snippet(hit)}", f"    {style(place(hit), 'dim')}"]
    return [*lines, *_explanation(hit, style)] if explain else lines


def _explanation(hit: SearchResult, style: Style) -> list[str]:
    parts = hit.parts
    legs = (
        f"vectors {parts['cosine']:.4f} (rank {parts['vector_rank'] or '-'})  "
        f"words {parts['bm25']:.3f} (rank {parts['lexical_rank'] or '-'})  "
        f"alpha {parts['alpha']:g}  prior {parts['prior']:.3f}  plan {parts['plan']}"
    )
    return [f"    {style(legs, 'dim')}", f"    {style(f'digest {hit.digest}  key {hit.key_id}', 'dim')}"]


def _hit_markdown(rank: int, hit: SearchResult) -> str:
    quoted = "\n".join(f"> {line}" for line in safe(hit.passage.text).splitlines())
    return (
        f"### {rank}. `{hit.ref}` ({hit.tier}, signed by {safe(hit.principal)}, score {hit.score:.3f})\n\n"
        f"`{place(hit)}` · digest `{hit.digest}`\n\n{quoted}\n"
    )


def _rounded(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in parts.items()}
