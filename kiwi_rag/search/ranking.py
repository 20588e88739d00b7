"""Two legs into one score an item. Pure, and independent of the order and the tier in which candidates arrive.

A convex combination of normalised scores (Bruch, Gai, Ingber: "An Analysis of Fusion Functions for Hybrid Retrieval",
ACM TOIS 2023), each normalised by itself and not by what else was found: an item's score is the same whoever stands
beside it, and nobody's hit can push another's down by being there. A cosine goes from -1 to 1. BM25 has no end, so it
is saturated by what one word is worth that stands in a single passage of the collection.

Every candidate carries the scores of both legs, of its passage and of its whole item, so nothing has to be guessed for
a leg that did not find it. Reciprocal rank fusion (Cormack, Clarke, Büttcher, SIGIR 2009) is for stores whose scores
are only an order (`Capabilities.scores`): each tier's items are ranked by themselves, and a leg that did not find an
item gives it nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kiwi_rag.errors import SourceUnreadable, UsageError
from kiwi_rag.model import Candidate, FusionMethod, FusionWeights

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Numbers = TypeVar("_Numbers", "float", "NDArray[np.float64]")

RRF_K = 60
"""The constant of RRF, as its authors have it."""
SATURATION = 3
"""How many of the rarest words make half of the highest score in the words leg."""


@dataclass(frozen=True, slots=True, eq=False)
class TierCandidate:
    """A candidate, and the tier that gave it."""

    tier: str
    rank: int
    plan: str
    candidate: Candidate


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """An item of a tier by its best passage, with the item's fused score in [0, 1] and the parts it is made of."""

    found: TierCandidate
    score: float
    parts: dict[str, Any]


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

    ``rarest`` is what one word can be worth in BM25: `kiwi_rag.lexical.max_term_score` of the statistics that scored
    the candidates. Without a ``recency`` age does not count. Tiers without ``comparable`` scores are ranked one by one.
    """

    weights: FusionWeights
    rarest: float
    method: FusionMethod = "convex"
    recency: Recency | None = None
    comparable: bool = True


@dataclass(frozen=True, slots=True)
class _Legs:
    """An item's score in each leg, each in [0, 1], and its rank there."""

    vectors: float
    words: float
    vector_rank: int | None
    lexical_rank: int | None

    def convex(self, alpha: float) -> float:
        return alpha * self.vectors + (1 - alpha) * self.words

    def reciprocal(self) -> float:
        """Return the RRF score, scaled so that the first of both legs has 1."""
        ranks = [rank for rank in (self.vector_rank, self.lexical_rank) if rank is not None]
        return sum(map(reciprocal, ranks)) / 2


def reciprocal(rank: int) -> float:
    """Return what a rank, from 1, adds to an RRF score: 1 for the first."""
    return (RRF_K + 1) / (RRF_K + rank)


def fuse(found: Sequence[TierCandidate], depth: int, fusion: Fusion) -> list[Scored]:
    """Return the items of the shortlist of both legs, scored, best first: one entry for each tier that has an item.

    Only items with a passage among the best `depth` of a leg over *all* tiers count, as in one index of everything.
    Without comparable scores that is so of each tier.
    """
    ranked_together = [found] if fusion.comparable else _by_tier(found)
    scored = [entry for candidates in ranked_together for entry in _fused(candidates, depth, fusion)]
    return sorted(scored, key=lambda s: (-s.score, *_identity(s.found)))


def _by_tier(found: Sequence[TierCandidate]) -> list[list[TierCandidate]]:
    return [[f for f in found if f.rank == rank] for rank in sorted({f.rank for f in found})]


def _fused(found: Sequence[TierCandidate], depth: int, fusion: Fusion) -> list[Scored]:
    shown = [_best_passage(passages, fusion) for passages in _items(_shortlist(found, depth))]
    return [_scored(f, legs, fusion) for f, legs in zip(shown, _legs(shown, fusion), strict=True)]


def _shortlist(found: Sequence[TierCandidate], depth: int) -> list[TierCandidate]:
    normalise_cosine = _ordered(found, lambda c: c.cosine)[:depth]
    worded = _ordered([f for f in found if f.candidate.bm25 > 0], lambda c: c.bm25)[:depth]
    return list({id(f): f for f in [*normalise_cosine, *worded]}.values())


def _items(shortlist: Iterable[TierCandidate]) -> list[list[TierCandidate]]:
    """Group passages by item and tier."""
    entries: dict[object, list[TierCandidate]] = {}
    for f in shortlist:
        entries.setdefault((f.rank, f.candidate.ref.key), []).append(f)
    return list(entries.values())


def _best_passage(passages: Sequence[TierCandidate], fusion: Fusion) -> TierCandidate:
    """Return the passage that an item is shown by: the one that the legs like best, the first one on a tie."""
    alpha = fusion.weights.alpha

    def key(f: TierCandidate) -> tuple[float, int]:
        score = alpha * normalise_cosine(f.candidate.cosine) + (1 - alpha) * saturated(f.candidate.bm25, fusion.rarest)
        return -score, f.candidate.passage.ordinal

    return min(passages, key=key)


def normalise_cosine(cosine: _Numbers) -> _Numbers:
    """Return a cosine, or an array of them, as a share of 1."""
    return (cosine + 1) / 2


def saturated(bm25: float, rarest: float) -> float:
    """Return a BM25 score as a share of 1: half of it at the worth of `SATURATION` of the rarest words."""
    return bm25 / (bm25 + SATURATION * rarest) if bm25 > 0 else 0.0


def _legs(shown: Sequence[TierCandidate], fusion: Fusion) -> list[_Legs]:
    items, weights = [f.candidate.item for f in shown], fusion.weights
    vectors = [normalise_cosine(mixed_cosine(i.best, i.first, i.centroid, weights)) for i in items]
    words = [saturated(mixed_bm25(i.best_words, i.words, weights), fusion.rarest) for i in items]
    vector_ranks, lexical_ranks = _ranks(shown, vectors), _ranks(shown, words)
    return [
        _Legs(v, w, vector_ranks[n] if v > 0 else None, lexical_ranks[n] if w > 0 else None)
        for n, (v, w) in enumerate(zip(vectors, words, strict=True))
    ]


def mixed_cosine(best: _Numbers, first: _Numbers, centroid: _Numbers, weights: FusionWeights) -> _Numbers:
    """Return an item's cosine by the shares of its best and first passage and of its centroid; of arrays alike."""
    return (1 - weights.first - weights.centroid) * best + weights.first * first + weights.centroid * centroid


def mixed_bm25(best: _Numbers, whole: _Numbers, weights: FusionWeights) -> _Numbers:
    """Return an item's BM25 by the shares of its best passage and of its whole; of arrays alike."""
    return (1 - weights.whole) * best + weights.whole * whole


def _scored(f: TierCandidate, legs: _Legs, fusion: Fusion) -> Scored:
    prior = fusion.recency.factor(f.candidate.signed_at) if fusion.recency else 1.0
    score = legs.reciprocal() if fusion.method == "rrf" else legs.convex(fusion.weights.alpha)
    item = f.candidate.item
    parts = {
        "cosine": f.candidate.cosine,
        "bm25": f.candidate.bm25,
        "best_cosine": item.best,
        "first_cosine": item.first,
        "centroid_cosine": item.centroid,
        "best_bm25": item.best_words,
        "item_bm25": item.words,
        "vectors": legs.vectors,
        "words": legs.words,
        "vector_rank": legs.vector_rank,
        "lexical_rank": legs.lexical_rank,
        "alpha": fusion.weights.alpha,
        "fusion": fusion.method,
        "prior": prior,
        "plan": f.plan,
    }
    return Scored(f, prior * score, parts)


def _ordered(found: Sequence[TierCandidate], leg: Callable[[Candidate], float]) -> list[TierCandidate]:
    return sorted(found, key=lambda f: (-leg(f.candidate), *_identity(f)))


def _ranks(shown: Sequence[TierCandidate], scores: Sequence[float]) -> dict[int, int]:
    """Return position → rank, from 1."""
    ordered = sorted(range(len(shown)), key=lambda n: (-scores[n], *_identity(shown[n])))
    return {n: rank for rank, n in enumerate(ordered, start=1)}


def _identity(found: TierCandidate) -> tuple[Any, ...]:
    candidate = found.candidate
    return candidate.ref.item_type, candidate.ref.item_id, candidate.passage.ordinal, found.rank


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """What the tiers hold under one item id, the tier that shadows the others first."""

    entries: tuple[Scored, ...]

    @property
    def winner(self) -> Scored:
        """The entry that is shown unless it fails verification."""
        return self.entries[0]

    def without_winner(self) -> Group:
        """Return the group with the next tier's entry in front."""
        return Group(self.entries[1:])


def groups(scored: Sequence[Scored]) -> list[Group]:
    """Group scored entries, one a tier, by item; tiers in their order."""
    found: dict[object, list[Scored]] = {}
    for entry in scored:
        found.setdefault(entry.found.candidate.ref.key, []).append(entry)
    return [Group(tuple(sorted(tiers, key=lambda s: s.found.rank))) for tiers in found.values()]


def order(entry: Scored) -> tuple[float, str, str]:
    """Return the sort key of an item: score descending, then type and id."""
    ref = entry.found.candidate.ref
    return -entry.score, ref.item_type.value, ref.item_id


MAX_BYTES = 1 << 20
SHOWN = 80
"""Characters of a wrong name or share that an error repeats."""
_HINT = "a JSON file with an object 'weights', or shares such as alpha=0.8,first=0.2"


@lru_cache(maxsize=1)
def default_weights() -> FusionWeights:
    """Return the tuned weights; their file says on which queries they were tuned, and what they reached on others."""
    text = resources.files("kiwi_rag.search").joinpath("weights.json").read_text(encoding="utf-8")
    return _weights(json.loads(text)["weights"], FusionWeights(0.0))


def read_weights(given: str) -> FusionWeights:
    """Return weights from a file, or from ``name=share`` pairs over the tuned ones.

    Raises
    ------
    SourceUnreadable
        When the file cannot be read.
    UsageError
        When a name is none of the weights or comes twice, or a share is not one.
    """
    if "=" in given and not os.path.isfile(given):  # noqa: PTH113  # Path.is_file raises for a name that is too long
        return _weights(_pairs(given), default_weights())
    return _weights(_read(Path(given)), FusionWeights(0.0))


def check_weights(weights: FusionWeights) -> FusionWeights:
    """Return weights whose every share is in [0, 1], and whose `first` and `centroid` leave room for each other.

    Raises
    ------
    UsageError
        When they are none.
    """
    for name, share in asdict(weights).items():
        if not 0 <= share <= 1:
            raise UsageError(f"{name} {share:g} is not between 0 and 1", hint=_HINT)
    if weights.first + weights.centroid > 1 + 1e-9:
        raise UsageError("first and centroid are shares of one leg: together they are over 1", hint=_HINT)
    return weights


def _pairs(given: str) -> Mapping[str, object]:
    shares: dict[str, object] = {}
    for part in given.split(","):
        name, _, share = (text.strip() for text in part.partition("="))
        if name in shares:
            raise UsageError(f"{name[:SHOWN]} is given twice", hint=_HINT)
        shares[name] = share
    return shares


def _read(path: Path) -> Mapping[str, object]:
    shown = str(path)[:SHOWN]
    try:
        with path.open(encoding="utf-8") as file:
            document = json.loads(file.read(MAX_BYTES))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error  # without the name, which it would repeat whole
        raise SourceUnreadable(f"cannot read weights from {shown}: {why}", hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{shown} is not JSON: {error}", hint=_HINT) from error
    weights = document.get("weights") if isinstance(document, dict) else None
    if not isinstance(weights, dict) or "alpha" not in weights:
        raise UsageError(f"{shown} holds no weights", hint=_HINT)
    return weights


def _weights(named: Mapping[str, object], base: FusionWeights) -> FusionWeights:
    names = [f.name for f in fields(FusionWeights)]
    for name in named:
        if name not in names:
            raise UsageError(f"there is no weight {name[:SHOWN]!r}: they are {', '.join(names)}", hint=_HINT)
    return check_weights(replace(base, **{name: _share(name, share) for name, share in named.items()}))


def _share(name: str, share: object) -> float:
    if not isinstance(share, str | int | float):
        raise UsageError(f"{name} is a {type(share).__name__}, not a number", hint=_HINT)
    try:
        return float(str(share))
    except ValueError as error:
        raise UsageError(f"{name} {str(share)[:SHOWN]!r} is not a number", hint=_HINT) from error
