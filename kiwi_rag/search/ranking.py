"""Fusion of both legs into one score per item, and the weights of the fusion. Pure, but for reading a weights file.

The score is a convex combination of normalised scores (Bruch, Gai, Ingber: "An Analysis of Fusion Functions for Hybrid
Retrieval", ACM TOIS 2023). Each score is normalised by theoretical bounds and not by what else was found, so an item's
score does not depend on the other candidates, their order or their tier. A cosine lies in [-1, 1]. BM25 has no upper
bound, so it is saturated by the score of a word that occurs in a single passage of the collection.

Every candidate carries the scores of both legs, of its passage and of its whole item, so no score has to be guessed for
a leg that did not find it. Reciprocal rank fusion (Cormack, Clarke, Büttcher, SIGIR 2009) is for stores whose scores
are only an order (`Capabilities.scores`): each tier's items are ranked separately, and a leg that did not find an item
adds nothing to its score.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kiwi_rag.errors import SourceUnreadable, UsageError
from kiwi_rag.model import Candidate, FusionMethod, FusionWeights, SearchQuery, SearchResult

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Numbers = TypeVar("_Numbers", "float", "NDArray[np.float64]")

RRF_K = 60
"""The constant k of reciprocal rank fusion, as its authors chose it."""
SATURATION = 3
"""How many of the rarest words give half of the highest lexical score."""
ITEM_PARTS = ("best_cosine", "first_cosine", "centroid_cosine", "best_bm25", "item_bm25")
"""What an explanation calls the `ItemScores`."""


@dataclass(frozen=True, slots=True, eq=False)
class RankedHit:
    """A candidate, with the tier that found it, the plan that this tier's store chose, and its score once it has one.

    Of items there is one for each tier that has the item, represented by its best passage. ``score`` is in [0, 1]
    (of documents plus bonuses), ``parts`` holds what it is computed from. ``shadowed`` are the hits of the same item id
    in farther tiers, nearest first.
    """

    tier: str
    rank: int
    plan: str
    candidate: Candidate
    score: float = 0.0
    parts: Mapping[str, Any] = field(default_factory=dict)
    shadowed: tuple[RankedHit, ...] = ()


@dataclass(frozen=True, slots=True)
class Recency:
    """An optional prior: a score halves with every `half_life_days` of the signature's age at `now`."""

    half_life_days: float
    now: datetime

    def factor(self, signed_at: datetime) -> float:
        """Return what to multiply a score with, in (0, 1]."""
        age = max((self.now - signed_at).total_seconds() / 86_400, 0.0)
        return float(0.5 ** (age / self.half_life_days))


@dataclass(frozen=True, slots=True)
class Fusion:
    """How to fuse.

    ``rarest`` is the highest BM25 score of one word: `kiwi_rag.lexical.max_term_score` of the statistics that scored
    the candidates. Without a ``recency`` age does not count. Tiers are ranked separately unless their
    scores are ``comparable``.
    """

    weights: FusionWeights
    rarest: float
    method: FusionMethod = "convex"
    recency: Recency | None = None
    comparable: bool = True


def reciprocal(rank: int) -> float:
    """Return what a rank, from 1, adds to an RRF score: 1 for the first."""
    return (RRF_K + 1) / (RRF_K + rank)


def fuse(candidates: Sequence[RankedHit], depth: int, fusion: Fusion) -> list[RankedHit]:
    """Return the items of both legs' shortlists with their scores, best first: one hit for each tier that has an item.

    Only items with a passage among the best `depth` of a leg over *all* tiers count, as in one index of everything.
    Without comparable scores the depth applies to each tier.
    """
    ranked_together = [candidates] if fusion.comparable else _grouped(candidates, lambda f: f.rank)
    hits = [hit for found in ranked_together for hit in _fuse_together(found, depth, fusion)]
    return sorted(hits, key=lambda hit: (-hit.score, *_identity(hit)))


def apply_shadowing(hits: Sequence[RankedHit]) -> list[RankedHit]:
    """Return one hit per item id, that of the nearest tier, with those of farther tiers as its ``shadowed``."""
    by_item = _grouped(hits, lambda hit: hit.candidate.ref.key)
    ordered = (sorted(tiers, key=lambda hit: hit.rank) for tiers in by_item)
    return [replace(nearest, shadowed=tuple(others)) if others else nearest for nearest, *others in ordered]


def sort_key(hit: RankedHit | SearchResult) -> tuple[float, str, str]:
    """Return the key that items are sorted by: score descending, then type and id."""
    ref = hit.ref if isinstance(hit, SearchResult) else hit.candidate.ref
    return -hit.score, ref.item_type.value, ref.item_id


def normalise_cosine(cosine: _Numbers) -> _Numbers:
    """Return a cosine, or an array of them, mapped from [-1, 1] to [0, 1]."""
    return (cosine + 1) / 2


def saturate_bm25(bm25: float, rarest: float) -> float:
    """Return a BM25 score mapped to [0, 1): ``s / (s + c)``, where c is the score of `SATURATION` of the rarest words.

    The form is that of BM25's own term saturation (Robertson & Zaragoza 2009). It keeps the order and needs no highest
    score of the result list, as min-max normalisation would.
    """
    return bm25 / (bm25 + SATURATION * rarest) if bm25 > 0 else 0.0


def mix_cosine(best: _Numbers, first: _Numbers, centroid: _Numbers, weights: FusionWeights) -> _Numbers:
    """Return an item's cosine as the weighted mean of its best passage, first passage and centroid; also of arrays."""
    return (1 - weights.first - weights.centroid) * best + weights.first * first + weights.centroid * centroid


def mix_bm25(best: _Numbers, whole: _Numbers, weights: FusionWeights) -> _Numbers:
    """Return an item's BM25 as the weighted mean of its best passage and of the whole item; also of arrays."""
    return (1 - weights.whole) * best + weights.whole * whole


def passage_legs(hits: Sequence[RankedHit], fusion: Fusion) -> list[list[float]]:
    """Return the shares of 1 in each leg, of passages: by scores, or by ranks where scores are only an order.

    Each passage counts together with its document, as the best one of an item does.
    """
    found, weights = [hit.candidate for hit in hits], fusion.weights
    cosines = [mix_cosine(c.cosine, c.item.first, c.item.centroid, weights) for c in found]
    vectors = [normalise_cosine(cosine) for cosine in cosines]
    words = [saturate_bm25(mix_bm25(c.bm25, c.item.words, weights), fusion.rarest) for c in found]
    if fusion.comparable:
        return [vectors, words]
    return [[reciprocal(rank) if rank else 0.0 for rank in _ranks(hits, leg)] for leg in (vectors, words)]


def _grouped(hits: Iterable[RankedHit], key: Callable[[RankedHit], object]) -> list[list[RankedHit]]:
    """Return the hits in groups of the same key, each group where its first hit was."""
    groups: dict[object, list[RankedHit]] = {}
    for hit in hits:
        groups.setdefault(key(hit), []).append(hit)
    return list(groups.values())


def _fuse_together(candidates: Sequence[RankedHit], depth: int, fusion: Fusion) -> list[RankedHit]:
    by_item = _grouped(_shortlist(candidates, depth), lambda f: (f.rank, f.candidate.ref.key))
    best, weights = [_best_passage(passages, fusion) for passages in by_item], fusion.weights
    items = [f.candidate.item for f in best]
    vectors = [normalise_cosine(mix_cosine(i.best, i.first, i.centroid, weights)) for i in items]
    words = [saturate_bm25(mix_bm25(i.best_words, i.words, weights), fusion.rarest) for i in items]
    legs = zip(vectors, words, _ranks(best, vectors), _ranks(best, words), strict=True)
    return [_rank(f, fusion, *of_item) for f, of_item in zip(best, legs, strict=True)]


def _shortlist(candidates: Sequence[RankedHit], depth: int) -> list[RankedHit]:
    by_cosine = _sort(candidates, lambda c: c.cosine)[:depth]
    by_words = _sort([f for f in candidates if f.candidate.bm25 > 0], lambda c: c.bm25)[:depth]
    # Both lists hold the same objects, so their identity is enough to drop a candidate that both legs found.
    return list({id(f): f for f in [*by_cosine, *by_words]}.values())


def _best_passage(passages: Sequence[RankedHit], fusion: Fusion) -> RankedHit:
    """Return the passage that an item is shown by: the one with the best fused score, the first of several."""
    alpha = fusion.weights.alpha

    def key(f: RankedHit) -> tuple[float, int]:
        words = saturate_bm25(f.candidate.bm25, fusion.rarest)
        return -(alpha * normalise_cosine(f.candidate.cosine) + (1 - alpha) * words), f.candidate.passage.ordinal

    return min(passages, key=key)


def _rank(f: RankedHit, fusion: Fusion, vectors: float, words: float, *ranks: int | None) -> RankedHit:
    """Return an item's hit with its score, from its scores in both legs, in [0, 1], and its ranks there."""
    prior = fusion.recency.factor(f.candidate.signed_at) if fusion.recency else 1.0
    alpha, item = fusion.weights.alpha, f.candidate.item
    if fusion.method == "rrf":  # Σ 1 / (k + rank) (Cormack et al. 2009), scaled so that rank 1 in both legs gives 1
        score = sum(reciprocal(rank) for rank in ranks if rank is not None) / 2
    else:
        score = alpha * vectors + (1 - alpha) * words
    parts = {
        "cosine": f.candidate.cosine, "bm25": f.candidate.bm25, **dict(zip(ITEM_PARTS, item, strict=True)),
        "vectors": vectors, "words": words, "vector_rank": ranks[0], "lexical_rank": ranks[1],
        "alpha": alpha, "fusion": fusion.method, "prior": prior, "plan": f.plan,
    }  # fmt: skip
    return replace(f, score=prior * score, parts=parts)


def _sort(candidates: Sequence[RankedHit], leg: Callable[[Candidate], float]) -> list[RankedHit]:
    return sorted(candidates, key=lambda f: (-leg(f.candidate), *_identity(f)))


def _ranks(found: Sequence[RankedHit], scores: Sequence[float]) -> list[int | None]:
    """Return the rank, from 1, of each; None for one that the leg did not find: in RRF it must gain nothing there."""
    ordered = sorted(range(len(found)), key=lambda n: (-scores[n], *_identity(found[n])))
    by_number = {n: rank for rank, n in enumerate(ordered, start=1) if scores[n] > 0}
    return [by_number.get(n) for n in range(len(found))]


def _identity(found: RankedHit) -> tuple[Any, ...]:
    """Return what orders candidates of equal score, so that the result does not depend on the order of arrival."""
    candidate = found.candidate
    return candidate.ref.item_type, candidate.ref.item_id, candidate.passage.ordinal, found.rank


MAX_BYTES = 1 << 20
SHOWN = 80
"""Characters of a wrong name or value that an error message repeats."""
_HINT = "a JSON file with an object 'weights', or shares such as alpha=0.8,first=0.2"


@lru_cache(maxsize=1)
def default_weights() -> FusionWeights:
    """Return the tuned weights; ``weights.json`` names the queries they were tuned and measured on."""
    text = Path(__file__).with_name("weights.json").read_text(encoding="utf-8")
    return _weights(json.loads(text)["weights"].items(), FusionWeights(0.0))


def read_weights(argument: str) -> FusionWeights:
    """Return weights from a file, or from ``name=share`` pairs over the tuned ones.

    Raises
    ------
    SourceUnreadable
        When the file cannot be read.
    UsageError
        When a name is unknown or occurs twice, or a value is no share.
    """
    if "=" not in argument or os.path.isfile(argument):  # noqa: PTH113  # Path.is_file raises for a name that is too long
        return _weights(_read(Path(argument)).items(), FusionWeights(0.0))
    pairs = [part.partition("=")[::2] for part in argument.split(",")]
    return _weights([(name.strip(), share.strip()) for name, share in pairs], default_weights())


def weights_of(query: SearchQuery) -> FusionWeights:
    """Return the weights of the fusion: the query's, or the tuned ones; the query's alpha replaces theirs."""
    weights = query.weights or default_weights()
    return weights if query.alpha is None else replace(weights, alpha=query.alpha)


def check_weights(weights: FusionWeights) -> FusionWeights:
    """Return `weights` if every share is in [0, 1] and `first` and `centroid` are at most 1 together.

    Raises
    ------
    UsageError
        When they are not.
    """
    for name, share in asdict(weights).items():
        if not 0 <= share <= 1:
            hint = "such as --alpha=0.8: 0 ranks by words alone, 1 by vectors alone" if name == "alpha" else _HINT
            raise UsageError(f"{name} {share:g} is not between 0 and 1", hint=hint)
    if weights.first + weights.centroid > 1 + 1e-9:
        raise UsageError("first and centroid are shares of one leg: together they are over 1", hint=_HINT)
    return weights


def _read(path: Path) -> dict[str, object]:
    shown = str(path)[:SHOWN]
    try:
        with path.open(encoding="utf-8") as file:
            document = json.loads(file.read(MAX_BYTES))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error  # str(error) would repeat the whole name
        raise SourceUnreadable(f"cannot read weights from {shown}: {why}", hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{shown} is not JSON: {error}", hint=_HINT) from error
    weights = document.get("weights") if isinstance(document, dict) else None
    if not isinstance(weights, dict) or "alpha" not in weights:
        raise UsageError(f"{shown} holds no weights", hint=_HINT)
    return weights


def _weights(named: Iterable[tuple[str, object]], base: FusionWeights) -> FusionWeights:
    names, shares = [f.name for f in fields(FusionWeights)], dict[str, float]()
    for name, share in named:
        if name not in names:
            raise UsageError(f"there is no weight {name[:SHOWN]!r}: they are {', '.join(names)}", hint=_HINT)
        if name in shares:
            raise UsageError(f"{name} is given twice", hint=_HINT)
        try:
            shares[name] = float(str(share))
        except ValueError as error:
            raise UsageError(f"{name} {str(share)[:SHOWN]!r} is not a number", hint=_HINT) from error
    return check_weights(replace(base, **shares))
