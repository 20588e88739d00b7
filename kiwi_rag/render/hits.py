"""Hits and replies → text, Markdown, JSON; and the explanation of their scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kiwi_rag.lexical import bm25_weights
from kiwi_rag.model import CollectionStatistics, Explanation, SearchReply, SearchResult, TierOutcome
from kiwi_rag.render import Style, plain, safe, snippet, state_json, state_lines, table


def place(result: SearchResult) -> str:
    """Return ``path:line``; for an item without a path, or whose file has changed, its address and line."""
    path = "" if result.state.changed else safe(result.path)
    return f"{path or f'{result.ref}@{result.tier}'}:{result.passage.start_line}"


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
        "tiers": [tier_json(tier) for tier in reply.tiers],
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
        "parts": rounded(hit.parts),
        "path": hit.path,
        "file": hit.passage.file,
        "start_line": hit.passage.start_line,
        "end_line": hit.passage.end_line,
        "heading": list(hit.passage.heading),
        "text": hit.passage.text,
        "metadata": dict(hit.metadata),
    }


def tier_json(tier: TierOutcome) -> dict[str, Any]:
    """Return how one tier answered, JSON-ready."""
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
    lines += [f"    {snippet(hit.passage.text)}", f"    {style(place(hit), 'dim')}"]
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


def rounded(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a score, JSON-ready."""
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in parts.items()}


WIDTH = 100
MAX_TERMS = 30
_LEGEND = (
    "vectors, words: score in this leg, 0 to 1, and rank; beside them raw scores: cosine of the best",
    "passage, of the first, of the mean of all; BM25 of the best passage, of the item as one document",
)


def explanation_text(reply: SearchReply, style: Style = plain) -> str:
    """Return how the scores of a reply were computed: legs, tiers, terms and settings."""
    explanation = reply.explanation
    if explanation is None:
        return ""
    blocks = [_legs(reply), _tiers(reply), _terms(explanation), _settings(reply, explanation)]
    return "\n\n".join(style(safe("\n".join(block)), "dim") for block in blocks if block)


def hit_explanation(hit: SearchResult) -> list[str]:
    """Return the digest and the key that identify a hit exactly."""
    return [f"digest {hit.digest}", f"key    {hit.key_id}"]


def explanation_json(reply: SearchReply) -> dict[str, Any]:
    """Return the same, JSON-ready, without the parts that hits and tiers have in their own JSON."""
    explanation = reply.explanation
    if explanation is None:
        return {}
    return {
        "terms": _term_json(explanation),
        "statistics": statistics_json(explanation.statistics),
        "fusion": explanation.fusion,
        "weights": asdict(explanation.weights),
        "half_life_days": reply.query.half_life_days,
        "seconds": {name: round(taken, 6) for name, taken in explanation.seconds.items()},
        "rounds": explanation.rounds,
        "depth": explanation.depth,
        "per_signer": {"signers": explanation.signers, "cap": explanation.cap, "suppressed": explanation.suppressed},
    }


def statistics_json(statistics: CollectionStatistics) -> dict[str, Any]:
    """Return a collection's statistics, JSON-ready."""
    return {
        "passages": statistics.passages,
        "items": statistics.items,
        "average_length": round(statistics.average_length, 3),
        "document_frequency": dict(statistics.document_frequency),
    }


def _legs(reply: SearchReply) -> list[str]:
    if not reply.hits:
        return []
    prior = ["prior"] if any(hit.parts["prior"] != 1 for hit in reply.hits) else []
    heading = ["#", "item", "score", *prior, "|", "vectors", "best", "first", "mean", "|", "words", "best", "item"]
    rows = [_leg_row(rank, hit, bool(prior)) for rank, hit in enumerate(reply.hits, start=1)]
    others = sum(max(len(row[n]) for row in [heading, *rows]) + 2 for n in range(len(heading)) if n != 1)
    for row in rows:
        row[1] = _shorten(row[1], WIDTH - others)
    return [*table([heading, *rows], left=(1,)), *_LEGEND]


def _leg_row(rank: int, hit: SearchResult, prior: bool) -> list[str]:
    p = hit.parts
    cosines = [f"{p[name]:.3f}" for name in ("best_cosine", "first_cosine", "centroid_cosine")]
    words = [f"{p[name]:.2f}" for name in ("best_bm25", "item_bm25")]
    legs = [
        f"{p[leg]:.3f} {f'#{p[place]}' if p[place] else '-':>3}"
        for leg, place in (("vectors", "vector_rank"), ("words", "lexical_rank"))
    ]
    shown_prior = [f"{p['prior']:.3f}"] if prior else []
    name = f"{hit.ref.item_id}@{hit.ref.version}"
    return [f"{rank}", name, f"{hit.score:.3f}", *shown_prior, "|", legs[0], *cosines, "|", legs[1], *words]


def _tiers(reply: SearchReply) -> list[str]:
    heading = ["tier", "state", "plan", "items", "passages", "rows", "statistics", "candidates", "verification", "ms"]
    rows = [heading]
    for tier in reply.tiers:
        steps = [_ms(tier.timings.get(step, 0.0)) for step in heading[6:9]]
        counts = [str(tier.statistics.items), str(tier.statistics.passages), str(tier.rows)]
        rows.append([tier.tier, tier.state, _shorten(tier.plan or "-", 24), *counts, *steps, _ms(tier.seconds)])
    return table(rows, left=(0, 1, 2))


def _terms(explanation: Explanation) -> list[str]:
    statistics = explanation.statistics
    rows = [
        [_shorten(term["term"], 40), str(term["df"]), f"{term['idf']:.3f}"]
        for term in _term_json(explanation)[:MAX_TERMS]
    ]
    more = [f"and {len(explanation.terms) - MAX_TERMS} more"] if len(explanation.terms) > MAX_TERMS else []
    collection = (
        f"{statistics.passages} passages of {statistics.items} items, "
        f"{statistics.average_length:.1f} terms each on average"
    )
    return [
        *(table([["term", "passages", "idf"], *rows]) if rows else ["no terms: only vectors count"]),
        *more,
        collection,
    ]


def _settings(reply: SearchReply, explanation: Explanation) -> list[str]:
    weights = ", ".join(f"{name} {share:g}" for name, share in asdict(explanation.weights).items())
    half_life = reply.query.half_life_days
    prior = f"halves every {half_life:g} days of the signature's age" if half_life else "none"
    cap = (
        "any number each"
        if explanation.cap is None
        else f"up to {explanation.cap} hits each, {explanation.suppressed} suppressed"
    )
    seconds = {name: _ms(taken) for name, taken in explanation.seconds.items()}
    return [
        f"fusion   {explanation.fusion}" + (f": {weights}" if explanation.fusion == "convex" else ", by ranks only"),
        f"prior    {prior}",
        f"signers  {explanation.signers} among what was found, {cap}",
        f"rounds   {explanation.rounds}, the last with {explanation.depth} passages a leg",
        "ms       " + ", ".join(f"{name} {taken}" for name, taken in seconds.items()),
    ]


def _term_json(explanation: Explanation) -> list[dict[str, Any]]:
    idf = bm25_weights(explanation.statistics, explanation.terms)
    frequency: Mapping[str, int] = explanation.statistics.document_frequency
    return [{"term": t, "df": frequency.get(t, 0), "idf": round(idf.get(t, 0.0), 6)} for t in explanation.terms]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f}"


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 1)] + "…"
