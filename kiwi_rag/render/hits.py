"""Hits and replies → text, Markdown, JSON; and the explanation of their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import unquote

from kiwi_rag.lexical import bm25_weights, query_terms
from kiwi_rag.model import Filters, ItemType, SearchExplanation, SearchReply, SearchResult, TierOutcome
from kiwi_rag.model.exchanges import SUFFIX
from kiwi_rag.render import Style, attributes, counted, plain, safe, state_json, state_lines, table, vectors_for
from kiwi_rag.render.layout import INDENT, excerpt, fold, fold_notice, one_line

INDEX_COMMAND = "kiwi workspace index"
"""The command that brings the index of documents up to date."""
_DOCUMENT = ("file_type", "service", "domain", "last_modified", "git_commit")
NAMED = 3
"""Copies of a hit that its text names; its JSON lists more."""


def _is_document(hit: SearchResult) -> bool:
    return hit.ref.item_type is ItemType.DOCUMENT


def place(hit: SearchResult) -> str:
    """Return ``path:line``; for an item without a path, or whose file has changed, its address and line."""
    path = "" if hit.state.changed and not _is_document(hit) else safe(hit.path)
    return f"{path or f'{hit.ref}@{hit.tier}'}:{hit.passage.start_line}"


def title_of(hit: SearchResult) -> str:
    """Return the title of an item or a document, else the name of the item or file."""
    return one_line(str(hit.metadata.get("title") or hit.metadata.get("name") or hit.ref.item_id.rpartition("/")[2]))


def titles_of(hit: SearchResult) -> list[str]:
    """Return the title and the headings above the passage, each once."""
    return list(dict.fromkeys([title_of(hit), *map(one_line, hit.passage.heading)]))


def hits_text(reply: SearchReply, style: Style = plain, explain: bool = False, width: int = 0) -> str:
    """Return hits, with the lines that match, in lines of up to `width` columns; 0: however long they are.

    An item is shown as rank, id, tier, signer, score, title, matching lines and place; a document as rank, place,
    title, type, score and matching lines.
    """
    lines, weights = [], term_weights(reply)
    for rank, hit in enumerate(reply.hits, start=1):
        rows = _item_rows if not _is_document(hit) else _exchange_rows if hit.path.endswith(SUFFIX) else _document_rows
        head, above, below = rows(hit, explain)
        lines += fold(head, width, style, first=f"{rank:>2}. ")
        lines += [line for row in above for line in fold([row], width, style)]
        lines += [INDENT + line for line in excerpt(hit.passage.text, weights, width, style, titles_of(hit))]
        lines += [line for row in below for line in fold_notice(INDENT + row[0], width, style, row[1])]
    return "\n".join(lines)


def term_weights(reply: SearchReply) -> dict[str, float]:
    """Return the terms of the query, corrected, with their weights; without an explanation they count the same."""
    if explanation := reply.explanation:
        return bm25_weights(explanation.statistics, explanation.terms)
    return dict.fromkeys(query_terms(reply.query.text), 1.0)


def hits_markdown(reply: SearchReply) -> str:
    """Return hits as Markdown for an agent: each passage quoted, with its path, tier and signer."""
    return "\n".join(_hit_markdown(rank, hit) for rank, hit in enumerate(reply.hits, start=1))


def hits_paths(reply: SearchReply) -> str:
    """Return one ``path:line`` a hit."""
    return "\n".join(map(place, reply.hits))


_Hits = Sequence[Mapping[str, Any]] | None


def reply_json(reply: SearchReply, explain: bool = False, hits: _Hits = None) -> dict[str, Any]:
    """Return the whole reply, JSON-ready, or with the given `hits`; `explain` adds how the scores were computed."""
    return {
        **_reply_json(reply, hits),
        "tiers": [tier_json(tier) for tier in reply.tiers],
        "refused": [{"ref": str(r.ref), "tier": r.tier, "code": r.code, "reason": r.reason} for r in reply.refused],
        **({"explain": explanation_json(reply)} if explain else {}),
    }


def documents_json(reply: SearchReply, hits: _Hits = None) -> dict[str, Any]:
    """Return the whole reply of a search in documents, JSON-ready, or with the given `hits`."""
    outcome = reply.tiers[0]
    return {
        **_reply_json(reply, hits), "kind": reply.kind,
        "index": {"state": outcome.state, "seconds": round(outcome.seconds, 4), "error": outcome.error},
        "refused": [{"path": r.ref.item_id, "code": r.code, "reason": r.reason} for r in reply.refused],
        "missing_files": list(reply.gone), "unfinished": reply.unfinished, "embedded": round(reply.embedded, 4),
    }  # fmt: skip


def _reply_json(reply: SearchReply, hits: _Hits) -> dict[str, Any]:
    hits = [hit_json(*ranked) for ranked in enumerate(reply.hits, start=1)] if hits is None else hits
    about = {"query": reply.query.text, "complete": reply.complete, "hits": hits}
    return {**about, "corrections": dict(reply.corrections), "close": reply.close}


def hit_json(rank: int, hit: SearchResult) -> dict[str, Any]:
    """Return one hit, JSON-ready."""
    return {
        "rank": rank, "title": title_of(hit), **(_document_json(hit) if _is_document(hit) else _item_json(hit)),
        "signer": hit.principal, "score": round(hit.score, 6), "parts": _rounded(hit.parts),
        **attributes(hit, "key_id", "digest", "path", "duplicates", "more_duplicates"),
        "chunk_index": hit.passage.ordinal, "total_chunks": hit.passages or None,  # not every store says
        **attributes(hit.passage, "start_line", "end_line", "heading", "text"),
    }  # fmt: skip


def _item_json(hit: SearchResult) -> dict[str, Any]:
    return {
        "ref": str(hit.ref), "item_type": hit.ref.item_type.value, **attributes(hit.ref, "item_id", "version"),
        **attributes(hit, "tier", "tiers", "shadows", "private"),
        "conflict": hit.conflict.as_dict() if hit.conflict else None, **state_json(hit.state),
        "signed_at": hit.signed_at.isoformat(), "file": hit.passage.file, "metadata": dict(hit.metadata),
    }  # fmt: skip


def _document_json(hit: SearchResult) -> dict[str, Any]:
    changed = bool(hit.state.changed) if hit.state.compared else None
    about = {name: hit.metadata.get(name, "") for name in _DOCUMENT}
    return {"kind": hit.passage.kind, **about, "verified": True, "changed": changed}


def tier_json(tier: TierOutcome) -> dict[str, Any]:
    """Return how one tier answered, JSON-ready."""
    row = asdict(tier)
    statistics = row.pop("statistics")
    counts = {"items": statistics["items"], "passages": statistics["passages"]}
    return {**row, **counts, "seconds": round(tier.seconds, 4), "timings": _rounded(tier.timings)}


def _rounded(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in values.items()}


_FILLED_BY = {
    "project": "to add some: kiwi add PATH, or for signed files kiwi index",
    "user": "to copy those of a project into it, run in the project's folder: kiwi sync --to user",
    "registry": "to publish those of this project: kiwi publish --all",
}


def notices(reply: SearchReply, changed: str | None = None, update: str = INDEX_COMMAND, step: str = "") -> list[str]:
    """Return notices beside the hits: failed tiers, refused hits, version conflicts, old documents, nothing found.

    `changed` says which documents' files changed, by default how many; `update` is how to bring their index up to date.
    With a next `step` that the caller names, nothing is said about how to fill tiers.
    """
    lines = [
        f"{t.tier}: {t.state}: {(t.error or {}).get('message', '')} ({t.seconds:.1f} s)"
        for t in reply.tiers
        if t.state not in ("ok", "refused") or (t.state == "refused" and t.error)
    ]
    lines += [str(t.error["hint"]) for t in reply.tiers if t.error and t.error.get("hint")]
    lines += [f'read "{word}" as "{meant}"' for word, meant in reply.corrections.items()]
    if reply.close is False:
        lines.append("nothing here is close to the query; these are the best of what there is")
    lines += [f"refused: {len(reply.refused)}", *_refusals(reply)] if reply.refused else []
    for conflict in reply.conflicts:
        lines += [f"one version, two contents: {conflict}", f"  give it another version: {conflict.hint}"]
    if reply.unfinished:
        lines.append(f"the index is not complete: its last run was interrupted or is under way; {update}")
    if reply.embedded < 1:
        words = "the others are found by words alone; if no run is under way"
        lines.append(f"{vectors_for(reply.embedded)} of the passages so far, {words}: {update}")
    if reply.gone:
        no_longer = "that was found no longer exists" if len(reply.gone) == 1 else "that were found no longer exist"
        lines.append(f"{counted(len(reply.gone), 'files')} {no_longer}: {update}")
    if changed is None:
        count = len({hit.path for hit in reply.hits if hit.state.changed and _is_document(hit)})
        changed = f"{counted(count, 'files')} changed since the last index run" if count else ""
    lines += [f"{changed}: {update}"] if changed else []
    return [safe(line) for line in [*lines, *([] if reply.hits else _nothing_found(reply)[: 1 if step else None])]]


def _refusals(reply: SearchReply) -> list[str]:
    """Return a line for each reason, with the first hit that was refused for it, and how many others were."""
    reasons: dict[str, list[str]] = {}
    for one in reply.refused:
        reasons.setdefault(f"in {one.tier}: {one.code}: {one.reason}", []).append(str(one.ref))
    named = ((f" and {len(others)} more" if others else "", first, why) for why, (first, *others) in reasons.items())
    return [f"  {first}{more} {why}" for more, first, why in named]


def _nothing_found(reply: SearchReply) -> list[str]:
    answered = [t for t in reply.tiers if t.state in ("ok", "refused") and not t.error]
    if not answered:
        return ["no tier answered"]
    empty = [t.tier for t in answered if t.tier in _FILLED_BY and not t.statistics.items]
    hints = [f"the {tier} tier has no items yet; {_FILLED_BY[tier]}" for tier in empty]
    filters = "" if reply.query.filters == Filters() else " with these filters"
    return [f"nothing found in {', '.join(t.tier for t in answered)}{filters}", *hints]


_Rows = list[tuple[str, str]]


def _item_rows(hit: SearchResult, explain: bool) -> tuple[_Rows, _Rows, _Rows]:
    """Return the first line of an item in fields, the lines above the snippet and those below it, with their roles."""
    mark = "✓" if (is_verified := hit.state.verified) else " ".join(hit.state.labels)
    tiers = "+".join(hit.tiers) + (" (private)" if hit.private else "")
    signer = (f"{mark} {safe(hit.principal)}", "ok" if is_verified else "bad")
    address = (f"{hit.ref.item_id}@{hit.ref.version}", "id")
    head = [address, (hit.ref.item_type, ""), (tiers, ""), signer, (f"{hit.score:.3f}", "")]
    above = [(" > ".join(titles_of(hit)), "title")]
    above += [("shadows " + safe(", ".join(hit.shadows)), "bad")] if hit.shadows else []
    above += [(safe(str(hit.conflict)), "bad")] if hit.conflict else []
    above += [(f"the same as {_copies(hit)}", "dim")] if hit.duplicates else []
    signed_text = ["this is the text that was signed"] if hit.state.changed else []
    below = [(place(hit), "dim"), *((line, "bad") for line in [*state_lines(hit.ref, hit.state), *signed_text])]
    explained = [(f"digest {hit.digest}", "dim"), (f"key    {hit.key_id}", "dim")]
    return head, above, [*below, *(explained if explain else [])]


def _copies(hit: SearchResult) -> str:
    """Return the first of a hit's copies, and how many more there are."""
    others = max(len(hit.duplicates) - NAMED, 0) + hit.more_duplicates
    more = f" and {others} more" if others else ""
    return safe(", ".join(hit.duplicates[:NAMED])) + more


def _hit_markdown(rank: int, hit: SearchResult) -> str:
    quoted = "\n".join(f"> {line}" for line in [f"**{title_of(hit)}**", "", *safe(hit.passage.text).splitlines()])
    state = "".join(f", {word}" for word in hit.state.labels)
    return (
        f"### {rank}. `{hit.ref}` ({hit.tier}, signed by {safe(hit.principal)}{state}, score {hit.score:.3f})\n\n"
        f"`{place(hit)}` · digest `{hit.digest}`\n\n{quoted}\n"
    )


def _document_rows(hit: SearchResult, explain: bool) -> tuple[_Rows, _Rows, _Rows]:
    """Return the first line of a document's passage in fields, and the lines above and below the snippet."""
    passage = hit.passage
    location = f"{safe(hit.path)}:{passage.start_line}-{passage.end_line}{' *' if hit.state.changed else ''}"
    kind = safe(f"{hit.metadata.get('file_type', '')}/{passage.kind}")
    head = [(location, "id"), (" > ".join(titles_of(hit)), "title"), (kind, "dim"), (f"{hit.score:.3f}", "")]
    copies = [(f"also in {_copies(hit)}", "dim")] if hit.duplicates else []
    return head, [], [*copies, *_parts(hit, explain)]


def _exchange_rows(hit: SearchResult, explain: bool) -> tuple[_Rows, _Rows, _Rows]:
    """Return the first line of an exchange of a memory in fields, and the lines below what was said."""
    session, _, name = map(unquote, hit.path.removesuffix(SUFFIX).split("/"))
    head = [(safe(name), "id"), (title_of(hit), "title"), (safe(f"session {session}"), "dim"), (f"{hit.score:.3f}", "")]
    return head, [], _parts(hit, explain)


def _parts(hit: SearchResult, explain: bool) -> _Rows:
    """Return the line that explains a score, if it is to be explained."""
    shown = {name: "none" if part is None else part for name, part in hit.parts.items()}
    parts = [f"{name} {part:.4g}" if isinstance(part, float) else f"{name} {part}" for name, part in shown.items()]
    return [(", ".join(parts), "")] if explain else []


WIDTH = 100
MAX_TERMS = 30
_LEGEND = (
    "vectors, words: score in this leg, 0 to 1, and rank; beside them raw scores: cosine of the best",
    "passage, of the first, of the mean of all; BM25 of the best passage, of the item as one document",
)


def explanation_text(reply: SearchReply, style: Style = plain, width: int = 0) -> str:
    """Return how the scores of a reply were computed: legs, tiers, terms and settings.

    Lines have up to `WIDTH` columns. In a narrower terminal of `width` columns they are continued below.
    """
    explanation = reply.explanation
    if explanation is None:
        return ""
    blocks = [_legs(reply), _tiers(reply), _terms(explanation), _settings(reply, explanation)]
    folded = ((row for line in block for row in fold_notice(safe(line), width)) for block in blocks if block)
    return "\n\n".join(style("\n".join(block), "dim") for block in folded)


def explanation_json(reply: SearchReply) -> dict[str, Any]:
    """Return the same, JSON-ready, without the parts that hits and tiers have in their own JSON."""
    explanation = reply.explanation
    if explanation is None:
        return {}
    statistics = attributes(explanation.statistics, "passages", "items", "document_frequency")
    statistics["average_length"] = round(explanation.statistics.average_length, 3)
    return {
        "terms": _term_json(explanation), "statistics": statistics,
        **attributes(explanation, "fusion", "rounds", "depth"), "weights": asdict(explanation.weights),
        "half_life_days": reply.query.half_life_days, "seconds": _rounded(explanation.seconds),
        "per_signer": attributes(explanation, "signers", "cap", "suppressed"),
    }  # fmt: skip


def _legs(reply: SearchReply) -> list[str]:
    if not reply.hits:
        return []
    heading = ["#", "item", "score", "prior", "|", "vectors", "best", "first", "mean", "|", "words", "best", "item"]
    rows = [heading, *(_leg_row(rank, hit) for rank, hit in enumerate(reply.hits, start=1))]
    if all(hit.parts["prior"] == 1 for hit in reply.hits):
        rows = [[*row[:3], *row[4:]] for row in rows]
    others = sum(max(len(row[n]) for row in rows) + 2 for n in range(len(rows[0])) if n != 1)
    return [*table([[row[0], _shorten(row[1], WIDTH - others), *row[2:]] for row in rows], left=(1,)), *_LEGEND]


def _leg_row(rank: int, hit: SearchResult) -> list[str]:
    p, legs = hit.parts, (("vectors", "vector_rank"), ("words", "lexical_rank"))
    vectors, words = (f"{p[leg]:.3f} {f'#{p[rank]}' if p[rank] else '-':>3}" for leg, rank in legs)
    cosines = [f"{p[name]:.3f}" for name in ("best_cosine", "first_cosine", "centroid_cosine")]
    bm25 = [f"{p[name]:.2f}" for name in ("best_bm25", "item_bm25")]
    name = f"{hit.ref.item_id}@{hit.ref.version}"
    return [f"{rank}", name, f"{hit.score:.3f}", f"{p['prior']:.3f}", "|", vectors, *cosines, "|", words, *bm25]


def _tiers(reply: SearchReply) -> list[str]:
    rows = [["tier", "state", "plan", "items", "passages", "rows", "statistics", "candidates", "verification", "ms"]]
    for tier in reply.tiers:
        steps = [tier.timings.get(step, 0.0) for step in ("statistics", "candidates", "verification")]
        counts = map(str, (tier.statistics.items, tier.statistics.passages, tier.rows))
        about = [tier.tier, tier.state, _shorten(tier.plan or "-", 24)]
        rows.append([*about, *counts, *map(_ms, [*steps, tier.seconds])])
    return table(rows, left=(0, 1, 2))


def _terms(explanation: SearchExplanation) -> list[str]:
    statistics, terms = explanation.statistics, _term_json(explanation)
    rows = [[_shorten(term["term"], 40), str(term["df"]), f"{term['idf']:.3f}"] for term in terms[:MAX_TERMS]]
    lines = table([["term", "passages", "idf"], *rows]) if rows else ["no terms: only vectors count"]
    lines += [f"and {len(terms) - MAX_TERMS} more"] if len(terms) > MAX_TERMS else []
    length = f"{statistics.average_length:.1f} terms each on average"
    return [*lines, f"{counted(statistics.passages, 'passages')} of {counted(statistics.items, 'items')}, {length}"]


def _settings(reply: SearchReply, explanation: SearchExplanation) -> list[str]:
    weights = ", ".join(f"{name} {share:g}" for name, share in asdict(explanation.weights).items())
    half_life, cap = reply.query.half_life_days, explanation.cap
    limit = "any number" if cap is None else f"up to {counted(cap, 'hits')}"
    suppressed = "" if cap is None else f", {explanation.suppressed} suppressed"
    return [
        f"fusion   {explanation.fusion}" + (f": {weights}" if explanation.fusion == "convex" else ", by ranks only"),
        "prior    " + (f"halves every {half_life:g} days of the signature's age" if half_life else "none"),
        f"signers  {explanation.signers} among what was found, {limit} each{suppressed}",
        f"rounds   {explanation.rounds}, the last with {explanation.depth} passages a leg",
        "ms       " + ", ".join(f"{name} {_ms(taken)}" for name, taken in explanation.seconds.items()),
    ]


def _term_json(explanation: SearchExplanation) -> list[dict[str, Any]]:
    statistics = explanation.statistics
    idf, frequency = bm25_weights(statistics, explanation.terms), statistics.document_frequency
    return [{"term": t, "df": frequency.get(t, 0), "idf": round(idf.get(t, 0.0), 6)} for t in explanation.terms]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f}"


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 1)] + "…"
