"""How the scores of a reply were computed → text, JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kiwi_rag.lexical import bm25_weights
from kiwi_rag.model import CollectionStatistics, Explanation, SearchReply, SearchResult
from kiwi_rag.render.items import Style, plain, safe

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


def table(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Return rows, of which the first is the heading, as lines with columns aligned right, those in `left` left."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return [
        "  ".join(c.ljust(w) if n in left else c.rjust(w) for n, (c, w) in enumerate(zip(row, widths, strict=True)))
        .rstrip()
        for row in rows
    ]  # fmt: skip


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
